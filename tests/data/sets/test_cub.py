"""CUB-200-2011: the split by class number, ids that need no order, boxes, hidden files."""

import numpy as np
import pytest

from bspml.data.catalogue import load_retrieval
from bspml.data.completeness import count_faults
from bspml.data.sets.cub import COUNTS, read_cub
from bspml.errors import DataError


def test_the_first_hundred_classes_train_whatever_the_classification_split_says(cub_tree):
    data = read_cub(cub_tree().parent)
    assert set(data.train.classes) == {"001.Red_eyed_Bird", "002.Red_eyed_Bird"}
    assert set(data.test.classes) == {"101.Red_eyed_Bird", "102.Red_eyed_Bird"}
    assert data.ks == (1, 2)
    assert data.notes == ()


def test_rows_keep_the_order_of_the_list_and_the_case_of_the_names(cub_tree):
    data = read_cub(cub_tree(per_class=3))
    first = "001.Red_eyed_Bird/Red_Eyed_Bird_9000_0.jpg"  # folder and file differ in case
    assert data.train.paths[0] == first
    assert list(data.train.paths) != sorted(data.train.paths)
    assert data.train.images(8)[0].shape == (3, 8, 8)


def test_boxes_become_corners(cub_tree):
    base = cub_tree()
    np.testing.assert_array_equal(read_cub(base).train.boxes[0], [2, 1, 8, 6])
    (base / "bounding_boxes.txt").unlink()
    data = read_cub(base)
    assert data.train.boxes is None
    assert data.notes == ("bounding_boxes.txt is not there: no boxes.",)


def test_labels_are_matched_by_id_not_by_row(cub_tree):
    base = cub_tree()
    for name in ("image_class_labels.txt", "bounding_boxes.txt"):
        lines = (base / name).read_text().splitlines()
        (base / name).write_text("\n".join(reversed(lines)) + "\n")
    data = read_cub(base)
    assert [path[:3] for path in data.train.paths] == ["001", "001", "002", "002"]


def test_hidden_files_change_nothing(cub_tree):
    base = cub_tree()
    for path in list((base / "images").rglob("*.jpg")):
        (path.parent / f"._{path.name}").write_bytes(b"resource fork")
    assert len(load_retrieval("cub", base, subset=True).train) == 4


def test_published_numbers_are_held_to(cub_tree):
    sizes = np.full(200, 58)
    sizes[:100][: 5_864 - 5_800] += 1
    sizes[100:] = 59
    sizes[100:][: 5_924 - 5_900] += 1
    base = cub_tree(classes=range(1, 201), per_class=sizes.tolist(), images=False)
    assert count_faults(read_cub(base), COUNTS) == []
    lines = (base / "images.txt").read_text().splitlines()
    (base / "images.txt").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(DataError, match=r"not the whole of CUB.*5,923.*say subset=True"):
        load_retrieval("cub", base)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("images.txt", "1 ../../secret/1.jpg", r"images\.txt, line 1: .*not a path inside"),
        ("images.txt", "1 /secret/1.jpg", r"images\.txt, line 1: .*not a path inside"),
        ("images.txt", "x 001.A/1.jpg", r"images\.txt, line 1: image_id must be a whole number"),
        ("images.txt", "1 loose.jpg", r"lies in no class folder"),
        ("image_class_labels.txt", "1 9", r"has class 9, but lies in folder 001"),
        ("images.txt", "2 001.Red_eyed_Bird/Red_Eyed_Bird_9000_0.jpg", r"1 image more than once"),
        (
            "images.txt",
            "1 001.Red_eyed_Bird/Red_Eyed_Bird_8999_1.jpg",
            r"lists 1 image more than once, such as 001\.Red",
        ),
        ("image_class_labels.txt", f"1 {10**30}", r"line 1: class_id must be a whole number"),
        ("image_class_labels.txt", "77 1", r"has no line for 1 of the 8 images"),
        ("bounding_boxes.txt", "1 2 3 4", r"bounding_boxes\.txt, line 1: expected image_id x y"),
        ("bounding_boxes.txt", "1 2 3 4 wide", r"line 1: a box must be a number"),
    ],
)
def test_damaged_lists_name_file_and_line(cub_tree, file, line, message):
    base = cub_tree(images=False)
    lines = (base / file).read_text().splitlines()
    (base / file).write_text("\n".join([line, *lines[1:]]) + "\n")
    with pytest.raises(DataError, match=message):
        read_cub(base)


def test_missing_lists_are_all_named(tmp_path):
    with pytest.raises(DataError, match=r"images\.txt, image_class_labels\.txt, images are"):
        read_cub(tmp_path)
