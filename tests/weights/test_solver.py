"""The coordinate solver: exactness on tiny problems, laws, certificate, messages."""

import collections
import itertools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from bspml.errors import InputError
from bspml.weights.coordinate import Descent
from bspml.weights.face import Face
from bspml.weights.problem import WeightProblem
from bspml.weights.solver import METHODS, solve_weights
from helpers.comparisons import feasible

TOL = 1e-8


def draw(seed, n=24, classes=5, age=1.0, balance=1.0, shift=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    xi_pos, xi_neg = rng.random(n) * 2 - shift, rng.random(n) - shift
    return WeightProblem(xi_pos, xi_neg, y, age=age, balance=balance)


def hessian(problem):
    """Exact for a quadratic: differences of gradients."""
    at_zero = problem.gradient(np.zeros(problem.n))
    return np.stack([(problem.gradient(e) - at_zero).numpy() for e in np.eye(problem.n)])


def global_minimum(problem):
    """Least L over all 3^N splits into (at 0, at 1, free and stationary)."""
    H, g0, n = hessian(problem), problem.gradient(np.zeros(problem.n)).numpy(), problem.n
    best, best_w = np.inf, np.zeros(n)
    for kinds in itertools.product((0, 1, 2), repeat=n):
        kinds = np.array(kinds)
        w, free = (kinds == 1).astype(float), kinds == 2
        if free.any():
            inner = H[np.ix_(free, free)]
            w[free] = np.linalg.lstsq(inner, -(g0 + H @ w)[free], rcond=None)[0]
            if w[free].min() < 0 or w[free].max() > 1:
                continue
        value = g0 @ w + w @ H @ w / 2
        if value < best:
            best, best_w = value, w
    return best, best_w


@pytest.mark.parametrize("balance", [0.0, 0.3, 5.0])
@pytest.mark.parametrize("seed", range(4))
def test_result_is_a_local_minimum_and_the_best_start_finds_the_global_one(seed, balance):
    problem = draw(seed, n=6, classes=2, age=0.7, balance=balance)
    lowest, _ = global_minimum(problem)
    found = []
    for corner in itertools.product((0.0, 1.0), repeat=6):
        solution = solve_weights(problem, start=corner)
        assert solution.objective >= lowest - 1e-10
        found.append(solution.objective)
    assert min(found) == pytest.approx(lowest, abs=1e-9)

    solution = solve_weights(problem)
    assert solution.status == "local_minimum"
    rng = np.random.default_rng(seed)
    for size in (1e-2, 1e-4):
        moved = np.clip(solution.weights.numpy() + size * rng.standard_normal((200, 6)), 0, 1)
        assert min(map(problem.objective, moved)) >= solution.objective - 1e-12


def test_convex_case_equals_the_grid_optimum():
    # Six singleton classes with similar negative statistics: the Hessian is positive definite.
    rng = np.random.default_rng(0)
    problem = WeightProblem(np.zeros(6), 0.3 + 0.4 * rng.random(6), range(6), age=0.75, balance=1.0)
    H, g0 = hessian(problem), problem.gradient(np.zeros(6)).numpy()
    assert np.linalg.eigvalsh(H)[0] > 0
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 11)] * 6), -1).reshape(-1, 6)
    values = grid @ g0 + ((grid @ H) * grid).sum(1) / 2
    solution = solve_weights(problem)
    nearest = grid[values.argmin()]
    # The grid cannot do better, and is off by at most the curvature over half a cell.
    off = 0.05**2 / 2 * np.abs(H).sum()
    assert values.min() - off <= solution.objective <= values.min() + 1e-12
    assert np.abs(solution.weights.numpy() - nearest).max() < 0.2
    assert 0 < solution.weights.min() < solution.weights.max() < 1


STATUSES = collections.Counter()  # of the drawn problems


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 40),
    classes=st.integers(1, 9),
    balance=st.sampled_from([0.0, 1e-3, 1.0, 100.0, 1e6]),
    shift=st.sampled_from([0.0, 1.0]),
    ties=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def solve_any_problem(seed, n, classes, balance, shift, ties):
    rng = np.random.default_rng(seed)
    xi = rng.random((2, n)) * 2 - shift
    xi = np.round(xi) if ties else xi
    problem = WeightProblem(xi[0], xi[1], rng.integers(0, classes, n), 4 * rng.random(), balance)
    start = rng.random(n)
    solution = solve_weights(problem, start=start)
    w = solution.weights.numpy()
    assert feasible(w)
    assert solution.status in ("local_minimum", "stationary")
    assert solution.stationarity == problem.stationarity(w)
    assert solution.stationarity <= problem.stationarity(w, scaled=True) <= TOL
    assert solution.objective <= problem.objective(start) + 1e-12 * (1 + balance)
    STATUSES[solution.status] += 1
    if solution.status == "local_minimum":
        fractional = (w > 0) & (w < 1)
        assert np.bincount(problem.codes[fractional], minlength=1).max() <= 1
        inner = hessian(problem)[np.ix_(fractional, fractional)]
        assert (np.linalg.eigvalsh(inner) >= -1e-9 * (1 + balance)).all()
        STATUSES["curved"] += fractional.any()


def test_any_problem_gets_a_feasible_first_order_point_not_above_its_start():
    STATUSES.clear()
    solve_any_problem()
    assert STATUSES["local_minimum"] > 50
    assert STATUSES["curved"] > 10


@pytest.mark.parametrize("balance", [0.0, 1.0, 100.0])
def test_objective_never_rises_from_sweep_to_sweep(balance):
    problem = draw(1, n=300, classes=40, age=0.9, balance=balance)
    values = [solve_weights(problem, max_sweeps=k).objective for k in range(1, 25)]
    assert all(b <= a + 1e-11 for a, b in itertools.pairwise(values))


@pytest.mark.parametrize("seed", range(5))
def test_a_sweep_leaves_the_weight_it_visits_last_at_its_exact_minimum(seed):
    # That needs every running sum to be right, after steps and pair moves in all classes before.
    # The last class is a lone sample: no pair move follows its step.
    rng = np.random.default_rng(seed)
    y = np.concatenate([rng.integers(0, 2, 40), [2]])
    problem = WeightProblem(2 * rng.random(41), rng.random(41), y, age=0.9, balance=2.0)
    descent = Descent(problem, rng.random(41))
    descent.sweep()
    weights = problem.class_sorted.scatter(descent.w)
    step = float(problem.gradient(weights)[-1]) / (2 * problem.balance)
    assert np.clip(weights[-1] - step, 0, 1) == pytest.approx(weights[-1], abs=1e-12)


def test_two_fractional_weights_of_one_class_are_pulled_apart():
    # L = w1 w2 - (w1 + w2)/2: (.5, .5) is stationary, curved down along (1, -1); minimum -1/2.
    problem = WeightProblem([1, 1], [0, 0], [0, 0], age=1)
    assert problem.stationarity([0.5, 0.5]) == 0
    solution = solve_weights(problem, start=[0.5, 0.5])
    assert sorted(solution.weights.tolist()) == [0, 1]
    assert solution.objective == -0.5


def test_a_saddle_between_classes_is_left():
    # L = 2 w1 w2 - (w1 + w2) + .1 (w1 - w2)^2: (.5, .5) is stationary; the minimum is -.9.
    problem = WeightProblem([0, 0], [1, 1], [0, 1], age=1, balance=0.1)
    assert problem.stationarity([0.5, 0.5]) < 1e-15
    solution = solve_weights(problem, start=[0.5, 0.5])
    assert solution.objective == pytest.approx(-0.9, abs=1e-12)
    assert solution.status == "local_minimum"


def test_ties_at_a_bound_are_not_certified():
    problem = WeightProblem([0, 0], [0, 0], [0, 1], age=0, balance=0)  # L = 0 everywhere
    solution = solve_weights(problem)
    assert solution.status == "stationary"
    assert "ties" in solution.message
    assert solution.weights.tolist() == [1, 1]  # an exact tie keeps the current weight


def test_several_fractional_weights_of_a_class_are_not_certified():
    # Class 1 stays at 1.  Then N_0 L = (w1 + w2)^2 - 2 w1 w2 - 4 (w1 + w2) + 3 (w1 + w2) for class
    # 0, balance, xi_pos, balance and age in turn: w1^2 - w1 + w2^2 - w2, least at (.5, .5).
    problem = WeightProblem([-1, -1, -20, -20], [0] * 4, [0, 0, 1, 1], age=-3, balance=2)
    solution = solve_weights(problem)
    assert solution.weights.tolist() == [0.5, 0.5, 1, 1]
    assert solution.status == "stationary"
    assert "several fractional weights" in solution.message


def test_a_stationary_point_is_left_for_a_lower_choice():
    # L = -w1 w2 + (w1 + w2)/2: (.5, .5) is stationary, at 1/4, and curves up along (1, -1).
    problem = WeightProblem([-1, -1], [0, 0], [0, 0], age=-1)
    assert problem.stationarity([0.5, 0.5]) == 0
    assert problem.objective([0.5, 0.5]) == 0.25
    assert solve_weights(problem, start=[0.5, 0.5]).objective == 0


def test_no_weight_is_left_a_rounding_error_away_from_a_bound():
    problem = draw(5, n=300, classes=40, age=0.0, balance=10.0)
    w = solve_weights(problem).weights.numpy()
    assert not np.any((w > 0) & (w < 1e-12))


@pytest.mark.parametrize("balance", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("classes", [1, 5, 24])
def test_a_huge_age_keeps_all_and_a_negative_age_drops_all(balance, classes):
    top = 2 * 2 + 2 * 1 + 2 * balance
    assert solve_weights(draw(0, 24, classes, top, balance)).weights.eq(1).all()
    assert solve_weights(draw(0, 24, classes, 1e12, balance)).weights.eq(1).all()
    dropped = solve_weights(draw(0, 24, classes, -1e-3, 0.0))
    assert dropped.weights.eq(0).all()
    assert solve_weights(draw(0, 24, classes, -2 * balance - 1, balance)).weights.eq(0).all()


@pytest.mark.parametrize("balance", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_at_global_optima_a_larger_age_never_lowers_the_sum_of_class_means(seed, balance):
    kept = []
    for age in np.linspace(-0.2, 4, 12):
        problem = draw(seed, n=6, classes=2, age=age, balance=balance)
        kept.append(float(problem.class_means(global_minimum(problem)[1]).sum()))
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(kept))
    assert kept[0] == pytest.approx(0, abs=1e-9)
    assert kept[-1] == pytest.approx(2)


def test_scaling_statistics_age_and_balance_together_keeps_the_weights():
    problem = draw(2, n=60, classes=9)
    for age, balance in ((1.0, 1.0), (1.2, 20.0)):
        expected = solve_weights(
            WeightProblem(problem.xi_pos, problem.xi_neg, problem.codes, age, balance)
        )
        for s in (8, 1e-9, 1e9):
            xi_pos, xi_neg = s * problem.xi_pos, s * problem.xi_neg
            scaled = WeightProblem(xi_pos, xi_neg, problem.codes, s * age, s * balance)
            found = solve_weights(scaled)
            np.testing.assert_allclose(found.weights, expected.weights, atol=1e-9)
            assert found.status == expected.status


def test_renaming_labels_in_order_keeps_the_weights():
    problem = draw(2, n=60, classes=9)
    names = np.sort(np.random.default_rng(0).integers(-(10**6), 10**6, 9))
    renamed = WeightProblem(problem.xi_pos, problem.xi_neg, names[problem.codes], age=1.0)
    assert torch.equal(solve_weights(problem).weights, solve_weights(renamed).weights)


@pytest.mark.parametrize("method", METHODS)
def test_what_classes_are_called_changes_no_bit_of_the_weights(method):
    rng = np.random.default_rng(4)
    C, y = 9, rng.integers(0, 9, 80)
    xi_pos, xi_neg = 2 * rng.random(80), rng.random(80)
    words = np.array(["w", "b", "x", "a", "q", "c", "z", "e", "m"])
    found = [
        solve_weights(WeightProblem(xi_pos, xi_neg, labels, age=1.0), method=method, max_sweeps=20)
        for labels in (y, (y + 2) % C, C - 1 - y, words[y])
    ]
    assert 0.1 < float(found[0].weights.mean()) < 0.9
    assert all(torch.equal(other.weights, found[0].weights) for other in found[1:])


def test_wrong_labels_with_large_statistics_lose_their_weight():
    rng = np.random.default_rng(0)
    wrong = rng.random(200) < 0.3
    problem = WeightProblem(0.2 + 2.0 * wrong, 0.1 + 0 * wrong, rng.integers(0, 20, 200), age=1.0)
    w = solve_weights(problem).weights.numpy()
    assert w[~wrong].mean() > 0.95
    assert w[wrong].mean() < 0.05


def test_a_warm_start_at_the_answer_stays_there_and_is_not_written_to():
    problem = draw(3, n=60, classes=9)
    first = solve_weights(problem)
    start = first.weights.clone()
    again = solve_weights(problem, start=start)
    assert again.sweeps <= 2
    assert torch.equal(start, first.weights)
    np.testing.assert_allclose(again.weights, first.weights, atol=1e-7)
    assert not np.shares_memory(again.weights.numpy(), start.numpy())


def test_large_balance_does_not_slow_the_sweeps_down():
    # Cyclic sweeps alone need thousands here: all class means must move together.
    problem = draw(0, n=400, classes=60, age=0.8, balance=1e4)
    solution = solve_weights(problem, max_sweeps=200)
    assert solution.status == "local_minimum"
    means = problem.class_means(solution.weights)
    assert float(means.max() - means.min()) < 1e-3


def test_solving_twice_gives_the_same_bits_and_leaves_global_generators_alone():
    problem = draw(4, n=60, classes=9)
    state = np.random.get_state()[1].copy()  # noqa: NPY002  (asserting that it is untouched)
    torch_state = torch.get_rng_state()
    runs = [
        solve_weights(problem, method=m, max_sweeps=20).weights
        for m in ("coordinate", "doubly-stochastic")
        for _ in range(2)
    ]
    assert torch.equal(runs[0], runs[1])
    assert torch.equal(runs[2], runs[3])
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002
    assert torch.equal(torch_state, torch.get_rng_state())


def test_running_out_of_sweeps_says_so():
    solution = solve_weights(draw(1, n=300, classes=40, balance=100.0, age=0.9), max_sweeps=1)
    assert solution.status == "max_sweeps"
    assert not solution.converged
    assert solution.sweeps == 1
    assert "Raise `max_sweeps`" in solution.message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": [1.0]}, r"`start` must be \(N,\) = \(24,\)"),
        ({"start": np.full(24, 1.5)}, r"`start` must lie in \[0, 1\]; got 1.5 at index 0 \(24"),
        ({"start": np.full(24, np.nan)}, "`start` must be finite"),
        ({"method": "newton"}, "`method` must be one of coordinate, doubly-stochastic"),
        ({"tol": -1}, "`tol` must be in"),
        ({"max_sweeps": 0}, "`max_sweeps` must be a whole number of at least 1"),
        ({"gamma": 1.0}, "'coordinate' does not know `gamma`; it takes no further options"),
        ({"method": "doubly-stochastic", "P": 3}, "does not know `P`; it takes gamma, decay"),
    ],
)
def test_wrong_options_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        solve_weights(draw(0), **options)


def test_sums_beyond_float64_are_never_taken_for_a_minimum():
    problem = draw(0).with_age(1.0)
    problem.balance = 1.7e308  # twice that is infinite, and infinity less infinity NaN
    solution = solve_weights(problem, max_sweeps=5)
    assert not solution.converged
    assert solution.stationarity > 0


def test_out_of_sweeps_right_after_a_saddle_says_what_is_left():
    hits = 0
    for seed in range(200):
        problem = draw(seed, n=8, classes=2, age=0.7, balance=0.5)
        solution = solve_weights(problem, max_sweeps=1 + seed % 4)
        if solution.status == "max_sweeps":
            residual = problem.stationarity(solution.weights, scaled=True)
            assert f"esidual {residual:.1e} at tol" in solution.message
            hits += 1
    assert hits > 20


def test_nearly_flat_directions_between_classes_make_no_warning():
    rng = np.random.default_rng(42416)
    xi_pos, xi_neg = rng.random(10) * 10.0 ** rng.integers(-12, 3, 10), rng.random(10) * 1e-310
    problem = WeightProblem(xi_pos, xi_neg, np.arange(10) % 4, age=0.0, balance=1e6)
    face = Face.of(problem, np.array([0, 3, 6]), np.zeros(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not face.step(np.full(10, 0.5), np.array([1e-310, 0.0, 0.0]))


@pytest.mark.parametrize("method", ["coordinate", "doubly-stochastic"])
def test_a_seed_is_a_whole_number_whatever_the_method(method):
    problem = WeightProblem([0.2, 0.2], [0.0, 0.0], [0, 0], 1.0)
    for seed in (-1, True):
        with pytest.raises(InputError, match="`seed` must be a whole number of at least 0; got"):
            solve_weights(problem, method=method, seed=seed)
