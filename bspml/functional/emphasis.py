r"""Which samples a loss emphasises, and how unevenly: weight curves, emphasis focus and spread.

All members of the family  w(p) = g(beta p^lam (1 - p))  [Wang GR 2019, eq. (6)] as objects that
can be asked for their weights, for the p they emphasise most [Wang GR 2019, definition 1] and for
the variance of their weights [Wang GR 2019, definition 2].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from scipy.integrate import quad
from scipy.special import beta as beta_function

from bspml.errors import InputError
from bspml.functional.gradient_rescaling import check_rescaling, gr_weight
from bspml.shapes import Float, Tensor
from bspml.tensors.arguments import at_least_float32, unreduced
from bspml.tensors.checks import check_number

_SERIES_BELOW = 2.0  # T up to which the difference of two integrals loses digits
_SERIES_TERMS = 30


@dataclass(frozen=True)
class WeightCurve:
    """A member of the family: the L1 norm of a sample's gradient at the logits, over p.

    Attributes:
        beta: >= 0.
        lam: >= 0.
        g: "exp" or "identity".

    Raises:
        InputError: a parameter outside its range, or weights beyond float64.

    Example:
        >>> WeightCurve.imae(T=8)(torch.tensor([0.0, 0.5, 1.0]))
        tensor([1.0000, 7.3891, 1.0000])
        >>> WeightCurve(beta=8, lam=0.5).focus
        0.3333333333333333
    """

    beta: float
    lam: float = 0.0
    g: str = "exp"

    def __post_init__(self) -> None:
        check_rescaling(self.beta, self.lam, self.g, torch.float64)

    @classmethod
    def cross_entropy(cls) -> WeightCurve:
        """Compute 2 (1 - p) [Wang GR 2019, eq. (2)]."""
        return cls(2, 0, "identity")

    @classmethod
    def mae(cls) -> WeightCurve:
        """Compute 4 p (1 - p) [Wang GR 2019, eq. (3)]."""
        return cls(4, 1, "identity")

    @classmethod
    def gce(cls, q: float = 0.7) -> WeightCurve:
        """Compute 2 p^q (1 - p), q from 0 to 1 [Wang GR 2019, eq. (4)]."""
        return cls(2, check_number(q, "q", 0, 1), "identity")

    @classmethod
    def imae(cls, T: float = 8.0) -> WeightCurve:
        """Compute e^{T p (1 - p)} [Wang IMAE 2019, eq. (10)]."""
        return cls(check_rescaling(T, 1, "exp", torch.float64, beta_name="T")[0], 1, "exp")

    def __call__(self, p: float | Tensor) -> Float[Tensor, "*S"]:
        """Compute w(p), see `gr_weight`."""
        return gr_weight(p, self.beta, self.lam, self.g)

    @property
    def focus(self) -> float | None:
        """The p of the largest weight, lam / (1 + lam); None if all weights are equal."""
        return emphasis_focus(self.beta, self.lam)

    def spread(self, p: Tensor | None = None) -> float:
        """Variance of the weights of the samples `p`, or of samples with p uniform in [0, 1].

        Args:
            p: probabilities of the given labels, in [0, 1]; None takes p uniform.

        Source: [Wang GR 2019, definition 2]; for uniform p [Wang IMAE 2019, eq. (12, 13)].
        """
        if p is not None:
            return emphasis_spread(self(p))
        try:
            if self.g == "identity":  # integrals of p^a (1 - p)^b
                mean = self.beta * beta_function(self.lam + 1, 2)
                return self.beta**2 * beta_function(2 * self.lam + 1, 3) - mean**2
            if self.lam == 1:
                return imae_variance(self.beta)
            return _spread_by_quadrature(self.beta, self.lam)
        except OverflowError as err:
            raise InputError(f"`beta` = {self.beta:g} gives a spread beyond float64.") from err


def emphasis_focus(beta: float, lam: float) -> float | None:
    """Compute the p with the largest weight, argmax p^lam (1 - p) = lam / (1 + lam), whatever beta
    > 0.

    Source: [Wang GR 2019, definition 1]: 0 for cross-entropy, 0.5 for MAE, between for GCE.
    Args:
        beta: >= 0.
        lam: >= 0.
    Returns:
        A number in [0, 1), or None at beta = 0, where no sample is emphasised.
    Raises:
        InputError: `beta` or `lam` negative.
    Example:
        >>> emphasis_focus(beta=4, lam=1)
        0.5
    """
    beta, lam = check_number(beta, "beta", 0), check_number(lam, "lam", 0)
    return lam / (1 + lam) if beta else None


def emphasis_spread(weights: Tensor) -> float:
    """Variance of the weights of a batch, divided by B, not B - 1.

    Source: [Wang GR 2019, definition 2].
    Args:
        weights: (B,) floats, B >= 1.
    Raises:
        InputError: no floats, one number, or none.
    Example:
        >>> emphasis_spread(torch.tensor([1.0, 3.0]))
        1.0
    """
    weights = unreduced(weights, "weights")
    if weights.numel() == 0:
        raise InputError("`weights` must hold at least one weight; got none.")
    return float(at_least_float32(weights, "weights").detach().double().var(correction=0))


def imae_variance(T: float) -> float:
    r"""Variance of  e^{T p (1 - p)}  for p uniform in [0, 1].

    sqrt(pi / 2T) erf(sqrt(T/2)) e^{T/2}  -  pi/T erf(sqrt(T)/2)^2 e^{T/2}.

    Both terms approach 1 as T falls, so below T = 2 the series in T replaces their difference.
    T = 8 gives 4.546, the paper's 4.55.

    Source: [Wang IMAE 2019, eq. (15)].
    Raises:
        InputError: `T` negative or beyond 1400, where the variance leaves float64.
    Example:
        >>> round(imae_variance(8), 3)
        4.546
    """
    T = check_number(T, "T", 0, 1400)
    if T < _SERIES_BELOW:
        return math.fsum(float(c) * T**k for k, c in enumerate(_VARIANCE_SERIES))
    first = math.sqrt(math.pi / (2 * T)) * math.erf(math.sqrt(T / 2))
    second = math.pi / T * math.erf(math.sqrt(T) / 2) ** 2
    return (first - second) * math.exp(T / 2)


def _variance_series() -> tuple[Fraction, ...]:
    """Expand var(e^{T u}) in T for u = p (1 - p), whose moments are (k!)^2 / (2k + 1)!.

    E e^{2 T u} - (E e^{T u})^2: the coefficient of T^k / k! is
    2^k m_k - sum_j C(k, j) m_j m_{k-j}.  All are >= 0, so their sum loses nothing.
    """
    m = [Fraction(math.factorial(k) ** 2, math.factorial(2 * k + 1)) for k in range(_SERIES_TERMS)]
    return tuple(
        (2**k * m[k] - sum(math.comb(k, j) * m[j] * m[k - j] for j in range(k + 1)))
        / math.factorial(k)
        for k in range(_SERIES_TERMS)
    )


_VARIANCE_SERIES = _variance_series()


def _spread_by_quadrature(beta: float, lam: float) -> float:
    """Variance of exp(beta p^lam (1 - p)) for p uniform in [0, 1].

    As the mean square of w - mean(w), which does not cancel, w less its largest value, which leaves
    the digits of nearly equal ones.  The integrand has a kink at p = 0 if lam is fractional;
    p = t^4 smooths it.  For a large lam it lives in a sliver below 1, where p^lam is no longer 0.
    """
    focus = lam / (1 + lam)
    top = beta * focus**lam * (1 - focus)  # weights relative to the largest, which may be huge

    def weight(p: float) -> float:
        return math.expm1(beta * p**lam * (1 - p) - top)

    def mean(function: Callable[[float], float]) -> float:
        places = [math.exp(-k / (4 * lam)) for k in (1, 4, 16, 64)] + [focus**0.25] if lam else None
        exactly: Any = {"points": places, "epsabs": 0, "epsrel": 1e-12, "limit": 400}
        return quad(lambda t: 4 * t**3 * function(t**4), 0, 1, **exactly)[0]

    centre = mean(weight)
    return mean(lambda p: (weight(p) - centre) ** 2) * math.exp(2 * top)
