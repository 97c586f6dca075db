"""Sums, derivatives and residuals of all weights at once, against the formula of one weight."""

import numpy as np
import pytest

from bspml.weights.first_order import FirstOrder, class_sums, totals
from bspml.weights.problem import WeightProblem

EXACT = 1e-12  # float64 sums of a few dozen terms of order 1


def draw(seed, n=31, classes=7, balance=0.8):
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    problem = WeightProblem(2 * rng.random(n) - 0.3, rng.random(n), y, age=0.9, balance=balance)
    return problem.class_sorted, rng.random(n), problem


@pytest.mark.parametrize("seed", range(3))
def test_the_sums_are_those_of_each_class(seed):
    data, w, _ = draw(seed)
    sums = class_sums(w, data)
    for c in range(7):
        rows = data.codes == c
        assert sums.zeta[c] == pytest.approx(w[rows].sum(), abs=EXACT)
        assert sums.A[c] == pytest.approx((w * data.xi_pos)[rows].sum(), abs=EXACT)
        assert sums.b[c] == pytest.approx((w * data.xi_neg)[rows].mean(), abs=EXACT)
    sizes = np.diff(data.starts)
    expected = [(sums.zeta / sizes).sum(), sums.b.sum()]
    np.testing.assert_allclose(totals(sums, data.starts), expected, atol=EXACT)


@pytest.mark.parametrize(("n", "classes"), [(1, 1), (6, 1), (5, 5), (31, 7)])
def test_each_derivative_is_that_of_equation_8(n, classes):
    data, w, problem = draw(n, n, classes)
    age, balance = problem.age, problem.balance
    here = FirstOrder.at(w, data, age, balance, unit=1.0)
    means = [w[data.codes == k].mean() for k in range(classes)]
    for i, c in enumerate(data.codes):
        same = (data.codes == c) & (np.arange(n) != i)
        expected = -age
        if same.any():
            expected += (w * (data.xi_pos + data.xi_pos[i]))[same].sum() / same.sum()
        others = [k for k in range(classes) if k != c]
        if others:
            terms = w * (data.xi_neg + data.xi_neg[i])
            expected += np.mean([terms[data.codes == k].mean() for k in others])
            expected += 2 * balance * (means[c] - np.mean([means[k] for k in others]))
        assert here.slope[i] == pytest.approx(expected, abs=EXACT)


def test_residuals_are_the_largest_projected_steps():
    data, w, problem = draw(0)
    here = FirstOrder.at(w, data, problem.age, problem.balance, unit=8.0)
    assert here.residual == np.abs(w - np.clip(w - here.slope / 8, 0, 1)).max()
    plain = here.slope / problem.sizes[data.codes] / 8
    assert here.stationarity() == np.abs(w - np.clip(w - plain, 0, 1)).max()
    assert 0 < here.stationarity() < here.residual


def test_sums_beyond_float64_leave_no_residual_small():
    data, w, _ = draw(0)
    here = FirstOrder.at(w, data, age=1.0, balance=1.7e308, unit=1.0)
    assert here.residual == here.stationarity() == np.inf
