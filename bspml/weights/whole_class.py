"""The best weights of one whole class, the others held: which samples to keep, not only how much.

Along one weight or one pair a class is left only downhill, so a choice of samples made early stays
although another has a lower objective.  For a class of size n with weights of sum z, the others
held, N_c L is, up to a constant,

    sum_{i<j} w_i w_j (xi_pos_i + xi_pos_j)/(n - 1) + sum_i w_i xi_neg_i others + (a parabola in z)

with `others` the mean of the other class means.  For xi_pos >= 0 every line between two weights
with z held is concave, so a minimum keeps k samples, one more by a fraction t, and no other.  With
f the fractional one and S the kept ones this costs

    sum_S a_i + t e_f,   a_i = xi_pos_i (z - 1)/(n - 1) + xi_neg_i others,
                         e_f = xi_pos_f  k     /(n - 1) + xi_neg_f others,     z = k + t

so S holds the smallest a_i, in the order of which all k are compared at once; the order follows z,
and z the order, until both stay, from the present z, from one sample and from all.  Of f every
choice is tried at the k found and beside it.  Where xi_pos < 0, a better point may lie outside this
family; the move is then taken only if it is lower, as everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from bspml.weights.first_order import totals

_ROUNDS = 8  # of ordering and choosing; two or three are the rule
_TURNS = 3  # of the same for one k and its fractional weight
_SMALL = 48  # up to here sorting by insertion is faster
# A fall of a class's cost below this, beside the terms it is made of, is rounding.
_ROUNDING = 64 * np.finfo(np.float64).eps


class ClassView(NamedTuple):
    """One class and what it has to know of the others.

    Attributes:
        xi_pos: (n,) positive statistics.
        xi_neg: (n,) negative statistics.
        z: sum of its weights.
        others: mean of the other classes' means.
        price: what a unit of z costs at this z, beside the statistics.
        bend: half the curvature of the parabola in z.
        inv_p: 1/(n - 1), or 0 for a class of one sample.
    """

    xi_pos: np.ndarray
    xi_neg: np.ndarray
    z: float
    others: float
    price: float
    bend: float
    inv_p: float


class Choice(NamedTuple):
    """The weights of a class: `kept` samples first in an order, and one in part.

    Attributes:
        cost: N_c L, up to a constant of the class.
        kept: how many come whole, the partial one not counted.
        partial: rank of the partial one in the order; below `kept`, rank `kept` comes whole.
        t: its weight.
    """

    cost: float
    kept: int
    partial: int
    t: float


@numba.njit(cache=True, error_model="numpy")
def sweep_classes(w, data, age, balance, sums, memory, way, thorough):
    """Give every class in turn its best weights, the others held, in place.

    Args:
        w: (N,) weights in class order; changed.
        data: `ClassSorted`.
        age: lambda.
        balance: mu.
        sums: `ClassSums` of w, kept up to date.
        memory: `Memory`, which forgets the classes that change.
        way: see `bspml.weights.sweeping`.
        thorough: begin from three places, and try every choice of the partial sample.

    Returns:
        changed: how many classes changed.
        way: after this sweep.
    """
    starts = data.starts
    zeta, A, b = sums
    C = len(starts) - 1
    inv_c = 1.0 / (C - 1) if C > 1 else 0.0
    pull = 2 * balance if C > 1 else 0.0
    M, B = totals(sums, starts)
    changed = 0
    for c in range(C):
        lo, hi = starts[c], starts[c + 1]
        n = hi - lo
        m = zeta[c] / n
        others = (M - m) * inv_c
        price = (B - b[c]) * inv_c + pull * (m - others) - age
        inv_p = 1.0 / (n - 1) if n > 1 else 0.0
        xi_pos, xi_neg, own = data.xi_pos[lo:hi], data.xi_neg[lo:hi], w[lo:hi]
        view = ClassView(xi_pos, xi_neg, zeta[c], others, price, pull / (2 * n), inv_p)
        squares = 0.0
        for i in range(n):
            squares += own[i] * own[i] * xi_pos[i]
        paired, mixed = (zeta[c] * A[c] - squares) * inv_p, b[c] * n * others
        pulls = abs(B - b[c]) * inv_c + pull * (m + abs(others)) + abs(age)
        terms = abs(paired) + abs(mixed) + pulls * n
        new, cost = best_weights(view, thorough)
        if not cost < paired + mixed - _ROUNDING * terms:
            continue
        z, a, mean = 0.0, 0.0, 0.0
        for i in range(n):
            own[i] = new[i]
            z += new[i]
            a += new[i] * xi_pos[i]
            mean += new[i] * xi_neg[i] / n
        fall, drift = z / n - m, mean - b[c]
        zeta[c], A[c], b[c] = z, a, mean
        M, B = M + fall, B + drift
        way += (abs(drift) + (pull + memory.steepest) * abs(fall)) * inv_c
        memory.wake[c], memory.free[c] = -1.0, -1
        changed += 1
    return changed, way


@numba.njit(cache=True, error_model="numpy")
def best_weights(view, thorough):
    """Find the best weights of one class of the kind the head of this module describes.

    Args:
        view: `ClassView`.
        thorough: begin from three places, and try every choice of the partial sample.

    Returns:
        (n,) the weights, and N_c L up to a constant of the class.
    """
    n = len(view.xi_pos)
    order, score, new = np.arange(n), np.empty(n), np.zeros(n)
    best = Choice(_cost_of_none(view), 0, 0, 0.0)
    for begin in range(3 if thorough else 1):
        z = view.z if begin == 0 else (1.0 if begin == 1 else float(n))
        for _ in range(_ROUNDS):
            _rank(view, z, order, score)
            choice = _best_prefix(view, order)
            if choice.cost < best.cost:
                best = choice
                _write(choice, order, new)
            before, z = z, choice.kept + choice.t
            if abs(z - before) <= 1e-3:
                break
    if thorough and view.bend > 0:
        k = best.kept
        for kept in range(max(0, k - 1), min(n - 1, k + 1) + 1):
            t = best.t if kept == k else 0.5
            for _ in range(_TURNS):
                _rank(view, kept + t, order, score)
                choice = _best_partial(view, order, kept)
                if choice.cost < best.cost:
                    best = choice
                    _write(choice, order, new)
                if abs(choice.t - t) <= 1e-3:
                    break
                t = choice.t
    return new, best.cost


@numba.njit(cache=True, error_model="numpy", inline="always")
def _cost_of_none(view):
    return (view.bend * view.z - view.price) * view.z


@numba.njit(cache=True, error_model="numpy")
def _rank(view, z, order, score):
    """Sort `order` by a_i at a sum of weights z; the scores stay by sample."""
    pos, neg = max(0.0, z - 1) * view.inv_p, view.others
    n = len(order)
    for i in range(n):
        score[i] = view.xi_pos[i] * pos + view.xi_neg[i] * neg
    if n > _SMALL:
        ranked = np.argsort(score)
        for r in range(n):  # a slice would take seconds to compile
            order[r] = ranked[r]
        return
    for r in range(1, n):
        i = order[r]
        value = score[i]
        s = r - 1
        while s >= 0 and score[order[s]] > value:
            order[s + 1] = order[s]
            s -= 1
        order[s + 1] = i


@numba.njit(cache=True, error_model="numpy", inline="always")
def _along(view, f, kept, A, x):
    """Minimise over the weight t of sample f beside `kept` others with sums A and x; cost and t."""
    gone = kept - view.z
    slope = (kept * view.xi_pos[f] + A) * view.inv_p + view.others * view.xi_neg[f]
    slope += view.price + 2 * view.bend * gone
    if view.bend > 0:
        t = min(1.0, max(0.0, -slope / (2 * view.bend)))
    else:
        t = 1.0 if slope < 0 else 0.0
    cost = A * (kept - 1) * view.inv_p + view.others * x + (view.price + view.bend * gone) * gone
    return cost + (slope + view.bend * t) * t, t


@numba.njit(cache=True, error_model="numpy")
def _best_prefix(view, order):
    """Choose how many of an order to keep, the next one in part."""
    best = Choice(np.inf, 0, 0, 0.0)
    A, x = 0.0, 0.0
    for k in range(len(order)):
        cost, t = _along(view, order[k], k, A, x)
        if cost < best.cost:
            best = Choice(cost, k, k, t)
        A += view.xi_pos[order[k]]
        x += view.xi_neg[order[k]]
    return best


@numba.njit(cache=True, error_model="numpy")
def _best_partial(view, order, kept):
    """Choose the partial sample where `kept` others are whole."""
    best = Choice(np.inf, kept, kept, 0.0)
    A, x = 0.0, 0.0
    for r in range(kept):
        A += view.xi_pos[order[r]]
        x += view.xi_neg[order[r]]
    after = order[kept]
    for r in range(len(order)):
        f = order[r]
        if r < kept:  # it leaves the whole ones, where the next in order takes its place
            A_rest = A + (view.xi_pos[after] - view.xi_pos[f])
            x_rest = x + (view.xi_neg[after] - view.xi_neg[f])
            cost, t = _along(view, f, kept, A_rest, x_rest)
        else:
            cost, t = _along(view, f, kept, A, x)
        if cost < best.cost:
            best = Choice(cost, kept, r, t)
    return best


@numba.njit(cache=True, error_model="numpy")
def _write(choice, order, new):
    """Write a choice as weights."""
    new[:] = 0.0
    for r in range(choice.kept):
        new[order[r]] = 1.0
    if choice.partial < choice.kept:
        new[order[choice.kept]] = 1.0
    new[order[choice.partial]] = choice.t


@numba.njit(cache=True, error_model="numpy")
def keep_share(data, share):
    """Keep the best share of every class, if all the others keep the same.

    Args:
        data: `ClassSorted`.
        share: in [0, 1].

    Returns:
        (N,) weights in class order whose class means all equal `share`.
    """
    starts = data.starts
    C = len(starts) - 1
    w = np.empty(len(data.xi_pos))
    for c in range(C):
        lo, hi = starts[c], starts[c + 1]
        n = hi - lo
        z = share * n
        kept = min(n - 1, int(z))
        inv_p = 1.0 / (n - 1) if n > 1 else 0.0
        others = share if C > 1 else 0.0
        view = ClassView(data.xi_pos[lo:hi], data.xi_neg[lo:hi], z, others, 0.0, 0.0, inv_p)
        order, score = np.arange(n), np.empty(n)
        _rank(view, z, order, score)
        _write(Choice(0.0, kept, kept, z - kept), order, w[lo:hi])
    return w
