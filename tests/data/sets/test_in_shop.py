"""In-shop: padded columns, a header that counts, items under two folders, three splits."""

from dataclasses import replace

import numpy as np
import pytest

from bspml.data.completeness import count_faults
from bspml.data.sets.in_shop import COUNTS, read_in_shop
from bspml.errors import DataError
from helpers.published_trees import image_at, write_lines

ROWS = [
    ("img/WOMEN/Dresses/id_00000001/02_1_front.jpg", "id_00000001", "train"),
    ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "query"),
    ("img/MEN/Denim/id_00000002/01_7_additional.jpg", "id_00000002", "gallery"),  # two folders
]


@pytest.fixture
def tree(tmp_path):
    """`make(rows)`: the list as it is published, names padded to 70 and statuses to 11 columns."""

    def make(rows=ROWS, count=None, where="Eval"):
        lines = [f"{name:<70} {item} {status:<11}" for name, item, status in rows]
        count = len(rows) if count is None else count
        head = [str(count), "image_name item_id evaluation_status"]
        write_lines(tmp_path / where / "list_eval_partition.txt", head + lines)
        return tmp_path

    return make


def test_splits_and_items_are_read_through_the_padding(tree):
    data = read_in_shop(tree())
    assert [split.name for split in data.splits] == ["train", "query", "gallery"]
    assert data.test.labels.tolist() == data.gallery.labels.tolist() == ["id_00000002"]
    assert data.gallery.paths == (ROWS[2][0],)
    assert data.ks == (1,)
    assert read_in_shop(tree(where="")).train.paths == (ROWS[0][0],)


@pytest.mark.parametrize("folder", ["", "Img"])
def test_images_are_found_in_either_place(tree, folder):
    root = tree()
    image_at(root / folder / ROWS[1][0])
    assert read_in_shop(root).test.images(8)[0].shape == (3, 8, 8)


def test_boxes_are_matched_by_name(tree):
    root = tree()
    lines = [f"{name:<70}  3  1  {i:03d}  045  233  252" for i, (name, _, _) in enumerate(ROWS)]
    head = ["3", "image_name clothes_type pose_type x_1 y_1 x_2 y_2"]
    write_lines(root / "Anno/list_bbox_inshop.txt", head + lines[::-1])
    data = read_in_shop(root)
    np.testing.assert_array_equal(data.gallery.boxes, [[2, 45, 233, 252]])
    assert data.notes == ()
    write_lines(root / "Anno/list_bbox_inshop.txt", ["2", head[1], *lines[:2]])
    with pytest.raises(DataError, match="has no box for 1 of 3 images, the first is img/MEN"):
        read_in_shop(root)


def test_published_numbers_are_held_to(tree):
    rows = [(f"img/a/{i}.jpg", f"id_{i % 3_997:08d}", "train") for i in range(25_882)]
    for status, count in (("query", 14_218), ("gallery", 12_612)):
        items = [f"id_{4_000 + i % 3_985:08d}" for i in range(count)]
        rows += [(f"img/{status}/{i}.jpg", item, status) for i, item in enumerate(items)]
    assert len(rows) == 52_712
    data = read_in_shop(tree(rows))
    assert count_faults(data, COUNTS) == []
    assert data.ks == (1, 2, 4, 8, 10, 16, 20, 30, 32, 40, 50)
    less = replace(data, train=data.train.take(np.arange(1, 25_882)))
    faults = count_faults(less, COUNTS)
    assert faults == ["the train split lists 25,881 images instead of 25,882"]


@pytest.mark.parametrize(
    ("rows", "count", "message"),
    [
        (ROWS, 4, r"is truncated: line 1 says 4 images, and 3 follow"),
        (ROWS, 2, r"is too long: line 1 says 2 images, and 3 follow"),
        (ROWS, "image_name", r"line 1: the number of images must be a whole number"),
        ([*ROWS, ("img/a.jpg", "id_1", "val")], None, r"line 6: the status must be one of train"),
        ([*ROWS, ("../a.jpg", "id_1", "train")], None, r"line 6: .*not a path inside"),
        ([*ROWS, ROWS[0]], None, r"lists 1 image more than once, such as img/"),
        (ROWS[:2], None, r"1 items are only in the query or only in the gallery, such as id_0000"),
        ([*ROWS, ("img/a.jpg", "id_00000002", "train")], None, r"1 items train and test"),
    ],
)
def test_damaged_lists_are_refused(tree, rows, count, message):
    with pytest.raises(DataError, match=message):
        read_in_shop(tree(rows, count))


def test_a_missing_list_says_where_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"list_eval_partition\.txt is missing.*mmlab"):
        read_in_shop(tmp_path)
