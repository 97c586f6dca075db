"""The best weights of one class, against every choice of kept samples and a partial one."""

import itertools

import numpy as np
import pytest

from bspml.weights import whole_class
from bspml.weights.coordinate import Descent
from bspml.weights.first_order import class_sums
from bspml.weights.problem import WeightProblem
from bspml.weights.whole_class import keep_share
from helpers.comparisons import feasible


def draw(seed, n=24, classes=4, balance=1.0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    age = 2.5 * rng.random()
    return WeightProblem(2 * rng.random(n), rng.random(n), y, age=age, balance=balance)


def lowest_by_all_choices(problem, w, c):
    """Least L over the weights of class c: every kept set, every partial sample, the exact t."""
    rows = np.flatnonzero(problem.codes == c)
    lowest = np.inf
    for kept in itertools.product((0.0, 1.0), repeat=len(rows)):
        for f in range(len(rows)):
            values = []
            for t in (0.0, 0.5, 1.0):
                trial = w.copy()
                trial[rows] = kept
                trial[rows[f]] = t
                values.append(problem.objective(trial))
            low, middle, high = values
            lowest = min(lowest, low, high)
            bend = 2 * (low + high - 2 * middle)  # L(t) = low + slope t + bend t^2
            slope = high - low - bend
            t = -slope / (2 * bend) if bend > 1e-12 else -1.0
            if 0 < t < 1:
                lowest = min(lowest, low + slope * t + bend * t * t)
    return lowest


@pytest.mark.parametrize("balance", [0.0, 0.05, 1.0, 30.0])
@pytest.mark.parametrize("seed", range(6))
def test_a_class_gets_the_best_of_all_its_choices(seed, balance):
    problem = draw(seed, n=8, classes=2, balance=balance)
    w = np.random.default_rng(seed).random(8)
    expected = lowest_by_all_choices(problem, w, 0)  # class 0 comes first, class 1 still as it was
    descent = Descent(problem, w)
    assert descent.choose() > 0
    found = problem.class_sorted.scatter(descent.w)
    w[problem.codes == 0] = found[problem.codes == 0]
    assert problem.objective(w) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("balance", [0.0, 1.0, 1e3])
@pytest.mark.parametrize(("n", "classes"), [(1, 1), (9, 1), (9, 9), (300, 3), (300, 70)])
def test_choosing_never_raises_the_objective_and_keeps_the_sums(n, classes, balance, shift):
    plain = draw(n, n, classes, balance)
    problem = WeightProblem(plain.xi_pos - shift, plain.xi_neg, plain.codes, plain.age, balance)
    descent = Descent(problem, np.random.default_rng(n).random(n))
    values = [descent.measure().first_order.objective()]
    for _ in range(4):
        descent.choose()
        fresh_sums = class_sums(descent.w, problem.class_sorted)
        for kept, fresh in zip(descent._sums, fresh_sums, strict=True):
            np.testing.assert_allclose(kept, fresh, atol=1e-9)
        values.append(descent.measure().first_order.objective())
        assert values[-1] <= values[-2] + 1e-12 * (1 + balance)
    assert shift > 0 or values[-1] < values[0]
    assert feasible(descent.w)


def test_a_class_that_changes_is_woken():
    problem = draw(0, 60, 6)
    descent = Descent(problem, np.ones(60))
    descent._memory.wake[:] = np.inf
    before = descent.w.copy()
    descent.choose()
    changed = np.unique(problem.class_sorted.codes[descent.w != before])
    assert len(changed) > 0
    assert np.all(descent._memory.wake[changed] < 0)
    assert np.all(descent._memory.free[changed] == -1)


def test_a_choice_that_no_downhill_move_reaches_is_found():
    # Kept are samples 0 and 1 at a cost of 1.8; to swap one for sample 2 passes through more.
    problem = WeightProblem([0.9, 0.9, 0.1], [0.0] * 3, [0, 0, 0], age=1.5, balance=0)
    start = np.array([1.0, 1.0, 0.0])
    descent = Descent(problem, start)
    assert descent.choose() == 1
    assert problem.objective(problem.class_sorted.scatter(descent.w)) < problem.objective(start)
    assert descent.w[2] == 1


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_keeping_a_share_gives_every_class_that_mean_by_its_best_samples(share):
    problem = draw(3, 120, 9)
    w = keep_share(problem.class_sorted, share)
    assert feasible(w)
    in_order = problem.class_sorted.scatter(w)
    np.testing.assert_allclose(problem.class_means(in_order), share, atol=1e-12)
    for c in range(9):
        rows = problem.codes == c
        n, z = rows.sum(), share * rows.sum()
        score = max(0, z - 1) / max(1, n - 1) * problem.xi_pos[rows] + share * problem.xi_neg[rows]
        assert np.all(np.diff(in_order[rows][np.argsort(score)]) <= 0)


@pytest.mark.parametrize("n", [whole_class._SMALL, whole_class._SMALL + 1])
def test_large_classes_are_put_in_order_as_small_ones(n):
    pos, neg = np.random.default_rng(n).random((2, n))
    order, score = np.arange(n), np.empty(n)
    view = whole_class.ClassView(pos, neg, 1.0, 0.5, 0.0, 0.0, 1 / (n - 1))
    whole_class._rank(view, 3.0, order, score)
    np.testing.assert_allclose(score, pos * 2 / (n - 1) + neg * 0.5, rtol=1e-15)
    assert order.tolist() == score.argsort().tolist()
