"""The likelihood of labels against a slow version, and its gradient."""

import numpy as np
import pytest
from scipy.special import softmax as by_scipy

from bspml.statistics.label_likelihood import (
    Confusions,
    Likelihood,
    best_of,
    label_costs,
    nobody,
)


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


def test_confusions_sum_to_one_over_each_class_and_list_the_sources_of_a_label():
    _, codes, nearest, further = case()
    pairs = Confusions.of(nearest, further)
    q = pairs.probabilities(0.7)
    assert np.bincount(pairs.sources, q) == pytest.approx(np.ones(6))
    for i in (0, 7, 39):
        expected = {y for y in range(6) if codes[i] in nearest[y]}
        first, last = pairs.starts[codes[i]], pairs.starts[codes[i] + 1]
        assert set(pairs.sources[first:last].tolist()) == expected


def test_a_class_that_nothing_is_taken_for_is_in_no_pair():
    further = np.array([[0.0, np.inf], [0.0, 1.0], [0.0, 2.0]])
    pairs = Confusions.of(np.array([[1, 2], [0, 2], [0, 1]]), further)
    assert len(pairs.sources) == 5


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
