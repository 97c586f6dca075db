"""Features: one file, a file per split, and what does not fit."""

import numpy as np
import pandas as pd
import pytest

from bspml.data.sets.features import read_features
from bspml.errors import DataError

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array(["a", "a", "b", "c"])
SPLITS = np.array(["train", "train", "test", "test"])


def check(data):
    np.testing.assert_array_equal(data.train.features, X[:2])
    np.testing.assert_array_equal(data.test.features, X[2:])
    assert data.train.labels.tolist() == ["a", "a"]
    assert data.test.labels.tolist() == ["b", "c"]


def test_one_archive(tmp_path):
    np.savez(tmp_path / "f.npz", embeddings=X, labels=Y, splits=SPLITS)
    check(read_features(tmp_path / "f.npz"))
    np.savez(tmp_path / "f.npz", features=X, labels=Y, split=SPLITS)
    check(read_features(tmp_path / "f.npz"))


def test_without_splits_the_first_half_of_the_classes_trains(tmp_path):
    np.savez(tmp_path / "f.npz", embeddings=X, labels=Y)
    data = read_features(tmp_path / "f.npz")
    assert data.train.classes.tolist() == ["a"]
    assert data.test.classes.tolist() == ["b", "c"]


@pytest.mark.parametrize("kind", [".parquet", ".csv"])
def test_one_table(tmp_path, kind):
    frame = pd.DataFrame(X, columns=["d0", "d1", "d2"]).assign(label=Y, split=SPLITS)
    path = tmp_path / f"f{kind}"
    frame.to_parquet(path) if kind == ".parquet" else frame.to_csv(path, index=False)
    check(read_features(path))


def test_a_file_per_split(tmp_path):
    for name, rows in (("train", slice(0, 2)), ("test", slice(2, 4))):
        np.savez(tmp_path / f"{name}.npz", embeddings=X[rows], labels=Y[rows], names=Y[rows])
    check(read_features(tmp_path))


def test_a_file_beside_the_splits_is_left_out_with_a_note(tmp_path):
    for name, rows in (("Train", slice(0, 2)), ("test", slice(2, 4)), ("val", slice(0, 2))):
        np.savez(tmp_path / f"{name}.npz", embeddings=X[rows], labels=Y[rows], names=Y[rows])
    data = read_features(tmp_path)
    check(data)
    assert data.notes == ("Left out of this data set: val.npz.",)


def test_arrays_with_labels_beside_them(tmp_path):
    for name, rows in (("train", slice(0, 2)), ("test", slice(2, 4))):
        np.save(tmp_path / f"{name}.npy", X[rows])
        (tmp_path / f"{name}_labels.txt").write_text("\n".join(Y[rows]) + "\n")
    check(read_features(tmp_path))
    (tmp_path / "test_labels.txt").unlink()
    with pytest.raises(DataError, match=r"test\.npy: has no labels beside it"):
        read_features(tmp_path)


def test_one_array_with_labels_and_splits_beside_it(tmp_path):
    np.save(tmp_path / "f.npy", X[[2, 0, 3, 1]])
    beside = pd.DataFrame({"label": Y, "split": SPLITS}).iloc[[2, 0, 3, 1]]
    beside.to_csv(tmp_path / "f_labels.csv", index=False)
    check(read_features(tmp_path / "f.npy"))
    (tmp_path / "f_labels.csv").unlink()
    (tmp_path / "f_labels.txt").write_text("\n".join(Y[[2, 0, 3, 1]]) + "\n")
    assert read_features(tmp_path / "f.npy").train.classes.tolist() == ["a"]


def test_of_two_files_that_could_each_be_meant_none_is_taken(tmp_path):
    np.save(tmp_path / "f.npy", X)
    np.save(tmp_path / "f_labels.npy", Y)
    (tmp_path / "f_labels.csv").write_text("label\n" + "\n".join(Y[::-1]) + "\n")
    with pytest.raises(DataError, match=r"f_labels\.npy: beside it lies f_labels\.csv\. Keep one"):
        read_features(tmp_path / "f.npy")
    for name in ("train.npz", "test.npz", "Train.npz.csv"):
        np.savez(tmp_path / name, embeddings=X, labels=Y)
    pd.DataFrame(X).assign(label=Y).to_csv(tmp_path / "Train.csv", index=False)
    with pytest.raises(DataError, match=r"train\.npz: beside it lies Train\.csv\. Keep one"):
        read_features(tmp_path)


def test_query_and_gallery(tmp_path):
    for name in ("train", "query", "gallery"):
        np.savez(tmp_path / f"{name}.npz", embeddings=X, labels=Y)
    assert len(read_features(tmp_path).gallery) == 4


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (np.array(["train", "train", "test", "test"], dtype=object), "holds Python objects"),
        (np.array([["train"], ["train"], ["test"], ["test"]]), r"one entry a row, .*\(4, 1\)"),
        (np.array("train"), r"is \(\); expected one entry for each of 4 rows"),
        (np.full(20_000_000, True), r"is \(20000000,\); expected one entry for each of 4 rows"),
        (np.zeros(4, [("a", "i4")]), "holds rows of fields"),
        (np.arange(4), "the split must be one of"),
    ],
)
def test_splits_of_another_kind_are_refused(tmp_path, splits, message):
    np.savez_compressed(tmp_path / "f.npz", embeddings=X, labels=Y, splits=splits)
    with pytest.raises(DataError, match=message):
        read_features(tmp_path / "f.npz")


def test_two_arrays_for_one_thing_are_refused_and_capitals_do_not_count(tmp_path):
    split = np.array(["train", "train", "test", "test"])
    np.savez(tmp_path / "f.npz", Embeddings=X, LABELS=Y, Splits=split)
    assert len(read_features(tmp_path / "f.npz").train) == 2
    twins = {
        "split": ({"split": split, "splits": split}, "two arrays that can be its `split`"),
        "label": ({"Labels": Y}, "2 columns `labels`"),
        "names": ({"names": np.zeros(4, [("a", "i4")])}, "holds rows of fields"),
    }
    for more, message in twins.values():
        np.savez(tmp_path / "f.npz", embeddings=X, labels=Y, **more)
        with pytest.raises(DataError, match=message):
            read_features(tmp_path / "f.npz")


def test_a_flipped_bit_is_one_line(tmp_path):
    split = np.array(["train", "train", "test", "test"])
    np.savez(tmp_path / "f.npz", embeddings=X, labels=Y, splits=split)
    whole = bytearray((tmp_path / "f.npz").read_bytes())
    whole[bytes(whole).index("test".encode("utf-32-le"))] ^= 1
    (tmp_path / "f.npz").write_bytes(bytes(whole))
    with pytest.raises(DataError, match=r"f\.npz: cannot be read as a \.npz file .*CRC"):
        read_features(tmp_path / "f.npz")


def test_what_does_not_fit_is_refused(tmp_path):
    with pytest.raises(DataError, match="has features of no split"):
        read_features(tmp_path)
    np.savez(tmp_path / "train.npz", embeddings=X, labels=Y)
    np.savez(tmp_path / "test.npz", embeddings=X[:, :2], labels=Y)
    with pytest.raises(DataError, match=r"features of different lengths, \[2, 3\]"):
        read_features(tmp_path)
    np.savez(tmp_path / "test.npz", embeddings=X, labels=Y[:3])
    with pytest.raises(DataError, match=r"its array 'labels' is \(3,\); .* each of 4 rows"):
        read_features(tmp_path)
    np.savez(tmp_path / "test.npz", embeddings=np.where(X == 7, np.nan, X), labels=Y)
    with pytest.raises(DataError, match=r"test\.npz: .*rows 2 hold NaN or infinity"):
        read_features(tmp_path)


def test_labels_decided_to_be_wrong_are_no_labels_of_features(tmp_path):
    np.save(tmp_path / "f.npy", X)
    lines = [f"{i},{label},{float(i > 0)},{'wrong' * (i == 0)}" for i, label in enumerate(Y)]
    text = "\n".join(["index,label,weight,decision", *lines])
    (tmp_path / "f_labels.csv").write_text(text)
    with pytest.raises(DataError, match=r"1 label was decided .* beside the labels as"):
        read_features(tmp_path / "f.npy")


@pytest.mark.parametrize("suffix", ["npz", "npy", "csv", "parquet"])
def test_a_file_that_is_not_there_is_one_of_features(tmp_path, suffix):
    with pytest.raises(DataError, match=rf"nix\.{suffix}: no such file; expected a file of embe"):
        read_features(tmp_path / f"nix.{suffix}")
