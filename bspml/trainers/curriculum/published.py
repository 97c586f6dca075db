"""The weight update as printed: pair statistics, the quadratic problem, the growing age."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

from torch import Tensor

from bspml.distributed.main_rank import solved_once
from bspml.statistics.noise_rate import ALIKE, all_in_one_place
from bspml.statistics.pair import PairStatistics
from bspml.tensors.checks import check_number
from bspml.trainers.curriculum.search import StatisticsSearch
from bspml.trainers.settings import PaperSettings
from bspml.weights.age import AgeSchedule, AgeSearch, age_for_maw
from bspml.weights.problem import WeightProblem
from bspml.weights.solver import WeightSolution, check_options, solve_weights
from bspml.weights.state import SampleWeights

_CLOSE, _MOST = 1e-3, 8  # to a MAW that is wished for, and searches for it where some are decided


class PublishedUpdate:
    """Lines 4 and 5 of Algorithm 1: solve eq. (6) from the current weights, then let the age grow.

    With `target_maw` the age is found by bisection instead, so that the mean average weight of
    the classes meets a wish; each solve then starts from w = 1, because the answer must not
    depend on the search's path.  The search uses the coordinate solver without options; another
    `solver`, or one with options, then solves once more, from w = 1, at the age found, and may end
    at a slightly other MAW.  What a person decided stays, and the wish is about all labels: where
    some are decided, the age is searched for again, for what the others have to reach.
    """

    warmup, phase, rounds_to_reset, needs_embeddings = None, "weights", None, True

    def __init__(self, weights: SampleWeights, settings: PaperSettings) -> None:
        settings.check_pace()
        every = {"tol", "max_sweeps", "seed", "search"}  # of `solve_weights` itself
        options = settings.solver_options
        check_options(settings.solver, {k: v for k, v in options.items() if k not in every})
        self.weights, self.settings, self.age = weights, settings, settings.age
        self.schedule = None
        if settings.age is not None:
            limit = math.inf if settings.age_max is None else settings.age_max
            self.schedule = AgeSchedule(settings.age, settings.age_growth, limit)
        self.search = StatisticsSearch(settings.search, settings.statistics_error)

    def training_mask(self) -> Tensor | None:
        """Return (N,) bool, the rows that take part; None for all."""
        return None if (there := self._there()).all() else there

    def allowed_mask(self) -> None:
        """Return None: every row may be visited."""

    def update(self, embeddings: Tensor | None) -> dict[str, Any]:
        """Solve for the weights on these embeddings and return the record's fields."""
        assert embeddings is not None
        start = time.perf_counter()
        there = self._there()
        current = self._weights_of(there)
        codes, embeddings = self.weights.codes.cpu()[there], embeddings[there.to(embeddings.device)]
        weighted = current if self.settings.statistics == "weighted" else None
        stats = self.search.pair_statistics(embeddings, codes, self.settings, weighted)
        solving = time.perf_counter()
        if all_in_one_place(embeddings):
            warnings.warn(
                f"{ALIKE} The weights of this update say nothing about the labels.", stacklevel=3
            )
        fields = solved_once(self, lambda: self._solve(stats, there, current))
        seconds = time.perf_counter() - solving
        return fields | {"seconds_statistics": solving - start, "seconds_solve": seconds}

    def _there(self) -> Tensor:
        """Return (N,) bool, all but the labels that a person decided to be wrong: they judge nobody
        and are no part of the problem.  All, where no other is left."""
        there = ~self.weights.fixed.cpu() | (self.weights.weights.cpu() > 0)
        return there if there.any() else ~there

    def _solve(self, stats: PairStatistics, there: Tensor, current: Tensor) -> dict[str, Any]:
        settings = self.settings
        statistics = (stats.xi_pos, stats.xi_neg, self.weights.codes.cpu()[there])
        start, age_next, solution = None, None, None
        if settings.target_maw is not None:
            search = self._search(statistics, there, settings.target_maw)
            age = search.age
            as_searched = settings.solver == "coordinate" and not settings.solver_options
            solution = search.solution if as_searched else None
        else:
            assert self.age is not None
            assert self.schedule is not None
            age, start, age_next = self.age, current, self.schedule.next(self.age)
        problem = WeightProblem(*statistics, age, settings.balance)
        if solution is None:
            options = settings.solver_options
            solution = solve_weights(problem, start=start, method=settings.solver, **options)
        before = problem.objective(current)
        self._write(solution, there)
        self.age = age if age_next is None else age_next
        return {
            "phase": self.phase,
            "age": age,
            "age_next": age_next,
            "objective_before": before,
            **solution.fields(),  # but for what a person decided, which holds
            "objective_after": problem.objective(self._weights_of(there)),
        }

    def _weights_of(self, there: Tensor) -> Tensor:
        return self.weights.weights.detach().cpu().double()[there]

    def _search(
        self, statistics: tuple[Tensor, Tensor, Tensor], there: Tensor, wish: float | int
    ) -> AgeSearch:
        """Find the age at which the MAW of all labels, decided ones as decided, is the wish."""
        found: list[tuple[float, AgeSearch]] = []
        target = wish
        while len(found) < _MOST:
            search = age_for_maw(*statistics, self.settings.balance, target)
            self._write(search.solution, there)
            missed = wish - self.weights.maw()
            found.append((abs(missed), search))
            before, target = target, min(max(target + missed, 0.0), 1.0)
            if abs(missed) < _CLOSE or target == before or not self.weights.fixed.any():
                break
        return min(found, key=lambda each: each[0])[1]

    def _write(self, solution: WeightSolution, there: Tensor) -> None:
        self.weights.update(there.double().masked_scatter(there, solution.weights))

    def scores(self) -> Tensor | None:
        """Return None: there is no score finer than the weights."""
        return None

    def state_dict(self) -> dict[str, Any]:
        """Return the age, the only thing carried between updates beside the weights."""
        return {"age": self.age}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            InputError: an age that is none.
        """
        age = state["age"]
        low = -math.inf if self.settings.age is None else 0.0  # one that is found may be below 0
        self.age = None if age is None else check_number(age, "age", low, open_low=True)
