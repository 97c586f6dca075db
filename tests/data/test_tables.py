"""Labels and embeddings from files: every format round-trips, every fault has its sentence."""

import numpy as np
import pandas as pd
import pytest

from bspml.data.tables import read_embeddings, read_labels, write_labels
from bspml.errors import DataError

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
        write_labels(path, {"label": labels.tolist(), "other": [0] * len(labels)})
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


def test_a_plain_list_of_words_or_a_single_column_is_enough(tmp_path):
    (tmp_path / "y.txt").write_text("cat\ndog\n")
    assert read_labels(tmp_path / "y.txt").tolist() == ["cat", "dog"]
    (tmp_path / "y.csv").write_text("\ufeff1\n2\n")
    assert read_labels(tmp_path / "y.csv").tolist() == [1, 2]


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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("y.npy", b"", "cannot be read as .npy"),
        ("y.npy", b"\x80\x04cos\nsystem\n", "cannot be read as .npy"),
        ("y.npz", b"PK\x03\x04 torn", "cannot be read as .npz"),
        ("y.parquet", b"PAR1", "cannot be read as .parquet"),
        ("y.csv", b"", "holds no labels"),
        ("y.csv", b"a,b\n1,2\n", "has no column `label`; its columns are a, b"),
        ("y.csv", b"label,x\n1\n", "row 2 has 1 cells, the first has 2"),
        ("y.csv", b'label\ncat\n""\n', "row 2 has an empty label"),
        ("y.txt", b"\xff\xfe\x00", "cannot be read as .txt"),
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
    with pytest.raises(DataError, match="cannot be read"):
        read_labels(tmp_path / "y.npy")


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
