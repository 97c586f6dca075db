"""Exact cyclic coordinate minimisation of the weight problem, with a second-order certificate.

Once the sums of each class and over the classes are kept, the derivative along one weight costs
O(1) and its exact minimiser is a clipped step.  A sweep visits the weights class by class, in the
order in which they first appear, so that names play no part (`bspml.weights.sweeping`).  Four
exact moves, none of which can raise the objective:

1. one weight: clipped Newton step if the balance term curves L along it, else the lower end;
2. two fractional weights i, j of one class, moved by +t and -t.  The class mean, so the balance
   term, stays; with g = N_c dL/dw,
   N_c (L(t) - L(0)) = (g_i - g_j) t - (xi_pos_i + xi_pos_j)/(N_c - 1) t^2.
   For xi_pos_i + xi_pos_j >= 0 this is concave: the lower end takes at least one to a bound.
   Else (shifted statistics) it is convex, and the move goes to its minimum;
3. one fractional weight of every class at once (`bspml.weights.face`).  The balance term ties all
   class means together, so that moves 1 alone creep along their common direction;
4. all weights of one class at once (`bspml.weights.whole_class`): which of its samples to keep.
   Moves 1 to 3 only go downhill from the choice they find.  It opens the descent, and the answer
   is a point that it does not improve.

Source: replaces [Zhang 2023] Algorithm 3, which estimates the same derivative from samples.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bspml.weights.face import Face
from bspml.weights.first_order import FirstOrder, class_sums
from bspml.weights.problem import Outcome, WeightProblem
from bspml.weights.sweeping import RECORD, Memory, follow, sweep
from bspml.weights.whole_class import sweep_classes

# A sweep that moves no weight by more than this only shuffles rounding errors.
_ROUNDING = 8 * np.finfo(np.float64).eps
# Weights this close to a bound got there by rounding; callers compare with 0 to leave samples out.
_DUST = 1e-12
# A sweep in which no weight moves by more than this has mostly found which weights are fractional.
_SETTLED = 0.5
# Move 4 opens the descent for so many sweeps, or until no more than this share of the classes
# change: a large balance lets them creep for ever.
_OPENING, _FEW = 8, 0.01
_CERTIFIED = ("local_minimum", "stationary")


class Point(NamedTuple):
    """What the descent asks of one point.

    Attributes:
        first_order: its sums and derivatives.
        face: the first fractional weight of each class that has one.
        crowded: classes with several.
    """

    first_order: FirstOrder
    face: Face
    crowded: int

    @classmethod
    def of(cls, problem: WeightProblem, w: np.ndarray) -> Point:
        """Measure a point.

        Args:
            problem: the weight problem.
            w: (N,) weights in class order.
        """
        data, unit = problem.class_sorted, problem.unit
        first_order = FirstOrder.at(w, data, problem.age, problem.balance, unit)
        free, crowded = np.flatnonzero((w > 0) & (w < 1)), 0
        classes = first_order.data.codes[free]
        again = classes[1:] == classes[:-1]
        if again.any():
            crowded = len(np.unique(classes[1:][again]))
            free = np.delete(free, np.flatnonzero(again) + 1)
        return cls(first_order, Face.of(problem, free, first_order.slope[free]), crowded)

    @property
    def residual(self) -> float:
        """Scaled stationarity."""
        return self.first_order.residual

    def ties(self, tol: float) -> int:
        """Return weights at a bound with a derivative of 0, to the tolerance."""
        w, slope = self.first_order.w, self.first_order.slope
        flat = np.abs(slope) <= tol * self.first_order.unit
        return int((flat & ((w == 0) | (w == 1))).sum())


class Descent:
    """Weights on their way down, with the sums of each class.

    Args:
        problem: the weight problem.
        start: (N,) feasible weights, in the order of the data.

    Attributes:
        w: (N,) current weights, in class order.
    """

    def __init__(self, problem: WeightProblem, start: np.ndarray) -> None:
        self.problem = problem
        data = problem.class_sorted
        self.w = start[data.order]
        self._sums = class_sums(self.w, data)
        C, steepest = problem.num_classes, float(max(data.xi_neg.max(), -data.xi_neg.min()))
        self._memory = Memory(np.full(C, -1), np.empty(C, RECORD), np.full(C, -1.0), steepest)
        self._way = 0.0

    def sweep(self) -> float:
        """Make moves 1 and 2 over all classes; return the largest change of one weight."""
        age, balance, data = self.problem.age, self.problem.balance, self.problem.class_sorted
        moved, self._way = sweep(self.w, data, age, balance, self._sums, self._memory, self._way)
        return moved

    def choose(self, thorough: bool = True) -> int:
        """Make move 4 in every class; return how many classes it changed.

        Args:
            thorough: look from three places, and at every choice of the sample kept in part.
        """
        age, balance, data = self.problem.age, self.problem.balance, self.problem.class_sorted
        changed, self._way = sweep_classes(
            self.w, data, age, balance, self._sums, self._memory, self._way, thorough
        )
        return changed

    def measure(self) -> Point:
        """Measure the current point, from sums made afresh: rounding errors cannot build up."""
        point = Point.of(self.problem, self.w)
        self._sums = point.first_order.sums
        return point

    def jump(self, face: Face, direction: np.ndarray | None) -> bool:
        """Make move 3; say whether the objective fell.

        Args:
            face: one fractional weight per class, at the current point.
            direction: (F,) where to, up to its sign; None goes nowhere.
        """
        before = self.w[face.free]
        if direction is None or not face.step(self.w, direction):
            return False
        data, balance = self.problem.class_sorted, self.problem.balance
        self._way += follow(self.w, before, face.free, data, balance, self._sums, self._memory)
        return True

    def settle(self, point: Point, tol: float) -> Point:
        """Put on the bounds what rounding left beside them, if that keeps the residual.

        Args:
            point: the current point.
            tol: the residual that must not be passed.

        Returns:
            The point the weights are at then.
        """
        free = np.flatnonzero((self.w > 0) & (self.w < 1)) if point.crowded else point.face.free
        rounded = np.round(self.w[free])
        beside = np.abs(self.w[free] - rounded) < _DUST
        if not beside.any():
            return point
        clean = self.w.copy()
        clean[free[beside]] = rounded[beside]
        settled = Point.of(self.problem, clean)
        if settled.residual > tol:
            return point
        self.w = clean
        return settled


def minimise_by_coordinates(
    problem: WeightProblem, start: np.ndarray, tol: float, max_sweeps: int
) -> Outcome:
    """Sweep until the scaled stationarity is small enough, then certify.

    Args:
        problem: the weight problem.
        start: (N,) feasible weights, in the order of the data.
        tol: the scaled stationarity to reach.
        max_sweeps: most sweeps.

    Returns:
        `Outcome` with status
        - local_minimum: stationary, every weight at a bound but at most one per class, those at a
          bound pushed against it, and L not curved down over the fractional ones;
        - stationary: first-order point without that certificate; the message says what is missing;
        - precision_limit: the sweeps stopped moving above `tol`, by rounding;
        - max_sweeps: out of sweeps.
    """
    descent = Descent(problem, start)
    status, message = "max_sweeps", ""
    sweeps, opening = 0, _OPENING
    for sweeps in range(1, max_sweeps + 1):
        if sweeps <= opening:
            if descent.choose(thorough=False) <= _FEW * problem.num_classes:
                opening = sweeps
            continue
        moved = descent.sweep()
        # While weights still cross the box there is nothing to measure.
        if moved >= _SETTLED and sweeps < max_sweeps:
            continue
        point = descent.measure()
        if point.residual <= tol:
            minimum = point.face.is_semidefinite()
            if not minimum and descent.jump(point.face, point.face.negative_direction()):
                continue
            if sweeps < max_sweeps and descent.choose():
                continue
            point = descent.settle(point, tol)
            status, message = _certify(point, tol, minimum)
            break
        # Newton steps taken while weights still cross the box settle on worse minima.
        jumped = moved < _SETTLED and descent.jump(point.face, point.face.newton_direction())
        if not jumped and moved <= _ROUNDING:
            status = "precision_limit"
            message = (
                f"Rounding stops the sweeps at a residual of {point.residual:.1e} > tol={tol:g}. "
                f"Scale down `balance` and the statistics, or raise `tol`."
            )
            break
    first_order = point.first_order if status in _CERTIFIED else descent.measure().first_order
    if status == "max_sweeps":
        rest = "Residual" if first_order.residual > tol else "A saddle was left just now: residual"
        message = (
            f"{rest} {first_order.residual:.1e} at tol={tol:g} after {max_sweeps} sweeps. Raise "
            "`max_sweeps`, or go on from these weights with `start=`."
        )
    values = first_order.objective(), first_order.stationarity()
    return Outcome(problem.class_sorted.scatter(descent.w), sweeps, status, message, values)


def _certify(point: Point, tol: float, minimum: bool) -> tuple[str, str]:
    if point.crowded:
        return "stationary", (
            f"First-order point; {point.crowded} classes hold several fractional weights "
            "(xi_pos <= 0 there), so it is not certified as a local minimum."
        )
    ties = point.ties(tol)
    if ties:
        return "stationary", (
            f"First-order point; {ties} weights at a bound have a zero derivative "
            "(ties), so it is not certified as a local minimum."
        )
    if not minimum:
        return "stationary", "First-order point; it may be a saddle between classes."
    return "local_minimum", "No feasible move close by lowers the objective."
