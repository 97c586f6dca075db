"""The labels' own share of errors: the mixture against a grid, the interval against draws."""

import numpy as np
import pytest

from bspml.statistics.label_shares import BLAMED, Mixture, labels_own, surest, wrong_share_of_kept


def mixture(n=3000, u=0.2, k=0.15, classes=10, seed=0):
    """Labels drawn from the model, with p sure and one class that each is taken for."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, classes, n)
    draw = rng.random(n)
    label = np.where(draw < u, rng.integers(0, classes, n), true)
    label = np.where(draw > 1 - k, (true + 1) % classes, label)
    own = (label == true).astype(float)
    g = (label == (true + 1) % classes).astype(float)
    return Mixture(own, g, label, classes), (label != true).mean()


def test_the_shares_are_those_of_the_largest_likelihood():
    found, _ = mixture(n=500)
    u, k = found.shares(0.1, 0.1)
    grid = [
        (-np.log(found.likelihood(a, b)).mean(), a, b)
        for a in np.linspace(0, 0.4, 81)
        for b in np.linspace(0, 0.4, 81)
    ]
    _, a, b = min(grid)
    assert (u, k) == pytest.approx((a, b), abs=5e-3)


@pytest.mark.parametrize("start", [(1.0, 0.0), (0.0, 1.0), (0.5, 0.5)])
def test_shares_that_leave_no_label_right_are_a_start_like_any(start):
    found, _ = mixture(n=500)
    assert found.shares(*start) == pytest.approx(found.shares(0.1, 0.1), abs=1e-4)


def test_the_rate_and_its_interval_hold_the_truth():
    held = 0
    for seed in range(40):
        found, truth = mixture(n=600, seed=seed)
        *shares, (low, high) = labels_own(found, np.ones(600, bool), None, 0.2, 0.15)
        held += low <= 0.2 * 0.9 + 0.15 <= high
        assert found.rate(*shares) == pytest.approx(truth, abs=0.01)
    assert held >= 36


def test_labels_that_err_together_widen_the_interval():
    found, _ = mixture(n=600)
    by_class = found.codes >= 5
    together = Mixture(np.where(by_class, 0.0, 1.0), np.where(by_class, 1.0, 0.0), found.codes, 10)
    mixed = np.random.default_rng(0).permutation(by_class)
    apart = Mixture(np.where(mixed, 0.0, 1.0), np.where(mixed, 1.0, 0.0), found.codes, 10)
    assert together.deviation(0.0, 0.5) > 3 * apart.deviation(0.0, 0.5)


def test_where_they_cannot_be_told_a_quarter_is_blamed_and_the_interval_holds_all():
    found, _ = mixture()
    u, k, (low, high) = labels_own(found, np.ones(3000, bool), BLAMED, 0.2, 0.15)
    assert (u, k) == (0.2, BLAMED * 0.15)
    assert low < 0.18 < 0.33 < high


def test_random_errors_of_all_count_where_they_are_more():
    found, _ = mixture(u=0.3, k=0.0)
    sure = found.own > 0  # as if the sure samples had no wrong label
    u, k, _ = labels_own(found, sure, None, 0.3, 0.0)
    assert (u, k) == (0.3, 0.0)


def test_no_error_in_n_labels_leaves_room_for_3_7_of_n():
    clean = Mixture(np.ones(200), np.zeros(200), np.arange(200) % 5, 5)
    u, k, (low, high) = labels_own(clean, np.ones(200, bool), None, 0.0, 0.0)
    assert clean.rate(u, k) < 1e-4
    assert low == 0
    assert high == pytest.approx(3.7 / 200, abs=1e-4)


def test_the_surest_are_as_many_as_have_the_mean():
    largest = np.array([0.99, 0.5, 0.9, 0.9, 0.7])
    assert surest(largest, 0.93).tolist() == [True, False, True, True, False]
    assert surest(largest, 0.999).tolist() == [False] * 5
    assert surest(largest, 0.1).all()


def test_q_is_the_mean_probability_of_all_that_rank_as_well():
    wrong = np.array([0.3, 0.0, np.nan, 0.1, 0.3, 0.9])
    expected = [np.nan if np.isnan(v) else np.nanmean(wrong[wrong <= v]) for v in wrong]
    assert wrong_share_of_kept(wrong) == pytest.approx(np.array(expected), nan_ok=True)
    assert np.isnan(wrong_share_of_kept(np.array([np.nan]))).all()


def test_labels_that_are_as_good_as_certain_share_one_value_in_every_order():
    rng = np.random.default_rng(0)
    wrong = np.concatenate([1e-6 * rng.random(90), [0.3], 1 - 1e-5 * rng.random(30)])
    q = wrong_share_of_kept(wrong)
    assert q[91:] == pytest.approx(wrong.mean(), rel=1e-12)
    assert q[90] == pytest.approx(wrong[:91].mean(), rel=1e-12)
    order = rng.permutation(len(wrong))
    rounded = wrong[order] + 1e-6 * rng.normal(size=len(wrong))  # what another order may give
    assert wrong_share_of_kept(rounded) == pytest.approx(q[order], abs=1e-6)
