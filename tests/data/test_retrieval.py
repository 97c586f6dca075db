"""Splits: what they hold, and how parts are taken and put together."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bspml.data.retrieval import RetrievalData, RetrievalSplit, half_of_classes
from bspml.data.transforms import Whole
from bspml.errors import DataError, InputError


def names(*labels):
    return np.array(labels, dtype=str)


def test_classes_and_codes_follow_the_names():
    split = RetrievalSplit("test", names("b", "a", "b"), features=torch.zeros(3, 2))
    assert split.classes.tolist() == ["a", "b"]
    assert split.codes.tolist() == [1, 0, 1]
    assert len(split) == 3


def test_decoded_images_are_those_of_the_files(photos):
    held = photos.decoded(8)
    assert held.pixels.dtype == torch.uint8
    assert held.pixels.shape == (6, 3, 8, 8)
    assert torch.equal(held.images(8)[4], photos.images(8)[4])
    assert torch.equal(
        photos.decoded(8, whole=True).images(8)[4], photos.images(8, view=Whole(8))[4]
    )
    with pytest.raises(DataError, match="GiB in memory"):
        photos.decoded(100_000)


def test_parts_keep_everything_in_order(photos):
    part = photos.part("test", np.array([4, 0]))
    assert (part.name, part.paths, part.labels.tolist()) == (
        "test",
        ("b/1.jpg", "a/0.jpg"),
        ["b", "a"],
    )
    assert part.boxes.shape == (2, 4)
    assert photos.take(photos.labels == "b").paths == photos.paths[3:]
    assert len(photos.take([])) == 0
    features = RetrievalSplit("train", names("a", "b"), features=torch.tensor([[1.0], [2.0]]))
    assert features.take([1]).features.tolist() == [[2.0]]
    with pytest.raises(InputError, match=r"`rows` must have one flag per sample, \(6,\)"):
        photos.take(np.ones(3, dtype=bool))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "validation"}, "`name` must be one of"),
        ({"labels": np.array([1, 2])}, "`labels` must be .* text"),
        ({"features": None}, "needs `paths`, `pixels` or `features`"),
        ({"features": torch.zeros(3, 1)}, "`features` must have one entry per label, 2; got 3"),
        ({"boxes": np.zeros((1, 4))}, "`boxes` must have one entry per label, 2; got 1"),
        ({"paths": ("a", "b")}, "`paths` need a `root`"),
        ({"content": "painting"}, "`content` must be one of"),
    ],
)
def test_splits_that_make_no_sense_are_refused(change, message):
    given = {"name": "train", "labels": names("a", "b"), "features": torch.zeros(2, 1)} | change
    with pytest.raises(InputError, match=message):
        RetrievalSplit(**given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_size": 0}, "`image_size`"),
        ({"image_size": 8, "channels": 2}, "`channels` must be 1 or 3; got 2"),
        ({"image_size": 8, "crop_boxes": True}, "train split has no boxes"),
        ({"image_size": 8}, "holds features, not images"),
        ({"image_size": 8, "seed": -1}, "holds features|`seed`"),
    ],
)
def test_images_that_cannot_be_are_refused(options, message):
    split = RetrievalSplit("train", names("a"), features=torch.zeros(1, 2))
    with pytest.raises(InputError, match=message):
        split.images(**options)


def test_ks_stop_at_the_number_of_neighbours():
    def split(name, n):
        return RetrievalSplit(name, names(*"ab" * n)[:n], features=torch.zeros(n, 1))

    assert RetrievalData("x", split("train", 2), split("test", 9)).ks == (1, 2, 4, 8)
    assert RetrievalData("x", split("train", 2), split("test", 8)).ks == (1, 2, 4)
    with_gallery = RetrievalData("x", split("train", 2), split("query", 3), split("gallery", 8))
    assert with_gallery.ks == (1, 2, 4, 8)
    assert [s.name for s in with_gallery.splits] == ["train", "query", "gallery"]


def test_classes_on_both_sides_are_noted():
    split = RetrievalSplit("train", names("a", "b"), features=torch.zeros(2, 1))
    data = RetrievalData.of("x", [split, split.part("test", [0])])
    assert data.notes == (
        "Train and test share 1 of 1 classes, such as a: the test is not one of unseen classes.",
    )


def test_classes_that_are_left_out_are_on_neither_side():
    train = RetrievalSplit("train", names(*"aaxxc"), features=torch.zeros(5, 1))
    test = RetrievalSplit("test", names(*"bbxxc"), features=torch.zeros(5, 1))
    data = RetrievalData.of("x", [train, test], notes=("Mine.",))
    assert "share 2 of 3 classes, such as c" in data.notes[1]
    left, none = data.without("x"), data.without(["x", "c"])
    assert left.notes[:2] == ("Mine.", "Left out: 4 samples of the labels x.")
    assert len(left.notes) == 3
    assert "share 1 of 2 classes, such as c" in left.notes[2]
    assert none.notes == ("Mine.", "Left out: 6 samples of the labels x, c.")


def test_an_odd_class_tests():
    assert half_of_classes(names(*"cabed")).tolist() == [False, True, True, False, False]


def test_paths_are_relative_to_the_root(photos):
    assert isinstance(photos.root, Path)
    assert all((photos.root / path).is_file() for path in photos.paths)


def test_one_label_to_ignore_may_be_of_no_dimension():
    split = RetrievalSplit("train", np.array(list("33455")), features=torch.eye(5))
    data = RetrievalData("mine", split, split.part("test", np.arange(5)))
    for label in ("3", 3, np.array(3), torch.tensor(3), [3], np.array([3])):
        assert data.without(label).train.labels.tolist() == ["4", "5", "5"]
