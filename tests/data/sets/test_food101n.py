"""Food-101N: its list, people's verdicts, and the test classes of Food-101."""

import pytest

from bspml.data.catalogue import load_retrieval
from bspml.data.sets.food101n import COUNTS, read_food101n
from bspml.errors import DataError
from helpers.published_trees import image_at, write_lines

CLASSES = [f"dish_{i:03d}" for i in range(1, 102)]
HEAD = "class_name/key"


@pytest.fixture
def tree(tmp_path):
    """Two images of each class in either set, listed as published."""

    def make(noisy="Food-101N_release", clean="food-101", listed=None, verdicts=()):
        keys = [f"{name}/{name[-3:]}{i}.jpg" for name in CLASSES for i in (0, 1)]
        write_lines(
            tmp_path / noisy / "meta/imagelist.tsv", [HEAD, *keys] if listed is None else listed
        )
        for name in ("train", "test"):
            write_lines(tmp_path / clean / f"meta/{name}.txt", [f"{c}/{name}7" for c in CLASSES])
        for name, lines in zip(("train", "val"), verdicts, strict=False):
            head = f"{HEAD}\tverification_label"
            write_lines(tmp_path / noisy / f"meta/verified_{name}.tsv", [head, *lines])
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("noisy", "clean"),
    [("Food-101N_release", "food-101"), ("Food-101N", "Food-101"), ("", "food101")],
)
def test_the_first_50_classes_train_and_the_others_test_in_the_other_set(tree, noisy, clean):
    root = tree(noisy, clean)
    data = read_food101n(root)
    assert data.train.classes.tolist() == CLASSES[:50]
    assert data.test.classes.tolist() == CLASSES[50:]
    assert (len(data.train), len(data.test)) == (100, 102)
    assert data.train.paths[0] == "images/dish_001/0010.jpg"
    assert set(data.test.paths) >= {"images/dish_051/train7.jpg", "images/dish_101/test7.jpg"}
    image_at(root / noisy / data.train.paths[3])
    image_at(root / clean / data.test.paths[2])
    found = load_retrieval("food101n", root, subset=True)
    assert (len(found.train), len(found.test)) == (1, 1)
    assert found.train.images(8)[0].shape == found.test.images(8)[0].shape == (3, 8, 8)


def test_verdicts_on_training_images_become_a_note(tree):
    verdicts = (
        ["dish_001/0010.jpg\t1", "dish_002/0020.jpg\t0", "dish_101/1010.jpg\t0"],
        ["dish_003/0030.jpg\t1", "dish_004/0041.jpg\t1"],
    )
    notes = read_food101n(tree(verdicts=verdicts)).notes
    assert notes[0] == "Of 4 training labels that people verified, 25.0% are wrong."
    assert notes[1] == "meta/imagelist.tsv lists 202 images in place of the published 310,009."
    with pytest.raises(DataError, match=r"verified_train.tsv, line 2: .*verification_label"):
        read_food101n(tree(verdicts=(["dish_001/0010.jpg\tyes"],)))


def test_published_numbers_are_held_to(tree):
    assert COUNTS["test"] == (51 * 1000, 51)
    with pytest.raises(DataError, match=r"test split lists 102 images instead of 51,000"):
        load_retrieval("Food-101N", tree())


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([HEAD, "dish_001"], r"imagelist.tsv, line 2: expected CLASS/IMAGE; got 'dish_001'"),
        ([HEAD, "../x/a.jpg"], r"line 2: '../x/a.jpg' is not a path inside"),
        ([HEAD, "dish_001/a.jpg", "dish_001/a.jpg"], "lists 1 image more than once"),
        ([HEAD], r"imagelist.tsv: lists no image of the train classes, the first by name of 101"),
    ],
)
def test_damaged_lists_are_refused(tree, listed, message):
    with pytest.raises(DataError, match=message):
        read_food101n(tree(listed=listed))


def test_what_is_missing_is_named_with_where_it_was_looked_for(tree, tmp_path):
    with pytest.raises(DataError, match=r"meta/imagelist.tsv is missing there.*Get Food-101N"):
        read_food101n(tmp_path)
    root = tree()
    (root / "food-101/meta/test.txt").unlink()
    with pytest.raises(DataError, match=r"food-101: meta/test.txt is missing there"):
        read_food101n(root)
    with pytest.raises(DataError, match=r"no such folder, in which meta/imagelist.tsv should be"):
        read_food101n(root / "no")
