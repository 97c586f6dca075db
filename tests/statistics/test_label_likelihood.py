"""The likelihood of labels against a slow version, and its gradient."""

import numpy as np
import pytest
from scipy.special import softmax as by_scipy

from bspml.statistics.label_likelihood import Likelihood, best_of, counted_fit, label_costs
from bspml.statistics.label_pairs import STRENGTH, Confusions, nobody


def case(m=40, classes=6, neighbours=3, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, classes, m)
    tables = [3 * rng.standard_normal((m, classes)), rng.standard_normal((m, classes))]
    for table in tables:
        table[np.arange(m), codes] += 2
    distance = rng.uniform(0, 5, (classes, classes))
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, 1)[:, :neighbours]
    further = np.take_along_axis(distance, nearest, 1)
    further -= further[:, :1]
    return tables, codes, nearest, further


def slow(tables, codes, nearest, further, u, k, tau, slopes):
    """Mean log P(z_i | x_i), label by label."""
    classes = tables[0].shape[1]
    q = np.zeros((classes, classes))
    for y in range(classes):
        q[y, nearest[y]] = by_scipy(-further[y] / tau)
    total = 0.0
    for i, z in enumerate(codes):
        p = by_scipy(sum(b * t[i] for b, t in zip(slopes, tables, strict=True)))
        total += np.log((1 - u - k) * p[z] + u / classes + k * sum(p * q[:, z]))
    return total / len(codes)


@pytest.mark.parametrize("x", [[-1.5, -1.0, 0.0, 0.3, 1.0], [0.2, -3.0, 0.7, -1.0, 0.1]])
def test_the_likelihood_is_its_definition(x):
    tables, codes, nearest, further = case()
    likelihood = Likelihood.of(tables, codes, Confusions.of(nearest, further))
    u, k, tau, slopes = likelihood.unpack(np.array(x))
    expected = slow(tables, codes, nearest, further, u, k, tau, slopes)
    assert likelihood.value(np.array(x))[0] == pytest.approx(-expected, rel=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_is_that_of_the_value(seed):
    tables, codes, nearest, further = case(seed=seed)
    likelihood = Likelihood.of(tables, codes, Confusions.of(nearest, further))
    x = np.random.default_rng(seed).normal(0, 0.7, 5)
    found, step = likelihood.value(x)[1], 1e-3  # the value is rounded to float32 label by label
    ends = [[likelihood.value(x + s * step * e)[0] for s in (1, -1)] for e in np.eye(5)]
    assert found == pytest.approx([(up - down) / (2 * step) for up, down in ends], abs=5e-5)


def counted_case(seed=0, m=60):
    tables, codes, nearest, further = case(m=m, seed=seed)
    likelihood = Likelihood.of(tables, codes, Confusions.of(nearest, further)).seen()
    return likelihood.counted(np.array([-1.0, -0.5, 0.3, 0.2, -0.4]))


def test_counts_are_what_the_labels_add_up_to_and_each_is_left_out_of_its_own():
    likelihood = counted_case()
    confusions, codes = likelihood.confusions, likelihood.codes
    x = np.array([-1.0, -1.5, 0.1, 0.3, 0.2])
    u, k, tau, slopes = likelihood.unpack(x)
    pairs, total, at = confusions.pairs(tau), 0.0, 0
    sums = np.zeros(len(pairs.sources))
    for i, z in enumerate(codes):
        p = by_scipy(sum(b * t[i] for b, t in zip(slopes, likelihood.tables, strict=True)))
        g = 0.0
        for e in range(pairs.starts[z], pairs.starts[z + 1]):
            y, own = pairs.sources[e], min(likelihood.added[at], pairs.counts[e])
            rest = pairs.totals[y] - own + STRENGTH
            g += p[y] * (pairs.counts[e] - own + STRENGTH * pairs.shares[e]) / rest
            sums[e] += likelihood.added[at]
            at += 1
        total += np.log((1 - u - k) * p[z] + u / 6 + k * g)
    assert likelihood.value(x)[0] == pytest.approx(-total / len(codes), rel=1e-6)
    assert sums == pytest.approx(pairs.counts, abs=0.3 * pairs.counts.max())  # a step further


def test_the_gradient_is_that_of_the_value_with_counts():
    likelihood = counted_case(seed=1)
    x = np.random.default_rng(1).normal(0, 0.7, 5)
    found, step = likelihood.value(x)[1], 1e-3
    ends = [[likelihood.value(x + s * step * e)[0] for s in (1, -1)] for e in np.eye(5)]
    assert found == pytest.approx([(up - down) / (2 * step) for up, down in ends], abs=5e-5)


def test_fewer_labels_leave_the_same_of_themselves_out(monkeypatch):
    likelihood = counted_case(m=900)
    monkeypatch.setattr("bspml.statistics.label_likelihood._COARSE_VALUES", 6 * 300)
    thin, rows = likelihood.thinned(), np.linspace(0, 899, 300).round().astype(int)
    sizes = np.diff(likelihood.confusions.starts)[likelihood.codes]
    parts = np.split(likelihood.added, np.cumsum(sizes)[:-1])
    assert np.array_equal(thin.added, np.concatenate([parts[i] for i in rows]))


def test_counting_finds_a_class_that_is_always_taken_for_the_same_other():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 6, 600)
    moved = rng.random(600) < 0.2
    codes = np.where(moved, (true + 1) % 6, true)
    tables = [4 * rng.standard_normal((600, 6)) for _ in range(2)]
    for table in tables:
        table[np.arange(600), true] += 12
    away = np.array([[(c + 3) % 6, (c + 2) % 6] for c in range(6)])  # by distance never the next
    likelihood = Likelihood.of(tables, codes, Confusions.of(away, np.tile([0.0, 1.0], (6, 1))))
    best = best_of(likelihood.fits_from_starts())
    counted, fit = counted_fit(likelihood.seen(), np.array([-3.0, -3.0, *best.x[2:]]))
    assert (best.fun - fit.fun) * 600 > 50
    assert counted.unpack(fit.x)[1] == pytest.approx(moved.mean(), abs=0.02)
    pairs = counted.confusions
    is_next = pairs.targets == (pairs.sources + 1) % 6
    assert pairs.counts[is_next].sum() == pytest.approx(moved.sum(), abs=6)
    assert pairs.counts[~is_next].sum() < 6


def test_labels_that_cannot_be_judged_are_left_out():
    tables, codes, nearest, further = case()
    tables[0][3, codes[3]] = np.nan
    tables[1][8, codes[8]] = -np.inf
    confusions = Confusions.of(nearest, further)
    some = np.setdiff1d(np.arange(40), [3, 8])
    x = np.array([-1.0, -1.0, 0.0, 0.5, 0.5])
    found = Likelihood.of(tables, codes, confusions)
    alone = Likelihood.of([t[some] for t in tables], codes[some], confusions)
    assert found.testable.sum() == 38
    assert found.value(x)[0] == alone.value(x)[0]


def test_a_fit_is_a_maximum_and_without_confusions_k_is_0():
    tables, codes, nearest, further = case(m=400)
    rng = np.random.default_rng(5)
    codes[:60] = rng.integers(0, 6, 60)
    codes[60:120] = nearest[codes[60:120], 0]
    likelihood = Likelihood.of(tables, codes, Confusions.of(nearest, further))
    best = best_of([likelihood.fit(start) for start in likelihood.starts()])
    for _ in range(30):
        assert likelihood.value(best.x + rng.normal(0, 0.1, 5))[0] >= best.fun - 1e-9
    alone = likelihood.fit(likelihood.starts()[0], with_k=False)
    assert likelihood.unpack(alone.x)[1] < 1e-12
    assert alone.fun >= best.fun - 1e-9


def test_the_cost_of_one_judge_is_its_best_fit():
    tables, codes, _, _ = case(m=200)
    likelihood = Likelihood.of(tables[:1], codes, nobody(6))
    grid = [
        likelihood.value(np.array([u, -40.0, 0.0, b]))[0]
        for u in np.linspace(-6, 3, 40)
        for b in np.linspace(-2, 5, 60)
    ]
    # The second is fitted from where the first ended; the third explains nothing.
    blurred, unknown = tables[0] / 3, np.full_like(tables[0], np.nan)
    costs = label_costs([blurred, tables[0], unknown], codes)
    assert costs[:2] == pytest.approx([min(grid)] * 2, abs=2e-3)
    assert max(costs[:2]) <= min(grid)
    assert costs[2] == 0


def test_a_point_is_packed_as_it_is_unpacked():
    tables, codes, nearest, further = case()
    likelihood = Likelihood.of(tables, codes, Confusions.of(nearest, further))
    x = np.array([-1.0, -2.0, 0.3, 0.5, -0.5])
    assert likelihood.pack(*likelihood.unpack(x)) == pytest.approx(x)


def test_every_start_is_tried_on_some_labels_and_the_best_goes_on_over_all(monkeypatch):
    tables, codes, nearest, further = case(m=900)
    likelihood = Likelihood.of(tables, codes, Confusions.of(nearest, further))
    whole = best_of(likelihood.fits_from_starts())
    monkeypatch.setattr("bspml.statistics.label_likelihood._COARSE_VALUES", 6 * 300)
    assert len(likelihood.thinned().codes) == 300
    (found,) = likelihood.fits_from_starts()
    assert found.fun == pytest.approx(whole.fun, abs=1e-3)
