"""Whom each class is taken for: shares by distance, further pairs, counts."""

import numpy as np
import pytest

from bspml.statistics.label_pairs import Confusions, nobody, pair_shares, sums_of_pairs

NEAREST = np.array([[1, 2], [0, 2], [3, 1], [2, 0]])
FURTHER = np.array([[0.0, 2.0], [0.0, 1.0], [0.0, 0.5], [0.0, 3.0]])


def test_shares_sum_to_one_over_each_class_and_list_the_sources_of_a_label():
    pairs = Confusions.of(NEAREST, FURTHER).pairs(0.7)
    assert np.bincount(pairs.sources, pairs.shares) == pytest.approx(np.ones(4))
    assert np.bincount(pairs.sources, pairs.shares * pairs.beyond) == pytest.approx(
        np.zeros(4), abs=1e-12
    )
    for z in range(4):
        expected = {y for y in range(4) if z in NEAREST[y]}
        assert set(pairs.sources[pairs.starts[z] : pairs.starts[z + 1]].tolist()) == expected


def test_a_class_that_nothing_is_taken_for_is_in_no_pair():
    further = np.array([[0.0, np.inf], [0.0, 1.0], [0.0, 2.0]])
    pairs = Confusions.of(np.array([[1, 2], [0, 2], [0, 1]]), further)
    assert len(pairs.sources) == 5


def test_shares_of_pairs_sum_to_one_over_each_source():
    sources, distances = np.array([1, 0, 1, 1]), np.array([0.0, 0.0, 2.0, 5000.0])
    shares, beyond = pair_shares(sources, distances, 2.0, 3)
    assert shares == pytest.approx([1 / (1 + np.exp(-1)), 1, 1 / (1 + np.exp(1)), 0])
    mean = np.exp(-1) / (1 + np.exp(-1))
    assert beyond == pytest.approx([-mean, 0, 1 - mean, 700 - mean])


def test_further_pairs_join_with_their_counts_and_no_share_by_distance():
    near = Confusions.of(NEAREST, FURTHER)
    joined = near.joined(np.array([0, 1, 3]), np.array([3, 0, 1]), np.array([2.0, 5.0, 0.0]))
    assert (np.diff(joined.starts).tolist(), len(joined.sources)) == ([2, 3, 3, 2], 10)
    by_pair = {
        (y, z): (d, n)
        for y, z, d, n in zip(
            joined.sources, joined.targets, joined.distances, joined.counts, strict=True
        )
    }
    assert by_pair[0, 3] == (np.inf, 2)  # new
    assert by_pair[1, 0] == (0, 5)  # was there
    assert by_pair[3, 1] == (np.inf, 0)
    assert sum(n for _, n in by_pair.values()) == 7
    old, new = near.pairs(0.7), joined.pairs(0.7)
    shares = dict(zip(zip(old.sources, near.targets, strict=True), old.shares, strict=True))
    for y, z, share in zip(new.sources, joined.targets, new.shares, strict=True):
        assert share == pytest.approx(shares.get((y, z), 0.0))
    assert new.totals.tolist() == [2, 5, 0, 0]
    again = joined.joined(joined.sources, joined.targets, joined.counts)
    assert all(np.array_equal(a, b) for a, b in zip(again[:4], joined[:4], strict=True))


def test_nobody_is_taken_for_anyone():
    pairs = nobody(3).pairs(1.0)
    assert (pairs.starts.tolist(), len(pairs.sources)) == ([0, 0, 0, 0], 0)


def test_counts_are_sums_over_the_labels_of_each_pair():
    starts, codes = np.array([0, 2, 2, 3]), np.array([2, 0, 1, 0])
    added = np.array([0.5, 0.1, 0.2, 0.3, 0.4])  # of z = 2, of z = 0 twice
    assert sums_of_pairs(added, codes, starts) == pytest.approx([0.4, 0.6, 0.5])
