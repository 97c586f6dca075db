"""Each product taken once against the rows one block after the other."""

import numpy as np
import pytest
import torch

from bspml.statistics import contrastive, contrastive_square
from bspml.statistics.contrastive import contrastive_statistics, contrastive_tables
from bspml.statistics.soft_means import SoftMeans
from bspml.tensors.checks import encode_labels
from helpers.draws import clouds


def problem():
    rng = np.random.default_rng(0)
    x, labels = clouds(rng, 9, 20, 6, 0.5)
    labels[3] = 9  # alone in its class
    x[5] = 0
    weights = np.where(rng.random(len(x)) < 0.2, 0.0, rng.random(len(x)))
    weights[3] = 1
    return x, labels, weights


@pytest.mark.parametrize("threads", [1, 3])
def test_the_statistics_are_those_of_the_other_engine(threads, monkeypatch):
    monkeypatch.setattr(contrastive_square, "_BLOCK", 37)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found, _ = contrastive_tables(*problem())
    finally:
        torch.set_num_threads(before)
    expected = contrastive_statistics(*problem())
    for name in ("own", "everyone", "other", "margin", "other_class", "own_bin"):
        values, other = getattr(found, name).double(), getattr(expected, name).double()
        np.testing.assert_allclose(values, other, rtol=0, atol=1e-14)
    assert (found.null_by_support == expected.null_by_support).all()


@pytest.mark.parametrize("largest", [0, 1 << 24])
def test_the_tables_are_those_of_their_definitions(largest, monkeypatch):
    monkeypatch.setattr(contrastive_square, "_BLOCK", 64)
    monkeypatch.setattr(contrastive, "LARGEST", largest)
    x, labels, weights = problem()
    _, tables = contrastive_tables(x, labels, weights)
    weights[5] = 0
    given = torch.tensor(x), encode_labels(labels), torch.tensor(weights)
    expected = SoftMeans.of(*given).table(torch.arange(len(x))).numpy()
    judged = np.arange(len(x)) != 5
    assert tables.sharp[judged] == pytest.approx(expected[judged], abs=1e-12, nan_ok=True)
    unit = x[judged] / np.linalg.norm(x[judged], axis=1, keepdims=True)
    for c in range(9):
        of_class = (labels[judged] == c) & (weights[judged] > 0)
        outside = labels[judged] != c
        w = weights[judged][of_class]
        value = np.log(np.exp(10 * unit[outside] @ unit[of_class].T) @ w / w.sum()) / 10
        assert tables.means[judged][outside, c] == pytest.approx(value, abs=1e-12)


def test_no_tables_where_they_are_too_large_or_of_another_sharpness(monkeypatch):
    assert contrastive_tables(*problem(), 9.0)[1] is None
    monkeypatch.setattr(contrastive, "_TABLE_VALUES", 100)
    stats, tables = contrastive_tables(*problem())
    assert tables is None
    assert (stats.null == contrastive_statistics(*problem()).null).all()
