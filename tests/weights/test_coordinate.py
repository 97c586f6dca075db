"""The steps of a descent: what it measures, when it jumps, and how it ends."""

import numpy as np
import pytest

from bspml.weights.coordinate import Descent, Point, minimise_by_coordinates
from bspml.weights.problem import WeightProblem


def draw(seed, n=60, classes=9, balance=5.0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    return WeightProblem(2 * rng.random(n), rng.random(n), y, age=0.9, balance=balance)


def test_a_point_names_the_first_fractional_weight_of_each_class():
    problem = draw(0, n=7, classes=3)
    codes = problem.class_sorted.codes
    w = np.ones(7)
    w[codes == 0] = 0.5
    w[np.flatnonzero(codes == 2)[-1]] = 0.25
    point = Point.of(problem, w)
    assert point.face.free.tolist() == [0, int(np.flatnonzero(codes == 2)[-1])]
    assert point.crowded == int((codes == 0).sum() > 1)
    assert point.face.slope.tolist() == point.first_order.slope[point.face.free].tolist()


def test_ties_are_weights_at_a_bound_with_a_flat_derivative():
    # One class, no balance: N_c dL/dw = sum of xi_pos - age = 0 for both weights.
    problem = WeightProblem([0.5, 0.5], [0.0, 0.0], [0, 0], age=1.0, balance=0.0)
    assert Point.of(problem, np.ones(2)).ties(1e-8) == 2
    assert Point.of(problem, np.array([1.0, 0.5])).ties(1e-8) == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_jump_says_whether_the_objective_fell(seed):
    problem = draw(seed)
    descent = Descent(problem, np.random.default_rng(seed).random(60))
    for _ in range(3):
        descent.sweep()
    point = descent.measure()
    before = point.first_order.objective()
    assert not descent.jump(point.face, None)
    assert descent.measure().first_order.objective() == before
    assert descent.jump(point.face, point.face.newton_direction())
    assert descent.measure().first_order.objective() < before


def test_dust_beside_a_bound_is_put_on_it_unless_the_residual_rises():
    problem = WeightProblem([0.2, 0.2, 2.0], [0.0] * 3, [0, 0, 0], age=1.5)
    descent = Descent(problem, np.array([1.0, 1 - 1e-14, 1e-14]))
    point = descent.measure()
    assert descent.settle(point, tol=1e-8).residual == 0
    assert descent.w.tolist() == [1, 1, 0]
    descent = Descent(problem, np.array([1e-14, 1.0, 0.0]))  # the first belongs at 1
    point = descent.measure()
    assert descent.settle(point, tol=1e-8) is point
    assert descent.w[0] == 1e-14


def test_weights_come_back_in_the_order_of_the_data_with_their_values():
    problem = draw(1)
    outcome = minimise_by_coordinates(problem, np.ones(60), tol=1e-8, max_sweeps=100)
    assert outcome.status == "local_minimum"
    assert problem.stationarity(outcome.weights, scaled=True) <= 1e-8
    objective, stationarity = outcome.values
    assert objective == problem.objective(outcome.weights)
    assert stationarity == problem.stationarity(outcome.weights)


def test_rounding_that_stops_the_sweeps_is_named():
    problem = draw(2, balance=1e15)
    outcome = minimise_by_coordinates(problem, np.ones(60), tol=0.0, max_sweeps=1000)
    assert outcome.status == "precision_limit"
    assert "Scale down `balance`" in outcome.message
