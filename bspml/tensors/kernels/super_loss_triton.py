"""SuperLoss by one kernel written in Triton, for CUDA: what takes torch some two hundred launches.

The equations of `bspml.functional.super_loss`, in float64, rounded once at the end.
"""

from __future__ import annotations

import math
from typing import no_type_check

import torch
import triton
import triton.language as tl

from bspml.shapes import Float, Tensor
from bspml.tensors.kernels.lambert_triton import BLOCK, HIGH, branch

_NUMBER, _ONE, _EACH = 0, 1, 2  # what tau is


def value_and_sigma(
    losses: Float[Tensor, "*S"], tau: float | Tensor, lam: float
) -> tuple[Float[Tensor, "*S"], Float[Tensor, "*S"]]:
    """Compute SL and its derivative sigma, in one launch.

    Args:
        losses: float32 or float64, on a CUDA device.
        tau: a number, or a tensor there that broadcasts to `losses`; it is not looked at.
        lam: > 0.
    """
    return _launch(losses, tau, lam, slope=False)


def slope_and_sigma(
    losses: Float[Tensor, "*S"], tau: float | Tensor, lam: float
) -> tuple[Float[Tensor, "*S"], Float[Tensor, "*S"]]:
    """Compute the derivative of sigma, and sigma, in one launch.

    Args:
        losses: float32 or float64, on a CUDA device.
        tau: a number, or a tensor there that broadcasts to `losses`; it is not looked at.
        lam: > 0.
    """
    return _launch(losses, tau, lam, slope=True)


def _launch(
    losses: Float[Tensor, "*S"], tau: float | Tensor, lam: float, slope: bool
) -> tuple[Float[Tensor, "*S"], Float[Tensor, "*S"]]:
    losses = losses.contiguous()
    first, sigma = torch.empty_like(losses), torch.empty_like(losses)
    if not losses.numel():
        return first, sigma
    number, taus, kind = 0.0, losses, _NUMBER
    if not isinstance(tau, Tensor):
        number = tau
    elif tau.numel() == 1:
        taus, kind = tau, _ONE
    else:
        taus, kind = tau.expand(losses.shape).contiguous(), _EACH
    with torch.cuda.device_of(losses):
        _minimise[(triton.cdiv(losses.numel(), BLOCK),)](
            losses,
            taus,
            first,
            sigma,
            losses.numel(),
            number,
            lam,
            math.log(lam),
            TAU=kind,
            SLOPE=slope,
            SIZE=BLOCK,
        )
    return first, sigma


@triton.jit(do_not_specialize=["n"])
@no_type_check
def _minimise(
    losses_ptr,
    tau_ptr,
    first_ptr,
    sigma_ptr,
    n,
    tau: tl.float64,
    lam: tl.float64,
    log_lam: tl.float64,
    TAU: tl.constexpr,
    SLOPE: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Write sigma of n losses, and first SL or, if SLOPE, the derivative of sigma.

    TAU: 0 the number `tau`, 1 the one at `tau_ptr`, 2 one for each loss there.
    """
    at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
    inside = at < n
    losses = tl.load(losses_ptr + at, mask=inside, other=0).to(tl.float64)
    if TAU == 0:
        half = losses / 2 - tau / 2  # l - tau itself may overflow
    elif TAU == 1:
        half = losses / 2 - tl.load(tau_ptr).to(tl.float64) / 2
    else:
        half = losses / 2 - tl.load(tau_ptr + at, mask=inside, other=0).to(tl.float64) / 2
    y = half / lam
    capped = y - HIGH <= 0  # y at most -1/e
    log_y = tl.log(tl.where(half > 0, half, 1.0)) - log_lam  # y may overflow, its logarithm not
    w, one_plus_w = branch(tl.where(capped, tl.full((SIZE,), HIGH, tl.float64), y), log_y)
    # sigma = e^-w = w/y, of which the quotient keeps its digits when w is large.
    sigma = tl.where(tl.abs(y) < 1e30, tl.where(y == 0, 1.0, w / y), w / half * lam)
    sigma = tl.where(capped, tl.full((SIZE,), 2.718281828459045, tl.float64), sigma)
    sigma = tl.where(half == float("inf"), 0.0, sigma)
    if SLOPE:
        first = tl.where(capped, 0.0, sigma / lam * (sigma / one_plus_w) * -0.5)
    else:
        first = tl.where(w < 1, half * sigma * (2 + w), w * lam * (w + 2))
        first = tl.where(capped, half * 5.43656365691809 + lam, first)  # 2 e
    tl.store(first_ptr + at, first.to(first_ptr.dtype.element_ty), mask=inside)
    tl.store(sigma_ptr + at, sigma.to(sigma_ptr.dtype.element_ty), mask=inside)
