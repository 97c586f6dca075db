"""Losses of pytorch-metric-learning, ready to be called on one small batch."""

from types import SimpleNamespace

import pytest
import pytorch_metric_learning.losses as pml_losses
import torch

from bspml.losses.bspml_loss import BSPMLLoss

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
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) * CLASSES // rows
    centres = torch.randn(CLASSES, SIZE, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, SIZE, generator=generator, dtype=torch.float64)
    embeddings = (centres[labels] + noise).to(dtype)
    return embeddings.requires_grad_(), labels


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


@pytest.fixture(scope="session")
def kit():
    return SimpleNamespace(
        make=make, batch=batch, value_and_gradient=value_and_gradient, elements=elements
    )
