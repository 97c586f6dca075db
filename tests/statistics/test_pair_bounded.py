"""Statistics by neighbours: within the bound they give, and the bound within the error asked."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import bspml
from bspml.errors import InputError
from bspml.statistics.pair_bounded import neighbour_statistics

FLOAT32 = 2e-6  # rounding of float32 similarities, as for the exact statistics
CLOSE = 1e-12  # float64 sums in another order


def clusters(n, dim=16, count=12, per_cluster=3, spread=0.1, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)

    def noise(rows):
        return torch.nn.functional.normalize(
            torch.randn(rows, dim, generator=g, dtype=torch.float64)
        )

    centres = noise(count)[torch.arange(count * per_cluster) % count]
    centres = centres + spread * noise(count * per_cluster)
    labels = torch.randint(count * per_cluster, (n,), generator=g)
    return (centres[labels] + spread * noise(n)).to(dtype), labels


def no_fallback(monkeypatch):
    monkeypatch.setattr("bspml.statistics.pair_bounded._EXACT_FROM", 2.0)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 160),
    dim=st.integers(1, 16),
    spread=st.sampled_from([0.0, 0.05, 0.3, 2.0]),
    error=st.sampled_from([1e-9, 1e-4, 1e-2, 0.3]),
    beta=st.sampled_from([5.0, 50.0, 100.0]),
    base=st.sampled_from([0.3, 0.5, 1.0]),
    lists=st.integers(1, 15),
    weighted=st.booleans(),
)
def test_the_exact_value_lies_within_the_bound_and_the_bound_within_the_error(
    seed, n, dim, spread, error, beta, base, lists, weighted
):
    E, labels = clusters(n, dim, spread=spread, seed=seed)
    weights = None
    if weighted:
        weights = torch.rand(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        weights[::3] = 0
    with pytest.MonkeyPatch.context() as patch:
        no_fallback(patch)
        stats = neighbour_statistics(
            E, labels, beta=beta, base=base, sample_weights=weights, error=error, lists=lists
        )
    exact = bspml.pair_statistics(E, labels, beta=beta, base=base, sample_weights=weights)
    np.testing.assert_allclose(stats.xi_pos, exact.xi_pos, atol=CLOSE)
    assert ((stats.xi_neg - exact.xi_neg).abs() <= stats.error_bound + CLOSE).all()
    assert (stats.error_bound <= error).all()


def test_clusters_are_left_unvisited_and_the_error_is_real():
    E, labels = clusters(3000, dim=32, count=30, dtype=torch.float32)
    stats = neighbour_statistics(E, labels, error=1e-2)
    exact = bspml.pair_statistics(E, labels)
    assert not stats.exact
    assert stats.visited < 0.35
    off = (stats.xi_neg - exact.xi_neg).abs()
    assert (off <= stats.error_bound + FLOAT32).all()
    assert 1e-4 < float(stats.error_bound.max()) <= 1e-2  # something was left out


def test_a_smaller_error_visits_more():
    E, labels = clusters(3000, dim=32, count=30)
    rough, fine = (neighbour_statistics(E, labels, error=e) for e in (1e-1, 1e-6))
    assert rough.visited < fine.visited
    assert fine.error_bound.max() <= 1e-6


def test_evenly_spread_embeddings_are_computed_exactly_and_said_to_be():
    E = torch.randn(2500, 64, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(2500) // 5
    stats = neighbour_statistics(E, labels)
    exact = bspml.pair_statistics(E, labels)
    assert (stats.exact, stats.visited, stats.num_lists) == (True, 1.0, 0)
    assert torch.equal(stats.xi_neg, exact.xi_neg)
    assert stats.error_bound.tolist() == [0.0] * 2500


def test_scales_that_overflow_are_left_to_the_exact_statistics():
    E, labels = clusters(300)
    stats = neighbour_statistics(E, labels, beta=400.0, lists=10)
    assert stats.exact
    exact = bspml.pair_statistics(E, labels, beta=400.0)
    np.testing.assert_array_equal(stats.xi_neg, exact.xi_neg)


def test_zero_rows_are_named_and_bounded_like_any_other(monkeypatch):
    no_fallback(monkeypatch)
    E, labels = clusters(200)
    E[7] = 0
    with pytest.warns(UserWarning, match="rows 7 are zero vectors"):
        stats = neighbour_statistics(E, labels, lists=12)
    with pytest.warns(UserWarning, match="rows 7 are zero vectors"):
        exact = bspml.pair_statistics(E, labels)
    assert stats.zero_rows.tolist() == [7]
    assert ((stats.xi_neg - exact.xi_neg).abs() <= stats.error_bound + CLOSE).all()


def test_several_threads_give_the_same_bits():
    E, labels = clusters(2500, dtype=torch.float32)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 3, 3):
            torch.set_num_threads(count)
            results.append(neighbour_statistics(E, labels, seed=3))
    finally:
        torch.set_num_threads(threads)
    assert not results[0].exact
    for other in results[1:]:
        assert torch.equal(other.xi_neg, results[0].xi_neg)
        assert torch.equal(other.error_bound, results[0].error_bound)
        assert other.visited == results[0].visited


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"error": 0}, r"`error` must be in \(0, 2\]; got 0"),
        ({"error": 1e30}, r"`error` must be in \(0, 2\]; got 1e\+30"),
        ({"error": 400, "beta": 0.01}, r"`error` must be in \(0, 139.129\]; got 400"),
        ({"seed": -1}, "`seed` must be a whole number of at least 0; got -1"),
        ({"lists": 0}, "`lists` must be a whole number of at least 1"),
        ({"beta": -1}, "`beta` must be in"),
        ({"labels": [0, 1]}, "one entry per embedding"),
    ],
)
def test_bad_input_is_refused(change, message):
    good = {"embeddings": torch.randn(4, 3), "labels": [0, 0, 1, 1]}
    with pytest.raises(InputError, match=message):
        neighbour_statistics(**(good | change))
