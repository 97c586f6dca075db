"""Nearest rows, against all distances in float64."""

import numpy as np
import pytest
import torch

from bspml.statistics.contrastive import contrastive_tables
from bspml.statistics.copies.nearest import among_groups, nearest_of_candidates, nearest_rows
from bspml.tensors.unit_rows import grid_unit_rows


def rows_and_distances(seed=0, n=120):
    x = np.random.default_rng(seed).standard_normal((n, 5))
    x[60:70] = x[0] + 1e-5 * x[60:70]  # so near that 1 - similarity is rounding
    rows = grid_unit_rows(torch.as_tensor(x))
    wide = rows.double().numpy()
    squared = ((wide[:, None] - wide) ** 2).sum(2)
    return rows, squared + np.diag([np.inf] * n)


@pytest.mark.parametrize("backend", ["faiss", "torch"])
def test_distances_are_exact_and_ascending(backend):
    rows, squared = rows_and_distances()
    near = nearest_rows(rows, 12, backend)
    assert np.array_equal(near.squared, np.take_along_axis(squared, near.places, 1))
    assert np.array_equal(near.squared[:60], np.sort(squared, 1)[:60, :12])
    assert (np.diff(near.squared, axis=1) >= 0).all()


def test_a_pass_over_the_similarities_knows_the_nearest():
    rows, _ = rows_and_distances(2)
    labels = np.arange(120) % 4
    expected = nearest_rows(rows, 9, "torch")
    for spare in (1, 30):  # too few to prove all; enough
        seen = contrastive_tables(rows, labels, candidates=9 + spare).candidates
        found = nearest_of_candidates(rows, seen, 9)
        assert np.array_equal(found.places, expected.places)
        assert np.array_equal(found.squared, expected.squared)
    rows[7] = 0  # nobody's candidate
    seen = contrastive_tables(rows, labels, candidates=20).candidates
    assert nearest_of_candidates(rows, seen, 9) is None


@pytest.mark.parametrize("known", [None, 8, 40])
def test_groups_have_the_nearest_other_groups(known):
    rows, squared = rows_and_distances(1)
    first = np.arange(120)
    first[61:70], first[119] = 60, -1
    near = None if known is None else nearest_rows(rows, known)
    kept, found = among_groups(near, rows, first, 10)
    assert kept.tolist() == [i for i in range(119) if not 61 <= i < 70]
    assert found.places.shape == (len(kept), 10)
    # The group counts as its first row alone where it is searched, as its nearest row where known.
    group = np.where(first == 60)[0] if known == 40 else [60]
    distance = squared[np.ix_(kept, kept)]
    at = kept.tolist().index(60)
    others = np.delete(np.arange(len(kept)), at)
    distance[others, at] = squared[np.ix_(kept[others], group)].min(1)
    expected = np.sort(distance, 1)[:, :10]
    assert np.array_equal(np.delete(found.squared, at, 0), np.delete(expected, at, 0))
    for i in range(len(kept)):
        assert len(set(found.places[i])) == 10
        assert i not in found.places[i]
