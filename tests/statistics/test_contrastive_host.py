"""The compiled reduction: threads, blocks and weights that would cancel."""

import math

import numpy as np
import pytest
import torch

from bspml.statistics import contrastive_host
from bspml.statistics.contrastive import contrastive_statistics


def problem(n=120, classes=7, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    return rng.normal(size=(n, 9)) + rng.normal(size=(classes, 9))[labels], labels, rng.random(n)


@pytest.mark.parametrize("threads", [2, 3, 200])
def test_the_number_of_threads_does_not_matter(threads):
    before = torch.get_num_threads()
    alone, shared = [], []
    try:
        for count, into in ((1, alone), (threads, shared)):
            torch.set_num_threads(count)
            stats = contrastive_statistics(*problem(), block_size=37, null_bins=256)
            into += [stats.own, stats.everyone, stats.other, stats.own_bin, stats.null_by_support]
    finally:
        torch.set_num_threads(before)
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-14)


def test_a_product_in_parts_is_the_product(monkeypatch):
    whole = contrastive_statistics(*problem(), null_bins=256)
    monkeypatch.setattr(contrastive_host, "_COLUMNS", 11)
    parts = contrastive_statistics(*problem(), null_bins=256)
    np.testing.assert_allclose(parts.own, whole.own, atol=1e-14)
    np.testing.assert_array_equal(parts.null, whole.null)


def test_a_block_holds_the_bytes_it_may(monkeypatch):
    sizes = []
    unpatched = contrastive_host.HostRows.judge

    def noted(self, first, rows):
        sizes.append(len(rows))
        return unpatched(self, first, rows)

    monkeypatch.setattr(contrastive_host.HostRows, "judge", noted)
    monkeypatch.setattr(contrastive_host, "_BLOCK_BYTES", 4 * 120 * 50)
    contrastive_statistics(*problem()[:2])
    assert sizes == [50, 50, 20]


def test_a_weight_that_is_nearly_all_of_its_class_cancels_nothing():
    # Two classes of two: sample 0 weighs 1, its classmate 1e-300.
    E, labels = [[1.0, 0], [0.6, 0.8], [0, 1], [0, 1]], [0, 0, 1, 1]
    stats = contrastive_statistics(np.array(E), labels, [1.0, 1e-300, 1.0, 1.0])
    assert stats.own[0].item() == pytest.approx(0.6)
    assert stats.own[1].item() == pytest.approx(0.6)
    expected = math.log((1e-300 * math.exp(6) + 2) / 2) / 10
    assert stats.everyone[0].item() == pytest.approx(expected, abs=1e-15)
