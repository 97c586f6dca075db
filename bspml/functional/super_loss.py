r"""SuperLoss [Castells 2020]: a loss that weighs each sample by a confidence it works out itself.

For one element with loss l, threshold tau and regularisation lam,

    SL(l) = min over sigma of  sigma (l - tau) + lam (log sigma)^2,       [Castells 2020, eq. (6)]

a minimum with a closed form in Lambert's W [Castells 2020, eq. (10)]:

    beta = (l - tau) / lam,     sigma = e^-W(max(beta, -2/e) / 2).

Left of beta = -2/e there is no local minimum and sigma stays at e.  Putting sigma back in, with
w = W(beta / 2):  SL = lam (w^2 + 2 w) = (l - tau) sigma (1 + w/2), and e (l - tau) + lam where
sigma is held at e.  By the envelope theorem SL'(l) = sigma.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from bspml.errors import InputError
from bspml.functional.lambert import principal_branch
from bspml.shapes import Float, Tensor
from bspml.tensors.arguments import refuse_outside, unreduced
from bspml.tensors.checks import check_number
from bspml.tensors.kernels.device import by_kernel, kernel, runs_triton
from bspml.tensors.kernels.lambert import BRANCH_POINT


def superloss(losses: Tensor, tau: float | Tensor, lam: float) -> Float[Tensor, "*S"]:
    r"""SL of each element; negative for an element whose loss is below `tau`.

    The gradient is the confidence sigma, in (0, e], exactly.  It can be differentiated once more.
    `tau` is a constant: no gradient flows into it.

    Finite for every finite loss wherever the value itself fits the type; no intermediate result
    overflows.  Nothing waits for the device.

    Source: [Castells 2020, eq. (6), (10)].
    Differs: the paper interpolates W in a table; here it is computed.
    Args:
        losses: one loss per element, (B,) or any other shape with elements; computed and returned
            in float32 at least.
        tau: the loss from which on an element counts less than 1; a number, or a tensor that
            broadcasts to the shape of `losses`.
        lam: strength of the regularisation, > 0; the larger, the closer sigma is to 1.
    Raises:
        InputError: `losses` are integers, or reduced already; `lam` is not positive; `tau` does
            not broadcast or, on the CPU, is not finite.
    Example:
        >>> superloss(torch.tensor([0.0, 2.0, 9.0]), tau=math.log(10), lam=1)
        tensor([-5.2591, -0.3299,  3.4393])
    """
    return _SuperLoss.apply(*_arguments(losses, tau, lam)).to(unreduced(losses).dtype)


def superloss_confidence(losses: Tensor, tau: float | Tensor, lam: float) -> Float[Tensor, "*S"]:
    r"""Compute the confidence sigma of each element: e for losses far below `tau`, 1 at `tau`, then
    to 0.

    It carries no gradient: sigma is the weight with which the loss enters, not a function to
    follow.

    Source: [Castells 2020, eq. (10)].
    Args:
        losses: one loss per element, (B,) or any other shape with elements; computed and returned
            in float32 at least.
        tau: the loss from which on an element counts less than 1; a number, or a tensor that
            broadcasts to the shape of `losses`.
        lam: strength of the regularisation, > 0; the larger, the closer sigma is to 1.
    Raises:
        InputError: as `superloss`.
    Example:
        >>> superloss_confidence(torch.tensor([0.0, 2.0, 9.0]), tau=math.log(10), lam=1)
        tensor([2.7183, 1.1989, 0.3306])
    """
    with torch.no_grad():
        return _Confidence.apply(*_arguments(losses, tau, lam)).to(unreduced(losses).dtype)


def _arguments(
    losses: Tensor, tau: float | Tensor, lam: float
) -> tuple[Tensor, float | Tensor, float]:
    """Check losses, tau and lam; the losses come in a type that can hold lam."""
    lam = check_number(lam, "lam", 0, open_low=True)
    losses = unreduced(losses)
    limits = torch.finfo(losses.dtype)
    if not limits.tiny <= lam <= limits.max:
        losses = losses.double()  # so that lam is a number of the type
    if not isinstance(tau, Tensor):
        tau = check_number(tau, "tau")
        if math.isinf(_in_two_parts(tau, losses.dtype)[0]):
            raise InputError(
                f"`tau` must be finite in {losses.dtype}, the type of `losses`; got {tau:g}."
            )
        return losses, tau, lam
    _check_tau(losses, tau)
    return losses, tau.detach(), lam


def _check_tau(losses: Tensor, tau: Tensor) -> None:
    try:
        fits = not tau.ndim or torch.broadcast_shapes(losses.shape, tau.shape) == losses.shape
    except RuntimeError:
        fits = False
    if not fits:
        raise InputError(
            f"`tau` must be one number or broadcast to `losses`, {tuple(losses.shape)}; got "
            f"{tuple(tau.shape)}. Use `.squeeze()` or `.mean()`."
        )
    if tau.is_complex() or tau.dtype == torch.bool:
        raise InputError(f"`tau` must be real numbers; got {tau.dtype}. Cast with `.float()`.")
    if tau.ndim and tau.device != losses.device:
        raise InputError(
            f"`tau` must be on the device of `losses`, {losses.device}; got {tau.device}. "
            "Move it once with `.to(losses.device)`."
        )
    refuse_outside(tau, torch.isfinite, "tau", "be finite", "Look for a diverged loss.")


class _SuperLoss(torch.autograd.Function):
    """SL with the derivative sigma.  Call `apply(losses, tau, lam)`."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, tau: float | Tensor, lam: float) -> Tensor:
        value, sigma = _computed("value_and_sigma", _value_and_sigma, losses, tau, lam)
        ctx.constants = (tau, lam)
        ctx.save_for_backward(losses, sigma)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        losses, sigma = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: sigma must stay a function of the losses
            sigma = _Confidence.apply(losses, *ctx.constants)
        return grad * sigma, None, None


class _Confidence(torch.autograd.Function):
    """sigma with the derivative -sigma^2 / (2 lam (1 + w)), and 0 where it is held at e."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, tau: float | Tensor, lam: float) -> Tensor:
        operations = partial(_slope_and_sigma, slope_wanted=ctx.needs_input_grad[0])
        slope, sigma = _computed("slope_and_sigma", operations, losses, tau, lam)
        ctx.save_for_backward(slope)
        return sigma

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None


def _computed(
    name: str, operations: Callable[..., Any], losses: Tensor, tau: float | Tensor, lam: float
) -> tuple[Any, Tensor]:
    """Compute what `operations` do, on CUDA by the kernel called `name`."""
    if runs_triton(losses, *[t for t in (tau,) if isinstance(t, Tensor)]):
        return by_kernel(kernel(f"super_loss_triton.{name}"), operations, losses, tau, lam)
    return operations(losses, tau, lam)


def _value_and_sigma(
    losses: Float[Tensor, "*S"], tau: float | Tensor, lam: float
) -> tuple[Tensor, Tensor]:
    half, capped, w, _, sigma = _optimum(losses, tau, lam)
    # The two forms of one value: the first does not need lam w, which rounds to 0 with lam
    # large; the second not sigma, whose relative error grows with w.
    value = torch.where(w < 1, half * sigma * (2 + w), lam * w * (w + 2))
    return torch.where(capped, 2 * math.e * half + lam, value), sigma


def _slope_and_sigma(
    losses: Float[Tensor, "*S"], tau: float | Tensor, lam: float, slope_wanted: bool = True
) -> tuple[Tensor | None, Tensor]:
    """Return the derivative of sigma, if `slope_wanted`, and sigma."""
    _, capped, _, one_plus_w, sigma = _optimum(losses, tau, lam)
    if not slope_wanted:
        return None, sigma
    return torch.where(capped, 0, -0.5 * sigma / lam * (sigma / one_plus_w)), sigma


@torch.no_grad()
def _optimum(
    losses: Float[Tensor, "*S"], tau: float | Tensor, lam: float
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return (l - tau)/2, whether sigma is held at e, w, 1 + w and sigma."""
    high, low = _in_two_parts(tau, losses.dtype)
    half = (losses / 2 - high / 2) - low / 2  # l - tau itself may overflow
    y = half / lam
    branch_point = BRANCH_POINT[losses.dtype][0]
    capped = y <= branch_point
    # y may overflow, its logarithm does not.
    log_y = half.clamp(min=torch.finfo(half.dtype).tiny).log_() - math.log(lam)
    w, one_plus_w = principal_branch(y.clamp(min=branch_point), log_y)
    # sigma = e^-w = w/y, of which the quotient keeps its digits when w is large.
    sigma = torch.where(y.abs() < 1e30, torch.where(y == 0, 1, w / y), w / half * lam)
    sigma = torch.where(half == math.inf, 0, torch.where(capped, math.e, sigma))
    return half, capped, w, one_plus_w, sigma


def _in_two_parts(tau: float | Tensor, dtype: torch.dtype) -> tuple[float | Tensor, float | Tensor]:
    """Split tau into a number of the losses' type and the remainder that this leaves."""
    if not isinstance(tau, Tensor):
        high = float(torch.tensor(tau, dtype=dtype))
        return high, tau - high
    high_tau = tau.to(dtype)
    if tau.dtype == torch.float64 and dtype != torch.float64:
        return high_tau, (tau - high_tau.double()).to(dtype)
    return high_tau, 0.0
