"""Losses of pytorch-metric-learning, ready to be called on one small batch."""

import pytorch_metric_learning.losses as pml_losses
import torch

from bspml.losses.bspml_loss import BSPMLLoss
from helpers.draws import around_centres

CLASSES, SIZE = 4, 6
_PROXIES = {"num_classes": CLASSES, "embedding_size": SIZE}
_ARGUMENTS = {
    **{
        f"{name}Loss": _PROXIES
        for name in (
            "ArcFace",
            "CosFace",
            "LargeMarginSoftmax",
            "NormalizedSoftmax",
            "ProxyAnchor",
            "ProxyNCA",
            "SoftTriple",
            "SphereFace",
            "SubCenterArcFace",
        )
    },
    "ManifoldLoss": {"l": SIZE, "K": CLASSES},
    "P2SGradLoss": {"descriptors_dim": SIZE, "num_classes": CLASSES},
    "RankedListLoss": {"margin": 1.0, "Tn": 1.0},
}


def make(name, **kwargs):
    """The loss of that class, with the same parameters at each call, in float64."""
    if name == "BSPMLLoss":
        return BSPMLLoss(**kwargs)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return getattr(pml_losses, name)(**_ARGUMENTS.get(name, {}), **kwargs).double()


def batch(rows=12, seed=0, dtype=torch.float64):
    """Embeddings (B, 6) that want a gradient, and labels sorted by class, equally many of each."""
    labels = torch.arange(rows) * CLASSES // rows
    embeddings = around_centres(labels, SIZE, spread=1.0, seed=seed, dtype=torch.float64)
    return embeddings.to(dtype).requires_grad_(), labels


def value_and_gradient(loss, embeddings, labels, *args, **kwargs):
    """The loss and its gradient by the embeddings."""
    value = loss(embeddings, labels, *args, **kwargs)
    (gradient,) = torch.autograd.grad(value, embeddings)
    return value.detach(), gradient


def elements(loss, embeddings, labels):
    """The plain per-element values of a loss, flat, by sub-loss."""
    terms = loss.compute_loss(embeddings, labels, None, embeddings, labels)
    return {
        name: info["losses"].detach().flatten()
        for name, info in terms.items()
        if isinstance(info["losses"], torch.Tensor)
    }


class FirstColumn(pml_losses.BaseMetricLossFunction):
    """A loss whose values are the first column of the embeddings, (N, 1) as many losses have it."""

    def compute_loss(self, embeddings, labels, indices_tuple, ref_emb, ref_labels):
        rows = torch.arange(len(embeddings), device=embeddings.device)
        return {
            "loss": {
                "losses": embeddings[:, :1],
                "indices": rows,
                "reduction_type": "element",
                "divisor": len(rows),
            }
        }


def column(*losses, dtype=torch.float64):
    """Embeddings whose first column are these losses."""
    return torch.tensor([[x, 0.0] for x in losses], dtype=dtype, requires_grad=True)
