"""The age: how it grows along a curriculum, and which age keeps a wanted share of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bspml.errors import InputError
from bspml.tensors.checks import check_number, check_whole
from bspml.weights.problem import WeightProblem
from bspml.weights.solver import WeightSolution, solve_weights

# A bracket this small beside the range of ages holds a jump of MAW, not a continuous rise.
_RELATIVE_BRACKET = 1e-9


@dataclass(frozen=True)
class AgeSchedule:
    """age_t = min(growth age_{t-1}, maximum): [Zhang 2023] Algorithm 1, line 5.

    Attributes:
        age: lambda_0 > 0, the age of the first weight update, in units of xi.
        growth: the multiplier c >= 1.
        maximum: lambda_inf >= age; infinity lets the age grow without end.

    The paper prints none of the three.

    Example:
        >>> schedule = AgeSchedule(age=2.0, growth=1.5, maximum=4.0)
        >>> schedule.next(2.0), schedule.next(3.0)
        (3.0, 4.0)
    """

    age: float | int
    growth: float | int
    maximum: float | int

    def __post_init__(self) -> None:
        check_number(self.age, "age", low=0.0, open_low=True)
        check_number(self.growth, "growth", low=1.0)
        if check_number(self.maximum, "maximum", allow_infinite=True) < self.age:
            raise InputError(
                f"`maximum` must be at least `age`={self.age:g}; got {self.maximum:g}."
            )

    def next(self, age: float | int) -> float:
        """Return the age that follows `age`."""
        return float(min(self.growth * age, self.maximum))


@dataclass(frozen=True)
class AgeSearch:
    """Result of `age_for_maw`.

    Attributes:
        age: the age whose MAW came closest.
        maw: the MAW reached there, [Zhang 2023] eq. (14).
        solution: the weights at that age.
        evaluations: weight solves done.
        reached: whether |maw - target| is within the tolerance.
        message: the outcome in words.
    """

    age: float | int
    maw: float
    solution: WeightSolution
    evaluations: int
    reached: bool
    message: str


def age_for_maw(
    xi_pos: Any,
    xi_neg: Any,
    labels: Any,
    balance: float | int,
    target_maw: float | int,
    tolerance: float | int | None = None,
    max_evaluations: int = 60,
) -> AgeSearch:
    """Bisect for the age at which the mean class weight (MAW) is `target_maw`.

    Each solve starts anew from w = 1 in the fixed order of the samples, so the answer depends on
    the inputs alone.  MAW need not rise with the age, because the problem is not convex, and it
    can jump: the closest age seen is returned, with what it reached.  MAW averages class means;
    it is not the share of samples kept.

    The bracket is [0, 2 max xi_pos + 2 max xi_neg + 2 balance]: at its top no derivative can be
    positive, so all weights are 1.  It is widened downwards if age 0 keeps too much, or if a
    statistic is negative.

    Args:
        xi_pos: (N,) positive statistics, as for `WeightProblem`.
        xi_neg: (N,) negative statistics.
        labels: (N,) given labels.
        balance: mu >= 0.
        target_maw: wanted mean of the class means, in [0, 1].
        tolerance: accepted |MAW - target|.  Default 1e-3; without the balance term the largest
            step one weight can make, 1/(C min N_c), because all weights are 0 or 1 then.
        max_evaluations: most weight solves.

    Raises:
        InputError: as `WeightProblem`; target_maw outside [0, 1].
    """
    target = check_number(target_maw, "target_maw", low=0.0, high=1.0)
    max_evaluations = check_whole(max_evaluations, "max_evaluations")
    problem = WeightProblem(xi_pos, xi_neg, labels, age=0.0, balance=balance)
    if tolerance is None:
        continuous = problem.balance > 0 and problem.num_classes > 1
        tolerance = 1e-3 if continuous else 1 / (problem.num_classes * problem.sizes.min())
    tolerance = check_number(tolerance, "tolerance", low=0.0)
    low, bottom, top = _bracket(problem)
    search = _AgeEvaluations(problem, target, tolerance, max_evaluations)
    maw_low = search.evaluate(low)
    if maw_low > target and bottom < low:
        low = bottom
        search.evaluate(low)
    high = top
    search.evaluate(high)
    while search.goes_on() and high - low > _RELATIVE_BRACKET * (top - bottom):
        middle = (low + high) / 2
        if search.evaluate(middle) < target:
            low = middle
        else:
            high = middle
    return search.result()


class _AgeEvaluations:
    """Evaluates ages and remembers the one whose MAW is closest to the target."""

    def __init__(self, problem: WeightProblem, target: float, tolerance: float, most: int) -> None:
        self.problem, self.target, self.tolerance, self.most = problem, target, tolerance, most
        self.evaluations = 0
        self.best: tuple[float, float, WeightSolution] | None = None  # age, MAW, solution

    def evaluate(self, age: float) -> float:
        """Return MAW at `age`; the best MAW so far, unsolved, if the search is over."""
        if not self.goes_on() and self.best is not None:
            return self.best[1]
        problem = self.problem.with_age(age)
        solution = solve_weights(problem)
        self.evaluations += 1
        maw = float(problem.class_means(solution.weights).mean())
        if self.best is None or abs(maw - self.target) < abs(self.best[1] - self.target):
            self.best = (age, maw, solution)
        return maw

    def goes_on(self) -> bool:
        return not self._reached() and self.evaluations < self.most

    def result(self) -> AgeSearch:
        assert self.best is not None
        age, maw, solution = self.best
        request = f"asked {self.target:.4f} to within {self.tolerance:.1e}"
        message = f"MAW {maw:.4f} at age {age:.6g}; {request}."
        if not self._reached():
            message += (
                " MAW jumps over the target there; take another target or a larger `balance`."
                if self.evaluations < self.most
                else f" Stopped after {self.evaluations} solves; raise `max_evaluations`."
            )
        return AgeSearch(age, maw, solution, self.evaluations, self._reached(), message)

    def _reached(self) -> bool:
        return self.best is not None and abs(self.best[1] - self.target) <= self.tolerance


def _bracket(problem: WeightProblem) -> tuple[float, float, float]:
    """Return where to begin, an age that drops every sample, and one that keeps every sample.

    N_c dL/dw_i + age lies between twice the least and twice the greatest statistics, each kind
    taken as 0 if that is further out, give or take 2 balance.
    """
    low = 2 * min(0.0, problem.xi_pos.min()) + 2 * min(0.0, problem.xi_neg.min())
    high = 2 * max(0.0, problem.xi_pos.max()) + 2 * max(0.0, problem.xi_neg.max())
    slack = 2 * problem.balance
    width = (high - low + slack) or 1.0
    return float(low), float(low - slack - 0.01 * width), float(high + slack + 1e-9 * width)
