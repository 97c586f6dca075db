"""Solve a weight problem: one problem in, weights with a certificate out."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from bspml.errors import InputError
from bspml.shapes import Float, Tensor
from bspml.tensors.arguments import check_kind
from bspml.tensors.checks import check_choice, check_number, check_whole
from bspml.weights.doubly_stochastic import StochasticOptions, minimise_stochastically
from bspml.weights.problem import WeightProblem
from bspml.weights.search import SEARCHES, search_minimum

METHODS = ("coordinate", "doubly-stochastic")


@dataclass(frozen=True)
class WeightSolution:
    """The weights a solver ended at, and what is certain about them.

    Attributes:
        weights: (N,) float64, every entry in [0, 1].
        objective: L(weights), [Zhang 2023] eq. (6).
        stationarity: ‖w − Π(w − ∇L(w)/unit)‖_∞, with the `unit` of the problem; 0 exactly at
            first-order points.
        sweeps: passes over all weights, of the descent that ended lowest; for Algorithm 3, N
            steps each.
        status: local_minimum, stationary, precision_limit, no_progress or max_sweeps: see
            `minimise_by_coordinates` and `minimise_stochastically`.
        message: the status in words, with what to change.

    Example:
        >>> solution = solve_weights(WeightProblem([0.2, 0.2], [0.0, 0.0], ["a", "a"], age=1.5))
        >>> solution.weights.tolist(), solution.stationarity, solution.converged
        ([1.0, 1.0], 0.0, True)
        >>> solution.message
        'No feasible move close by lowers the objective.'
    """

    weights: Float[Tensor, " N"]
    objective: float
    stationarity: float
    sweeps: int
    status: str
    message: str

    @property
    def converged(self) -> bool:
        """Whether a first-order point was reached to the tolerance."""
        return self.status in ("local_minimum", "stationary")

    def fields(self) -> dict[str, Any]:
        """Return the fields of a `CurriculumRecord` about it."""
        names = "stationarity", "status", "message"
        return {"objective_after": self.objective} | {name: getattr(self, name) for name in names}


def solve_weights(
    problem: WeightProblem,
    start: Any = None,
    method: str = "coordinate",
    tol: float | int = 1e-8,
    max_sweeps: int = 1000,
    seed: int = 0,
    search: str = "default",
    **options: Any,
) -> WeightSolution:
    """Find weights that no small feasible move improves, and no other choice within one class.

    "coordinate" minimises exactly over one weight, one pair, one class or one face after the other:
    the objective never rises, and the answer is usually a certified local minimum.  Of several
    descents the lowest counts.  It draws nothing, and the same problem in other units (statistics,
    age and balance times s) has the same answer.
    "doubly-stochastic" is [Zhang 2023] Algorithm 3 as printed, for comparison.

    Args:
        problem: statistics, labels, age and balance.
        start: (N,) feasible weights to start from; None: all ones, as Algorithm 1 does.  The
            problem is not convex, so the answer depends on the start, and on the samples' order;
            its objective is never above the start's.
        method: "coordinate" or "doubly-stochastic".
        tol: stop once the scaled stationarity (each gradient times its class's size; at least the
            plain one that the solution reports) is at most this.
        max_sweeps: most passes over all the weights, of one descent.
        seed: random stream of Algorithm 3; the coordinate method has none.
        search: of the coordinate method, where to descend from.  "deep": from `start`, and from the
            best 0, 10, ..., 100 % of each class.  "default": from `start`, from 0 % and from the
            lowest of these; beyond 5,000 samples from the lower of `start` and the lowest only.
        **options: fields of `StochasticOptions`, for method="doubly-stochastic" only: gamma,
            classes_per_step (P), samples_per_class (K), decay_passes, batch_growth, patience,
            min_decrease.

    Raises:
        InputError: start infeasible or of another length, unknown method or option, gamma not
            below 2/L_max.

    Example:
        >>> problem = WeightProblem([0.2, 0.2, 2.0], [0.0, 0.0, 0.0], [0, 0, 0], age=1.5)
        >>> solution = solve_weights(problem)
        >>> solution.weights.tolist(), solution.status
        ([1.0, 1.0, 0.0], 'local_minimum')
    """
    check_kind(problem, "problem", WeightProblem, "a WeightProblem")
    check_choice(method, "method", METHODS)
    check_choice(search, "search", SEARCHES)
    tol = check_number(tol, "tol", low=0.0)
    max_sweeps, seed = check_whole(max_sweeps, "max_sweeps"), check_whole(seed, "seed", low=0)
    w = np.ones(problem.n) if start is None else problem.check_feasible(start, "start")
    check_options(method, options)
    if method == "coordinate":
        outcome = search_minimum(problem, w, tol, max_sweeps, search)
    else:
        settings = StochasticOptions(**options)
        outcome = minimise_stochastically(problem, w, tol, max_sweeps, seed, settings)
    weights = outcome.weights
    values = outcome.values or (problem.objective(weights), problem.stationarity(weights))
    return WeightSolution(
        weights=torch.from_numpy(weights),
        objective=values[0],
        stationarity=values[1],
        sweeps=outcome.sweeps,
        status=outcome.status,
        message=outcome.message,
    )


def check_options(method: str, options: dict[str, Any]) -> None:
    """Refuse further options of `solve_weights` that a method does not take.

    Args:
        method: "coordinate" or "doubly-stochastic".
        options: name and value of each.

    Raises:
        InputError: an option the method does not know; the message lists those it does.
    """
    accepted = [f.name for f in fields(StochasticOptions)] if method == "doubly-stochastic" else []
    unknown = sorted(set(options) - set(accepted))
    if unknown:
        takes = f"it takes {', '.join(accepted)}" if accepted else "it takes no further options"
        raise InputError(f"method={method!r} does not know `{'`, `'.join(unknown)}`; {takes}.")
