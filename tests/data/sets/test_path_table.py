"""A table of paths: columns by name, splits, boxes, and no way out of its folder."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
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


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_rows_of_a_validation_set_and_of_no_split_are_left_out_and_told(tmp_path, name):
    frame = ROWS.assign(split=["train", "Val", None, "test"])
    data = read_path_table(save(frame, tmp_path / name))
    assert (data.train.paths, data.test.paths) == (("x/1.jpg",), ("z/1.jpg",))
    assert data.notes == ("Left out of this data set: (no split), val.",)


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
        ({"split": ["train", "tset", "test", "test"]}, "split must be .*got 'tset' in 1 rows"),
        ({"split": ["train", "val", "val", ""]}, r"its rows are of train, val, \(no split\); exp"),
        ({"split": ["train"] * 4}, "its rows are of train; expected train and test"),
        ({"split": ["train", "query", "query", "test"]}, "rows are of train, test, query"),
        ({"x1": 1, "y1": 1, "x2": "wide", "y2": 1}, "column 'x2' has 'wide' in row 1. A box is"),
        ({"x1": "1_0", "y1": 1, "x2": 9, "y2": 1}, "column 'x1' has '1_0' in row 1"),
        ({"x1": 1, "y1": 1, "x2": "inf", "y2": 1}, "row 1 has no box"),
        ({"path": ["a", "b", " ", "d"]}, "row 3 has no path .1 such"),
        ({"path": ["a", "b", "a", "d"]}, "lists 1 image more than once, such as a. Keep one row"),
        ({"path": ["a", "b", "./c", "c"]}, "lists 1 image more than once, such as c"),
        ({"Label ": "a"}, "has 2 columns `label`; keep one"),
        ({"SPLIT": "train"}, "has 2 columns `split`; keep one"),
        ({"label": "x" * 1001}, "row 1 has a label of 1001 characters"),
    ],
)
def test_bad_cells_are_named(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        read_path_table(save(ROWS.assign(**change), tmp_path / "t.csv"))


def test_an_image_may_show_several_things(tmp_path):
    frame = ROWS.assign(path="one.jpg", x1=range(4), y1=0, x2=9, y2=9)
    assert len(read_path_table(save(frame, tmp_path / "t.csv")).train) == 2
    with pytest.raises(DataError, match=r"lists 1 image more than once, such as one\.jpg "):
        read_path_table(save(frame.assign(x1=0), tmp_path / "t.csv"))


def test_a_parquet_table_says_what_its_csv_says(tmp_path):
    kinds = {
        "label": [
            [3, 3, 1, 2],
            pd.array([3, 3, 1, 2], dtype="Int64"),
            pd.Categorical(["a", "a", "b,c", '"d"']),
            pd.Categorical([3, 3, 1, 2]),
            [True, True, False, False],
            pd.array([True, True, False, False], dtype="boolean"),
            [1.0, 1.0, 2.0, 2.5],
            np.array([0.1, 0.1, 0.2, 0.3], dtype=np.float32),
            pd.to_datetime(["2020-01-01", "2020-01-01", "2021-05-06", "2021-05-07"]),
            pd.to_datetime(["2020-01-01 10:00:00"] * 2 + ["2021-05-06 11:11:11"] * 2),
            ["007", "007", "1_0", "é\n\u2028"],
        ],
        "split": [pd.Categorical(["train", "train", "test", "test"])],
        "x1": [[1, 2, 3, 4], [0.5, 1.5, 2.5, 3.5], pd.array([1, 2, 3, 4], dtype="UInt8")],
        "path": [[1, 2, 3, 4]],
    }
    boxed = ROWS.assign(x1=0, y1=0, x2=9, y2=9.5)
    for column, values in kinds.items():
        for value in values:
            frame = boxed.assign(**{column: value})
            for index in (frame, frame.set_index("path"), frame.set_index(["label", "split"])):
                index.to_parquet(tmp_path / "t.parquet")
                table = read_path_table(tmp_path / "t.parquet")
                same = read_path_table(save(frame, tmp_path / "t.csv"))
                for part, other in zip(table.splits, same.splits, strict=True):
                    assert part.labels.tolist() == other.labels.tolist()
                    assert part.paths == other.paths
                    np.testing.assert_array_equal(part.boxes, other.boxes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": ["a", None, "b", "c"]}, "row 2 has an empty label"),
        ({"label": [1, 2, None, 3]}, "row 3 has an empty label"),
        ({"label": pd.array([1, 2, None, 3], dtype="Int64")}, "row 3 has an empty label"),
        ({"label": pd.Categorical(["a", "a", None, "b"])}, "row 3 has an empty label"),
        ({"label": [["a"], ["a"], ["b"], ["c"]]}, "`label` holds lists or tables"),
        ({"path": ["a", None, "b", "c"]}, "row 2 has no path"),
        ({"split": [None] * 4}, r"its rows are of \(no split\); expected train and test"),
        ({"x1": [1, None, 2, 3], "y1": 0, "x2": 9, "y2": 9}, "column 'x1' has '' in row 2"),
        ({"LABEL": "a"}, "has 2 columns `label`; keep one"),
    ],
)
def test_bad_cells_of_a_parquet_table_are_named(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        read_path_table(save(ROWS.assign(**change), tmp_path / "t.parquet"))


def test_a_column_of_the_name_of_the_index_or_of_another_is_refused(tmp_path):
    columns = [pa.array(ROWS[name].tolist()) for name in ("path", "label", "label")]
    pq.write_table(
        pa.Table.from_arrays(columns, ["path", "label", "label"]), tmp_path / "t.parquet"
    )
    with pytest.raises(DataError, match="has 2 columns `label`; keep one"):
        read_path_table(tmp_path / "t.parquet")
    save(ROWS.set_index(pd.Index(range(4), name="Label")), tmp_path / "t.parquet")
    with pytest.raises(DataError, match="has 2 columns `label`, one of them as its index"):
        read_path_table(tmp_path / "t.parquet")


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
    with pytest.raises(DataError, match="no such file; expected a file of paths of photos"):
        read_path_table(tmp_path / "no.csv")
