"""Exact cyclic coordinate minimisation of the weight problem, with a second-order certificate.

Once the sums of each class and over the classes are kept, the derivative along one weight costs
O(1) and its exact minimiser is a clipped step.  A sweep visits the weights class by class, in the
order in which they first appear, so that names play no part.  Three exact moves, none of which can
raise the objective:

1. one weight: clipped Newton step if the balance term curves L along it, else the lower end;
2. two fractional weights i, j of one class, moved by +t and -t.  The class mean, so the balance
   term, stays; with g = N_c dL/dw,
   N_c (L(t) - L(0)) = (g_i - g_j) t - (xi_pos_i + xi_pos_j)/(N_c - 1) t^2.
   For xi_pos_i + xi_pos_j >= 0 this is concave: the lower end takes at least one to a bound.
   Else (shifted statistics) it is convex, and the move goes to its minimum;
3. one fractional weight of every class at once (`bspml.weights.face`).  The balance term ties all
   class means together, so that moves 1 alone creep along their common direction.

Source: replaces [Zhang 2023] Algorithm 3, which estimates the same derivative from samples.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numba
import numpy as np

from bspml.weights.face import Face
from bspml.weights.problem import Outcome, WeightProblem

# A sweep that moves no weight by more than this only shuffles rounding errors.
_ROUNDING = 8 * np.finfo(np.float64).eps
# Weights this close to a bound got there by rounding; callers compare with 0 to leave samples out.
_DUST = 1e-12
# A sweep in which no weight moves by more than this has mostly found which weights are fractional.
_SETTLED = 0.5


class Point(NamedTuple):
    """First-order facts at one point; see `measure`."""

    residual: float
    free: np.ndarray
    slope: np.ndarray
    crowded: int
    degenerate: int


def minimise_by_coordinates(
    problem: WeightProblem, start: np.ndarray, tol: float, max_sweeps: int
) -> Outcome:
    """Sweep from `start` (N,) until the scaled stationarity is at most `tol`, then certify.

    Returns:
        `Outcome` with status
        - local_minimum: stationary, every weight at a bound but at most one per class, those at a
          bound pushed against it, and L not curved down over the fractional ones;
        - stationary: first-order point without that certificate; the message says what is missing;
        - precision_limit: the sweeps stopped moving above `tol`, by rounding;
        - max_sweeps: out of sweeps.
    """
    data = problem.class_sorted
    args = (data.xi_pos, data.xi_neg, data.starts, problem.age, problem.balance)
    w = np.ascontiguousarray(start[data.order])
    status, message = "max_sweeps", ""
    sweeps = 0
    for sweeps in range(1, max_sweeps + 1):
        moved = sweep(w, *args)
        # While weights still cross the box there is nothing to measure.
        if moved >= _SETTLED and sweeps < max_sweeps:
            continue
        point = Point(*measure(w, *args, tol))
        face = Face.of(problem, point.free, point.slope)
        if point.residual <= tol:
            if _leave_saddle(w, face):
                continue
            clean = np.where(w < _DUST, 0.0, np.where(w > 1 - _DUST, 1.0, w))
            if measure(clean, *args, tol)[0] <= tol:
                w = clean
            status, message = _certify(point, face)
            break
        # Newton steps taken while weights still cross the box settle on worse minima.
        jumped = moved < _SETTLED and face.step(w, face.newton_direction())
        if not jumped and moved <= _ROUNDING:
            status = "precision_limit"
            message = (
                f"Rounding stops the sweeps at a residual of {point.residual:.1e} > tol={tol:g}. "
                f"Scale down `balance` and the statistics, or raise `tol`."
            )
            break
    if status == "max_sweeps":
        message = (
            f"Residual {point.residual:.1e} > tol={tol:g} after {max_sweeps} sweeps. Raise "
            "`max_sweeps`, or go on from these weights with `start=`."
        )
    weights = np.empty_like(w)
    weights[data.order] = w
    return Outcome(weights, sweeps, status, message)


def _leave_saddle(w: np.ndarray, face: Face) -> bool:
    """Move `w` along a direction of negative curvature, if there is one; say whether it moved."""
    if face.is_semidefinite():
        return False
    direction = face.negative_direction()
    return direction is not None and face.step(w, direction)


def _certify(point: Point, face: Face) -> tuple[str, str]:
    if point.crowded:
        return "stationary", (
            f"First-order point; {point.crowded} classes hold several fractional weights "
            "(xi_pos <= 0 there), so it is not certified as a local minimum."
        )
    if point.degenerate:
        return "stationary", (
            f"First-order point; {point.degenerate} weights at a bound have a zero derivative "
            "(ties), so it is not certified as a local minimum."
        )
    if not face.is_semidefinite():
        return "stationary", "First-order point; it may be a saddle between classes."
    return "local_minimum", "No feasible move close by lowers the objective."


@numba.njit(cache=True)
@no_type_check
def class_sums(w, xi_pos, xi_neg, starts):
    """Per class zeta = sum w, A = sum w xi_pos, b = mean of w xi_neg; M = sum m_c, B = sum b."""
    C = len(starts) - 1
    zeta, A, b = np.zeros(C), np.zeros(C), np.zeros(C)
    M, B = 0.0, 0.0
    for c in range(C):
        for i in range(starts[c], starts[c + 1]):
            zeta[c] += w[i]
            A[c] += w[i] * xi_pos[i]
            b[c] += w[i] * xi_neg[i]
        b[c] /= starts[c + 1] - starts[c]
        M += zeta[c] / (starts[c + 1] - starts[c])
        B += b[c]
    return zeta, A, b, M, B


@numba.njit(cache=True)
@no_type_check
def sweep(w, xi_pos, xi_neg, starts, age, balance):
    """Moves 1 and 2 over every class once, in place; returns the largest change of one weight.

    The running sums start afresh in each sweep, so their rounding errors cannot build up.
    """
    C = len(starts) - 1
    zeta, A, b, M, B = class_sums(w, xi_pos, xi_neg, starts)
    inv_c = 1.0 / (C - 1) if C > 1 else 0.0
    if C == 1:
        balance = 0.0
    moved = 0.0
    for c in range(C):
        lo, hi = starts[c], starts[c + 1]
        size = float(hi - lo)
        inv_p = 1.0 / (size - 1) if size > 1 else 0.0
        z, a, bc = zeta[c], A[c], b[c]
        curvature = 2 * balance / size  # of N_c L along one weight
        others, shared = _shared(z / size, M, B - bc, inv_c, age, balance)
        fractional = 0
        for i in range(lo, hi):
            here = w[i]
            g = (a + xi_pos[i] * (z - 2 * here)) * inv_p + xi_neg[i] * others + shared
            # Most weights rest: pushed down at 0 or up at 1.  Which of the two a processor cannot
            # guess, so no branch asks.
            if (2 * here - 1) * g <= 0 and here * (1 - here) == 0:
                continue
            if curvature > 0:
                new = min(1.0, max(0.0, here - g / curvature))
            elif g != 0:
                new = 0.0 if g > 0 else 1.0
            else:
                new = here
            step = new - here
            if step != 0:
                w[i] = new
                z += step
                a += step * xi_pos[i]
                bc += step * xi_neg[i] / size
                M += step / size
                B += step * xi_neg[i] / size
                others, shared = _shared(z / size, M, B - bc, inv_c, age, balance)
                moved = max(moved, abs(step))
            fractional += 0 < new < 1
        if fractional > 1:
            pulled, drift = _separate(w, xi_pos, xi_neg, lo, hi, z, (M - z / size) * inv_c, inv_p)
            moved = max(moved, pulled)
            B += drift / size
    return moved


@numba.njit(cache=True)
@no_type_check
def _shared(m, M, others_b, inv_c, age, balance):
    """Of one class: the mean of the other class means, and what all its weights' N_c dL/dw share.

    m: its mean weight.  others_b: sum of b over the other classes.  inv_c: 0 if it is alone.
    """
    others = (M - m) * inv_c
    alone = inv_c == 0
    return others, others_b * inv_c + (0.0 if alone else 2 * balance * (m - others)) - age


@numba.njit(cache=True)
@no_type_check
def _separate(w, xi_pos, xi_neg, lo, hi, z, others, inv_p):
    """Move 2 in the class at lo..hi, until no two fractional weights have a concave line.

    Returns the largest move and the change of sum w xi_neg; sum w does not change.
    """
    largest, drift = 0.0, 0.0
    again = True
    while again:
        again = False
        i = -1  # the fractional weight that looks for a partner
        for j in range(lo, hi):
            if not 0 < w[j] < 1:
                continue
            if i < 0:
                i = j
                continue
            slope = (xi_pos[i] * (z - 2 * w[i]) - xi_pos[j] * (z - 2 * w[j])) * inv_p
            slope += (xi_neg[i] - xi_neg[j]) * others
            bend = (xi_pos[i] + xi_pos[j]) * inv_p  # N_c dL(t) = slope t - bend t^2
            up, down = min(1 - w[i], w[j]), min(w[i], 1 - w[j])
            if bend >= 0:
                t = (
                    up
                    if slope * up - bend * up * up <= -slope * down - bend * down * down
                    else -down
                )
                again = True
            else:
                t = min(up, max(-down, slope / (2 * bend)))
            # Write the bounds themselves: w + t would miss them by 1e-17.
            at_i = 1.0 if t == 1 - w[i] else (0.0 if -t == w[i] else w[i] + t)
            at_j = 0.0 if t == w[j] else (1.0 if -t == 1 - w[j] else w[j] - t)
            w[i], w[j] = min(1.0, max(0.0, at_i)), min(1.0, max(0.0, at_j))
            largest = max(largest, abs(t))
            drift += t * (xi_neg[i] - xi_neg[j])
            # Look on with a weight that is still fractional; of two, with the larger xi_pos, which
            # is the likelier to meet a partner on a concave line.
            if not 0 < w[i] < 1 or (0 < w[j] < 1 and xi_pos[j] > xi_pos[i]):
                i = j if 0 < w[j] < 1 else -1
    return largest, drift


@numba.njit(cache=True)
@no_type_check
def measure(w, xi_pos, xi_neg, starts, age, balance, tol):
    """The fields of `Point` at w: scaled stationarity, one fractional weight a class, counts.

    free: (C,) position of the first fractional weight, or -1.  slope: (C,) N_c dL/dw there.
    crowded: classes with several.  degenerate: weights at a bound whose |N_c dL/dw| <= tol.
    """
    C = len(starts) - 1
    zeta, A, b, M, B = class_sums(w, xi_pos, xi_neg, starts)
    inv_c = 1.0 / (C - 1) if C > 1 else 0.0
    free, slope = np.full(C, -1), np.zeros(C)
    residual, crowded, degenerate = 0.0, 0, 0
    for c in range(C):
        size = float(starts[c + 1] - starts[c])
        inv_p = 1.0 / (size - 1) if size > 1 else 0.0
        others, shared = _shared(zeta[c] / size, M, B - b[c], inv_c, age, balance)
        fractional = 0
        for i in range(starts[c], starts[c + 1]):
            here = w[i]
            g = (A[c] + xi_pos[i] * (zeta[c] - 2 * here)) * inv_p + xi_neg[i] * others + shared
            if (2 * here - 1) * g < -tol and here * (1 - here) == 0:
                continue  # rests at its bound, as in `sweep`
            if 0 < here < 1:
                fractional += 1
                if fractional == 1:
                    free[c], slope[c] = i, g
            elif abs(g) <= tol:
                degenerate += 1
            residual = max(residual, abs(here - min(1.0, max(0.0, here - g))))
        crowded += fractional > 1
    return residual, free, slope, crowded, degenerate
