"""Lambert's W by one kernel written in Triton, for CUDA.

The equations and steps of `bspml.functional.lambert`, which says why they are as they are.  All in
float64, as on the CPU; float32 is rounded once, at the end.  That also avoids what Triton takes for
the exponential and the logarithm of float32, approximations: those of float64 are CUDA's, right to
a unit in the last place.  log1p is made of them, so that Triton's interpreter can run it all.

In a kernel a literal that is added to or multiplied with a float64 tensor is float64, but one in a
comparison or in `tl.where` is float32 first: only numbers that are float32, or whose last digits do
not matter, stand there.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl

from bspml.shapes import Float, Tensor
from bspml.tensors.kernels.lambert import BRANCH_POINT, HUGE, NEAR, SERIES, STEPS

BLOCK = 256
_SIZE = tl.constexpr(BLOCK)
HIGH = tl.constexpr(BRANCH_POINT[torch.float64][0])  # -1/e
_LOW = tl.constexpr(BRANCH_POINT[torch.float64][1])
_NEAR, _HUGE, _STEPS = tl.constexpr(NEAR), tl.constexpr(HUGE), tl.constexpr(STEPS)
_TERMS = tl.constexpr(len(SERIES[torch.float64]))


def principal_branch(
    x: Float[Tensor, "*S"], log_x: Float[Tensor, "*S"] | None
) -> tuple[Float[Tensor, "*S"], Float[Tensor, "*S"]]:
    """Compute W(x) and 1 + W(x) in one launch; see `bspml.functional.lambert.principal_branch`.

    Args:
        x: float32 or float64, on a CUDA device.
        log_x: log x, used where x exceeds 2^64; None computes it.
    """
    x = x.contiguous()
    w, one_plus_w = torch.empty_like(x), torch.empty_like(x)
    if x.numel():
        logarithms = x if log_x is None else log_x.expand(x.shape).contiguous()
        with torch.cuda.device_of(x):
            _fill[(triton.cdiv(x.numel(), BLOCK),)](
                x,
                logarithms,
                w,
                one_plus_w,
                x.numel(),
                BRANCH_POINT[x.dtype][0],
                GIVEN=log_x is not None,
            )
    return w, one_plus_w


@triton.jit(do_not_specialize=["n"])
@no_type_check
def _fill(x_ptr, log_x_ptr, w_ptr, one_plus_w_ptr, n, lowest: tl.float64, GIVEN: tl.constexpr):
    """Write W(x) and 1 + W(x) of n numbers; `lowest` counts as -1/e.  GIVEN: log x is."""
    at = tl.program_id(0).to(tl.int64) * _SIZE + tl.arange(0, _SIZE)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside, other=0).to(tl.float64)
    if GIVEN:
        log_x = tl.load(log_x_ptr + at, mask=inside, other=0).to(tl.float64)
    else:
        log_x = tl.log(tl.where(x > _HUGE, x, 1.0))
    w, one_plus_w = branch(tl.where(x - lowest == 0, x * 0 + HIGH, x), log_x)
    tl.store(w_ptr + at, w.to(w_ptr.dtype.element_ty), mask=inside)
    tl.store(one_plus_w_ptr + at, one_plus_w.to(w_ptr.dtype.element_ty), mask=inside)


@triton.jit
@no_type_check
def branch(x, log_x):
    """Compute W(x) and 1 + W(x) inside a kernel.

    Args:
        x: a block of float64 numbers.
        log_x: their logarithms, used where x is huge.
    """
    near = x < _NEAR
    v = _near_branch_point(tl.where(near, x, -0.3125))
    w = _away_from_branch_point(tl.where(near, 1.0, x), log_x)
    return tl.where(near, v - 1, w), tl.where(near, v, w + 1)


@triton.jit
@no_type_check
def _near_branch_point(x):
    """1 + W(x) for -1/e <= x <= -0.31."""
    above = x - HIGH  # exact
    d = tl.where(above == 0, above, above - _LOW)
    p = tl.sqrt(d * 5.43656365691809)  # 2 e
    s = _start(p)
    for _ in tl.static_range(_STEPS):
        v = p * s
        step = (s * s * _series(v) - 0.5) / (s * tl.exp(v))
        s = s - step / (1 - step * (1 + v) / (2 * s))
    return p * s


@triton.jit
@no_type_check
def _away_from_branch_point(x, log_x):
    """W(x) for x >= -0.31."""
    huge = x > _HUGE
    log1p = tl.where(huge, log_x, _log1p(x))
    w = log1p * (1 - _log1p(log1p) / (2 + log1p))
    for _ in tl.static_range(_STEPS):
        log_ratio = tl.log(tl.where(huge, w, x / w))
        rest = tl.where(huge, log_x - log_ratio, log_ratio) - w
        a = 1 + w
        q = 2 * a * (a + rest * (2 / 3))
        w = w + w * (rest / a * (q - rest) / (q - 2 * rest))
    w = tl.where(log1p == float("inf"), float("inf"), w)
    return tl.where(tl.abs(x) < 5e-17, x, w)  # W(x) = x (1 - x + ...)


@triton.jit
@no_type_check
def _log1p(x):
    """log(1 + x) to a few units: what 1 + x rounds away is put back by x / ((1 + x) - 1)."""
    u = 1 + x
    return tl.where(u == 1, x, tl.log(u) * (x / (u - 1)))


@triton.jit
@no_type_check
def _start(p):
    """v/p at the branch point, to 1 %."""
    high = 11 / 72 + p * (-43 / 540 + p * (769 / 17280 - p * (221 / 8505)))
    return 1 + p * (-1 / 3 + p * high)


@triton.jit
@no_type_check
def _series(v):
    """f(v) / v^2 = sum over k of (k + 1)/(k + 2)! v^k, by the ratios of neighbouring terms."""
    total = v * 0 + 1
    for k in tl.static_range(_TERMS - 1, 0, -1):
        total = 1 + total * v * ((k + 1) / (k * (k + 2)))
    return total / 2
