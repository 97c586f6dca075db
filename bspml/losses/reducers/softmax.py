"""Gradient rescaling at the logits, where a softmax loss computes its cross-entropy.

    logits (B, C), labels (B,) -> cross-entropy (B,) whose gradient at the logits is
    (w / 2) (-1 at the label, q elsewhere),  q the softmax over the other classes

finite for every gap between the logits, which a factor on the loss's value cannot be: where the
loss rounds to 0 its gradient is 0 too.  [Wang GR 2019]

Most losses call `self.cross_entropy`, which is replaced.  ProxyNCALoss and SoftTripleLoss write
theirs out; the method that does so is replaced on the object (not on the class).
"""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.utils import common_functions as c_f, loss_and_miner_utils as lmu
from torch import nn

from bspml.errors import InputError
from bspml.functional import gr_cross_entropy
from bspml.losses.reducers.catalogue import entry_of
from bspml.shapes import Float, Int, Tensor
from bspml.tensors.arguments import refuse_outside


class RescaledCrossEntropy(nn.Module):
    """Unreduced cross-entropy (B,) with the rescaled gradient.

    Args:
        beta, lam, g: of w(p) = g(beta p^lam (1 - p)).
    """

    def __init__(self, beta: float, lam: float, g: str) -> None:
        super().__init__()
        self.beta, self.lam, self.g = beta, lam, g

    def forward(self, logits: Float[Tensor, "B C"], labels: Int[Tensor, " B"]) -> Tensor:
        """Return (B,) losses.

        Args:
            logits: (B, C).
            labels: (B,) in [0, C).
        """
        with torch.autocast(logits.device.type, enabled=False):
            return gr_cross_entropy(logits, labels, self.beta, self.lam, g=self.g)


class _ProxyNCA:
    """ProxyNCALoss.nca_computation through its logits: minus the scaled distance to each proxy.

    Differs: a sample whose probability rounds to 0 is kept; the original drops it.
    """

    def __init__(self, loss: Any, cross_entropy: RescaledCrossEntropy) -> None:
        self.loss, self.cross_entropy = loss, cross_entropy

    def __call__(
        self,
        query: Tensor,
        reference: Tensor,
        query_labels: Tensor,
        reference_labels: Tensor,
        indices_tuple: Any,
    ) -> dict[str, Any]:
        loss = self.loss
        miner_weights = lmu.convert_to_weights(
            indices_tuple, query_labels, dtype=query.dtype, using_ref=True
        )
        closeness = loss.distance(query, reference)  # (B, C)
        if not loss.distance.is_inverted:
            closeness = -closeness
        losses = self.cross_entropy(loss.softmax_scale * closeness, query_labels)
        return _elements(losses * miner_weights, query)


class _SoftTriple:
    """SoftTripleLoss.compute_loss with the rescaled cross-entropy."""

    def __init__(self, loss: Any, cross_entropy: RescaledCrossEntropy) -> None:
        self.loss, self.cross_entropy = loss, cross_entropy

    def __call__(
        self, embeddings: Tensor, labels: Any, indices_tuple: Any, ref_emb: Any, ref_labels: Any
    ) -> dict[str, Any]:
        loss = self.loss
        c_f.labels_required(labels)
        c_f.ref_not_supported(embeddings, labels, ref_emb, ref_labels)
        loss.cast_types(embeddings.dtype, embeddings.device)
        miner_weights = lmu.convert_to_weights(indices_tuple, labels, dtype=embeddings.dtype)
        closeness = loss.get_logits(embeddings)  # (B, C)
        classes = torch.arange(loss.num_classes, device=closeness.device)
        margin = loss.margin * (labels[:, None] == classes).to(closeness)
        losses = self.cross_entropy(loss.la * (closeness - margin), labels)
        loss_dict = _elements(losses * miner_weights, embeddings)
        loss.add_weight_regularization_to_loss_dict(loss_dict, loss.fc.t())
        return loss_dict


def _elements(losses: Float[Tensor, " B"], embeddings: Tensor) -> dict[str, Any]:
    indices = torch.arange(len(embeddings), device=embeddings.device)
    return {"loss": {"losses": losses, "indices": indices, "reduction_type": "element"}}


# Where the cross-entropy is written out: the method replaced, and what replaces it.
_WRITTEN_OUT = (
    (pml_losses.ProxyNCALoss, "nca_computation", _ProxyNCA),
    (pml_losses.SoftTripleLoss, "compute_loss", _SoftTriple),
)


def num_classes_of(loss: Any) -> int | None:
    """Return how many classes a softmax loss has logits for; None of another or unknown loss."""
    entry = entry_of(loss)
    if entry is None or entry.kind != "logits":
        return None
    proxies = getattr(loss, "proxies", None)  # of ProxyNCALoss: (C, D)
    if isinstance(proxies, Tensor):
        return len(proxies)
    count = getattr(loss, "num_classes", None)
    if not count and isinstance(getattr(loss, "W", None), Tensor):
        count = loss.W.shape[1]  # of NormalizedSoftmaxLoss: (D, C); it records a number of 0
    return count if isinstance(count, int) else None


def check_classes(loss: Any, labels: Any) -> None:
    """Refuse labels that a softmax loss has no logits for; on an accelerator nobody looks.

    Args:
        loss: the loss object.
        labels: (B,) integers, or None.
    """
    classes = num_classes_of(loss)
    if classes is not None and isinstance(labels, Tensor):
        refuse_outside(
            labels,
            lambda given: (given >= 0) & (given < classes),
            "labels",
            f"lie in [0, {classes}), the classes of this loss",
            "Number the classes from 0 and drop samples without a label.",
        )


def rescale_logits(loss: Any, beta: float, lam: float, g: str) -> bool:
    """Rescale at the logits of `loss`, in place.

    Args:
        loss: a loss of the kind "logits".
        beta: size of the emphasis.
        lam: its focus.
        g: "exp" or "identity".

    Returns:
        False, with nothing changed, if the loss computes its cross-entropy in a way unknown here.

    Raises:
        InputError: a cross-entropy with class weights, label smoothing or ignored labels.
    """
    rescaled = RescaledCrossEntropy(beta, lam, g)
    for cls, method, replacement in _WRITTEN_OUT:
        if isinstance(loss, cls):
            if getattr(type(loss), method) is not getattr(cls, method):
                return False
            setattr(loss, method, replacement(loss, rescaled))
            return True
    plain = getattr(loss, "cross_entropy", None)
    if not isinstance(plain, nn.CrossEntropyLoss):
        return False
    if plain.weight is not None or plain.label_smoothing != 0 or plain.ignore_index >= 0:
        raise InputError(
            f"`loss` ({type(loss).__name__}) must have a plain cross-entropy to be rescaled; its "
            "own has class weights, label smoothing or an ignored label."
        )
    loss.cross_entropy = rescaled
    return True


def restore_logits(loss: Any) -> None:
    """Undo `rescale_logits`."""
    for _, method, replacement in _WRITTEN_OUT:
        if isinstance(loss.__dict__.get(method), replacement):
            delattr(loss, method)
    if isinstance(getattr(loss, "cross_entropy", None), RescaledCrossEntropy):
        loss.cross_entropy = nn.CrossEntropyLoss(reduction="none")
