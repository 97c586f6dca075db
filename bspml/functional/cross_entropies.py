"""The losses that gradient rescaling compares: absolute error, generalised and truncated.

All per sample, all functions of the label's probability p, computed from the logits so that they
keep their digits and their gradients at both ends, p -> 0 and p -> 1.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from bspml.functional.label_gap import cross_entropy_of_gap, error_of_gap, label_gap
from bspml.shapes import Float, Tensor
from bspml.tensors.checks import check_number


def mae(logits: Tensor, labels: Tensor) -> Float[Tensor, " B"]:
    """Mean absolute error of the softmax:  sum_j |p_j - [j = y]| = 2 - 2 p, in [0, 2].

    The gradient at the logits has L1 norm 4 p (1 - p).  Some write 1 - p, half of this.

    Source: [Wang GR 2019, eq. (3)], [Wang IMAE 2019, eq. (2)].
    Args:
        logits: (B, C) floats, C >= 2; computed and returned in float32 at least.
        labels: (B,) integers in [0, C).
    Raises:
        InputError: another shape or type, or, on the CPU, a label outside [0, C).
    Example:
        >>> mae(torch.tensor([[0.0, 0.0], [1.0, -1.0]]), torch.tensor([0, 1]))
        tensor([1.0000, 1.7616])
    """
    return 2 * error_of_gap(label_gap(logits, labels))


def gce(logits: Tensor, labels: Tensor, q: float = 0.7) -> Float[Tensor, " B"]:
    """Generalised cross-entropy  L_q = (1 - p^q) / q:  cross-entropy at q = 0, 1 - p at q = 1.

    The gradient at the logits has L1 norm 2 p^q (1 - p).  Continuous in q down to 0, also in
    float32, where the formula as printed loses all digits.

    Source: [Zhang & Sabuncu 2018]; [Wang GR 2019, eq. (4)].
    Args:
        logits: (B, C) floats, C >= 2; computed and returned in float32 at least.
        labels: (B,) integers in [0, C).
        q: in [0, 1].
    Raises:
        InputError: as `mae`, or `q` outside [0, 1].
    Example:
        >>> gce(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), q=0.5)
        tensor([0.5858])
    """
    q = check_number(q, "q", 0, 1)
    return Tempered.apply(cross_entropy_of_gap(label_gap(logits, labels)), q)


def truncated_gce(
    logits: Tensor, labels: Tensor, q: float = 0.7, k: float = 0.5
) -> Float[Tensor, " B"]:
    """Compute L_q(p) for p > k; for p <= k the constant L_q(k), without a gradient.  Never
    negative.

    Source: [Wang GR 2019, eq. (5)], where k = 0.5; [Zhang & Sabuncu 2018].
    Args:
        logits: (B, C) floats, C >= 2; computed and returned in float32 at least.
        labels: (B,) integers in [0, C).
        q: in [0, 1].
        k: in [0, 1]; 0 truncates nothing, 1 everything.
    Raises:
        InputError: as `mae`, or `q` or `k` outside [0, 1].
    Example:
        >>> truncated_gce(torch.tensor([[0.0, 2.0]]), torch.tensor([0]), q=1, k=0.5)
        tensor([0.5000])
    """
    q, k = check_number(q, "q", 0, 1), check_number(k, "k", 0, 1)
    entropy = cross_entropy_of_gap(label_gap(logits, labels))
    if k == 0:
        return Tempered.apply(entropy, q)
    # min(-log p, -log k) with no gradient at a tie, p = k, which counts as truncated.
    most = -math.log(k)
    return Tempered.apply(torch.where(entropy < most, entropy, most), q)


class Tempered(torch.autograd.Function):
    """(1 - e^{-q a}) / q for a >= 0, a itself at q = 0; the derivative is e^{-q a}.

    Call `apply(a, q)`, q >= 0.  Relative accuracy for every q and a.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, q: float) -> Tensor:
        """Compute (1 - e^{-q a}) / q elementwise.

        Args:
            ctx: what the derivative needs.
            a: >= 0, any shape.
            q: >= 0.
        """
        limits = torch.finfo(a.dtype)
        if q * limits.max < limits.eps / 4:  # no finite a can tell q from 0
            q = 0.0
        ctx.q = q
        ctx.save_for_backward(a)
        if q == 0:
            return a.clone()
        # As  a phi(q a), phi(u) = (1 - e^-u) / u,  which needs no division by a q that may be
        # subnormal; for large u by the formula, as a may be infinite.
        u = q * a
        phi = torch.where(u == 0, 1, -torch.expm1(-u) / u)
        return torch.where(u > 1, -torch.expm1(-u) / q, a * phi)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Multiply the gradient by e^{-q a}; itself differentiable.

        Args:
            ctx: as `forward` left it.
            grad: of the shape of `a`.
        """
        (a,) = ctx.saved_tensors
        return grad * torch.exp(-ctx.q * a) if ctx.q else grad, None
