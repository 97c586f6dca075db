r"""The one number that the softmax losses depend on: how far the other classes are ahead.

With logits z and label y the gap is  delta = log sum_{j != y} e^{z_j} - z_y.  Then, p being the
softmax probability of the label,

    p = s(-delta),    1 - p = s(delta),    -log p = log(1 + e^delta),    s the logistic function,

each computed from delta to its own last digits, where 1 - p from a rounded p has none left for
an easy sample, and p from a softmax none for a hard one.  The gradient of delta at the logits is
-1 at y and q_j elsewhere, q the softmax over the other classes: its L1 norm is 2 whatever the
logits, so a loss h(delta) has the gradient h'(delta) (-1, q), of L1 norm 2 |h'(delta)|.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import logsigmoid

from bspml.errors import InputError
from bspml.shapes import Float, Int, Tensor
from bspml.tensors.arguments import at_least_float32
from bspml.tensors.checks import some_of


def label_gap(logits: Tensor, labels: Tensor) -> Float[Tensor, " B"]:
    """Compute delta of each sample, differentiable twice by the logits.

    Its gradient is finite for every finite logits, also where the difference of two logits
    overflows and delta itself is infinite.

    Args:
        logits: (B, C) floats, C >= 2; half precision is computed in float32.
        labels: (B,) integers in [0, C).

    Raises:
        InputError: another shape or type, fewer than two classes, or, on the CPU, a label outside
            [0, C); an accelerator stops with its own error there.
    """
    logits = at_least_float32(logits, "logits")
    return _LabelGap.apply(logits, check_labels(logits, labels))


def check_labels(logits: Tensor, labels: Any) -> Int[Tensor, " B"]:
    """Return `labels` as int64, one per row of `logits` and each the number of a column.

    Args:
        logits: (B, C) floats.
        labels: (B,) integers in [0, C).

    Raises:
        InputError: as `label_gap`.
    """
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise InputError(
            f"`logits` must be (B, C), one column per class and at least two; got "
            f"{tuple(logits.shape)}."
        )
    if not isinstance(labels, Tensor) or labels.is_floating_point() or labels.is_complex():
        kind = labels.dtype if isinstance(labels, Tensor) else type(labels).__name__
        raise InputError(f"`labels` must be a tensor of class numbers; got {kind}.")
    if labels.shape != logits.shape[:1] or labels.dtype == torch.bool:
        raise InputError(
            f"`labels` must be integers, (B,) = ({len(logits)},) like the rows of `logits`; got "
            f"{labels.dtype}, {tuple(labels.shape)}."
        )
    if labels.device != logits.device:
        raise InputError(
            f"`labels` must be on the device of `logits`, {logits.device}; got {labels.device}."
        )
    labels = labels.long()
    if labels.device.type == "cpu":
        outside = (labels < 0) | (labels >= logits.shape[1])
        if outside.any():
            rows = outside.nonzero()[:, 0]
            raise InputError(
                f"`labels` must lie in [0, {logits.shape[1]}), the columns of `logits`; got "
                f"{int(labels[rows[0]])} (rows {some_of(rows)}). No value means 'ignore': drop "
                "such rows from both."
            )
    return labels


class _LabelGap(torch.autograd.Function):
    """delta with the gradient (-1 at y, q elsewhere)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        ctx.save_for_backward(logits, labels)
        # Relative to the label's logit, so that an offset common to all logits costs no digits.
        ahead = logits - logits.gather(1, labels[:, None])
        return _without_label(ahead, labels).logsumexp(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        logits, labels = ctx.saved_tensors
        others = _without_label(logits, labels).softmax(1)  # 0 at y
        return grad[:, None] * others.scatter(1, labels[:, None], -1.0), None


def _without_label(logits: Float[Tensor, "B C"], labels: Int[Tensor, " B"]) -> Tensor:
    return logits.scatter(1, labels[:, None], float("-inf"))


def cross_entropy_of_gap(gap: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Compute -log p."""
    return 0.0 - logsigmoid(-gap)  # not -logsigmoid, which is -0 for p = 1


def error_of_gap(gap: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Compute 1 - p.  Through its logarithm: the derivative of a sigmoid near 1 has lost its
    digits."""
    return logsigmoid(gap).exp()
