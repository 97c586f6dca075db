"""Value, derivatives and residuals of the weight problem, in O(N) from the sums of each class.

With zeta_c = sum of w, A_c = sum w_p xi_pos_p, b_c = (1/N_c) sum w_n xi_neg_n over class c,
m_c = zeta_c / N_c, M = sum m_c and B = sum b_c, the derivative of [Zhang 2023] eq. (6) along one
weight costs O(1) (the expectation of its eq. (8)):

    N_c dL/dw_i = (A_c + xi_pos_i (zeta_c - 2 w_i)) / (N_c - 1)
                  + ((B - b_c) + xi_neg_i (M - m_c)) / (C - 1)
                  + 2 balance (m_c - (M - m_c)/(C - 1)) - age

Everything is in class order (`bspml.weights.class_order`).  A class of one sample has no positive
term, a single class neither a negative nor a balance term.  Loops over all the samples are flat,
with the class looked up: classes are small, and a loop for each would be left at a moment that the
processor cannot guess.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from bspml.weights.class_order import ClassSorted


class ClassSums(NamedTuple):
    """The sums of each class from which every derivative is O(1); see the head of this module.

    Attributes:
        zeta: (C,) sum of w.
        A: (C,) sum of w xi_pos.
        b: (C,) mean of w xi_neg.
    """

    zeta: np.ndarray
    A: np.ndarray
    b: np.ndarray


class FirstOrder(NamedTuple):
    """One point of a weight problem with its class sums and derivatives.

    Attributes:
        w: (N,) weights in class order.
        data: the statistics in class order.
        age: lambda.
        balance: mu.
        unit: what derivatives are measured in, > 0.
        sums: the sums of each class at w.
        slope: (N,) N_c dL/dw_i.
        residual: the scaled stationarity, ‖w − Π(w − slope/unit)‖_∞.
    """

    w: np.ndarray
    data: ClassSorted
    age: float
    balance: float
    unit: float
    sums: ClassSums
    slope: np.ndarray
    residual: float

    @classmethod
    def at(
        cls, w: np.ndarray, data: ClassSorted, age: float, balance: float, unit: float
    ) -> FirstOrder:
        """Compute the sums and derivatives at `w` afresh, in O(N).

        Args:
            w: (N,) weights in class order.
            data: the statistics in class order.
            age: lambda.
            balance: mu.
            unit: what derivatives are measured in, > 0.
        """
        sums = class_sums(w, data)
        slope, residual = scaled_gradient(w, data, age, balance, unit, sums)
        return cls(w, data, age, balance, unit, sums, slope, residual)

    def objective(self) -> float:
        """Compute L(w), [Zhang 2023] eq. (6)."""
        return objective(self.w, self.data, self.age, self.balance, self.sums)

    def stationarity(self) -> float:
        """Compute ‖w − Π(w − ∇L(w)/unit)‖_∞, the plain stationarity: never above `residual`."""
        if np.isinf(self.residual):
            return float("inf")
        return plain_residual(self.w, self.slope, self.data, self.unit)


@numba.njit(cache=True, error_model="numpy")
def class_sums(w, data):
    """Compute the `ClassSums` of some weights.

    Args:
        w: (N,) weights in class order.
        data: `ClassSorted`.
    """
    starts, codes = data.starts, data.codes
    C = len(starts) - 1
    zeta, A, b = np.zeros(C), np.zeros(C), np.zeros(C)
    for i in range(len(w)):
        zeta[codes[i]] += w[i]
        A[codes[i]] += w[i] * data.xi_pos[i]
        b[codes[i]] += w[i] * data.xi_neg[i]
    for c in range(C):
        b[c] /= starts[c + 1] - starts[c]
    return ClassSums(zeta, A, b)


@numba.njit(cache=True, error_model="numpy")
def totals(sums, starts):
    """Compute M = sum m_c and B = sum b_c.

    Args:
        sums: `ClassSums`.
        starts: (C + 1,) where each class begins.
    """
    zeta, b = sums.zeta, sums.b
    M, B = 0.0, 0.0
    for c in range(len(zeta)):
        M += zeta[c] / (starts[c + 1] - starts[c])
        B += b[c]
    return M, B


@numba.njit(cache=True, error_model="numpy")
def scaled_gradient(w, data, age, balance, unit, sums):
    """Compute all derivatives N_c dL/dw_i, and the scaled stationarity.

    Args:
        w: (N,) weights in class order.
        data: `ClassSorted`.
        age: lambda.
        balance: mu.
        unit: what derivatives are measured in, > 0.
        sums: `ClassSums` of w.

    Returns:
        (N,) N_c dL/dw_i, and ‖w − Π(w − N_c ∇L(w)/unit)‖_∞.
    """
    starts, codes, xi_pos, xi_neg = data.starts, data.codes, data.xi_pos, data.xi_neg
    zeta, A, b = sums
    C = len(zeta)
    M, B = totals(sums, starts)
    inv_c = 1.0 / (C - 1) if C > 1 else 0.0
    pull = 2 * balance if C > 1 else 0.0
    shared, others, inv_p = np.empty(C), np.empty(C), np.empty(C)
    for c in range(C):
        size = float(starts[c + 1] - starts[c])
        inv_p[c] = 1.0 / (size - 1) if size > 1 else 0.0
        m = zeta[c] / size
        others[c] = (M - m) * inv_c
        shared[c] = A[c] * inv_p[c] + (B - b[c]) * inv_c + pull * (m - others[c]) - age
    # Sums beyond float64 say nothing about any weight; NaN would compare as if all were at rest.
    finite = np.isfinite(shared).all() and np.isfinite(others).all()
    g, residual = np.empty(len(w)), 0.0 if finite else np.inf
    for i in range(len(w)):
        c, weight = codes[i], w[i]
        pulled = xi_pos[i] * (zeta[c] - 2 * weight) * inv_p[c]
        g[i] = pulled + xi_neg[i] * others[c] + shared[c]
        residual = max(residual, abs(weight - min(1.0, max(0.0, weight - g[i] / unit))))
    return g, residual


@numba.njit(cache=True, error_model="numpy")
def plain_residual(w, g, data, unit):
    """Compute ‖w − Π(w − ∇L(w)/unit)‖_∞.

    Args:
        w: (N,) weights in class order.
        g: (N,) N_c dL/dw_i, as `scaled_gradient` returns it.
        data: `ClassSorted`.
        unit: what derivatives are measured in, > 0.
    """
    starts, codes = data.starts, data.codes
    residual = 0.0
    for i in range(len(w)):
        size = starts[codes[i] + 1] - starts[codes[i]]
        residual = max(residual, abs(w[i] - min(1.0, max(0.0, w[i] - g[i] / (size * unit)))))
    return residual


@numba.njit(cache=True, error_model="numpy")
def objective(w, data, age, balance, sums):
    """Compute L(w), [Zhang 2023] eq. (6).

    Args:
        w: (N,) weights in class order.
        data: `ClassSorted`.
        age: lambda.
        balance: mu.
        sums: `ClassSums` of w.
    """
    starts, codes, xi_pos = data.starts, data.codes, data.xi_pos
    zeta, b = sums.zeta, sums.b
    C = len(zeta)
    M, _ = totals(sums, starts)
    value, spread = -age * M, 0.0
    inv_pairs = np.zeros(C)
    for c in range(C):
        size = float(starts[c + 1] - starts[c])
        m = zeta[c] / size
        if size > 1:
            inv_pairs[c] = 1 / (size * (size - 1))
        if C > 1:
            value += b[c] * (M - m) / (C - 1)
            spread += (m - M / C) ** 2
    for i in range(len(w)):
        c = codes[i]
        value += w[i] * xi_pos[i] * (zeta[c] - w[i]) * inv_pairs[c]
    # sum_{c<k} (m_c - m_k)^2 = C sum_c (m_c - mean)^2: O(C), and no cancellation of
    # C sum m^2 against (sum m)^2 when the means are almost equal.
    return value + (balance * C / (C - 1) * spread if C > 1 else 0.0)
