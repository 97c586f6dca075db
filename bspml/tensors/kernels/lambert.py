"""Compute Lambert's W one number after the other, for the CPU; with the constants of all forms.

The equations and steps of `bspml.functional.lambert`, which says why they are as they are.  There
each step is an operation on a whole tensor: some ninety starts of a kernel, which for the losses of
a batch cost more than the arithmetic, and both regions are computed for every number.  Here a
number takes its own region only.  All in float64; float32 is rounded once, at the end.

The constants of all forms stand here: numba keeps compiled kernels until their own file changes,
and so would keep old numbers that came from another one.
"""

from __future__ import annotations

import math
from typing import no_type_check

import numba
import numpy as np
import torch

# -1/e as the nearest number of the type, and what is left.  Both nearest numbers lie below -1/e.
BRANCH_POINT = {
    torch.float64: (-0.36787944117144233, 1.2428753672788363e-17),
    torch.float32: (-0.3678794503211975, 9.149755187e-09),
}
NEAR = -0.31  # left of it the equation in v, right of it the one in w
HUGE = 2.0**64  # from here on log x is what counts, and x may have overflowed
STEPS = 2  # of third order from 1e-2, of fourth order from 9e-2

# v/p at the branch point: 1 - p/3 + ... [Corless 1996].
START = (1.0, -1 / 3, 11 / 72, -43 / 540, 769 / 17280, -221 / 8505)
# f(v)/v^2 = sum_k (k + 1)/(k + 2)! v^k; v <= 0.49, and what is left out is below half a unit.
SERIES = {
    torch.float64: tuple((k + 1) / math.factorial(k + 2) for k in range(15)),
    torch.float32: tuple((k + 1) / math.factorial(k + 2) for k in range(9)),
}

_HIGH, _LOW = BRANCH_POINT[torch.float64]
_SERIES = SERIES[torch.float64]


@numba.njit(cache=True)
@no_type_check
def fill_branch(x, log_x, lowest, w, one_plus_w):
    """Write W(x) and 1 + W(x) of all numbers into `w` and `one_plus_w`.

    Args:
        x: (n,) float32 or float64.
        log_x: (n,) log x, used where x > HUGE, or (0,) where it is to be computed.
        lowest: what counts as -1/e; below it W is NaN.
        w: (n,) of the type of x; written.
        one_plus_w: (n,) likewise.
    """
    has_logarithms = len(log_x) > 0
    for i in range(len(x)):
        value = np.float64(x[i])
        if value < lowest or np.isnan(value):
            w[i] = one_plus_w[i] = np.nan
        elif value < NEAR:
            v = _near(value, lowest)
            w[i], one_plus_w[i] = v - 1, v
        elif abs(value) < 5e-17:  # W(x) = x (1 - x + ...)
            w[i], one_plus_w[i] = x[i], 1 + value
        else:
            logarithm = math.log(value) if value > HUGE and not has_logarithms else 0.0
            if value > HUGE and has_logarithms:
                logarithm = np.float64(log_x[i])
            root = _away(value, logarithm, value > HUGE)
            w[i], one_plus_w[i] = root, 1 + root


@numba.njit(cache=True)
def _near(x, lowest):
    """Compute 1 + W(x) left of NEAR."""
    if x == lowest:
        return 0.0
    p = math.sqrt(2 * math.e * ((x - _HIGH) - _LOW))
    s = _polynomial(p, START)
    for _ in range(STEPS):
        v = p * s
        step = (s * s * _polynomial(v, _SERIES) - 0.5) / (s * math.exp(v))
        s -= step / (1 - step * (1 + v) / (2 * s))
    return p * s


@numba.njit(cache=True)
def _away(x, log_x, huge):
    """Compute W(x) right of NEAR; x itself is not used where it is huge."""
    log1p = log_x if huge else math.log1p(x)
    if log1p == math.inf:
        return math.inf
    w = log1p * (1 - math.log1p(log1p) / (2 + log1p))
    for _ in range(STEPS):
        rest = (log_x - math.log(w) if huge else math.log(x / w)) - w
        a = 1 + w
        q = 2 * a * (a + rest * (2 / 3))
        w += w * (rest / a * (q - rest) / (q - 2 * rest))
    return w


@numba.njit(cache=True)
def _polynomial(x, coefficients):
    """Evaluate a polynomial by Horner's scheme, constant term first."""
    total = 0.0
    for k in range(len(coefficients) - 1, -1, -1):
        total = total * x + coefficients[k]
    return total
