"""A split in memory: pixels to tensors, parts, and a stratified choice that no library can move."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from bspml.data.image_split import ImageSplit, channels_first, held_out_rows
from bspml.errors import InputError, SampleIndexError


@pytest.fixture
def split():
    images = np.arange(5 * 2 * 3 * 3, dtype=np.uint8).reshape(5, 2, 3, 3)
    return ImageSplit(
        images, np.array([0, 2, 1, 2, 0]), ("a", "b", "c"), ("x", "y"), np.array([0, 1, 1])
    )


def test_channels_come_first_where_a_network_takes_them(split):
    pixels = channels_first(split.images)
    assert pixels.shape == (5, 3, 2, 3)
    assert pixels.dtype == torch.uint8
    for i, row, column, channel in ((0, 0, 0, 0), (4, 1, 2, 2), (2, 0, 2, 1)):
        assert pixels[i, channel, row, column] == split.images[i, row, column, channel]


@pytest.mark.parametrize(
    "rows",
    [[3, 0], np.array([3, 0]), torch.tensor([3, 0]), np.array([3, 0], np.uint8)],
    ids=["list", "array", "tensor", "uint8"],
)
def test_take_keeps_the_order_asked_for(split, rows):
    part = split.take(rows)
    assert part.labels.tolist() == [2, 0]
    assert np.array_equal(part.images, split.images[[3, 0]])
    assert part.classes == split.classes
    assert part.superclass_of[part.labels].tolist() == [1, 0]


def test_take_by_flags_and_take_nothing(split):
    assert split.take(split.labels == 2).labels.tolist() == [2, 2]
    assert split.take(torch.from_numpy(split.labels) == 0).labels.tolist() == [0, 0]
    for nothing in ([], np.zeros(5, bool)):
        assert len(split.take(nothing)) == 0
        assert split.take(nothing).images.shape == (0, 2, 3, 3)


def test_take_refuses_rows_that_are_not_there(split):
    with pytest.raises(SampleIndexError, match=r"`rows` must lie in \[0, 5\); got 5"):
        split.take([5])
    with pytest.raises(SampleIndexError, match=r"got -1"):
        split.take([-1])
    with pytest.raises(InputError, match=r"one flag per sample, \(5,\); got \(4,\)"):
        split.take([True] * 4)
    with pytest.raises(InputError, match="`rows` must be integers"):
        split.take([0.5])


def test_the_held_out_part_has_its_share_of_each_class():
    labels = np.repeat([7, 3, 9], [10, 5, 1])
    held = held_out_rows(labels, 0.3)
    # .3 of 10, of 5 (1.5, to the even 2) and of 1
    assert [int(held[labels == c].sum()) for c in (7, 3, 9)] == [3, 2, 0]
    assert not held_out_rows(labels, 0).any()
    assert held_out_rows(labels, 1).all()
    assert len(held_out_rows([], 0.5)) == 0


def test_a_larger_share_holds_out_the_same_rows_and_more():
    labels = ["a"] * 40 + ["b"] * 30
    parts = [held_out_rows(labels, share, seed=3) for share in (0.1, 0.25, 0.6)]
    for small, large in pairwise(parts):
        assert (large | ~small).all()


def test_the_choice_is_fixed_by_the_seed_and_differs_between_seeds():
    labels = np.zeros(12, int)
    # By SHA-256 of "0 0", "0 1", ...: these must never change, or old results do not compare.
    assert np.flatnonzero(held_out_rows(labels, 0.25)).tolist() == PINNED
    assert not np.array_equal(held_out_rows(labels, 0.5, 0), held_out_rows(labels, 0.5, 1))


PINNED = [4, 6, 10]


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), "half"])
def test_an_impossible_share_is_refused(share):
    with pytest.raises(InputError, match="`share` must be"):
        held_out_rows([1, 2], share)
