"""Several descents, of which the lowest end counts.

The problem has many local minima, and which of them a descent finds depends on where it starts.
The classes act on each other through the mean of their means and one more sum, so starts that
differ in what share of every class they keep (`keep_share`) lead to the minima there are; the
start that is given is one of them, so the answer is never above it.
"""

from __future__ import annotations

import numpy as np

from bspml.weights.coordinate import minimise_by_coordinates
from bspml.weights.first_order import FirstOrder
from bspml.weights.problem import Outcome, WeightProblem
from bspml.weights.whole_class import keep_share

SEARCHES = ("default", "deep")
_SHARES = np.linspace(0, 1, 11)
# With more samples a descent takes long and its start decides little: each of the many classes
# finds its own way.
_FEW_SAMPLES = 5_000
# Another start has to end lower by this share, or equal minima would change with rounding.
_LOWER = 1e-12


def search_minimum(
    problem: WeightProblem, start: np.ndarray, tol: float, max_sweeps: int, search: str
) -> Outcome:
    """Descend from `start`, and from further starts of our own; return the lowest.

    Args:
        problem: the weight problem.
        start: (N,) feasible weights, in the order of the data.
        tol: the scaled stationarity to reach.
        max_sweeps: most sweeps of one descent.
        search: "deep" adds the 11 starts that keep 0, 10, ..., 100 % of each class; "default" adds,
            up to 5,000 samples, the one of 0 % and the lowest of them.

    Returns:
        `Outcome` of the lowest descent, see `minimise_by_coordinates`; of equal ones the first.
    """
    lowest = minimise_by_coordinates(problem, start, tol, max_sweeps)
    for other in _further_starts(problem, search):
        outcome = minimise_by_coordinates(problem, other, tol, max_sweeps)
        value = _objective(lowest)
        if _objective(outcome) < value - _LOWER * abs(value):
            lowest = outcome
    return lowest


def _further_starts(problem: WeightProblem, search: str) -> list[np.ndarray]:
    if search == "default" and problem.n > _FEW_SAMPLES:
        return []
    data = problem.class_sorted
    shares = [keep_share(data, share) for share in _SHARES]
    if search == "default":
        scale = problem.age, problem.balance, problem.unit
        values = [FirstOrder.at(w, data, *scale).objective() for w in shares]
        first = int(np.argmin(values))
        shares = [shares[0], shares[first]] if first else [shares[0]]
    return [data.scatter(w) for w in shares]


def _objective(outcome: Outcome) -> float:
    assert outcome.values is not None
    return outcome.values[0]
