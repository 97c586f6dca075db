"""Neighbours from inverted lists: as many of the true ones as it says."""

import numpy as np
import torch

from bspml.statistics.copies.listed import LEAST_RECALL, listed_neighbours
from bspml.statistics.copies.nearest import LISTS, nearest_rows
from bspml.tensors.unit_rows import grid_unit_rows


def test_most_true_neighbours_are_found_nearest_first_and_never_the_row_itself(capfd):
    x = np.random.default_rng(0).normal(size=(3000, 8))
    x[1] = x[0]
    rows = grid_unit_rows(torch.from_numpy(x).float())
    true, found = nearest_rows(rows, 10), nearest_rows(rows, 10, LISTS)
    assert found.places.shape == (3000, 10)
    assert (found.places != np.arange(3000)[:, None]).all()
    assert (found.places >= 0).all()
    assert (np.diff(found.squared) >= 0).all()
    hits = (found.places[:, :, None] == true.places[:, None]).any(2).mean()
    assert true.recall == 1
    assert LEAST_RECALL <= found.recall <= 1
    assert abs(hits - found.recall) < 0.01  # what was measured on some holds for all
    assert found.places[0, 0] == 1
    assert capfd.readouterr().err == ""
    listed_neighbours(rows[:20], np.array([7]), 3)  # faiss asks for 39 rows a list
    assert capfd.readouterr().err == ""
    some, recall = listed_neighbours(rows, np.array([7, 2]), 3)
    assert some.shape == (2, 3)
    assert recall >= LEAST_RECALL
