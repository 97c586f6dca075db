"""Columns by name: which one holds the labels, and in which order the rows belong."""

import warnings

import numpy as np
import pandas as pd
import pytest

from bspml.data.sets.class_folders import read_class_folders
from bspml.data.sets.folder import read_folder
from bspml.data.sets.path_table import read_path_table
from bspml.errors import DataError
from bspml.files.columns import LABEL_COLUMNS, as_floats, find_column, label_place, row_order
from bspml.files.tables import read_embeddings, read_labels
from helpers.published_trees import image_at


@pytest.mark.parametrize("index", ["0 0", "1 2", "0 x", "0 1.0"])
def test_an_index_with_lost_or_doubled_rows_is_refused(index):
    with pytest.raises(DataError, match=r"must hold 0 to 1, each once; .* missing"):
        row_order(index.split(), 2)


def test_rows_go_where_their_index_says():
    assert row_order(["2", " 0 ", "1"], 3).tolist() == [1, 2, 0]
    assert row_order(None, 3).tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="0, 2 missing, and a row has 'two'"):
        row_order(["1", "two", "1"], 3)


def test_the_first_name_wanted_is_found_and_must_be_the_only_one():
    assert find_column(["a", "b", "c"], ["x", "c", "a"]) == 2
    assert find_column(["a"], ["x"]) is None
    with pytest.raises(DataError, match="has 2 columns `a`; keep one"):
        find_column(["a", "b", "a"], ["a"])


@pytest.mark.parametrize("name", LABEL_COLUMNS)
def test_files_of_labels_and_tables_of_images_read_the_same_column(tmp_path, name):
    path = tmp_path / "labels.csv"
    frame = pd.DataFrame({"path": ["1.png", "2.png"], "note": ["x", "x"], name: ["b", "a"]})
    frame.to_csv(path, index=False)
    assert read_labels(path).tolist() == ["b", "a"]
    data = read_path_table(path)
    assert {*data.train.labels, *data.test.labels} == {"a", "b"}


@pytest.mark.parametrize(
    "names",
    [("class_name", "class"), ("y", "target"), ("class_name", "y"), ("target", "class_name")],
)
def test_two_columns_of_which_either_was_read_once_are_refused(tmp_path, names):
    with pytest.raises(DataError, match=r"has two columns that can be its labels, `.*` and `.*`"):
        label_place(["index", *names])
    assert label_place([*names, "label"]) == 2
    np.savez(tmp_path / "y.npz", **{name: np.arange(2) for name in names})
    with pytest.raises(
        DataError, match=r"y\.npz: has two columns .* Call the one that is meant `la"
    ):
        read_labels(tmp_path / "y.npz")


def test_a_table_without_labels_says_what_it_has():
    with pytest.raises(DataError, match="has no column `label`; its columns are a, b"):
        label_place(["a", "b"])


def test_numbers_are_halved_only_where_none_is_lost():
    assert as_floats(np.array([[0.0, 0.5], [np.nan, 1]])).dtype == np.float32
    for value in (1e39, 1e-42):
        assert as_floats(np.array([[value]])).dtype == np.float64
    assert as_floats(np.empty((0, 2))).dtype == np.float32


@pytest.mark.parametrize(
    "twin",
    [
        *("caf\u00e9 ", "\tcaf\u00e9", "cafe\u0301"),
        *("caf\u00e9\u200b", "ca\u00adf\u00e9", "\u200ecaf\u00e9"),
    ],
)
def test_labels_that_look_alike_are_told_of_wherever_they_are_read(tmp_path, twin):
    for i, label in enumerate([twin, "caf\u00e9", "owl"]):
        image_at(tmp_path / "photos" / label / f"{i}.png")
    frame = pd.DataFrame({"path": ["1.png", "2.png"], "label": [twin, "caf\u00e9"]})
    frame.to_csv(tmp_path / "labels.csv", index=False)
    np.save(tmp_path / "y.npy", frame.label.to_numpy(str))
    (tmp_path / "y.txt").write_text(f"{twin}\ncaf\u00e9\n", "utf-8")
    said = r"the labels '.*' and '.*' are two classes, but differ only in spaces, uns"
    for read, name in (
        *((read_labels, name) for name in ("labels.csv", "y.npy", "y.txt")),
        *((read_path_table, "labels.csv"), (read_class_folders, "photos"), (read_folder, "photos")),
    ):
        with pytest.warns(UserWarning, match=f"{name}: {said}"):
            read(tmp_path / name)
    (tmp_path / "y.txt").write_text("caf\u00e9\nowl\ncaf\u00e9\n", "utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_labels(tmp_path / "y.txt").tolist() == ["caf\u00e9", "owl", "caf\u00e9"]


def test_a_table_of_images_reads_numbers_as_a_file_of_labels_does(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("path,label\n1.png,0\n2.png, 0\n3.png,1\n")
    data = read_path_table(path)
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == (["0", "0"], ["1"])
    path.write_text("path,label\n1.png,0\n2.png,nan\n3.png,1\n")
    with pytest.raises(DataError, match="row 2 has the label 'nan' where all others are numbers"):
        read_path_table(path)


def test_the_column_that_is_taken_is_said_where_another_could_be_meant(tmp_path):
    frame = pd.DataFrame({"path": ["1.png", "2.png"], "label": ["b", "a"], "class": [7, 8]})
    frame.to_csv(tmp_path / "labels.csv", index=False)
    frame.to_csv(tmp_path / "y.tsv", index=False, sep="\t")
    frame.to_parquet(tmp_path / "y.parquet")
    np.savez(tmp_path / "y.npz", label=["b", "a"], target=[7, 8])
    said = "`label` is read, and `{}` passed over, which could be meant, too"
    for read, name, other in (
        *((read_labels, name, "class") for name in ("labels.csv", "y.tsv", "y.parquet")),
        (read_path_table, "labels.csv", "class"),
        (read_labels, "y.npz", "target"),
    ):
        with pytest.warns(UserWarning, match=f"{name}: {said.format(other)}"):
            read(tmp_path / name)
    assert read_labels(tmp_path / "y.npz").tolist() == ["b", "a"]
    np.savez(tmp_path / "x.npz", embeddings=np.eye(2), features=np.ones((2, 3)))
    pd.DataFrame({"x": [[1.0], [2.0]], "features": [[1.0, 0.0]] * 2}).to_parquet(
        tmp_path / "x.parquet"
    )
    for name, taken, other in (
        ("x.npz", "embeddings", "features"),
        ("x.parquet", "features", "x"),
    ):
        said = rf"{name}: `{taken}` is read, and `{other}` passed over"
        with pytest.warns(UserWarning, match=said):
            assert read_embeddings(tmp_path / name).shape == (2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_path_table(tmp_path / "labels.csv", label_column="class")
