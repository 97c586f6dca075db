"""Labels and embeddings from files: every format round-trips, every fault has its sentence."""

import csv
import os
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch

from bspml.data.sets.features import read_features
from bspml.errors import DataError
from bspml.files import parquet_tables
from bspml.files.cells import label_cells
from bspml.files.delimited import write_table
from bspml.files.tables import (
    fitting_names,
    read_beside,
    read_embeddings,
    read_labels,
    read_names,
)

WORDS = np.array(["cat", "dog", "a,b", "x\ny", "ñ"])
NUMBERS = np.array([3, -7, 10**15, 0, 3])


def write(path, labels):
    if path.suffix == ".npy":
        np.save(path, labels)
    elif path.suffix == ".npz":
        np.savez(path, labels=labels, other=np.zeros((2, 2)))
    elif path.suffix == ".parquet":
        pd.DataFrame({"path": list("abcde"), "label": labels}).to_parquet(path)
    elif path.suffix == ".txt":
        path.write_text("\n".join(map(str, labels)))
    else:
        write_table(path, {"label": label_cells(labels), "other": [0] * len(labels)})
    return path


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".csv", ".CSV"])
@pytest.mark.parametrize("labels", [WORDS, NUMBERS])
def test_labels_round_trip(tmp_path, suffix, labels):
    path = (
        write(tmp_path / "y.x", labels)
        if suffix == ".CSV"
        else write(tmp_path / f"y{suffix}", labels)
    )
    if suffix == ".CSV":
        path = path.rename(tmp_path / "y.CSV")
    read = read_labels(path)
    assert read.tolist() == labels.tolist()
    assert read.dtype.kind == labels.dtype.kind


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_embeddings_round_trip(tmp_path, suffix):
    E = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    path = tmp_path / f"e{suffix}"
    frame = pd.DataFrame(E, columns=["d0", "d1", "d2"]).assign(
        label=[1, 2, 3, 4], path=list("abcd")
    )
    if suffix == ".npy":
        np.save(path, E)
    elif suffix == ".npz":
        np.savez(path, embeddings=E, labels=np.arange(4))
    elif suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    np.testing.assert_allclose(read_embeddings(path), E, rtol=1e-6)


def test_a_parquet_column_of_lists_is_a_table(tmp_path):
    E = np.arange(6, dtype=np.float32).reshape(2, 3)
    pd.DataFrame({"embedding": list(E)}).to_parquet(tmp_path / "e.parquet")
    np.testing.assert_array_equal(read_embeddings(tmp_path / "e.parquet"), E)


def test_a_table_of_labels_only_is_no_table_of_embeddings(tmp_path):
    frame = pd.DataFrame({"path": ["1.png", "2.png"], "label": ["a", "b"]})
    frame.to_csv(tmp_path / "y.csv", index=False)
    frame.to_parquet(tmp_path / "y.parquet")
    for name in ("y.csv", "y.parquet"):
        with pytest.raises(DataError, match=f"{name}: has no column of numbers.*--backbone"):
            read_embeddings(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("y.npy", b"", "cannot be read as a .npy file"),
        ("y.npy", b"\x80\x04cos\nsystem\n", "cannot be read as a .npy file"),
        ("y.npz", b"PK\x03\x04 torn", "cannot be read as a .npz file"),
        ("y.parquet", b"PAR1", "cannot be read as a .parquet file"),
        ("y.csv", b"", "holds no labels"),
        ("y.csv", b"a,b\n1,2\n", "has no column `label`; its columns are a, b"),
        ("y.csv", b"label,x\n1\n", "row 2 has 1 cells, the first has 2"),
        ("y.csv", b'label\ncat\n""\n', "row 2 has an empty label"),
        ("y.txt", b"\xff\xfe\x00", "cannot be read as a .txt file"),
        ("y.pkl", b"", "cannot tell the format"),
    ],
)
def test_damaged_files_of_labels_are_named(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_labels(path)
    assert str(caught.value).startswith(str(path))


def test_object_arrays_are_never_unpickled(tmp_path):
    np.save(tmp_path / "y.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "y.npz", labels=pd.Series(["a", "b"]).to_numpy())  # pandas' text
    for name in ("y.npy", "y.npz"):
        with pytest.raises(DataError, match=rf"{name}: its array.* holds Python objects, .*astype"):
            read_labels(tmp_path / name)


def test_missing_files_folders_and_text_embeddings_are_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_labels(tmp_path / "y.csv")
    with pytest.raises(DataError, match="is a folder"):
        read_embeddings(tmp_path)
    np.save(tmp_path / "e.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"table of numbers, \(N, D\); got shape \(3,\)"):
        read_embeddings(tmp_path / "e.npy")
    (tmp_path / "e.csv").write_text("d0,d1\n1,x\n")
    with pytest.raises(DataError, match="a cell is not a number"):
        read_embeddings(tmp_path / "e.csv")


# --- what spreadsheets, pandas and other tools leave in files ------------------------------------


def lines(path, *rows):
    path.write_bytes("\n".join([*rows, ""]).encode())
    return path


def test_a_file_sorted_in_a_spreadsheet_is_read_in_the_order_of_its_index(tmp_path):
    y = lines(tmp_path / "y.csv", "Index,label", "2,c", "0,a", "1,b")
    assert read_labels(y).tolist() == ["a", "b", "c"]
    e = lines(tmp_path / "e.csv", "index,d0,d1", "1,3,4", "0,1,2")
    assert read_embeddings(e).tolist() == [[1, 2], [3, 4]]
    frame = pd.DataFrame({"index": [1, 0], "label": ["b", "a"], "d0": [3.0, 1.0]})
    frame.to_parquet(tmp_path / "a.parquet")
    frame.set_index("index").to_parquet(tmp_path / "b.parquet")
    for name in ("a.parquet", "b.parquet"):
        assert read_labels(tmp_path / name).tolist() == ["a", "b"]
        assert read_embeddings(tmp_path / name).tolist() == [[1], [3]]


def test_written_labels_are_no_formulas_and_read_back(tmp_path):
    labels = ["=1+1", "007", "'x", "nan", "cat"]
    cells = label_cells(np.array(labels))
    path = write_table(tmp_path / "y.csv", {"index": range(5), "label": cells, "is_noisy": [0] * 5})
    assert path.read_text().splitlines()[1:] == [
        "0,'=1+1,0", "1,'007,0", "2,''x,0", "3,'nan,0", "4,cat,0"
    ]  # fmt: skip
    assert read_labels(path).tolist() == labels


# --- arrays and what is no file ------------------------------------------------------------------


def _zip(path, *names, method=zipfile.ZIP_STORED, damage=None):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in names:
            archive.writestr(name, b"not an array")
    content = bytearray(path.read_bytes())
    if damage:
        for mark, offset in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            start = content.index(mark) + offset
            content[start + damage[0]] = damage[1]
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (None, "its array 'labels' does not begin as an array does"),
        ((0, 1), "cannot be read as a .npz file .*encrypted"),
        ((2, 97), "cannot be read as a .npz file .*compression"),
    ],
)
def test_archives_of_something_else_are_one_line(tmp_path, damage, message):
    with pytest.raises(DataError, match=message):
        read_labels(_zip(tmp_path / "y.npz", "labels", damage=damage))


def test_a_parquet_file_of_a_few_bytes_does_not_unpack_to_millions_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_tables, "_MANY", 1000)
    pd.DataFrame({"label": ["a"] * 10**6}).to_parquet(tmp_path / "y.parquet")
    with pytest.raises(DataError, match="says that it holds 1000000 rows of 1 columns, in"):
        read_labels(tmp_path / "y.parquet")
    with pytest.raises(DataError, match="says that it holds 1000000 rows"):
        read_names(tmp_path / "y.parquet")


def test_a_label_is_the_name_of_a_class_and_no_text(tmp_path):
    for suffix in (".npy", ".npz", ".parquet", ".csv", ".txt"):
        long = write(tmp_path / f"y{suffix}", np.array(["a", "b", "c" * 1000, "d", "e"]))
        assert len(read_labels(long)[2]) == 1000
        write(long, np.array(["a", "b", "c" * 1001, "d", "e"]))
        with pytest.raises(DataError, match=r"1001.* at most 1000|at most 1000 .*1001 at row 2"):
            read_labels(long)


def test_a_cell_of_any_length_is_read(tmp_path):
    limit = csv.field_size_limit()
    pd.DataFrame({"name": ["a", "b" * 200_000], "label": [1, 2]}).to_csv(tmp_path / "t.csv")
    assert len(read_names(tmp_path / "t.csv")[1]) == 200_000
    assert csv.field_size_limit() == limit


def test_an_array_larger_than_memory_is_one_line(tmp_path):
    np.save(tmp_path / "e.npy", np.zeros((1, 1)))
    content = (
        (tmp_path / "e.npy")
        .read_bytes()
        .replace(b"(1, 1), }" + b" " * 30, b"(10000000000000000, 64), }".ljust(39))
    )
    (tmp_path / "e.npy").write_bytes(content)
    with pytest.raises(DataError, match=r"e\.npy: "):
        read_embeddings(tmp_path / "e.npy")


@pytest.mark.parametrize("dtype", [">f8", np.longdouble, ">i2"])
def test_foreign_byte_orders_and_long_doubles_become_the_machines_own(tmp_path, dtype):
    np.save(tmp_path / "e.npy", np.array([[1, 2]], dtype=dtype))
    E = read_embeddings(tmp_path / "e.npy")
    assert torch.from_numpy(E).tolist() == [[1, 2]]
    np.save(tmp_path / "y.npy", np.array([3, 1], dtype=">i8"))
    assert read_labels(tmp_path / "y.npy").tolist() == [3, 1]


def test_embeddings_may_be_written_to(tmp_path):
    pd.DataFrame({"d0": np.float32([1, 2])}).to_parquet(tmp_path / "e.parquet")
    assert read_embeddings(tmp_path / "e.parquet").flags.writeable


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".txt", ".parquet"])
def test_a_pipe_is_refused_before_it_is_opened(tmp_path, suffix):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / f"y{suffix}").symlink_to(tmp_path / "pipe")
    with pytest.raises(DataError, match="is a pipe or a device"):
        read_labels(tmp_path / f"y{suffix}")


def test_labels_in_a_file_are_one_a_sample(tmp_path):
    np.save(tmp_path / "y.npy", np.array([[1], [2]]))
    with pytest.raises(DataError, match=r"y\.npy: `labels` must be one label per sample"):
        read_labels(tmp_path / "y.npy")


@pytest.mark.parametrize("column", ["text", "caption", "sentence", "name"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_of_text_are_no_dimensions(tmp_path, column, suffix):
    frame = pd.DataFrame({"d0": [1.5, 2.5], column: ["hello", "there"], "label": ["a", "b"]})
    write = getattr(frame, f"to_{suffix}")
    write(path := tmp_path / f"e.{suffix}", index=False)
    assert read_embeddings(path).tolist() == [[1.5], [2.5]]


@pytest.mark.parametrize(
    "odd", [["0.5", "0.7"], ["x", "y"], [True, False], pd.to_datetime(["2020-01-01"] * 2)]
)
def test_a_dimension_is_never_dropped_in_silence(tmp_path, odd):
    frame = pd.DataFrame({"D0": odd, "d1": [1.0, 2.0], "label": ["a", "b"]})
    frame.to_parquet(tmp_path / "e.parquet")
    with pytest.raises(DataError, match=r"e\.parquet: its columns 'D0' hold no numbers"):
        read_embeddings(tmp_path / "e.parquet")
    if odd[0] == "x":
        frame.to_csv(tmp_path / "e.csv", index=False)
        with pytest.raises(DataError, match=r"e\.csv: a cell is not a number: column 'd0' has 'x'"):
            read_embeddings(tmp_path / "e.csv")


@pytest.mark.parametrize("value", [1e39, 1e-42])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.filterwarnings("error")
def test_numbers_that_float32_does_not_hold_stay_float64(tmp_path, value, suffix):
    frame = pd.DataFrame({"d0": [value, value], "d1": [1.0, 2.0]})
    getattr(frame, f"to_{suffix}")(path := tmp_path / f"e.{suffix}", index=False)
    assert read_embeddings(path).tolist() == [[value, 1], [value, 2]]
    frame["d0"] = 0.5
    getattr(frame, f"to_{suffix}")(path, index=False)
    assert read_embeddings(path).dtype == np.float32


@pytest.mark.parametrize("suffix", ["npy", "csv", "parquet"])
def test_rows_that_are_not_finite_are_named_with_their_file(tmp_path, suffix):
    E = np.array([[1.0, 2], [np.nan, 1]])
    path = tmp_path / f"e.{suffix}"
    if suffix == "npy":
        np.save(path, E)
    else:
        getattr(pd.DataFrame(E, columns=["d0", "d1"]), f"to_{suffix}")(path, index=False)
    with pytest.raises(
        DataError, match=rf"e\.{suffix}: (.*rows 1 hold NaN|a cell is not a number)"
    ):
        read_embeddings(path)


@pytest.mark.parametrize("suffix", ["npy", "npz", "csv", "txt", "parquet"])
@pytest.mark.parametrize("empty", ["", " \u2003"])
def test_an_empty_label_is_refused_in_every_kind_of_file(tmp_path, suffix, empty):
    path = tmp_path / f"y.{suffix}"
    labels = np.array(["a", empty, "b"])
    if suffix in ("npy", "npz"):
        np.save(path, labels) if suffix == "npy" else np.savez(path, labels=labels)
    elif suffix == "txt":
        path.write_text("\n".join(labels), "utf-8")
    else:
        getattr(pd.DataFrame({"label": labels}), f"to_{suffix}")(path, index=False)
    with pytest.raises(DataError, match="row 2 has an empty label"):
        read_labels(path)


@pytest.mark.parametrize("dtype", ["?", "u1", ">i4", "i8"])
def test_integer_labels_are_int64(tmp_path, dtype):
    np.save(tmp_path / "y.npy", np.array([1, 0, 1], dtype))
    labels = read_labels(tmp_path / "y.npy")
    assert (labels.dtype, labels.tolist()) == (np.int64, [1, 0, 1])
    large = np.array([2**63 + 1, 2**64 - 1], np.uint64)
    np.save(tmp_path / "y.npy", large)
    assert read_labels(tmp_path / "y.npy").tolist() == large.tolist()


@pytest.mark.parametrize("read", [read_labels, read_embeddings, read_names])
def test_an_array_named_like_an_archive_is_one_line(tmp_path, read):
    np.save(tmp_path / "y.npy", np.zeros((2, 2)))
    (tmp_path / "y.npy").rename(tmp_path / "y.npz")
    with pytest.raises(DataError, match=r"y\.npz: is a single array.*; name it \.npy"):
        read(tmp_path / "y.npz")
    with pytest.raises(DataError, match=r"the name of the file of .* is empty"):
        read("")
    with pytest.raises(DataError, match="cannot be read"):
        read("x" * 300 + ".npz")


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
@pytest.mark.parametrize("stem", ["d", "", "feature_"])
def test_a_number_beside_numbered_dimensions_is_none_of_them(tmp_path, suffix, stem):
    def write(*columns):
        frame = pd.DataFrame(np.arange(2.0 * len(columns)).reshape(2, -1), columns=columns)
        path = tmp_path / f"e.{suffix}"
        if suffix == "parquet":
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False, sep="\t" if suffix == "tsv" else ",")
        return path

    dimensions = [f"{stem}{i}" for i in range(3)]
    first, last = dimensions[0], dimensions[-1]
    for odd in ("age", "year2"):
        said = rf"column '{odd}' is named otherwise than the other 3, '{first}' to '{last}': is it"
        with pytest.raises(DataError, match=said):
            read_embeddings(write("label", *dimensions, odd))
    assert read_embeddings(write("label", *dimensions, "id")).shape == (2, 3)
    # Where most have no number, or two kinds have, each may be a measurement.
    assert read_embeddings(write("width", "height", "area1", "area2")).shape == (2, 4)
    assert read_embeddings(write("u0", "u1", "v0", "v1")).shape == (2, 4)
    assert read_embeddings(write("width")).shape == (2, 1)


def test_what_stands_beside_labels_is_read_as_it_can_be_written(tmp_path):
    text = "Index,Name,species,age,note\r\n1,'007,wren,2.50,=x\r\n0,a,owl,,\r\n"
    (tmp_path / "y.csv").write_bytes(text.replace("species", "label").encode())
    expected = {"Name": ["a", "'007"], "age": ["", "2.50"], "note": ["", "=x"]}
    assert read_beside(tmp_path / "y.csv") == expected
    (tmp_path / "y.tsv").write_text("\tlabel\tid\n0\ta\tx\n")
    assert read_beside(tmp_path / "y.tsv") == {"id": ["x"]}
    (tmp_path / "y.txt").write_text("a\nb\n")
    (tmp_path / "single.csv").write_text("label\na\n")
    assert read_beside(tmp_path / "y.txt") == read_beside(tmp_path / "single.csv") == {}
    np.savez(tmp_path / "y.npz", labels=["a", "b"], names=["7", "x"], embeddings=np.eye(2))
    assert read_beside(tmp_path / "y.npz") == {"name": ["'7", "x"]}
    np.savez(tmp_path / "y.npz", labels=["a", "b"], splits=["train", "test"])
    assert read_beside(tmp_path / "y.npz") == {"split": ["train", "test"]}
    # A .parquet file says what the .csv of its frame does; lists have no cell there.
    frame = pd.DataFrame({"index": [1, 0], "name": ["'007", "a"], "label": ["wren", "owl"]})
    frame = frame.assign(x1=[-2.5, 3.0], note=["=x", None], split=["test", "train"])
    frame.assign(embedding=[[1.0], [2.0]]).to_parquet(tmp_path / "y.parquet")
    assert read_beside(tmp_path / "y.parquet") == {
        **{"name": ["a", "''007"], "x1": ["3.0", "-2.5"]},
        **{"note": ["", "'=x"], "split": ["train", "test"]},
    }


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_in_another_encoding_is_to_be_saved_as_utf_8(tmp_path, encoding):
    for name in ("y.csv", "y.txt"):
        (tmp_path / name).write_bytes("label\nm\u00fcll\nm\u00e4h\n".encode(encoding))
        with pytest.raises(DataError, match=rf"{name}: .*codec can't decode.*Save it as UTF-8\.$"):
            read_labels(tmp_path / name)


def test_names_of_another_number_than_the_samples_are_refused_by_every_reader(tmp_path):
    few, y = ["a", "b"], ["u", "u", "v"]
    np.savez(tmp_path / "named.npz", embeddings=np.eye(3), labels=y, names=few)
    np.savez(tmp_path / "only.npz", vectors=np.eye(3), labels=y, path=few)
    np.savez(tmp_path / "y.npz", labels=y, names=few)
    for name in ("named.npz", "only.npz", "y.npz"):
        readers = (read_names, lambda path: fitting_names(path, 3), read_labels, read_beside)
        for read in (*readers, read_features):
            with pytest.raises(DataError, match=rf"{name}: its array .* is \(2,\); expected one"):
                read(tmp_path / name)
            if name == "y.npz" and read is read_beside:
                break  # it holds no features
    np.save(tmp_path / "train.npy", np.eye(3))
    np.save(tmp_path / "test.npy", np.eye(3))
    frame = pd.DataFrame({"label": y, "name": ["1", "2", "3"]})
    for split in ("train", "test"):
        frame.to_csv(tmp_path / f"{split}_labels.csv", index=False)
    folder = tmp_path / "features"
    folder.mkdir()
    for file in (*tmp_path.glob("t*.npy"), *tmp_path.glob("t*.csv")):
        file.rename(folder / file.name)
    assert read_features(folder).train.given_names == ("1", "2", "3")
