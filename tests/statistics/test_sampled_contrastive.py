"""Sampled contrastive statistics: their errors hold, jointly, as often as they say."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from bspml.errors import InputError
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.noise_rate import estimate_noise, label_p_values
from bspml.statistics.references import SUPPORT_EDGES
from bspml.statistics.sampled_contrastive import _draw_pairs, sampled_contrastive_statistics
from bspml.statistics.sampled_means import _Sampler

CLOSE = 1e-12


def clusters(n, dim=12, count=8, spread=0.3, seed=0, noise=0.3):
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(count * 3, dim, generator=g, dtype=torch.float64) * spread
    centres = centres + torch.randn(count, dim, generator=g, dtype=torch.float64).repeat(3, 1)
    labels = torch.randint(count * 3, (n,), generator=g)
    E = centres[labels] + spread * torch.randn(n, dim, generator=g, dtype=torch.float64)
    wrong = torch.rand(n, generator=g) < noise
    return E, torch.where(wrong, torch.randint(count * 3, (n,), generator=g), labels)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(20, 400),
    error=st.sampled_from([1e-6, 1e-2, 0.05, 0.3]),
    spread=st.sampled_from([0.05, 0.3, 3.0]),
    a=st.sampled_from([2.0, 10.0, 40.0]),
    lists=st.integers(1, 20),
    weighted=st.booleans(),
)
def test_errors_hold_and_are_at_most_the_one_asked_for(seed, n, error, spread, a, lists, weighted):
    E, labels = clusters(n, spread=spread, seed=seed)
    weights, rows = None, None
    if weighted:
        weights = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        weights[::4] = 0
        rows = torch.arange(n) % 4 != 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bspml.statistics.sampled_means._FEWEST_DRAWS", 16)
        patch.setattr("bspml.statistics.sampled_means._FIRST_LISTS", 1)
        stats = sampled_contrastive_statistics(
            E, labels, weights, a=a, rows=rows, error=error, confidence=1 - 1e-6,
            null_values=50, lists=lists, seed=seed, null_bins=64,
        )  # fmt: skip
    exact = contrastive_statistics(E, labels, weights, a=a, rows=rows, null_bins=64)
    judged = ~exact.everyone.isnan()
    assert torch.equal(stats.everyone.isnan(), ~judged)
    off = (stats.everyone - exact.everyone)[judged].abs()
    assert (off <= stats.everyone_error[judged] + CLOSE).all()
    assert (stats.everyone_error[judged] <= error * (1 + 1e-9)).all()
    np.testing.assert_allclose(stats.own, exact.own, atol=CLOSE)
    assert torch.equal(stats.testable, exact.testable)
    assert torch.equal(stats.support, exact.support)
    assert torch.equal(stats.class_support, exact.class_support)
    assert stats.population == exact.null.sum()


def test_draws_take_the_place_of_most_similarities(monkeypatch):
    monkeypatch.setattr("bspml.statistics.sampled_means._FEWEST_DRAWS", 64)
    monkeypatch.setattr("bspml.statistics.sampled_means._FIRST_LISTS", 1)
    sizes = []
    unpatched = _Sampler._far_sums

    def counted(self, queries, columns, scale):
        sizes.append(len(queries) * len(columns))
        return unpatched(self, queries, columns, scale)

    monkeypatch.setattr(_Sampler, "_far_sums", counted)
    # a = 2 keeps the ceilings low, so that a data set of this size has room for draws.
    E, labels = clusters(8000)
    stats = sampled_contrastive_statistics(E, labels, a=2.0, error=0.04, lists=30)
    assert sum(sizes) > 0.05 * 8000**2
    assert stats.computed < 0.6
    off = (stats.everyone - contrastive_statistics(E, labels, a=2.0).everyone).abs()
    assert float(off.max()) > 1e-4  # it is an estimate
    assert (off <= stats.everyone_error + CLOSE).all()


@pytest.mark.parametrize("seed", range(3))
def test_p_values_and_the_noise_rate_lie_within_their_bounds(seed):
    E, labels = clusters(1500, seed=seed)
    stats = sampled_contrastive_statistics(E, labels, error=0.01, seed=seed, null_values=20_000)
    exact = contrastive_statistics(E, labels)
    p, (low, high) = label_p_values(exact), stats.p_value_bounds()
    assert (low[exact.testable] <= p[exact.testable]).all()
    assert (p[exact.testable] <= high[exact.testable]).all()
    storey = float((p[exact.testable] > 0.75).double().mean() / 0.25)
    ends = [float((end[exact.testable] > 0.75).double().mean() / 0.25) for end in (low, high)]
    assert ends[0] <= storey <= ends[1]
    assert float((high - low).nanmean()) < 0.2  # the bounds say something
    assert estimate_noise(stats).noise_rate == pytest.approx(
        estimate_noise(exact).noise_rate, abs=0.06
    )


def test_the_null_is_drawn_uniformly_over_wrong_classes():
    E, labels = clusters(400)
    exact = contrastive_statistics(E, labels, null_bins=64)
    stats = sampled_contrastive_statistics(E, labels, null_values=60_000, null_bins=64, error=1e-4)
    assert stats.null.sum() == 60_000
    whole, drawn = (s.null_by_support / s.null.sum() for s in (exact, stats))
    # 60,000 draws: a share near .1 has a standard deviation of .0012.
    np.testing.assert_allclose(drawn, whole, atol=0.007)
    assert whole.shape[0] == len(SUPPORT_EDGES)


def test_a_null_value_never_takes_a_samples_own_class():
    codes = torch.arange(60) % 3
    samples, classes = torch.arange(0, 60, 2), torch.tensor([0, 2])  # class 1 has no references
    i, c = _draw_pairs(samples, classes, codes, 4000, torch.Generator().manual_seed(0))
    assert len(i) == len(c) == 4000
    assert (codes[i] != c).all()
    assert set(i.tolist()) == set(samples.tolist())
    assert c.tolist() == sorted(c.tolist())


def test_what_was_not_looked_for_is_marked():
    E, labels = clusters(100)
    stats = sampled_contrastive_statistics(E, labels, null_values=10, exact_rows=0)
    assert stats.other_class.tolist() == [-1] * 100
    assert stats.margin.isnan().all()
    assert stats.best_class.tolist() == stats.codes.tolist()


def test_running_twice_gives_the_same_bits():
    E, labels = clusters(600)
    first, second = (sampled_contrastive_statistics(E, labels, seed=2) for _ in range(2))
    assert torch.equal(first.everyone, second.everyone)
    np.testing.assert_array_equal(first.null, second.null)
    large = sampled_contrastive_statistics(E[:60], labels[:60], exact_rows=0, seed=2**62)
    assert large.everyone.isfinite().all()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"labels": [0] * 10}, "at least two classes; got 1"),
        ({"error": 0}, r"`error` must be in \[1e-12, 2\]; got 0"),
        ({"error": 1e30}, r"`error` must be in \[1e-12, 2\]; got 1e\+30"),
        ({"confidence": 0.1}, r"`confidence` must be in \[0.5, 1\]; got 0.1"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0; got -1"),
        ({"confidence": 1}, "`confidence` must be in"),
        ({"confidence": 0}, "`confidence` must be in"),
        ({"null_values": 0}, "`null_values` must be a whole number"),
        ({"a": 100}, r"`a` must be in \[0.001, 40\]"),
        ({"rows": [True] * 9}, r"`rows` must have one flag per sample, \(10,\); got \(9,\)\. Or"),
    ],
)
def test_wrong_arguments_are_refused(change, match):
    arguments = {"embeddings": np.random.default_rng(0).normal(size=(10, 2)), "labels": [0, 1] * 5}
    with pytest.raises(InputError, match=match):
        sampled_contrastive_statistics(**(arguments | change))


def test_one_weight_beside_which_the_others_vanish_leaves_the_error_proved():
    generator = torch.Generator().manual_seed(3)
    E = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    labels, weights = [0, 0, 1, 1, 2, 2], [1.0] + [1e-12] * 5
    exact = contrastive_statistics(E, labels, weights, a=0.5)
    found = sampled_contrastive_statistics(E, labels, sample_weights=weights, a=0.5)
    off = (found.everyone - exact.everyone).abs()
    assert bool((off <= found.everyone_error + 1e-12).all()), (off, found.everyone_error)


def test_soft_means_of_float32_rows_are_as_near_as_they_say_for_the_smallest_a():
    E, labels = clusters(300)
    exact = contrastive_statistics(E.float().double(), labels, a=1e-3)
    found = sampled_contrastive_statistics(E.float(), labels, a=1e-3, error=1e-12, exact_rows=0)
    assert ((found.everyone - exact.everyone).abs() <= found.everyone_error + 1e-9).all()
    np.testing.assert_allclose(found.own, exact.own, atol=1e-9)


@pytest.mark.parametrize("scale", [-100, -140, -900])
def test_no_scale_of_weights_moves_a_soft_mean(scale):
    E, labels = clusters(300)
    weights = torch.rand(300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    options = {"a": 40.0, "error": 0.2, "null_values": 500, "exact_rows": 0}
    stats, tiny = (
        sampled_contrastive_statistics(E.float(), labels, w, **options)
        for w in (weights, weights * 2.0**scale)
    )
    for name in ("own", "everyone", "everyone_error", "null_by_support"):
        np.testing.assert_array_equal(getattr(tiny, name), getattr(stats, name), name)
    # Those of one class alone: s_i is of this class, and so are a part of the null's values.
    one = sampled_contrastive_statistics(
        E.float(), labels, torch.where(labels == 3, weights * 2.0**scale, weights), **options
    )
    np.testing.assert_array_equal(one.own, stats.own)
    assert torch.isfinite(torch.stack(one.p_value_bounds())[:, one.testable]).all()


def test_the_rate_comes_from_rows_judged_exactly_and_the_interval_knows_how_few_they_are():
    truths, widths, covered = [], [], 0
    E, labels = clusters(2500, dim=16, count=10, seed=3)
    whole = estimate_noise(contrastive_statistics(E, labels)).noise_rate
    for seed in range(12):
        stats = sampled_contrastive_statistics(
            E, labels, error=0.3, null_values=500, lists=4, seed=seed, exact_rows=700
        )
        found = estimate_noise(stats)
        drawn = stats.exact_part
        assert (~drawn.everyone.isnan()).sum() == 700
        # Of each class its share, to a row: the steps are equal.
        of_class = torch.bincount(labels[~drawn.everyone.isnan()], minlength=30)
        assert ((of_class - torch.bincount(labels, minlength=30) * 700 / 2500).abs() < 1).all()
        assert torch.equal(found.p_values, label_p_values(stats))
        assert "700 labels drawn at random" in " ".join(found.notes)
        truths.append(found.noise_rate)
        widths.append(found.interval[1] - found.interval[0])
        covered += found.interval[0] <= whole <= found.interval[1]
    assert covered >= 11
    assert abs(np.mean(truths) - whole) < 0.02
    assert max(widths) < 0.25
    assert np.std(truths) > 0  # other rows every time


def test_rows_that_are_all_judged_exactly_give_the_exact_rate():
    E, labels = clusters(400)
    exact = estimate_noise(contrastive_statistics(E, labels))
    found = estimate_noise(sampled_contrastive_statistics(E, labels, error=0.3))
    assert (found.noise_rate, found.interval) == (exact.noise_rate, exact.interval)
    without = sampled_contrastive_statistics(E, labels, error=0.3, exact_rows=0)
    assert without.margin.isnan().all()
    assert without.exact_part is without
