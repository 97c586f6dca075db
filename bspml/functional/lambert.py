r"""The principal branch of Lambert's W on tensors: on any device, without a table, without waiting.

W(x) is the solution w >= -1 of  w e^w = x  for x >= -1/e.  Two regions, each with an equation
that is well conditioned there and a fixed number of steps:

x < -0.31.  With v = 1 + w and d = x + 1/e the equation reads  f(v) = 1 + (v - 1) e^v = e d, where
f(v) = v^2/2 + v^3/3 + v^4/8 + ...  Its root behaves like p = sqrt(2 e d), so v = p s with
s^2 f(v)/v^2 = 1/2, which is smooth up to the branch point: s = 1 - p/3 + 11/72 p^2 - ... there.
f(v)/v^2 is a series of positive terms, so nothing cancels, and 1 + w keeps all its digits where w
is close to -1; the derivative needs them.

x >= -0.31.  Fritsch's iteration on  w + log(w/x) = 0, of fourth order.

On the CPU both are computed number by number, by the same steps: see
`bspml.tensors.kernels.lambert`; on CUDA, where Triton runs, likewise by one kernel:
`bspml.tensors.kernels.lambert_triton`.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from bspml.shapes import Float, Tensor
from bspml.tensors.arguments import at_least_float32, refuse_outside
from bspml.tensors.kernels.device import by_kernel, kernel, runs_triton
from bspml.tensors.kernels.lambert import (
    BRANCH_POINT,
    HUGE,
    NEAR,
    SERIES,
    START,
    STEPS,
    fill_branch,
)


def lambertw(x: Tensor) -> Float[Tensor, "*S"]:
    r"""Compute W(x), the w >= -1 with  w e^w = x, elementwise and differentiable twice.

    Within 4 units in the last place in float32 and 1e-14 (relative) in float64, also at the branch
    point.  W'(x) = W / (x (1 + W)) is infinite at -1/e, as it must be: clamp before calling, or
    mask the gradient, where that point can occur.

    The number nearest to -1/e in the type of `x` counts as -1/e itself, W = -1, though it may lie
    a rounding below.

    Source: [Corless 1996]; the iteration is that of [Fritsch 1973].
    Args:
        x: numbers >= -1/e, any shape; half precision is computed in float32.
    Returns:
        W(x), of the shape of `x`, float32 or float64.
    Raises:
        InputError: `x` is no floating tensor, or, on the CPU, a value lies below -1/e.  On an
            accelerator such a value gives NaN: looking would make the caller wait.  NaN gives NaN.
    Example:
        >>> lambertw(torch.tensor([0.0, 1.0, math.e]))
        tensor([0.0000, 0.5671, 1.0000])
    """
    values = x
    x = at_least_float32(x, "x")
    lowest = float(torch.tensor(-1 / math.e, dtype=values.dtype))  # in the caller's type
    refuse_outside(
        x,
        lambda values: ~(values < lowest),
        "x",
        "be at least -1/e = -0.367879...",
        "W is not real below it.",
    )
    branch_point = BRANCH_POINT[x.dtype][0]
    if lowest < branch_point:  # half precision rounds -1/e further down
        x = torch.where((x >= lowest) & (x < branch_point), branch_point, x)
    return _LambertW.apply(x)


class _LambertW(torch.autograd.Function):
    """W with the derivative W / (x (1 + W))."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        w, one_plus_w = principal_branch(x)
        # Not w itself: a caller may change in place what it gets.
        ctx.save_for_backward(x, _slope(x, w, one_plus_w))
        return w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: the slope must stay a function of x
            slope = _Slope.apply(x)
        return grad * slope


class _Slope(torch.autograd.Function):
    """W' with the derivative W'' = -W'^2 (2 + W) / (1 + W), from W' = e^-W / (1 + W)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        w, one_plus_w = principal_branch(x)
        slope = _slope(x, w, one_plus_w)
        ctx.save_for_backward(-slope.square() * (2 + w) / one_plus_w)
        return slope

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (curvature,) = ctx.saved_tensors
        return grad * curvature


def _slope(
    x: Float[Tensor, "*S"], w: Float[Tensor, "*S"], one_plus_w: Float[Tensor, "*S"]
) -> Tensor:
    slope = torch.where(x == 0, 1, w / x) / one_plus_w
    return torch.where(x == math.inf, 0, slope)


@torch.no_grad()
def principal_branch(
    x: Float[Tensor, "*S"], log_x: Float[Tensor, "*S"] | None = None
) -> tuple[Float[Tensor, "*S"], Float[Tensor, "*S"]]:
    """Compute W(x) and 1 + W(x), each to its own last digits; NaN below -1/e.

    Args:
        x: float32 or float64.
        log_x: log x where x exceeds 2^64, also for an x that overflowed to infinity; elsewhere
            ignored.
    """
    if x.device.type == "cpu" and type(x) is Tensor:  # not a pretended one, which has no numbers
        return _number_by_number(x, log_x)
    if runs_triton(x):
        return by_kernel(kernel("lambert_triton.principal_branch"), _all_at_once, x, log_x)
    return _all_at_once(x, log_x)


def _number_by_number(
    x: Float[Tensor, "*S"], log_x: Float[Tensor, "*S"] | None
) -> tuple[Float[Tensor, "*S"], Float[Tensor, "*S"]]:
    """Compute `principal_branch` on the CPU."""
    shape, x = x.shape, x.contiguous()
    w, one_plus_w = torch.empty_like(x), torch.empty_like(x)
    log = x.new_empty(0) if log_x is None else log_x.expand(shape).contiguous()
    fill_branch(
        *(t.detach().reshape(-1).numpy() for t in (x, log)),
        BRANCH_POINT[x.dtype][0],
        *(t.reshape(-1).numpy() for t in (w, one_plus_w)),
    )
    return w, one_plus_w


def _all_at_once(
    x: Float[Tensor, "*S"], log_x: Float[Tensor, "*S"] | None
) -> tuple[Float[Tensor, "*S"], Float[Tensor, "*S"]]:
    """Compute `principal_branch` by operations on whole tensors, for any device."""
    near = x < NEAR
    v = _near_branch_point(torch.where(near, x, NEAR))
    w = _away_from_branch_point(torch.where(near, 1, x), log_x)
    return torch.where(near, v - 1, w), torch.where(near, v, w + 1)


def _near_branch_point(x: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """Compute 1 + W(x) for -1/e <= x <= -0.31."""
    high, low = BRANCH_POINT[x.dtype]
    # x and -1/e are within a factor of 2, so x - high is exact [Sterbenz 1974].
    d = torch.where(x == high, 0, (x - high) - low)
    p = (2 * math.e * d).sqrt_()
    s = _polynomial(p, START)
    for _ in range(STEPS):  # Halley's; the derivative of s^2 f(v)/v^2 by s is s e^v
        v = p * s
        exp_v = v.exp()
        step = (s * s * _polynomial(v, SERIES[x.dtype]) - 0.5) / (s * exp_v)
        s = s - step / (1 - step * (1 + v) / (2 * s))
    return p * s


def _away_from_branch_point(
    x: Float[Tensor, "*S"], log_x: Float[Tensor, "*S"] | None
) -> Float[Tensor, "*S"]:
    """Compute W(x) for x >= -0.31."""
    huge = x > HUGE
    if log_x is None:
        log_x = x.log()  # NaN left of 0, where it is not used
    log1p = torch.where(huge, log_x, x.log1p())
    w = log1p * (1 - log1p.log1p() / (2 + log1p))  # within 9 %
    for _ in range(STEPS):
        log_ratio = torch.where(huge, w, x / w).log_()
        rest = torch.where(huge, log_x - log_ratio, log_ratio) - w
        a = 1 + w
        q = 2 * a * (a + rest * (2 / 3))
        w = w + w * (rest / a * (q - rest) / (q - 2 * rest))
    w = torch.where(log1p == math.inf, math.inf, w)
    # W(x) = x (1 - x + ...): x itself to its last digit, 0 and the subnormal numbers among them,
    # which log1p may flush to 0.
    return torch.where(x.abs() < torch.finfo(x.dtype).eps / 4, x, w)


def _polynomial(x: Float[Tensor, "*S"], coefficients: tuple[float, ...]) -> Float[Tensor, "*S"]:
    """Evaluate a polynomial by Horner's scheme, constant term first."""
    total = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total.mul_(x).add_(coefficient)
    return total
