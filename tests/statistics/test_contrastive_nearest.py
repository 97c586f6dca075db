"""The candidates of a pass against all similarities, sorted."""

import numpy as np
import pytest
import torch

from bspml.evaluation.neighbours import rank_proposals, ranked_neighbours
from bspml.statistics import contrastive_host
from bspml.statistics.contrastive import contrastive_tables
from bspml.tensors.unit_rows import GRID, grid_unit_rows


@pytest.mark.parametrize(("kind", "tolerance"), [(np.float64, 1e-14), (np.float32, 2e-7)])
@pytest.mark.parametrize("a", [10.0, 1.0])
def test_candidates_are_the_most_similar_references(kind, tolerance, a, monkeypatch):
    monkeypatch.setattr(contrastive_host, "_PANEL", 24)
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(150, 5)).astype(kind), rng.integers(0, 6, 150)
    x[7] = 0
    weights = np.where(rng.random(150) < 0.2, 0.0, 1.0)
    found = contrastive_tables(x, labels, weights, a, candidates=9).candidates
    unit = x.astype(float) / np.maximum(np.linalg.norm(x.astype(float), axis=1), 1e-9)[:, None]
    S = unit @ unit.T
    np.fill_diagonal(S, -np.inf)
    S[:, (weights == 0) | (np.arange(150) == 7)] = -np.inf
    judged = np.arange(150) != 7
    expected = -np.sort(-S, 1)[:, :9]
    assert found.similarities[judged] == pytest.approx(expected[judged], abs=tolerance * 10 / a)
    listed = np.take_along_axis(S, found.rows, 1)[judged]
    assert np.abs(listed - found.similarities[judged]).max() <= found.error
    assert (expected[judged] - listed <= 2 * found.error).all()
    assert (found.rows[7] == -1).all()
    if kind == np.float64:
        assert (found.rows[judged] == np.argsort(-S, 1)[judged, :9]).all()


def test_few_references_leave_the_rest_of_a_list_empty():
    found = contrastive_tables(np.eye(3), [0, 1, 1], candidates=4).candidates
    assert (np.sort(found.rows, 1)[:, :2] == -1).all()
    assert np.isneginf(found.similarities[:, 2:]).all()
    assert contrastive_tables(np.eye(3), [0, 1, 1]).candidates is None


@pytest.mark.parametrize("kept", [6, 12, 30])
def test_candidates_lead_to_the_neighbours_of_an_exhaustive_search(kept, monkeypatch):
    monkeypatch.setattr(contrastive_host, "_PANEL", 32)
    rng = np.random.default_rng(1)
    # Few directions: equal rows, and equal similarities of others, more than the lists hold.
    x = rng.integers(-1, 2, (200, 4)) + 0.001 * rng.integers(0, 2, (200, 4))
    rows = grid_unit_rows(torch.from_numpy(x[(x != 0).any(1)]).float())
    n, own = len(rows), torch.arange(len(rows))
    found = contrastive_tables(rows, np.arange(n) % 7, candidates=kept).candidates
    error = found.error + 1.01 * rows.shape[1] ** 0.5 / GRID
    listed = torch.from_numpy(found.similarities), torch.from_numpy(found.rows)
    ranked = rank_proposals(*listed, rows, rows, 5, error, own)
    ((_, expected),) = ranked_neighbours(rows, rows, 5, own)
    assert torch.equal(ranked, expected)
