"""Small clusters and open sets: whole classes go, and the flags know it."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch

from bspml import noise
from bspml.errors import InputError
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


@pytest.mark.parametrize("kind", [noise.open_set, noise.small_cluster])
@pytest.mark.parametrize("case", range(12))
def test_the_number_moved_is_the_nearest_that_whole_classes_allow(kind, case):
    draw = np.random.default_rng(case)
    sizes = [9, 5, 86] if case == 0 else draw.integers(1, 30, draw.integers(2, 9)).tolist()
    labels, rate = np.repeat(np.arange(len(sizes)), sizes), 0.05 if case == 0 else 0.3
    wanted = Fraction(str(rate)) * len(labels)
    some = (c for k in range(len(sizes)) for c in combinations(sizes, k))  # one class stays
    nearest = min(abs(sum(c) - wanted) for c in some)
    if nearest == wanted:
        with pytest.raises(InputError, match="only whole classes can be dissolved"):
            kind(labels, rate, seed=case)
        return
    for seed in range(4):
        assert abs(int(kind(labels, rate, seed=seed).is_outlier.sum()) - wanted) == nearest


@pytest.mark.parametrize("kind", [noise.open_set, noise.small_cluster])
@pytest.mark.parametrize(
    ("sizes", "rate", "moved"),
    [([4, 2], "0.56", 4), ([5, 2, 2, 5], "0.08", 2), ([4, 5, 2, 5], "0.51", 9)],
)
def test_the_nearest_is_that_to_the_rate_itself_not_to_a_rounded_number(kind, sizes, rate, moved):
    # 3.36 of 2 and 4; 1.12 of 0 and 2; 8.16 of 7 and 9: rounded first, both are as near.
    noisy = kind(np.repeat(np.arange(len(sizes)), sizes), float(rate), seed=1)
    assert noisy.is_outlier.sum() == moved


def test_any_class_may_go_and_of_equal_ones_each_as_often():
    gone = [set(range(9)) - set(noise.open_set(balanced(9, 4), 1 / 3, seed=s).labels.tolist())
            for s in range(300)]  # fmt: skip
    counts = np.bincount([c for some in gone for c in some], minlength=9)
    assert counts.sum() == 900
    assert (np.abs(counts - 100) < 40).all()


def test_open_set_outliers_belong_to_classes_that_are_gone():
    labels = balanced(10, 100)
    noisy = noise.open_set(labels, 0.2, seed=1)
    assert noisy.is_outlier.sum() == 200
    gone = set(labels[noisy.is_outlier])
    assert len(gone) == 2
    assert not gone & set(noisy.labels)
    assert not noise.symmetric(labels, 0.2).is_outlier.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_embeddings_are_clustered_as_float32(dtype):
    x, labels = (
        torch.randn(60, 8, generator=torch.Generator().manual_seed(0)).to(dtype),
        balanced(6, 10),
    )
    half, whole = (noise.small_cluster(labels, 0.5, embeddings=e, seed=3) for e in (x, x.float()))
    assert np.array_equal(half.labels, whole.labels)
