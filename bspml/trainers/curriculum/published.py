"""The paper's weight update: pair statistics, the quadratic problem, the growing age."""

from __future__ import annotations

import time
from typing import Any

from torch import Tensor

from bspml.distributed.main_rank import solved_once
from bspml.errors import InputError
from bspml.statistics.pair import PairStatistics
from bspml.tensors.checks import check_choice, check_number
from bspml.trainers.curriculum.search import StatisticsSearch
from bspml.weights.age import AgeSchedule, age_for_maw
from bspml.weights.problem import WeightProblem
from bspml.weights.solver import METHODS, check_options, solve_weights
from bspml.weights.state import SampleWeights

# What [Zhang 2023] prints; balance, the first age and its growth it does not.
PUBLISHED = {"alpha": 2.0, "beta": 50.0, "base": 1.0}


class PublishedUpdate:
    """Lines 4 and 5 of Algorithm 1: solve eq. (6) from the current weights, then let the age grow.

    With `target_maw` the age is found by bisection instead, so that the mean average weight of
    the classes meets a wish; each solve then starts from w = 1, because the answer must not
    depend on the search's path.  The search uses the coordinate solver; another `solver` then
    solves once more, from w = 1, at the age found, and may end at a slightly other MAW.
    """

    warmup = None

    def __init__(
        self,
        weights: SampleWeights,
        *,
        balance: float,
        age: float | None = None,
        age_growth: float = 1.1,
        age_max: float | None = None,
        target_maw: float | None = None,
        alpha: float = PUBLISHED["alpha"],
        beta: float = PUBLISHED["beta"],
        base: float = PUBLISHED["base"],
        statistics: str = "unweighted",
        solver: str = "coordinate",
        solver_options: dict[str, Any] | None = None,
        search: StatisticsSearch | None = None,
    ) -> None:
        if (age is None) == (target_maw is None):
            raise InputError(
                'preset="paper" needs exactly one of `age` and `target_maw`: the paper does not '
                "print its age. Pass age= (a typical pair statistic, about 1 to 5), or "
                "target_maw= (the share of weight to keep, such as 0.7)."
            )
        check_choice(solver, "solver", METHODS)
        self.weights = weights
        self.balance = check_number(balance, "balance", 0)
        self.schedule = None
        self.age = age
        if age is not None:
            self.age = check_number(age, "age")
            limit = float("inf") if age_max is None else age_max
            maximum = check_number(limit, "age_max", allow_infinite=True)
            self.schedule = AgeSchedule(self.age, age_growth, maximum)
        self.target_maw = (
            None if target_maw is None else check_number(target_maw, "target_maw", 0, 1)
        )
        self.scales = (
            check_number(alpha, "alpha", 0, open_low=True),
            check_number(beta, "beta", 0, open_low=True),
            check_number(base, "base"),
        )
        self.weighted = check_choice(statistics, "statistics", ["unweighted", "weighted"])
        self.search = search or StatisticsSearch()
        self.solver, self.solver_options = solver, solver_options or {}
        every = {"tol", "max_sweeps", "seed"}  # of `solve_weights` itself
        check_options(solver, {k: v for k, v in self.solver_options.items() if k not in every})

    def training_rows(self) -> None:
        """Every row takes part."""

    def allowed_rows(self) -> None:
        """Every row may be visited."""

    def update(self, embeddings: Tensor) -> dict[str, Any]:
        """Solve for the weights on these embeddings; returns the record's fields."""
        start = time.perf_counter()
        current = self.weights.weights.detach().cpu().double()
        codes = self.weights.codes.cpu()
        alpha, beta, base = self.scales
        stats = self.search.pair_statistics(
            embeddings,
            codes,
            alpha,
            beta,
            base,
            sample_weights=current if self.weighted == "weighted" else None,
        )
        solving = time.perf_counter()
        fields = solved_once(self, lambda: self._solve(stats, codes, current))
        fields["seconds_statistics"] = solving - start
        fields["seconds_solve"] = time.perf_counter() - solving
        return fields

    def _solve(self, stats: PairStatistics, codes: Tensor, current: Tensor) -> dict[str, Any]:
        if self.target_maw is not None:
            search = age_for_maw(stats.xi_pos, stats.xi_neg, codes, self.balance, self.target_maw)
            age, solution = search.age, search.solution
            problem = WeightProblem(stats.xi_pos, stats.xi_neg, codes, age, self.balance)
            age_next = None
            if self.solver != "coordinate":
                solution = solve_weights(problem, method=self.solver, **self.solver_options)
        else:
            assert self.age is not None
            assert self.schedule is not None
            age = self.age
            problem = WeightProblem(stats.xi_pos, stats.xi_neg, codes, age, self.balance)
            solution = solve_weights(
                problem, start=current, method=self.solver, **self.solver_options
            )
            age_next = self.schedule.next(age)
        before = problem.objective(current)
        self.weights.update(solution.weights)
        self.age = age if age_next is None else age_next
        return {
            "phase": "weights",
            "age": age,
            "age_next": age_next,
            "objective_before": before,
            "objective_after": solution.objective,
            "stationarity": solution.stationarity,
            "status": solution.status,
            "message": solution.message,
        }

    def scores(self) -> Tensor | None:
        """No score finer than the weights."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """The age, the only thing carried between updates beside the weights."""
        return {"age": self.age}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of `state_dict`."""
        self.age = state["age"]
