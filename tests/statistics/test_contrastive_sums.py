"""The compiled sums against numpy's, class by class."""

import numpy as np
import pytest

from bspml.statistics.contrastive_sums import (
    add_to_columns,
    add_to_rows,
    count_others,
    weight_of_mates,
)
from bspml.statistics.references import weight_elsewhere

STARTS = np.array([0, 0, 3, 4, 4, 9, 20, 20])  # the first, fourth and last class are empty


def drawn():
    rng = np.random.default_rng(0)
    return rng.random((16, 11)), rng.random(20), rng


def one_hot():
    return np.repeat(np.eye(7), np.diff(STARTS), 0)  # (references, classes)


def test_rows_and_columns_get_the_sums_of_their_classes():
    block, weights, _ = drawn()
    sums = np.ones((7, 16))
    add_to_rows(block, (2, 13), weights, STARTS, sums, 8, 16)
    expected = ((block * weights[2:13]) @ one_hot()[2:13]).T
    assert sums[:, 8:] == pytest.approx(1 + expected[:, 8:])
    assert (sums[:, :8] == 1).all()
    sums = np.ones((5, 11))
    add_to_columns(block, (3, 19), weights, STARTS, sums, 2, 11)
    expected = one_hot()[3:19, 2:].T @ (block * weights[3:19, None])
    assert sums[:, 2:] == pytest.approx(1 + expected[:, 2:])
    assert (sums[:, :2] == 1).all()


def test_others_are_counted_and_the_first_of_the_best_is_kept():
    means = np.array([[0.5, 0.1], [0.2, 0.1], [0.5, 0.3], [0.9, 0.9]])
    best, null = (np.full(2, -np.inf), np.full(2, -1)), np.zeros((2, 16), np.int64)
    stratum = np.array([9, 0, 0, 1, -1])
    count_others(means, 1, np.array([2, 3]), np.array([0.5, 0.2]), stratum, best, null)
    assert best[0].tolist() == [0.5, 0.1]
    assert best[1].tolist() == [1, 1]
    # d = 0 and .1, .1 of stratum 0, and 0 of stratum 1: all in bin floor((d + 2) / 4 * 16) = 8.
    assert null[:, 8].tolist() == [3, 1]
    assert null.sum() == 4


def test_the_weight_of_mates_does_not_cancel():
    weights = np.array([1e-9, 1.0, 0.25, 0.5])
    assert weight_of_mates(weights, np.array([0, 2, 2, 4])).tolist() == [1.0, 1e-9, 0.5, 0.25]
    assert weight_elsewhere(np.array([1e-9, 1.0, 1e-9])).tolist() == [1.0 + 1e-9, 2e-9, 1.0 + 1e-9]
