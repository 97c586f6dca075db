"""Nearest samples of a class against a loop."""

import numpy as np
import pytest
import torch

from bspml.auditing import neighbours
from bspml.auditing.neighbours import nearest_in_class
from bspml.statistics.copies.nearest import nearest_rows
from bspml.tensors.unit_rows import grid_unit_rows


def slow_nearest(rows, codes, asked, k):
    """Sort all similarities of each sample, one at a time."""
    exact = rows.double().numpy()
    found = np.full((len(codes), k), -1)
    for i in range(len(codes)):
        if asked[i] < 0 or not exact[i].any():
            continue
        others = [j for j in range(len(codes)) if codes[j] == asked[i] and j != i]
        others = [j for j in others if exact[j].any()]
        others.sort(key=lambda j: (-float(exact[i] @ exact[j]), j))
        found[i, : min(k, len(others))] = others[:k]
    return found


def few_up_to(few):
    """The compiled search, or one that leaves everything to the search of large classes."""
    return neighbours._search_few if few else lambda *arguments: None


@pytest.mark.parametrize("few", [0, 128])
def test_nearest_in_class_is_what_a_loop_finds(few, monkeypatch):
    monkeypatch.setattr(neighbours, "_search_few", few_up_to(few))
    rng = np.random.default_rng(0)
    embeddings = rng.standard_normal((60, 4))
    embeddings[7] = 0
    embeddings[[3, 9, 12]] = embeddings[3]  # ties
    rows = grid_unit_rows(torch.from_numpy(embeddings))
    codes = rng.integers(0, 6, 60)
    codes[5] = 6  # alone
    for asked in (codes, rng.integers(-1, 7, 60)):
        for k in (1, 3, 30):
            expected = slow_nearest(rows, codes, asked, k)
            assert (nearest_in_class(rows, codes, asked, k) == expected).all()
            for known in (1, 10, 59):
                near = nearest_rows(rows, known)
                assert (nearest_in_class(rows, codes, asked, k, near) == expected).all()
