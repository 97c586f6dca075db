"""The constants of Lambert's W, read by `bspml.functional.lambert` and by its two kernels."""

from __future__ import annotations

import math

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
