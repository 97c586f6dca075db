r"""Gradient rescaling [Wang GR 2019]: the gradient at the logits gets the length we choose for it.

A sample whose label has the softmax probability p gets the weight

    w(p) = g(beta p^lam (1 - p)),        g = exp or the identity,          [Wang GR 2019, eq. (6)]

which is the L1 norm of its gradient at the logits.  The direction is that of cross-entropy, whose
own weight is 2 (1 - p).  Members, as (beta, lam, g): cross-entropy (2, 0, identity); absolute
error (4, 1, identity); generalised cross-entropy (2, q, identity), the print's beta = 1 in
[Wang GR 2019, eq. (7)] contradicting its own eq. (4); IMAE (T, 1, exp) [Wang IMAE 2019, eq. (10)].
"""

from __future__ import annotations

import math
from typing import Any

import torch

from bspml.errors import InputError
from bspml.functional.label_gap import cross_entropy_of_gap, error_of_gap, label_gap
from bspml.shapes import Float, Tensor
from bspml.tensors.arguments import at_least_float32, refuse_outside
from bspml.tensors.checks import as_numbers, check_choice, check_number

MAPPINGS = ("exp", "identity")  # the names of g


def gr_weight(
    p: float | Tensor, beta: float, lam: float = 0.0, g: str = "exp"
) -> Float[Tensor, "*S"]:
    """Compute w(p) = g(beta p^lam (1 - p)), without a gradient: a weight is not to be followed.

    Source: [Wang GR 2019, eq. (6)].
    Args:
        p: probabilities of the given labels, in [0, 1], any shape or one number; computed and
            returned in float32 at least.
        beta: >= 0, how much the weights spread; 0 treats all samples alike.
        lam: >= 0, where the weight is largest: at p = lam / (1 + lam).
        g: "exp" or "identity".
    Raises:
        InputError: `beta` or `lam` negative, `g` unknown, a weight that would overflow, or, on the
            CPU, `p` outside [0, 1].
    Example:
        >>> gr_weight(torch.tensor([0.0, 0.1, 0.9, 1.0]), beta=8, lam=0.5)
        tensor([1.0000, 9.7458, 2.1360, 1.0000])
    """
    values = p
    if not isinstance(p, Tensor):
        values = as_numbers(p, "p", "probabilities", "Pass a tensor or numbers.")
        values = values.to(torch.get_default_dtype())
    values = at_least_float32(values, "p").detach()
    beta, lam = check_rescaling(beta, lam, g, values.dtype)
    refuse_outside(
        values, lambda p: (p >= 0) & (p <= 1), "p", "lie in [0, 1]", "Pass probabilities."
    )
    # 0^0 is 1 here, as it has to be at lam = 0.
    return _mapped(beta * values.pow(lam) * (1 - values), g)


def gr_cross_entropy(
    logits: Tensor, labels: Tensor, beta: float, lam: float = 0.0, g: str = "exp"
) -> Float[Tensor, " B"]:
    r"""Compute cross-entropy whose gradient at the logits is rescaled to L1 norm w(p), per sample.

    The value is -log p.  The gradient is (w/2) (-1 at y, q_j elsewhere), q the softmax over the
    other classes: that of cross-entropy times w / (2 (1 - p)), without the division of 0 by 0 that
    this becomes when p rounds to 1.  It is finite for all finite logits.

    The gradient is that of the loss  integral from p to 1 of w(s) / (2 s (1 - s)) ds,  which has
    no closed form and, for g = exp, no finite value; `create_graph=True` differentiates this
    gradient correctly.

    Source: [Wang GR 2019, eq. (6)], from eq. (2).
    Args:
        logits: (B, C) floats, C >= 2; computed and returned in float32 at least.
        labels: (B,) integers in [0, C).
        beta: >= 0.
        lam: >= 0.
        g: "exp" or "identity".
    Raises:
        InputError: as `gr_weight`, or shapes, types or, on the CPU, labels that do not fit.
    Example:
        >>> z = torch.tensor([[1.0, 0.0, -1.0]], requires_grad=True)
        >>> gr_cross_entropy(z, torch.tensor([1]), beta=8, lam=0.5).sum().backward()
        >>> z.grad
        tensor([[ 8.7494, -9.9335,  1.1841]])
    """
    gap = label_gap(logits, labels)
    beta, lam = check_rescaling(beta, lam, g, gap.dtype)
    return _Rescaled.apply(gap, beta, lam, g)


def imae(logits: Tensor, labels: Tensor, T: float = 8.0) -> Float[Tensor, " B"]:
    """Improved mean absolute error: `gr_cross_entropy` with beta = T, lam = 1 and g = exp.

    The value is cross-entropy, the weight e^{T p (1 - p)}.

    Source: [Wang IMAE 2019, eq. (10, 11)]; the paper takes T = 8 with noise, 0.5 without.
    Args:
        logits: (B, C) floats, C >= 2; computed and returned in float32 at least.
        labels: (B,) integers in [0, C).
        T: >= 0, how much the weights spread.
    Raises:
        InputError: `T` negative or so large that a weight overflows, or shapes, types or, on the
            CPU, labels that do not fit.
    Example:
        >>> z = torch.tensor([[0.0, 0.0]], requires_grad=True)
        >>> imae(z, torch.tensor([0]), T=4).sum().backward()
        >>> z.grad  # half of e^{T p (1 - p)} = e each
        tensor([[-1.3591,  1.3591]])
    """
    gap = label_gap(logits, labels)
    T, lam = check_rescaling(T, 1.0, "exp", gap.dtype, beta_name="T")
    return _Rescaled.apply(gap, T, lam, "exp")


def check_rescaling(
    beta: float, lam: float, g: str, dtype: torch.dtype, beta_name: str = "beta"
) -> tuple[float, float]:
    """Return `beta` and `lam` as floats, if the largest weight they give fits the type.

    Args:
        beta: >= 0.
        lam: >= 0.
        g: "exp" or "identity".
        dtype: of the weights.
        beta_name: what the caller's argument is called.

    Raises:
        InputError: a parameter outside its range, or a weight that would overflow.
    """
    beta, lam = check_number(beta, beta_name, 0), check_number(lam, "lam", 0)
    check_choice(g, "g", MAPPINGS)
    focus = lam / (1 + lam)
    largest = beta * focus**lam * (1 - focus)
    limit = torch.finfo(dtype).max
    limit = math.log(limit) if g == "exp" else limit
    if largest > limit:
        raise InputError(
            f"`{beta_name}` = {beta:g} overflows {dtype}: at p = {focus:g} the weight would be "
            f"{'exp of ' if g == 'exp' else ''}{largest:g}. Choose a smaller one; the papers use "
            "up to 24."
        )
    return beta, lam


class _Rescaled(torch.autograd.Function):
    """-log p as a function of the gap, with w/2 for its derivative (1 - p)."""

    @staticmethod
    def forward(ctx: Any, gap: Tensor, beta: float, lam: float, g: str) -> Tensor:
        ctx.member = (beta, lam, g)
        ctx.save_for_backward(gap)
        return cross_entropy_of_gap(gap)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (gap,) = ctx.saved_tensors
        return grad * (weight_of_gap(gap, *ctx.member) / 2), None, None, None


def weight_of_loss(
    loss: Float[Tensor, "*S"], beta: float, lam: float, g: str
) -> Float[Tensor, "*S"]:
    """Compute w(p) from l = -log p >= 0, whose 1 - p = -expm1(-l) keeps the digits of a small l.

    Args:
        loss: any shape.
        beta: >= 0.
        lam: >= 0.
        g: "exp" or "identity".
    """
    # Held finite, so that lam = 0 makes its product 0 also at infinity.
    held = loss.clamp(max=torch.finfo(loss.dtype).max)
    return _mapped(beta * -torch.expm1(-held) * torch.exp(-lam * held), g)


def weight_of_gap(gap: Float[Tensor, " B"], beta: float, lam: float, g: str) -> Tensor:
    """Compute w(p) from the gap, so that neither p nor 1 - p is rounded first.

    Args:
        gap: (B,) as `label_gap` returns it.
        beta: >= 0.
        lam: >= 0.
        g: "exp" or "identity".
    """
    # Held finite, so that lam = 0 makes its product 0 also where the gap has overflowed.
    entropy = cross_entropy_of_gap(gap).clamp(max=torch.finfo(gap.dtype).max)
    return _mapped(beta * error_of_gap(gap) * torch.exp(-lam * entropy), g)


def _mapped(scaled: Tensor, g: str) -> Tensor:
    return scaled.exp() if g == "exp" else scaled
