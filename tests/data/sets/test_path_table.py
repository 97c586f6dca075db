"""A table of paths: columns by name, splits, boxes, and no way out of its folder."""

import numpy as np
import pandas as pd
import pytest

from bspml.data.sets.path_table import read_path_table
from bspml.errors import DataError
from helpers.published_trees import image_at

ROWS = pd.DataFrame(
    {
        "path": ["x/1.jpg", "x/2.jpg", "y/1.jpg", "z/1.jpg"],
        "label": ["a", "a", "b", "c"],
        "split": ["train", "train", "Test ", "test"],
    }
)


def save(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet"])
def test_every_kind_of_table_says_the_same(tmp_path, name):
    image_at(tmp_path / "x/2.jpg")
    data = read_path_table(save(ROWS, tmp_path / name))
    assert data.train.paths == ("x/1.jpg", "x/2.jpg")
    assert data.test.labels.tolist() == ["b", "c"]
    assert data.train.images(8)[1].shape == (3, 8, 8)


def test_a_folder_means_the_table_in_it(tmp_path):
    save(ROWS, tmp_path / "labels.csv")
    assert len(read_path_table(tmp_path).train) == 2


def test_without_splits_the_first_half_of_the_classes_trains(tmp_path):
    data = read_path_table(save(ROWS[["path", "label"]], tmp_path / "t.csv"))
    assert data.train.classes.tolist() == ["a"]
    assert data.test.classes.tolist() == ["b", "c"]


def test_query_and_gallery(tmp_path):
    frame = ROWS.assign(split=["train", "train", "query", "gallery"], label=["a", "a", "b", "b"])
    data = read_path_table(save(frame, tmp_path / "t.csv"))
    assert data.gallery.paths == ("z/1.jpg",)


def test_names_of_classes_go_before_their_numbers(tmp_path):
    frame = ROWS.rename(columns={"label": "class_name"}).assign(**{"class": [1, 1, 2, 3]})
    path = save(frame, tmp_path / "t.csv")
    assert read_path_table(path).train.labels.tolist() == ["a", "a"]
    assert read_path_table(path, label_column="class").train.labels.tolist() == ["1", "1"]


def test_boxes_come_in_either_form(tmp_path):
    sizes = ROWS.assign(bbox_x=1.5, bbox_y=2, bbox_w=3, bbox_h=4)
    corners = ROWS.assign(x1=1.5, y1=2, x2=4.5, y2=6)
    for frame in (sizes, corners):
        boxes = read_path_table(save(frame, tmp_path / "t.csv")).train.boxes
        np.testing.assert_array_equal(boxes, [[1.5, 2, 4.5, 6]] * 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": ["../1.jpg", "b", "c", "d"]}, r"t\.csv, line 2: .*not a path inside"),
        ({"path": ["a", "b", "c", "/etc/d"]}, r"t\.csv, line 5: .*not a path inside"),
        ({"label": ["a", " ", "b", "c"]}, "row 2 has an empty label"),
        ({"split": ["train", "val", "test", "test"]}, "split must be one of .*got 'val' in 1 rows"),
        ({"split": ["train"] * 4}, "its rows are of train; expected train and test"),
        ({"split": ["train", "query", "query", "test"]}, "rows are of train, test, query"),
        ({"x1": 1, "y1": 1, "x2": "wide", "y2": 1}, "a box holds something that is no number"),
    ],
)
def test_bad_cells_are_named(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        read_path_table(save(ROWS.assign(**change), tmp_path / "t.csv"))


def test_missing_tables_and_columns_are_named(tmp_path):
    path = save(ROWS.drop(columns="label"), tmp_path / "t.csv")
    with pytest.raises(DataError, match=r"no column of labels .*it has path, split"):
        read_path_table(path)
    with pytest.raises(DataError, match="no column of paths"):
        read_path_table(save(ROWS.drop(columns="path"), path))
    with pytest.raises(DataError, match=r"no column of labels \(kind\)"):
        read_path_table(save(ROWS, path), label_column="kind")
    with pytest.raises(DataError, match="no column `part`"):
        read_path_table(path, split_column="part")
    with pytest.raises(DataError, match=r"has none of labels\.csv"):
        read_path_table(tmp_path)
    with pytest.raises(DataError, match="no such file"):
        read_path_table(tmp_path / "no.csv")
