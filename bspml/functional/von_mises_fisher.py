r"""The von Mises-Fisher distribution: directions that gather around a mean direction.

    log f(x) = kappa <mu, x> + log C(kappa),   C(kappa) = kappa^nu / ((2 pi)^(D/2) I_nu(kappa)),

for unit vectors x of D numbers, nu = D/2 - 1, I_nu the modified Bessel function.  kappa = 0 is
uniform over the sphere; the larger, the tighter.
"""

from __future__ import annotations

import math

import torch
from scipy.special import ive

from bspml.shapes import Float, Tensor
from bspml.tensors.precision import float64_device

# From this order on Debye's expansion is right to 2e-7; scipy's values underflow far above it.
_DEBYE_FROM = 20.0
_UNIFORM = 1e-6  # the smallest kappa that is computed: below, the density is flat to rounding
_TIGHTEST = 0.999  # of the squared resultant length: kappa <cos> keeps two decimals in float32


def concentration(squared_length: Tensor, dim: int) -> Float[Tensor, "*S"]:
    """Estimate kappa from the length R of the mean of unit vectors:  R (D - R^2) / (1 - R^2).

    Source: [Banerjee 2005], eq. for the approximate maximum of the likelihood.

    Args:
        squared_length: R^2, any shape; taken within [0, 0.999].
        dim: D.

    Example:
        >>> concentration(torch.tensor([0.0, 0.25]), dim=16)
        tensor([ 0.0000, 10.5000])
    """
    squared = squared_length.clamp(0, _TIGHTEST)
    return squared.sqrt() * (dim - squared) / (1 - squared)


def log_density(cosine: Tensor, kappa: Tensor, dim: int) -> Float[Tensor, "B C"]:
    """Compute log f of B unit vectors under C distributions, finite for every kappa >= 0.

    Args:
        cosine: (B, C) of each vector to each mean direction.
        kappa: (C,) concentrations.
        dim: D, numbers of a vector.

    Example:
        >>> tight = log_density(torch.tensor([[1.0], [0.0]]), torch.tensor([2.0]), dim=3)
        >>> (tight[0] - tight[1]).item()
        2.0
    """
    exact = float64_device(kappa).double().clamp(min=_UNIFORM)
    order = dim / 2 - 1
    at_mode = order * exact.log() - dim / 2 * math.log(2 * math.pi) - _log_bessel(order, exact)
    return kappa * (cosine - 1) + at_mode.to(cosine)


def _log_bessel(order: float, x: Float[Tensor, " C"]) -> Float[Tensor, " C"]:
    """Compute log(e^-x I_order(x)) in float64."""
    if order < _DEBYE_FROM:
        return torch.from_numpy(ive(order, x.cpu().numpy())).to(x.device).log()
    z = x / order
    s = (1 + z * z).sqrt()
    p = 1 / s
    # Digital Library of Mathematical Functions, 10.41.3: the exponent, then the series U_k / nu^k.
    # s - z = 1 / (s + z): their difference would cancel for large z.
    exponent = order * (1 / (s + z) + (z / (1 + s)).log())
    u1 = (3 * p - 5 * p**3) / 24
    u2 = (81 * p**2 - 462 * p**4 + 385 * p**6) / 1152
    u3 = (30375 * p**3 - 369603 * p**5 + 765765 * p**7 - 425425 * p**9) / 414720
    series = u1 / order + u2 / order**2 + u3 / order**3
    return exponent - 0.5 * (2 * math.pi * order * s).log() + series.log1p()
