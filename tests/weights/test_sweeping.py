"""Sweeps that pass by what stays, against sweeps that look at every weight."""

import itertools

import numpy as np
import pytest

from bspml.weights.coordinate import Descent
from bspml.weights.first_order import class_sums
from bspml.weights.problem import WeightProblem
from bspml.weights.sweeping import Visit, _separate


def draw(seed, n, classes, balance, shift=0.0):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    xi_pos, xi_neg = 2 * rng.random(n) - shift, rng.random(n) - shift / 2
    return WeightProblem(xi_pos, xi_neg, y, age=0.9 - shift / 2, balance=balance)


def plain_sweep(problem, w):
    """Moves 1 and 2 on the weights `w` in class order, each derivative from the whole problem."""
    data, balance = problem.class_sorted, problem.balance if problem.num_classes > 1 else 0.0
    for lo, hi in itertools.pairwise(data.starts):
        size = hi - lo
        for i in range(lo, hi):
            slope = size * float(problem.gradient(data.scatter(w))[data.order[i]])
            if balance > 0:
                w[i] = np.clip(w[i] - slope * size / (2 * balance), 0, 1)
            elif slope != 0:
                w[i] = float(slope < 0)
        inside = (w[lo:hi] > 0) & (w[lo:hi] < 1)
        if inside.sum() > 1:
            means = problem.class_means(data.scatter(w)).numpy()
            others = (means.sum() - means[data.codes[lo]]) / max(1, problem.num_classes - 1)
            z, unused = w[lo:hi].sum(), np.nan
            visit = Visit(lo, hi, z, others, unused, 1 / (size - 1), unused, unused)
            _separate.py_func(w, data, visit, z)


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("balance", [0.0, 0.1, 3.0, 300.0])
@pytest.mark.parametrize(("n", "classes"), [(9, 1), (70, 16)])
def test_sweeps_move_as_visiting_every_weight_does(n, classes, balance, shift):
    problem = draw(n, n, classes, balance, shift)
    descent = Descent(problem, np.ones(n))
    w = np.ones(n)
    for _ in range(6):
        descent.sweep()
        plain_sweep(problem, w)
        np.testing.assert_allclose(descent.w, w, atol=1e-9)


@pytest.mark.parametrize("shift", [0.0, 1.0])
@pytest.mark.parametrize("balance", [0.0, 0.1, 1.0, 10.0, 1000.0])
@pytest.mark.parametrize("seed", range(3))
def test_what_a_descent_remembers_changes_no_move(seed, balance, shift):
    problem = draw(seed, 3000, 500, balance, shift)
    descent = Descent(problem, np.ones(3000))
    asleep, known = 0, 0
    for turn in range(30):
        forgetful = Descent(problem, problem.class_sorted.scatter(descent.w))
        assert descent.sweep() == pytest.approx(forgetful.sweep(), abs=1e-8)
        np.testing.assert_allclose(descent.w, forgetful.w, atol=1e-8)
        asleep = max(asleep, int((descent._way < descent._memory.wake).sum()))
        known = max(known, int((descent._memory.free >= 0).sum()))
        if turn % 10 == 9:  # steps that change many classes behind the sweep's back
            face = descent.measure().face
            descent.jump(face, face.newton_direction())
    # Small balances put classes to sleep, large ones leave one fractional weight in most.
    assert asleep > 100 or balance >= 10
    assert known > 100 or balance < 1


def test_the_sums_follow_a_jump_and_its_classes_wake():
    problem = draw(0, 300, 50, balance=5.0)
    descent = Descent(problem, np.random.default_rng(0).random(300))
    for _ in range(5):
        descent.sweep()
    face = descent.measure().face
    descent._memory.wake[:] = np.inf
    before = descent.w.copy()
    assert descent.jump(face, face.newton_direction())
    data = problem.class_sorted
    fresh = class_sums(descent.w, data)
    np.testing.assert_allclose(descent._sums, fresh, atol=1e-12)
    moved = data.codes[descent.w != before]
    assert len(moved) > 10
    assert np.all(descent._memory.wake[moved] < descent._way)


def test_a_pair_that_may_still_move_keeps_its_class_awake():
    # xi_pos < 0: the line of the pair is convex and its minimum moves with the other class.
    problem = WeightProblem([-1, -1, 0], [0, 1, 0], [0, 0, 1], age=-1, balance=0)
    descent = Descent(problem, np.array([0.5, 0.5, 0.0]))
    descent.sweep()
    assert not descent._way < descent._memory.wake[0]
