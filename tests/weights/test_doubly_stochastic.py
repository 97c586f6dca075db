"""Algorithm 3 as printed: unbiased gradient, step sizes, feasibility, agreement with ours."""

import itertools
import math

import numpy as np
import pytest

from bspml.errors import InputError
from bspml.weights.doubly_stochastic import (
    Draws,
    StepSettings,
    StochasticOptions,
    StochasticRun,
    draw_below,
    first_step_size,
    stochastic_gradient,
)
from bspml.weights.problem import WeightProblem
from bspml.weights.solver import solve_weights
from helpers.comparisons import feasible

METHOD = "doubly-stochastic"


def draw(seed, n=40, classes=6, age=1.0, balance=1.0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    return WeightProblem(rng.random(n) * 2, rng.random(n), y, age=age, balance=balance)


def sampled_gradients(problem, w, sample, P, K, draws, seed=0):
    """`draws` values of G(w_sample), divided by N_c as eq. (8) is."""
    data = problem.class_sorted
    n, C = problem.n, problem.num_classes
    position = int(np.flatnonzero(data.order == sample)[0])
    w_sorted = w[data.order]
    zeta = np.bincount(problem.codes, w)
    M = float((zeta / problem.sizes).sum())
    random = np.array([seed], dtype=np.uint64)
    draws_of_a_run = Draws(random, np.arange(n), np.arange(n), np.arange(C), np.arange(C))
    settings = StepSettings(
        problem.age, problem.balance, gamma=1.0, decay=1.0, P=P, K=K, literal=False
    )
    args = (position, w_sorted, data, zeta, M, draws_of_a_run, settings)
    size = problem.sizes[problem.codes[sample]]
    return np.array([stochastic_gradient(*args) for _ in range(draws)]) / size


@pytest.mark.parametrize("sample", [0, 17, 39])
def test_stochastic_gradient_is_unbiased(sample):
    problem = draw(0)
    w = np.random.default_rng(1).random(40)
    values = sampled_gradients(problem, w, sample, P=2, K=2, draws=20_000)
    exact = float(problem.gradient(w)[sample])
    error = values.std() / np.sqrt(len(values))
    assert values.std() > 1e-3  # it is a sample, not the exact gradient
    assert abs(values.mean() - exact) < 4.5 * error


def test_every_draw_without_replacement_is_equally_likely():
    # Three classes of two; anchor 0, P = 1, K = 1: partner 1, then one of 4 others, 1/4 each.
    # With xi_pos = 0 and w = 1 the negative part names the sample that was drawn.
    xi_neg = np.array([0, 0, 1.0, 2.0, 4.0, 8.0])
    problem = WeightProblem(np.zeros(6), xi_neg, [0, 0, 1, 1, 2, 2], age=0, balance=0)
    values = 2 * sampled_gradients(problem, np.ones(6), 0, P=1, K=1, draws=8000)
    counts = [int((values == v).sum()) for v in (1, 2, 4, 8)]
    assert sum(counts) == 8000
    assert max(abs(c - 2000) for c in counts) < 5 * np.sqrt(8000 * 3 / 16)


@pytest.mark.parametrize(("n", "classes"), [(40, 6), (1, 1), (5, 1), (4, 4), (9, 8)])
def test_batches_clamp_to_what_there_is_and_are_then_exact(n, classes):
    problem = draw(1, n, classes)
    w = np.random.default_rng(2).random(n)
    for sample in range(n):
        values = sampled_gradients(problem, w, sample, P=10**6, K=10**6, draws=3)
        np.testing.assert_allclose(values, float(problem.gradient(w)[sample]), atol=1e-12)


def test_draws_are_uniform_over_the_range():
    random = np.array([7], dtype=np.uint64)
    counts = np.bincount([draw_below(random, 10) for _ in range(20_000)], minlength=10)
    assert len(counts) == 10
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(20_000 * 0.09)


@pytest.mark.parametrize("seed", range(3))
def test_ten_thousand_steps_stay_feasible(seed):
    problem = draw(seed, n=50, classes=8)
    gamma = 1.99 / problem.lipschitz_max
    options = StochasticOptions(gamma=gamma, classes_per_step=1, samples_per_class=1)
    run = StochasticRun(problem, np.ones(50), seed, options)
    for _ in range(100):
        run.run_pass(100)
        assert feasible(run.weights)
    assert run.steps == 10_000


@pytest.mark.parametrize("balance", [0.5, 2.0])
def test_from_the_same_start_it_comes_within_five_percent_of_the_coordinate_solver(balance):
    problem = draw(3, n=200, classes=20, age=1.2, balance=balance)
    ours = solve_weights(problem)
    theirs = solve_weights(
        problem, method=METHOD, max_sweeps=400, patience=100, decay_passes=30, batch_growth=1.02
    )
    assert (theirs.objective - ours.objective) / abs(ours.objective) <= 0.05
    assert feasible(theirs.weights)


def test_full_batches_with_a_step_below_one_over_l_never_raise_the_objective():
    problem = draw(0, n=6, classes=3)
    options = StochasticOptions(
        gamma=0.99 / problem.lipschitz_max, classes_per_step=6, samples_per_class=6
    )
    run = StochasticRun(problem, np.full(6, 0.5), 0, options)
    values = [problem.objective(run.weights)]
    for _ in range(60):
        run.run_pass(1)
        values.append(problem.objective(run.weights))
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(values))
    assert values[-1] < values[0]


def test_running_class_sums_equal_the_balance_term_as_printed():
    problem = draw(0, n=60, classes=9)
    runs = [
        StochasticRun(problem, np.ones(60), 5, StochasticOptions(literal_balance=literal))
        for literal in (False, True)
    ]
    for run in runs:
        run.run_pass(500)
    np.testing.assert_allclose(runs[0].weights, runs[1].weights, atol=1e-12)
    assert not np.all(runs[0].weights == 1)


def test_growing_batches_reach_a_stationary_point():
    problem = draw(0, n=30, classes=5, age=1.5)
    solution = solve_weights(
        problem, method=METHOD, tol=1e-6, max_sweeps=3000, batch_growth=1.5,
        decay_passes=np.inf, patience=3000,
    )  # fmt: skip
    assert solution.status == "stationary"
    assert solution.stationarity <= 1e-6


def test_fixed_batches_stop_without_progress_and_say_why():
    solution = solve_weights(
        draw(0, n=60, classes=9), method=METHOD, tol=0,
        classes_per_step=1, samples_per_class=1, decay_passes=np.inf,
    )  # fmt: skip
    assert solution.status == "no_progress"
    assert "hover around" in solution.message


def test_passes_are_limited_and_the_message_says_so():
    solution = solve_weights(draw(0), method=METHOD, tol=0, max_sweeps=2)
    assert solution.status == "max_sweeps"
    assert solution.sweeps == 2
    assert "after 2 passes" in solution.message


def test_the_seed_decides_the_run():
    problem = draw(0)
    a, b, c = (solve_weights(problem, method=METHOD, seed=s, max_sweeps=2) for s in (1, 1, 2))
    assert a.weights.equal(b.weights)
    assert not a.weights.equal(c.weights)


@pytest.mark.parametrize(("n", "classes", "gamma"), [(5, 1, 0.5), (1, 1, 0.5), (4, 4, None)])
def test_singletons_and_one_class_run(n, classes, gamma):
    problem = draw(0, n, classes, age=100.0)
    options = {} if gamma is None else {"gamma": gamma}
    assert solve_weights(problem, method=METHOD, start=np.zeros(n), **options).weights.eq(1).all()


def test_step_size_bound_of_theorem_1_is_checked():
    problem = draw(0)
    bound = 2 / problem.lipschitz_max
    assert first_step_size(problem, None) == bound / 2
    assert first_step_size(problem, 0.99 * bound) == 0.99 * bound
    with pytest.raises(InputError, match="`gamma` must be below 2/L_max"):
        solve_weights(problem, method=METHOD, gamma=bound)
    with pytest.raises(InputError, match="`gamma` must be given when the balance term is absent"):
        solve_weights(draw(0, balance=0.0), method=METHOD)
    free = solve_weights(draw(0, balance=0.0), method=METHOD, gamma=5.0)
    assert free.weights.min() >= 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0}, "`gamma` must be in"),
        ({"classes_per_step": 0}, "`classes_per_step` must be a whole number"),
        ({"samples_per_class": 0}, "`samples_per_class` must be a whole number"),
        ({"batch_growth": 0.9}, "`batch_growth` must be in"),
        ({"decay_passes": 0}, "`decay_passes` must be in"),
        ({"patience": 0}, "`patience` must be a whole number"),
        ({"min_decrease": -1}, "`min_decrease` must be in"),
    ],
)
def test_wrong_settings_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        StochasticOptions(**options)


def test_a_number_beyond_floats_is_infinity():
    options = {"method": "doubly-stochastic", "max_sweeps": 2, "gamma": 0.25}
    runs = [
        solve_weights(draw(3), decay_passes=passes, **options).weights.tolist()
        for passes in (math.inf, 10**400)
    ]
    assert runs[0] == runs[1]
