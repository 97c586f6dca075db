"""Asymmetric noise inside the groups of a hierarchy, in the conventions of three papers."""

import numpy as np
import pytest
import torch

from bspml import noise
from bspml.errors import InputError
from helpers.draws import balanced

# Twenty groups of five classes, scattered as in CIFAR-100.
GROUPS = np.random.default_rng(0).permutation(np.arange(100) % 20)


def within(matrix, groups):
    """The entries of a transition matrix between different classes of one group."""
    same = groups[:, None] == groups[None]
    return matrix[same & ~np.eye(len(groups), dtype=bool)]


def test_any_sibling_is_equally_likely_and_nobody_else_occurs():
    noisy = noise.sibling_flip(balanced(100, 500), 0.2, GROUPS, seed=1)
    assert noisy.is_noisy.sum() == 10_000
    matrix = noisy.transition_matrix()
    siblings = within(matrix, GROUPS)
    assert siblings.sum() == pytest.approx(20)  # .2 of each of 100 classes, nothing elsewhere
    # .05 each: among 500 samples of a class the standard deviation is .0097
    assert np.abs(siblings - 0.05).max() < 5 * 0.0097
    assert siblings.mean() == pytest.approx(0.05)


def test_per_class_counts_are_exact_in_each_class():
    labels = np.random.default_rng(2).permutation(np.repeat(np.arange(4), [10, 15, 25, 2]))
    noisy = noise.sibling_flip(labels, 0.1, [0, 0, 1, 1], per_class=True)
    # 1, 1.5 to the even 2, 2.5 to the even 2, .2 to 0
    assert [noisy.is_noisy[labels == c].sum() for c in range(4)] == [1, 2, 2, 0]


def test_the_next_sibling_is_the_next_of_the_group_in_sorted_order():
    noisy = noise.sibling_flip(list("abcdef"), 1.0, list("xyxyxy"), to="next")
    assert noisy.labels.tolist() == list("cdefab")


def test_a_group_of_all_classes_makes_it_the_symmetric_or_the_pair_noise():
    labels = np.random.default_rng(3).permutation(balanced(7, 30))
    everyone = np.zeros(7, int)
    pair = noise.sibling_flip(labels, 0.4, everyone, seed=2, to="next")
    assert np.array_equal(pair.labels, noise.pair_flip(labels, 0.4, seed=2).labels)
    any_ = noise.sibling_flip(labels, 0.4, everyone, seed=2)
    assert np.array_equal(any_.is_noisy, noise.symmetric(labels, 0.4, seed=2).is_noisy)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_groups_of_unequal_sizes_are_exhausted(size):
    groups = [0] * size + [1] * 2
    noisy = noise.sibling_flip(balanced(size + 2, 300), 1.0, groups)
    matrix = noisy.transition_matrix()
    inside = matrix[:size, :size][~np.eye(size, dtype=bool)]
    assert (inside > 0).all()
    assert matrix[size, size + 1] == matrix[size + 1, size] == 1


def test_a_swap_confuses_two_classes_of_each_group_with_each_other():
    noisy = noise.sibling_swap(balanced(100, 50), 0.3, GROUPS, seed=4)
    matrix = noisy.transition_matrix()
    off = matrix - np.diag(np.diag(matrix))
    assert np.array_equal(off > 0, (off > 0).T)
    assert sorted(off[off > 0]) == pytest.approx([0.3] * 40)
    swapped = np.flatnonzero(off.sum(1))
    assert np.bincount(GROUPS[swapped]).tolist() == [2] * 20
    partner = off.argmax(1)[swapped]
    assert np.array_equal(GROUPS[partner], GROUPS[swapped])
    # Two fifths of the classes are touched.
    assert noisy.rate == 0.3
    assert noisy.actual_rate == pytest.approx(0.12)


def test_every_pair_of_a_group_is_equally_likely_to_be_swapped():
    counts = np.zeros((4, 4))
    for seed in range(600):
        counts += noise.sibling_swap(balanced(4, 1), 1.0, [0] * 4, seed).transition_matrix()
    pairs = counts[np.triu_indices(4, 1)]
    # 100 of 600 each, standard deviation 9.1
    assert np.abs(pairs - 100).max() < 5 * 9.1


LABELS = np.array(["cat", "dog", "elk", "fox"] * 10)
FAMILY = {"cat": "pet", "dog": "pet", "elk": "wild", "fox": "wild", "yak": "wild"}


@pytest.mark.parametrize("make", [noise.sibling_flip, noise.sibling_swap])
@pytest.mark.parametrize(
    "groups",
    [
        FAMILY,
        ["pet", "pet", "wild", "wild"],
        np.array([5, 5, 0, 0]),
        torch.tensor([0, 0, 1, 1]),
        np.array([1.0, 1.0, 3.0, 3.0]),
        dict.fromkeys(["cat", "dog"], 0) | dict.fromkeys(["elk", "fox"], 1),
    ],
    ids=["dictionary", "names", "numbers", "tensor", "floats", "numbered dictionary"],
)
def test_groups_come_as_a_dictionary_or_one_per_class(make, groups):
    noisy = make(LABELS, 0.5, groups, seed=1)
    assert np.array_equal(noisy.is_noisy, make(LABELS, 0.5, FAMILY, seed=1).is_noisy)
    assert noisy.is_noisy.sum() == 20
    pets = np.isin(noisy.true_labels, ["cat", "dog"])
    assert np.array_equal(np.isin(noisy.labels, ["cat", "dog"]), pets)


@pytest.mark.parametrize("make", [noise.sibling_flip, noise.sibling_swap])
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0, 0, 1], r"one entry per class in `labels`, \(4,\); got \(3,\)"),
        ([0] * 40, r"\(4,\); got \(40,\)"),
        ([0, 0, 0, 1], "leaves 1 of 4 classes without a sibling.*such as fox"),
        ({"cat": 0, "dog": 0, "elk": 0}, "it lacks 'fox'"),
        ({"cat": 0, "dog": 0, "elk": None, "fox": None}, "`groups` must be"),
        ([0, 0, None, None], "is a dictionary from label to group"),
        (3, "is a dictionary from label to group"),
        (None, "is a dictionary from label to group"),
        ([[0, 0], [1, 1]], "is a dictionary from label to group"),
    ],
)
def test_groups_that_leave_a_question_open_are_refused(make, groups, message):
    with pytest.raises(InputError, match=message):
        make(LABELS, 0.5, groups)


def test_an_unknown_convention_is_refused():
    with pytest.raises(InputError, match="`to` must be one of any, next; got 'all'"):
        noise.sibling_flip(LABELS, 0.5, FAMILY, to="all")
