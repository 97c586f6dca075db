"""One sweep of exact moves over the classes, in the order in which they first appear.

For one class the rest of the problem is two numbers: the mean `others` of the other class means,
and what all its derivatives have in common.  With z = sum w and A = sum w xi_pos of the class,

    g_i = N_c dL/dw_i = common + xi_pos_i (z - 2 w_i)/(N_c - 1) + xi_neg_i others
    common = A/(N_c - 1) + (B - b_c)/(C - 1) + 2 balance (m_c - others) - age.

So a class whose weights all rest, at a bound with g pushing them against it, stays as it is until
the sums over the other classes have moved its derivatives by as much as the least |g_i|.  Until
then it sleeps: passing it by changes nothing.  `way` adds up the most that the moves of all classes
can have changed any derivative of another class; a class sleeps while `way` < its `wake`.

A class with one fractional weight, which every sweep moves a little, gets a RECORD: for which
values of `common` all its other weights rest.  While that holds before and after the step of the
one weight, a visit costs O(1).
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from bspml.weights.first_order import totals

# Of a class whose other weights all lie at a bound: what keeps them there.
RECORD = np.dtype(
    [
        ("xi_pos", np.float64),  # of the free weight
        ("xi_neg", np.float64),
        ("z", np.float64),  # at these values of z and `others`
        ("others", np.float64),
        ("lowest", np.float64),  # the other weights rest while `common` lies between these;
        ("highest", np.float64),
        ("reach_pos", np.float64),  # the bounds move with z by at most this,
        ("reach_neg", np.float64),  # and with `others` by this
    ],
    align=True,
)

# Where L is not curved along a weight, any slope takes it to a bound.
_ALL_THE_WAY = np.finfo(np.float64).max


class Memory(NamedTuple):
    """What a descent remembers of the classes between sweeps, changed in place.

    Attributes:
        free: (C,) position of the one fractional weight of a class whose RECORD holds, or -1.
        records: (C,) RECORD of these classes; of the others, anything.
        wake: (C,) a class sleeps while `way` < wake; -1 at first.
        steepest: max |xi_neg|, which bounds what a move changes in the derivatives of others.
    """

    free: np.ndarray
    records: np.ndarray
    wake: np.ndarray
    steepest: float


class Visit(NamedTuple):
    """One class when a sweep comes to it, and what it has to know of the other classes.

    Attributes:
        lo: its first position.
        hi: one past its last position.
        z: sum of its weights.
        others: mean of the other classes' means.
        common: what all its derivatives share, see the head of this module.
        inv_p: 1/(N_c - 1), or 0 for a class of one sample.
        curvature: of N_c L along one weight.
        per_slope: 1/curvature, at most the largest number.
    """

    lo: int
    hi: int
    z: float
    others: float
    common: float
    inv_p: float
    curvature: float
    per_slope: float


@numba.njit(cache=True, error_model="numpy")
def sweep(w, data, age, balance, sums, memory, way):
    """Make moves 1 and 2 over every class once, in place.

    Args:
        w: (N,) weights in class order; changed.
        data: `ClassSorted`.
        age: lambda.
        balance: mu.
        sums: `ClassSums` of w, kept up to date.
        memory: `Memory`, kept up to date.
        way: see the head of this module; 0 at first.

    Returns:
        most: the largest change of one weight.
        way: after this sweep.
    """
    starts = data.starts
    zeta, A, b = sums
    free, records, wake, steepest = memory
    C = len(starts) - 1
    inv_c = 1.0 / (C - 1) if C > 1 else 0.0
    pull = 2 * balance if C > 1 else 0.0
    M, B = totals(sums, starts)
    most = 0.0
    for c in range(C):
        if way < wake[c]:
            continue
        lo, hi = starts[c], starts[c + 1]
        inv_size = 1.0 / (hi - lo)
        inv_p = 1.0 / (hi - lo - 1) if hi - lo > 1 else 0.0
        curvature = pull * inv_size  # of N_c L along one weight
        per_slope = min(1.0 / curvature, _ALL_THE_WAY)
        z, a = zeta[c], A[c]
        m = z * inv_size
        others = (M - m) * inv_c
        common = a * inv_p + (B - b[c]) * inv_c + pull * (m - others) - age
        visit = Visit(lo, hi, z, others, common, inv_p, curvature, per_slope)
        rest, i = -1.0, free[c]
        if i >= 0:
            r = records[c]
            new, rest = _step_known(w[i], r, visit)
        if rest >= 0:
            step = new - w[i]
            w[i] = new
            moved, z_step, a_step, b_step = abs(step), step, step * r.xi_pos, step * r.xi_neg
        else:
            moved, rest, fractional, movers, z_step, a_step, b_step = _step_all(w, data, visit)
            free[c] = -1
            if fractional > 1:
                pulled, a_pulled, b_pulled = _separate(w, data, visit, z + z_step)
                moved, a_step, b_step = max(moved, pulled), a_step + a_pulled, b_step + b_pulled
            elif fractional == 1 and movers == 1:
                free[c] = _remember(w, data, visit, z + z_step, records[c])
        if moved == 0:
            wake[c] = way + rest
            continue
        fall, drift = z_step * inv_size, b_step * inv_size
        zeta[c], A[c] = z + z_step, a + a_step
        b[c] += drift
        M, B = M + fall, B + drift
        way += (abs(drift) + (pull + steepest) * abs(fall)) * inv_c
        most = max(most, moved)
    return most, way


@numba.njit(cache=True, error_model="numpy", inline="always")
def _step_known(weight, r, visit):
    """Find move 1 of the one fractional weight `weight` of a class whose record is `r`.

    Returns where it goes to, and how far its derivative and those of the other weights are from
    moving anything; below 0: another weight may move before or after it.
    """
    _, _, z, others, common, inv_p, curvature, per_slope = visit
    inner = r.xi_pos * inv_p
    g = common + (inner * (z - 2 * weight) + r.xi_neg * others)
    new = min(1.0, max(0.0, weight - g * per_slope))
    step = new - weight
    gone = r.reach_neg * abs(others - r.others)
    off = gone + r.reach_pos * abs(z - r.z)
    room = min(common - (r.lowest + off), (r.highest - off) - common)
    common += step * (inner + curvature)
    off = gone + r.reach_pos * abs(z + step - r.z)
    room = min(room, min(common - (r.lowest + off), (r.highest - off) - common))
    return new, min(room, abs(g))


@numba.njit(cache=True, error_model="numpy", inline="always")
def _step_all(w, data, visit):
    """Make move 1 on all weights of a class in turn.

    No branch asks which of them move: a processor cannot guess it, and rest is a step of 0.

    Returns:
        moved: the largest step.
        rest: the least |g| met.
        fractional, movers: how many are fractional now, how many have moved.
        changes of sum w, sum w xi_pos and sum w xi_neg.
    """
    xi_pos, xi_neg = data.xi_pos, data.xi_neg
    lo, hi, z, others, common, inv_p, curvature, per_slope = visit
    moved, rest, fractional, movers = 0.0, np.inf, 0, 0
    z_before, a_step, b_step = z, 0.0, 0.0
    for i in range(lo, hi):
        weight, inner = w[i], xi_pos[i] * inv_p
        g = common + (inner * (z - 2 * weight) + xi_neg[i] * others)
        new = min(1.0, max(0.0, weight - g * per_slope))
        step = new - weight
        w[i] = new
        z += step
        a_step += step * xi_pos[i]
        b_step += step * xi_neg[i]
        common += step * (inner + curvature)
        moved = max(moved, abs(step))
        rest = min(rest, abs(g))
        movers += step != 0
        fractional += new * (1 - new) > 0
    return moved, rest, fractional, movers, z - z_before, a_step, b_step


@numba.njit(cache=True, error_model="numpy")
def follow(w, before, free, data, balance, sums, memory):
    """Bring the class sums up to date after some weights moved, and wake their classes.

    Args:
        w: (N,) weights in class order, after the move.
        before: (F,) the weights at `free` before it.
        free: (F,) positions of the weights that moved.
        data: `ClassSorted`.
        balance: mu.
        sums: `ClassSums`, brought up to date.
        memory: `Memory`, whose `wake` is set.

    Returns:
        The most that the derivatives of the other weights have moved.
    """
    starts, codes, xi_pos, xi_neg = data.starts, data.codes, data.xi_pos, data.xi_neg
    zeta, A, b = sums
    pull = 2 * balance
    M, B = 0.0, 0.0
    for k in range(len(free)):
        i, c = free[k], codes[free[k]]
        size = starts[c + 1] - starts[c]
        step = w[i] - before[k]
        zeta[c] += step
        A[c] += step * xi_pos[i]
        b[c] += step * xi_neg[i] / size
        M += step / size
        B += step * xi_neg[i] / size
        memory.wake[c] = -1.0
    return (abs(B) + (pull + memory.steepest) * abs(M)) / max(1, len(zeta) - 1)


@numba.njit(cache=True, error_model="numpy")
def _remember(w, data, visit, z, r):
    """Fill in the record `r` of a class with one fractional weight; return where that weight is.

    z: sum of its weights by now.
    """
    xi_pos, xi_neg = data.xi_pos, data.xi_neg
    lo, hi, others, inv_p = visit.lo, visit.hi, visit.others, visit.inv_p
    free, lowest, highest, reach_pos, reach_neg = lo, -np.inf, np.inf, 0.0, 0.0
    for i in range(lo, hi):
        # g_i = common - edge
        edge = -(xi_pos[i] * inv_p * (z - 2 * w[i]) + xi_neg[i] * others)
        highest = min(highest, edge if w[i] == 1 else np.inf)
        lowest = max(lowest, edge if w[i] == 0 else -np.inf)
        reach_pos = max(reach_pos, abs(xi_pos[i]))
        reach_neg = max(reach_neg, abs(xi_neg[i]))
        free = i if 0 < w[i] < 1 else free
    r.xi_pos, r.xi_neg, r.z, r.others = xi_pos[free], xi_neg[free], z, others
    r.lowest, r.highest, r.reach_pos, r.reach_neg = lowest, highest, reach_pos * inv_p, reach_neg
    return free


@numba.njit(cache=True, error_model="numpy")
def _separate(w, data, visit, z):
    """Make move 2 in one class until no two fractional weights have a concave line.

    z: sum of its weights, which stays.  Returns the largest move and the changes of sum w xi_pos
    and sum w xi_neg.
    """
    xi_pos, xi_neg = data.xi_pos, data.xi_neg
    lo, hi, others, inv_p = visit.lo, visit.hi, visit.others, visit.inv_p
    largest, drift_a, drift_b = 0.0, 0.0, 0.0
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
                rise = slope * up - bend * up * up
                t = up if rise <= -slope * down - bend * down * down else -down
                again = True
            else:
                t = min(up, max(-down, slope / (2 * bend)))
            # Write the bounds themselves: w + t would miss them by 1e-17.
            at_i = 1.0 if t == 1 - w[i] else (0.0 if -t == w[i] else w[i] + t)
            at_j = 0.0 if t == w[j] else (1.0 if -t == 1 - w[j] else w[j] - t)
            w[i], w[j] = min(1.0, max(0.0, at_i)), min(1.0, max(0.0, at_j))
            largest = max(largest, abs(t))
            drift_a += t * (xi_pos[i] - xi_pos[j])
            drift_b += t * (xi_neg[i] - xi_neg[j])
            # Look on with a weight that is still fractional; of two, with the larger xi_pos, which
            # is the likelier to meet a partner on a concave line.
            if not 0 < w[i] < 1 or (0 < w[j] < 1 and xi_pos[j] > xi_pos[i]):
                i = j if 0 < w[j] < 1 else -1
    return largest, drift_a, drift_b
