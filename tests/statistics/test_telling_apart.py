"""Random samples tell no classes apart, at any size; real structure does, beside wrong labels."""

import itertools

import numpy as np
import pytest
import torch

import bspml
from bspml.statistics.telling_apart import tells_apart, tells_apart_anew


def random_set(classes, size, dims, seed):
    rows = np.random.default_rng(seed).normal(size=(classes * size, dims))
    return torch.from_numpy(rows), np.repeat(np.arange(classes), size)


def clusters(classes, size, dims, wrong, seed=0):
    """Well separated classes, some of whose labels are moved to another class."""
    random = np.random.default_rng(seed)
    rows, true = random_set(classes, size, dims, seed)
    rows = rows + 3 * torch.from_numpy(random.normal(size=(classes, dims)))[true]
    labels, moved = true.copy(), random.permutation(len(true))[: round(wrong * len(true))]
    labels[moved] = (labels[moved] + random.integers(1, classes, len(moved))) % classes
    return rows, labels


def test_permuted_labels_are_told_from_real_ones_by_a_table():
    random = np.random.default_rng(0)
    labels = random.integers(0, 8, 200)
    table = random.gumbel(size=(200, 8))
    table[np.arange(200), labels] += 3
    assert tells_apart(table, labels)
    refused = sum(
        not tells_apart(table, np.random.default_rng(s).permutation(labels)) for s in range(30)
    )
    assert refused >= 28


@pytest.mark.parametrize(
    ("classes", "size", "dims"), [(2, 5, 8), (4, 8, 32), (12, 2, 16), (30, 3, 32)]
)
def test_at_most_one_random_set_in_twenty_seems_to_tell(classes, size, dims):
    told = sum(tells_apart_anew(*random_set(classes, size, dims, seed)) for seed in range(20))
    assert told <= 1


@pytest.mark.parametrize(
    ("classes", "size", "dims", "wrong"),
    [
        (2, 5, 8, 0.0),
        (3, 6, 16, 2 / 18),
        (2, 20, 16, 0.2),
        (8, 5, 64, 0.4),
        (100, 2, 64, 0.3),
        (60, 5, 64, 0.6),
    ],
)
def test_classes_well_apart_are_told_beside_wrong_labels(classes, size, dims, wrong):
    assert all(tells_apart_anew(*clusters(classes, size, dims, wrong, seed)) for seed in range(3))


def test_a_perfect_split_of_few_is_as_rare_as_its_permutations():
    """Of 2 classes of 3 there are 10 splits, so 1 in 10 random sets is split as well: no saying.
    Of 2 of 5 there are 126, and that tells."""
    rows = torch.eye(2).repeat_interleave(5, 0)
    splits = [len(list(itertools.combinations(range(2 * n), n))) // 2 for n in (3, 5)]
    assert splits == [10, 126]
    few = torch.cat([rows[:3], rows[5:8]])
    assert not tells_apart_anew(few, np.repeat([0, 1], 3))
    assert tells_apart_anew(rows, np.repeat([0, 1], 5))


def test_classes_of_one_and_a_dominant_class_leave_nothing_to_permute():
    assert tells_apart_anew(torch.eye(4), np.arange(4))
    assert tells_apart_anew(torch.randn(30, 4), np.repeat([0, 1], [28, 2]))


@pytest.mark.parametrize(("classes", "size", "dims"), [(4, 8, 512), (3, 12, 512), (200, 2, 128)])
def test_an_audit_of_random_features_flags_nobody(classes, size, dims):
    rows, labels = random_set(classes, size, dims, 4)
    report = bspml.audit(rows, labels)
    assert "do not tell the classes apart" in report.sentence
    assert report.total_interval == (0.0, 1.0)
    assert not report.flagged.any()
    assert not report.suspects.any()
