"""L over one fractional weight per class: its curvature is diagonal plus rank 2.

Let u_c be the change of class c's mean when its one fractional weight, of negative statistic x_c,
moves.  From [Zhang 2023] eq. (6), with F the classes that have such a weight,

    L(u) = L(0) + g.u + u'E u / 2,   E = diag(D) + U S U',   U = [1 x]  (F, 2)
    D_c = 2 (balance C - x_c) / (C - 1),    S = [[-2 balance, 1], [1, 0]] / (C - 1)

(E_cc = 2 balance, E_ck = (x_c + x_k - 2 balance)/(C - 1).)  So solving with E, and counting its
negative eigenvalues, costs O(F): at most one pass over the classes however many there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from bspml.weights.problem import WeightProblem

_DENSE = 200  # up to here a dense eigensolver is faster and never fails
# A determinant or eigenvalue this small beside its terms is rounding of 0.
_RELATIVE_ZERO = 1e-13
_SINGULAR = 1e-30  # below this share of its terms D is not divided by


@dataclass(frozen=True)
class Face:
    """One fractional weight of each of F classes.

    Attributes:
        free: (F,) positions of these weights, in class order.
        sizes: (F,) N_c.
        slope: (F,) dL/du_c = N_c dL/dw.
        x: (F,) negative statistics.
        num_classes: C, all classes.
        balance: mu.
    """

    free: np.ndarray
    sizes: np.ndarray
    slope: np.ndarray
    x: np.ndarray
    num_classes: int
    balance: float

    @classmethod
    def of(cls, problem: WeightProblem, free: np.ndarray, slope: np.ndarray) -> Face:
        """Build the face from fractional weights, one a class.

        Args:
            problem: the weight problem.
            free: (F,) their positions, in class order.
            slope: (F,) N_c dL/dw there.
        """
        data = problem.class_sorted
        sizes, x = problem.sizes[data.codes[free]], data.xi_neg[free]
        return cls(free, sizes, slope, x, problem.num_classes, problem.balance)

    def curve(self, u: np.ndarray) -> np.ndarray:
        """Compute E u."""
        total, mixed = u.sum(), _dot(self.x, u)
        pulled = (mixed - 2 * self.balance * total) + self.x * total
        return self._diagonal * u + pulled / (self.num_classes - 1)

    def newton_direction(self) -> np.ndarray:
        """Return -E^-1 g by Woodbury; may point at a saddle, which `step` turns downhill."""
        if len(self.free) < 2:  # the sweep has already minimised along a single weight
            return np.zeros(len(self.free))
        D = np.where(np.abs(self._diagonal) > self._singular, self._diagonal, self._singular)
        a, b, d, det = self._capacitance(D)
        if det == 0:  # a flat direction; any small number leaves it dominant, `step` finds the sign
            det = np.finfo(np.float64).eps * max(b * b, _SINGULAR)
        p, q = (self.slope / D).sum(), (self.slope * self.x / D).sum()
        # y = [[a, b], [b, d]]^-1 [p, q];  u = D^-1 U y - D^-1 g.  A least-squares routine would
        # cut off the common direction of all classes, whose curvature is not scaled by balance.
        return ((d * p - b * q) + (a * q - b * p) * self.x) / det / D - self.slope / D

    def is_semidefinite(self) -> bool:
        """Return whether E has no negative eigenvalue.

        Inertia of the block matrix [[D, U], [U', -S^-1]], counted from either corner:
        neg(E) = neg(D) + pos(S^-1 + U'D^-1 U) - 1, because S has one eigenvalue of each sign.
        """
        if len(self.free) < 2:
            return True  # E_cc = 2 balance >= 0
        # Only for exact ties: a handful of weights.
        if np.abs(self._diagonal).min() <= self._singular:
            E = self._dense()
            return bool(np.linalg.eigvalsh(E)[0] >= -_RELATIVE_ZERO * np.abs(E).max())
        a, b, d, det = self._capacitance(self._diagonal)
        if abs(det) <= _RELATIVE_ZERO * (abs(a * d) + b * b):
            positive = int(a + d > 0)
        else:
            positive = 1 if det < 0 else 2 * int(a > 0)
        return int((self._diagonal < 0).sum()) + positive - 1 <= 0

    def negative_direction(self) -> np.ndarray | None:
        """Return a direction u with u'E u < 0, or None if none was found."""
        F = len(self.free)
        if F <= _DENSE:
            u = np.linalg.eigh(self._dense())[1][:, 0]
        else:
            E = LinearOperator((F, F), matvec=self.curve, dtype=np.float64)
            try:
                # Only the sign of the curvature matters, so a rough eigenvector will do.
                u = eigsh(E, k=1, which="SA", v0=1 + np.arange(F) / F, tol=1e-2)[1][:, 0]
            except ArpackNoConvergence:
                return None
        return u if _dot(u, self.curve(u)) < 0 else None

    def step(self, w: np.ndarray, u: np.ndarray) -> bool:
        """Move the free weights along ±u to the lowest feasible point; say whether L fell.

        Args:
            w: (N,) weights in class order; changed.
            u: (F,) changes of the class means, up to a factor.

        The full step, clipped, is taken if it lowers L; else the exact minimiser along the line,
        within the box.  The change of L comes from g and E, not as a difference of two values of
        L, so that falls far below the rounding of L are seen.
        """
        if _dot(self.slope, u) > 0:
            u = -u
        if not len(u) or not u.any():
            return False
        at = w[self.free]
        room = np.where(u > 0, 1 - at, at) / self.sizes  # in units of u
        curvature = _dot(u, self.curve(u))
        with np.errstate(divide="ignore", over="ignore"):
            to_bound = room / np.abs(u)  # inf where u = 0, or nearly
        nearest = to_bound.min()
        best = -_dot(self.slope, u) / curvature if curvature > 0 else np.inf
        if best > nearest and np.isfinite(best):
            clipped = np.clip(best * u, -at / self.sizes, (1 - at) / self.sizes)
            if self._change(clipped) < self._change(nearest * u):
                return self._move(w, clipped, to_bound <= best, u)
        t = min(best, nearest)
        if not np.isfinite(t):  # too flat for the box to be reached in numbers
            return False
        return self._move(w, t * u, to_bound <= t, u)

    def _move(self, w: np.ndarray, d: np.ndarray, bound: np.ndarray, u: np.ndarray) -> bool:
        if not self._change(d) < 0:
            return False
        new = np.clip(w[self.free] + d * self.sizes, 0, 1)
        # Write the bounds themselves, rounding would leave 1e-17 there.
        w[self.free] = np.where(bound, (u > 0).astype(np.float64), new)
        return True

    def _change(self, d: np.ndarray) -> float:
        """Compute L(d) - L(0)."""
        return _dot(self.slope, d) + _dot(d, self.curve(d)) / 2

    @property
    def _diagonal(self) -> np.ndarray:
        return 2 * (self.balance * self.num_classes - self.x) / (self.num_classes - 1)

    @property
    def _singular(self) -> float:
        return _SINGULAR * (float(np.abs(self.x).max()) + self.balance or 1.0)

    def _capacitance(self, D: np.ndarray) -> tuple[float, float, float, float]:
        """Return a, b, d of S^-1 + U'D^-1 U = [[a, b], [b, d]], and its determinant."""
        scale = self.num_classes - 1  # S^-1 = (C - 1) [[0, 1], [1, 2 balance]]
        a = float((1 / D).sum())
        b = float((self.x / D).sum()) + scale
        d = float((self.x * self.x / D).sum()) + 2 * self.balance * scale
        return a, b, d, a * d - b * b

    def _dense(self) -> np.ndarray:
        E = np.add.outer(self.x, self.x) - 2 * self.balance
        E /= self.num_classes - 1
        np.fill_diagonal(E, 2 * self.balance)
        return E


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    """Compute a.b without BLAS: on busy cores its threads cost tenfold what they save here."""
    return float((a * b).sum())
