"""Several descents, of which the lowest end counts.

The problem has many local minima, and which of them a descent finds depends on where it starts.
The classes act on each other through the mean of their means and one more sum, so starts that
differ in what share of every class they keep (`keep_share`) lead to the minima there are.  The
start that is given is one of them, or is passed over for one that is lower already: the answer is
never above it.
"""

from __future__ import annotations

import numpy as np

from bspml.weights.coordinate import minimise_by_coordinates
from bspml.weights.problem import Outcome, WeightProblem
from bspml.weights.whole_class import keep_share

SEARCHES = ("default", "deep")
_SHARES = np.linspace(0, 1, 11)
# With more samples one descent is affordable.  Its start then decides little: each of many classes
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
        search: see `solve_weights`.

    Returns:
        `Outcome` of the lowest descent, see `minimise_by_coordinates`; of equal ones the first.
    """
    first, *others = _starts(problem, start, search)
    lowest = minimise_by_coordinates(problem, first, tol, max_sweeps)
    for other in others:
        outcome = minimise_by_coordinates(problem, other, tol, max_sweeps)
        value = _objective(lowest)
        if _objective(outcome) < value - _LOWER * abs(value):
            lowest = outcome
    return lowest


def _starts(problem: WeightProblem, start: np.ndarray, search: str) -> list[np.ndarray]:
    data = problem.class_sorted
    shares = [data.scatter(keep_share(data, share)) for share in _SHARES]
    if search == "deep":
        return [start, *shares]
    best = min(shares, key=problem.objective)
    if problem.n > _FEW_SAMPLES:
        return [min(start, best, key=problem.objective)]
    return [start, shares[0]] if best is shares[0] else [start, shares[0], best]


def _objective(outcome: Outcome) -> float:
    assert outcome.values is not None
    return outcome.values[0]
