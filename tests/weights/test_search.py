"""The lowest of several descents, against scipy's L-BFGS-B from the same start."""

import numpy as np
import pytest
from scipy.optimize import minimize

from bspml.errors import InputError
from bspml.statistics.pair import pair_statistics
from bspml.weights.coordinate import minimise_by_coordinates
from bspml.weights.problem import WeightProblem
from bspml.weights.solver import solve_weights

EQUAL = 1e-9  # relative: below this two methods have found the same minimum


def by_lbfgs(problem, start):
    """The objective at which scipy's L-BFGS-B ends, asked for more digits than it can reach."""
    return minimize(
        lambda w: (problem.objective(w), problem.gradient(w).numpy()),
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, 1)] * problem.n,
        options={"maxiter": 5000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-10},
    ).fun


def noisy_classes(seed, n=96, classes=8, noise=0.3):
    """Pair statistics of Gaussian classes of which a share of the labels is drawn anew."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, classes, n)
    images = rng.standard_normal((classes, 16))[true] + 0.8 * rng.standard_normal((n, 16))
    labels = np.where(rng.random(n) < noise, rng.integers(0, classes, n), true)
    stats = pair_statistics(images, labels)
    return stats.xi_pos.numpy(), stats.xi_neg.numpy(), labels


@pytest.mark.parametrize("balance", [0.0, 1.0, 100.0])
@pytest.mark.parametrize("share", [0.2, 0.4, 0.6])
def test_statistics_of_noisy_classes_end_at_or_below_lbfgs(share, balance):
    xi_pos, xi_neg, labels = noisy_classes(0)
    age = 2 * share * float(np.median(xi_pos + xi_neg))
    problem = WeightProblem(xi_pos, xi_neg, labels, age, balance)
    theirs = by_lbfgs(problem, np.ones(96))
    assert theirs < 0
    assert solve_weights(problem).objective <= theirs + EQUAL * abs(theirs)


@pytest.mark.parametrize("seed", range(24))
def test_drawn_problems_end_at_or_below_lbfgs_from_the_same_start(seed):
    rng = np.random.default_rng(seed)
    n, classes = int(rng.integers(20, 120)), int(rng.integers(1, 20))
    balance = (0.0, 0.01, 0.1, 1.0, 10.0, 1000.0)[seed % 6]
    xi_pos = rng.gamma(4, 0.15, n) + 0.3 + 0.5 * (rng.random(n) < 0.3)
    xi_neg = rng.gamma(2, 0.1, n) * (1, 4)[seed % 2]
    age = float(np.median(xi_pos + xi_neg) * rng.uniform(0.2, 2.0))
    problem = WeightProblem(xi_pos, xi_neg, rng.integers(0, classes, n), age, balance)
    start = np.ones(n) if seed % 4 else rng.random(n)
    theirs, ours = by_lbfgs(problem, start), solve_weights(problem, start=start).objective
    assert ours <= theirs + EQUAL * abs(theirs)
    assert ours <= problem.objective(start)


@pytest.mark.parametrize("balance", [0.0, 0.3, 20.0, 1000.0])
@pytest.mark.parametrize("scale", [1e-9, 1e9, 2.0**-300, 3e100])
def test_other_units_of_statistics_age_and_balance_give_the_same_weights(scale, balance):
    xi_pos, xi_neg, labels = noisy_classes(1)
    plain = solve_weights(WeightProblem(xi_pos, xi_neg, labels, 1.2, balance))
    problem = WeightProblem(xi_pos * scale, xi_neg * scale, labels, 1.2 * scale, balance * scale)
    other = solve_weights(problem)
    np.testing.assert_allclose(other.weights, plain.weights, rtol=0, atol=1e-9)
    assert (other.status, other.sweeps) == (plain.status, plain.sweeps)
    assert other.objective == pytest.approx(plain.objective * scale, rel=1e-12)
    assert 0.05 < float(plain.weights.mean()) < 0.95


@pytest.mark.parametrize("search", ["default", "deep"])
@pytest.mark.parametrize("exponent", [-500, -60, 5, 500])
def test_powers_of_two_give_the_same_bits_also_among_equal_optima(exponent, search):
    scale = 2.0**exponent
    for seed in range(12):
        rng = np.random.default_rng(seed)
        xi, y = rng.integers(0, 3, (2, 24)).astype(float), rng.integers(0, 4, 24)
        age, balance = float(rng.integers(1, 5)), (0.0, 0.5, 4.0, 100.0)[seed % 4]
        plain = solve_weights(WeightProblem(*xi, y, age, balance), search=search)
        other = WeightProblem(*xi * scale, y, age * scale, balance * scale)
        found = solve_weights(other, search=search)
        np.testing.assert_array_equal(found.weights, plain.weights)
        assert (found.status, found.objective) == (plain.status, plain.objective * scale)
        given = {"method": "doubly-stochastic", "max_sweeps": 3, "classes_per_step": 2}
        steps = [
            solve_weights(problem, gamma=0.01 / unit, **given).weights
            for problem, unit in ((WeightProblem(*xi, y, age, balance), 1), (other, scale))
        ]
        np.testing.assert_array_equal(*steps)


def test_further_starts_lower_the_objective_where_a_class_is_better_left_out():
    # From all ones one descent ends above; the lower minimum keeps fewer of each class.
    gains = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        y, xi = rng.integers(0, 2, 30), rng.random((2, 30))
        problem = WeightProblem(xi[0], 3 * xi[1], y, age=0.9, balance=0.01)
        one = minimise_by_coordinates(problem, np.ones(30), 1e-8, 1000).values[0]
        several, deep = solve_weights(problem), solve_weights(problem, search="deep")
        assert several.objective <= one
        assert deep.objective <= several.objective + 1e-12 * abs(several.objective)
        gains += several.objective < one - 1e-6
    assert gains > 5


def test_a_solution_of_the_same_problem_is_not_left_for_an_equal_one():
    problem = WeightProblem(*noisy_classes(2), 1.2, 1.0)
    first = solve_weights(problem)
    again = solve_weights(problem, start=first.weights)
    np.testing.assert_allclose(again.weights, first.weights, atol=1e-6)


def test_an_unknown_search_is_refused_by_name():
    problem = WeightProblem([1.0], [1.0], [0], 1.0)
    with pytest.raises(InputError, match="`search` must be one of default, deep"):
        solve_weights(problem, search="wide")
