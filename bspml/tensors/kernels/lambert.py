"""Lambert's W one number after the other, for the CPU.

The equations and steps of `bspml.functional.lambert`, which says why they are as they are.  There
each step is an operation on a whole tensor: some ninety starts of a kernel, which for the losses of
a batch cost more than the arithmetic, and both regions are computed for every number.  Here a
number takes its own region only.  All in float64; float32 is rounded once, at the end.
"""

from __future__ import annotations

import math
from typing import no_type_check

import numba
import numpy as np

_HIGH, _LOW = -0.36787944117144233, 1.2428753672788363e-17  # -1/e and what is left of it


@numba.njit(cache=True)
@no_type_check
def fill_branch(x, log_x, lowest, near, huge, steps, start, series, w, one_plus_w):
    """Write W(x) and 1 + W(x) of (n,) numbers.

    log_x: (n,) used where x > huge, or (0,).  lowest: what counts as -1/e; NaN below it.
    near, huge, steps, start, series: the `lambert_constants` of this package.
    """
    given = len(log_x) > 0
    for i in range(len(x)):
        value = np.float64(x[i])
        if value < lowest or np.isnan(value):
            w[i] = one_plus_w[i] = np.nan
        elif value < near:
            v = _near(value, lowest, steps, start, series)
            w[i], one_plus_w[i] = v - 1, v
        elif abs(value) < 5e-17:  # W(x) = x (1 - x + ...)
            w[i], one_plus_w[i] = x[i], 1 + value
        else:
            logarithm = math.log(value) if value > huge and not given else 0.0
            if value > huge and given:
                logarithm = np.float64(log_x[i])
            root = _away(value, logarithm, value > huge, steps)
            w[i], one_plus_w[i] = root, 1 + root


@numba.njit(cache=True)
@no_type_check
def _near(x, lowest, steps, start, series):
    """1 + W(x) left of `near`."""
    if x == lowest:
        return 0.0
    p = math.sqrt(2 * math.e * ((x - _HIGH) - _LOW))
    s = _polynomial(p, start)
    for _ in range(steps):
        v = p * s
        step = (s * s * _polynomial(v, series) - 0.5) / (s * math.exp(v))
        s -= step / (1 - step * (1 + v) / (2 * s))
    return p * s


@numba.njit(cache=True)
@no_type_check
def _away(x, log_x, huge, steps):
    """W(x) right of `near`; x itself is not used where it is huge."""
    log1p = log_x if huge else math.log1p(x)
    if log1p == math.inf:
        return math.inf
    w = log1p * (1 - math.log1p(log1p) / (2 + log1p))
    for _ in range(steps):
        rest = (log_x - math.log(w) if huge else math.log(x / w)) - w
        a = 1 + w
        q = 2 * a * (a + rest * (2 / 3))
        w += w * (rest / a * (q - rest) / (q - 2 * rest))
    return w


@numba.njit(cache=True)
@no_type_check
def _polynomial(x, coefficients):
    total = 0.0
    for k in range(len(coefficients) - 1, -1, -1):
        total = total * x + coefficients[k]
    return total
