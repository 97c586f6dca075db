"""The weight sub-problem: a box-constrained quadratic in one weight per training sample.

With the network held fixed, [Zhang 2023] eq. (6) asks for w in [0, 1]^N with the least

    L(w) =   sum_c (1/N_c) sum_{i in c} w_i (zeta_c - w_i)/(N_c - 1) xi_pos_i          positive
           + sum_c (1/N_c) sum_{i in c} w_i (1/(C-1)) sum_{k != c} m_k xi_neg_i        negative
           - age sum_c m_c                                                             pace
           + balance/(C-1) sum_{c<k} (m_c - m_k)^2                                     balance

where zeta_c is the sum and m_c = zeta_c / N_c the mean of the weights of class c.  L is not convex.

Differs: the print of eq. (6) has no 1/N_c before the inner sums.  Its own gradient, eq. (8), has
it in front of every term, and eq. (3) has it too, so it is restored here.

Why a sample gets weight 0: at the solution its derivative (`WeightProblem.gradient`, term by term
in `bspml.weights.first_order`) is at least 0.  A unit of its weight then costs no less than the
age, which is what it earns: xi_pos_i times the weights of its class, xi_neg_i times the mean weight
of the others, what it adds to the cost of those (A_c and B - b_c there), and, where its class keeps
more than the others, the balance term.  The age of each round is in `records.jsonl`; how it grows,
or is found for a target MAW, is in `bspml.trainers.curriculum.published`.
"""

from __future__ import annotations

import copy
import math
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from bspml.errors import InputError
from bspml.shapes import Float, Tensor
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import as_numbers, check_number, encode_labels, some_of
from bspml.tensors.row_index import check_same_rows
from bspml.weights.class_order import ClassSorted, sort_by_class
from bspml.weights.first_order import FirstOrder, class_sums, objective

# A weight may leave [0, 1] by this much before it is the caller's mistake: float32 averages do.
FEASIBILITY_SLACK = 1e-6


class Outcome(NamedTuple):
    """What a method hands to `solve_weights`: weights in the caller's order, and how it ended.

    values: objective and stationarity of the weights, by a method that has them at hand.
    """

    weights: np.ndarray
    sweeps: int
    status: str
    message: str
    values: tuple[float, float] | None = None


class WeightProblem:
    """min L(w) over 0 <= w <= 1, [Zhang 2023] eq. (6), for statistics that are held fixed.

    Conventions where eq. (6) divides by zero: a class of one sample has no positive term, and a
    single class has neither a negative nor a balance term.

    Args:
        xi_pos: (N,) positive statistic of each sample, eq. (3).  Any finite numbers: statistics
            shifted by a constant may be negative.
        xi_neg: (N,) negative statistic of each sample.
        labels: (N,) given labels, integers or strings, possibly wrong.
        age: lambda, the self-paced threshold in units of xi; negative ages drop every sample.
        balance: mu >= 0, the weight of the balance term; 0 leaves it out.

    Attributes:
        xi_pos: (N,) float64 numpy copy, read-only; so is xi_neg.
        codes: (N,) int64 class codes 0..C-1, in the order in which the classes first appear: what
            a class is called changes no result.
        sizes: (C,) float64, samples per class, in that order.

    Raises:
        InputError: lengths differ, a statistic is not finite, no sample, age not finite,
            balance negative.

    Example:
        >>> problem = WeightProblem([1.0, 1.0], [0.5, 0.5], labels=[7, 7], age=3.0, balance=0.0)
        >>> problem.objective([1.0, 1.0])  # one class: xi_pos - age
        -2.0
    """

    def __init__(
        self, xi_pos: Any, xi_neg: Any, labels: Any, age: float | int, balance: float | int = 1.0
    ) -> None:
        index = check_same_rows(xi_pos=xi_pos, xi_neg=xi_neg, labels=labels)
        self._index = None if index is None else ("the problem's statistics and labels", index)
        self.xi_pos = _check_vector(xi_pos, "xi_pos")
        self.xi_neg = _check_vector(xi_neg, "xi_neg", len(self.xi_pos))
        if len(self.xi_pos) == 0:
            raise InputError("`xi_pos` must hold at least one sample; got an empty array.")
        self.codes = by_first_appearance(encode_labels(labels, len(self.xi_pos)).codes.numpy())
        self.sizes = np.bincount(self.codes).astype(np.float64)  # (C,)
        self.age = _check_age(age)
        self.balance = check_number(balance, "balance", low=0.0, allow_infinite=True)
        if math.isinf(self.balance):
            raise InputError("`balance` must be finite; got inf. Try 1e6 for equal class means.")
        for array in (self.xi_pos, self.xi_neg, self.codes, self.sizes):
            array.flags.writeable = False

    def __repr__(self) -> str:
        return (
            f"WeightProblem(n={self.n}, num_classes={self.num_classes}, "
            f"age={self.age:g}, balance={self.balance:g})"
        )

    def with_age(self, age: float | int) -> WeightProblem:
        """Return the same problem at another age; it shares the arrays."""
        other = copy.copy(self)
        other.age = _check_age(age)
        return other

    @property
    def n(self) -> int:
        """N, the number of samples."""
        return len(self.xi_pos)

    @property
    def num_classes(self) -> int:
        """C, the number of classes with at least one sample."""
        return len(self.sizes)

    @property
    def lipschitz_max(self) -> float:
        """L_max = 2 balance / min_c N_c^2, the largest curvature along one weight.

        d2L/dw_i2 = 2 balance / N_c^2: a weight meets itself in the balance term only.  0 for a
        single class, which has no balance term.  Source: [Zhang 2023] Theorem 1.
        """
        return 0.0 if self.num_classes == 1 else float(2 * self.balance / self.sizes.min() ** 2)

    @property
    def unit(self) -> float:
        """The problem's own scale, in which its derivatives are measured.

        The largest statistic or age in absolute value; if all are 0, balance; if that is too, 1.
        Whoever measures everything in other units gets other numbers of L, and the same weights.
        """
        largest = max(self._largest_statistic, abs(self.age))
        return largest or self.balance or 1.0

    @cached_property
    def _largest_statistic(self) -> float:
        return float(max(np.abs(self.xi_pos).max(), np.abs(self.xi_neg).max()))

    @cached_property
    def class_sorted(self) -> ClassSorted:
        """The data in class order; made once, shared by every solve."""
        return sort_by_class(self.codes, self.sizes, self.xi_pos, self.xi_neg)

    def objective(self, weights: Any) -> float:
        """Compute L(w), [Zhang 2023] eq. (6), in O(N).

        Args:
            weights: (N,) numbers; L is also defined outside the box.

        Raises:
            InputError: wrong length or not finite.
        """
        data = self.class_sorted
        w = self._check_weights(weights)[data.order]
        return objective(w, data, self.age, self.balance, class_sums(w, data))

    def gradient(self, weights: Any) -> Float[Tensor, " N"]:
        r"""Compute the exact gradient of L in O(N), as a float64 CPU tensor.

        N_c dL/dw_i = (A_c - w_i xi_pos_i + xi_pos_i (zeta_c - w_i)) / (N_c - 1)
                      + ((B - B_c) + xi_neg_i (M - m_c)) / (C - 1)
                      + 2 balance (m_c - (M - m_c)/(C - 1)) - age

        with A_c = sum_{p in c} w_p xi_pos_p, B_c = (1/N_c) sum_{n in c} w_n xi_neg_n, and B, M the
        sums of B_c, m_c over the classes.  Source: the expectation of [Zhang 2023] eq. (8).
        """
        scaled = self.class_sorted.scatter(self._first_order_at(self._check_weights(weights)).slope)
        return torch.from_numpy(scaled / self.sizes[self.codes])

    def stationarity(self, weights: Any, scaled: bool = False) -> float:
        r"""Largest move any weight still wants, ‖w − Π(w − ∇L(w)/unit)‖_∞, Π the clip to [0, 1].

        Zero exactly at first-order points.  L is not convex, so zero does not mean optimal.

        Args:
            weights: (N,) feasible weights.
            scaled: multiply each gradient by its class's size first.  The gradient carries 1/N_c,
                so in large classes the plain residual is small far from the answer.  The scaled
                one is never below the plain one, and is what the coordinate solver stops on.

        Raises:
            InputError: wrong length, not finite, or outside [0, 1] by more than 1e-6.
        """
        check_flags(scaled=scaled)
        first_order = self._first_order_at(self.check_feasible(weights, "weights"))
        return first_order.residual if scaled else first_order.stationarity()

    def class_means(self, weights: Any) -> Float[Tensor, " C"]:
        """Return m_c, the mean weight of each class; their mean is MAW, [Zhang 2023] eq. (14).

        In the order of `codes`.
        """
        sums = np.bincount(self.codes, self._check_weights(weights), minlength=self.num_classes)
        return torch.from_numpy(sums / self.sizes)

    def check_feasible(self, weights: Any, name: str) -> np.ndarray:
        """Return a float64 copy of `weights` clipped to [0, 1].

        Args:
            weights: (N,) numbers, at most 1e-6 outside [0, 1].
            name: the caller's argument name, for messages.

        Raises:
            InputError: wrong length, not finite, or further outside.
        """
        w = self._check_weights(weights, name)
        off = (w < -FEASIBILITY_SLACK) | (w > 1 + FEASIBILITY_SLACK)
        if off.any():
            row = int(np.flatnonzero(off)[0])
            raise InputError(
                f"`{name}` must lie in [0, 1]; got {w[row]:g} at index {row} "
                f"({int(off.sum())} such). Clip them first."
            )
        return np.clip(w, 0, 1)

    def _first_order_at(self, w: np.ndarray) -> FirstOrder:
        data = self.class_sorted
        return FirstOrder.at(w[data.order], data, self.age, self.balance, self.unit)

    def _check_weights(self, weights: Any, name: str = "weights") -> np.ndarray:
        check_same_rows(self._index, **{name: weights})
        return _check_vector(weights, name, self.n)


def by_first_appearance(codes: np.ndarray) -> np.ndarray:
    """Renumber the codes (N,): the class of the first sample is 0, the next new one 1, ...

    Args:
        codes: (N,) int64, at least 0.

    Example:
        >>> by_first_appearance(np.array([3, 0, 3, 1])).tolist()
        [0, 1, 0, 2]
    """
    N = len(codes)
    first = np.full(int(codes.max(initial=-1)) + 1, N)  # numbers of no sample come last
    first[codes[::-1]] = np.arange(N)[::-1]  # of several assignments to a place the last stays
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[codes]


def _check_vector(values: Any, name: str, n: int | None = None) -> np.ndarray:
    """Return a contiguous float64 copy of `values`, finite, (N,) or of length n."""
    found = as_numbers(values, name, "(N,) numbers", "Pass one per sample.")
    array = np.array(found.detach().cpu().double().numpy(), order="C")
    if array.ndim != 1:
        hint = " Use `.squeeze(1)`." if array.ndim == 2 and array.shape[1] == 1 else ""
        raise InputError(f"`{name}` must be (N,), one number per sample; got {array.shape}.{hint}")
    if n is not None and len(array) != n:
        raise InputError(
            f"`{name}` must be (N,) = ({n},) like `xi_pos`; got ({len(array)},). "
            "Pass one number per sample of the data set, in its order."
        )
    bad = ~np.isfinite(array)
    if bad.any():
        raise InputError(
            f"`{name}` must be finite; indices {some_of(np.flatnonzero(bad))} hold NaN or "
            "infinity. Look for a diverged model or zero embeddings."
        )
    return array


def _check_age(age: float | int) -> float:
    age = check_number(age, "age", allow_infinite=True)
    if math.isinf(age):
        raise InputError(
            f"`age` must be finite; got {age:g}. From 2 max xi_pos + 2 max xi_neg + 2 balance on, "
            "every sample is kept."
        )
    return age
