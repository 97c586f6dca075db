"""Arrays of files: nothing is unpickled, and nothing is built that the header does not bear out."""

import io
import zipfile

import numpy as np
import pytest

from bspml.errors import DataError
from bspml.files import arrays
from bspml.files.arrays import (
    Archive,
    packed_texts,
    read_array,
    text_column,
    text_objects,
    unpacked_texts,
)
from bspml.files.tables import read_names


def archive_of(**members):
    file = io.BytesIO()
    np.savez_compressed(file, **members)
    return file


def header(shape, kind="<f8", version=1):
    text = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    width = 2 if version == 1 else 4
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(width, "little") + text


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((0, 3)), np.float32(2), np.arange(6).reshape(2, 3).T, np.array(["é", "b"]),
        np.array([["\U0010ffff", ""]], ">U1"),
        np.array([b"x"]), np.array([True]), np.arange(3, dtype=">i2"),
    ],
)  # fmt: skip
def test_arrays_read_back(array):
    file = io.BytesIO()
    np.save(file, array)
    file.seek(0)
    archive = Archive(archive_of(X=array))
    for again in (read_array(file), archive.read("X")):
        np.testing.assert_array_equal(again, array)
    assert (archive.names, archive.find(("y", "x")), archive.find(("y",))) == (["X"], "X", None)
    assert archive.shape("X") == array.shape


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (header((3,)) + b"\0" * 16, ValueError, "declares 24 bytes, .* and has 16"),
        (header((10**18, 64)), ValueError, "declares .* and has 0"),
        (header((-1,)), ValueError, "declares -8 bytes"),
        (header((2**40, 0)), None, ""),
        (header((1,), "|O"), DataError, r"holds Python objects.*array\.astype\(str\)"),
        (header((1,), [("a", "<i4")]) + b"\0" * 4, DataError, "holds rows of fields"),
        (header((1,), "|V4") + b"\0" * 4, DataError, "holds rows of fields"),
        (header((1,), "<U2") + b"a\0\0\0\0\0\x11\0", ValueError, "beyond Unicode's last"),
        (header((1,), ">U1") + b"\0\x11\0\0", ValueError, "beyond Unicode's last"),
        (header((1,), version=3), ValueError, "does not begin as an array does"),
        (header("(" * 5000), ValueError, "does not begin as an array does"),
        (b"\x93NUMPY\x02\x00" + b"\xff" * 8, ValueError, "does not begin as an array does"),
        (b"", ValueError, "does not begin as an array does"),
    ],
)
def test_a_header_is_judged_before_anything_is_built(content, error, message):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("x.npy", content)
    for read in (lambda: read_array(io.BytesIO(content)), lambda: Archive(packed).read("x")):
        if error is None:
            assert read().size == 0
            continue
        with pytest.raises(error, match=message) as caught:
            read()
        assert "trust" not in str(caught.value)


def test_a_giant_in_a_tiny_file_is_refused_unread(monkeypatch):
    monkeypatch.setattr(arrays, "_MUCH", 2**16)
    with pytest.raises(DataError, match=r"'x' unpacks to .* MiB, from .* save it unpacked"):
        Archive(archive_of(x=np.zeros(2**20))).read("x")
    assert len(Archive(archive_of(x=np.random.default_rng(0).random(2**14))).read("x")) == 2**14
    assert len(Archive(archive_of(x=np.zeros(2**12))).read("x")) == 2**12


def test_two_arrays_of_one_name_are_refused():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        packed.writestr("x.npy", header((0,)))
        packed.writestr("x", header((0,)))
    with pytest.raises(DataError, match="has 2 arrays 'x'; keep one"):
        Archive(file)
    with pytest.raises(DataError, match="has 2 columns `x`; keep one"):
        Archive(archive_of(x=[1], X=[1])).find(("x",))


def test_texts_are_packed_as_long_as_they_are():
    texts = ["", "é", "a" * 100_000, "\udcff", *["x"] * 4000]
    packed = packed_texts("t", texts)
    assert sum(array.nbytes for array in packed.values()) < 150_000
    assert unpacked_texts({"y": np.ones(1), **packed})["t"].tolist() == texts
    assert text_objects(texts).nbytes < 50_000
    for damage in (
        {"t": packed["t"][:-1]}, {"t.ends": packed["t.ends"][::-1]}, {"t": np.zeros(3)},
        {"t.ends": packed["t.ends"].astype(float)}, {"t.ends": packed["t.ends"][None]},
        {"t.ends": packed["t.ends"] - 1},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"holds no texts|codec"):
            unpacked_texts(packed | damage)


def test_one_long_text_takes_no_room_for_the_others(tmp_path):
    names = [f"{i}.jpg" for i in range(3000)]
    assert text_column("names", names)["names"].dtype.kind == "U"  # for numpy.load, as ever
    names[7] = "é" * 100_000
    path = tmp_path / "embeddings.npz"
    np.savez(path, embeddings=np.ones((3000, 2)), **text_column("names", names))
    assert path.stat().st_size < 500_000
    with path.open("rb") as file:
        archive = Archive(file)
        assert archive.names == ["embeddings", "names"]
        assert archive.shape("names") == (3000,)
    assert read_names(path) == names
    np.savez(path, embeddings=np.ones((2, 2)), **text_column("names", names))
    with pytest.raises(DataError, match=r"its array 'names' is \(3000,\); expected one entry for"):
        read_names(path)
