"""Small clusters and open sets: whole classes go, and the flags know it."""

import numpy as np
import pytest
import torch

from bspml import noise
from helpers.draws import balanced


def test_small_clusters_at_half_leave_half_of_the_classes():
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(98), draw.integers(68, 98, 98))
    noisy = noise.small_cluster(labels, 0.5, seed=2)
    assert abs(len(set(noisy.labels)) - 49) <= 1
    assert noisy.actual_rate == pytest.approx(0.5, abs=68 / 2 / len(labels))
    # whole classes are gone, and their samples are known as outliers
    assert np.array_equal(noisy.is_noisy, ~np.isin(labels, noisy.labels))
    assert np.array_equal(noisy.is_outlier, noisy.is_noisy)
    equal = noise.small_cluster(balanced(98, 80), 0.5, seed=2)
    assert len(set(equal.labels)) == 49


def test_small_clusters_keep_similar_samples_together():
    # Class 0 and 1 are two pairs of twins each; a dissolved one moves twin by twin.
    labels = balanced(12, 4)
    x = torch.eye(24).repeat_interleave(2, 0)
    noisy = noise.small_cluster(labels, 0.5, embeddings=x, seed=3)
    assert np.array_equal(noisy.labels[0::2], noisy.labels[1::2])
    assert noisy.is_noisy.sum() == 24


@pytest.mark.parametrize("cluster_size", [1, 3, 100])
def test_cluster_size_sets_how_many_samples_move_together(cluster_size):
    labels = balanced(400, 12)
    noisy = noise.small_cluster(labels, 0.25, cluster_size=cluster_size)
    groups = noisy.labels[noisy.is_noisy].reshape(-1, 12)
    distinct = [len(set(group)) for group in groups]
    # 12 / size groups, a few of which meet in one of 300 classes
    assert max(distinct) == max(1, 12 // cluster_size)
    assert np.mean(distinct) > 0.9 * max(1, 12 // cluster_size)


def test_open_set_outliers_belong_to_classes_that_are_gone():
    labels = balanced(10, 100)
    noisy = noise.open_set(labels, 0.2, seed=1)
    assert noisy.is_outlier.sum() == 200
    gone = set(labels[noisy.is_outlier])
    assert len(gone) == 2
    assert not gone & set(noisy.labels)
    assert not noise.symmetric(labels, 0.2).is_outlier.any()
