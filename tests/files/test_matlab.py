"""MATLAB's files as scipy writes them, read back; and every kind of damage, by an exception."""

import io
import struct
import zlib

import numpy as np
import pytest
import scipy.io

from bspml.files.matlab import read_variable
from bspml.files.opening import FAULTS


def saved(**variables):
    file = io.BytesIO()
    scipy.io.savemat(file, variables)
    return file.getvalue()


def cells(*values):
    array = np.empty((1, len(values)), dtype=object)
    array[0, :] = values
    return array


def test_what_scipy_writes_is_read_back():
    table = np.empty((1, 2), dtype=[("box", "O"), ("name", "O")])
    table["box"][0, :] = [np.array([[7]], "u1"), np.array([[2.5, -3.0]])]
    table["name"][0, :] = ["é.jpg", ""]
    file = saved(other=3, table=table, names=cells("a", "longer than eight", cells("in")))
    found = read_variable(io.BytesIO(file), "table")
    assert [v.tolist() for v in found["box"]] == [[7], [2.5, -3.0]]
    assert found["name"][0] == "é.jpg"
    assert len(found["name"][1]) == 0
    assert read_variable(io.BytesIO(file), "names") == ["a", "longer than eight", ["in"]]
    for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"):
        values = np.array([[1, 2, 3], [4, 5, 6]], dtype)
        back = read_variable(io.BytesIO(saved(x=values)), "x")
        assert back.dtype == dtype
        assert back.tolist() == [1, 4, 2, 5, 3, 6]
    with pytest.raises(KeyError):
        read_variable(io.BytesIO(file), "no")


def element(order, kind, data):
    return struct.pack(f"{order}II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def matrix(order, kind, shape, *parts, name=b"x"):
    head = [element(order, 6, struct.pack(f"{order}II", kind, 0))]
    head += [
        element(order, 5, struct.pack(f"{order}{len(shape)}i", *shape)),
        element(order, 1, name),
    ]
    return element(order, 14, b"".join([*head, *parts]))


def file_of(content, order="<"):
    version = b"\0\1IM" if order == "<" else b"\1\0MI"
    return io.BytesIO(b"by hand".ljust(124) + version + content)


def test_the_other_byte_order_and_compression():
    number = matrix(">", 6, (1, 2), element(">", 9, struct.pack(">2d", 1.5, -2.0)))
    text = matrix(">", 4, (1, 2), element(">", 4, "aé".encode("utf-16-be")))
    assert read_variable(file_of(number, ">"), "x").tolist() == [1.5, -2.0]
    assert read_variable(file_of(text, ">"), "x") == "aé"
    packed = zlib.compress(matrix("<", 6, (1, 1), element("<", 2, b"\7")))
    assert read_variable(file_of(struct.pack("<II", 15, len(packed)) + packed), "x").tolist() == [7]


def nested(depth):
    inner = matrix("<", 6, (1, 1), element("<", 2, b"\7"))
    for _ in range(depth):
        inner = matrix("<", 1, (1, 1), inner)
    return inner


@pytest.mark.parametrize(
    "content",
    [
        nested(1000),  # scipy's reader runs out of stack here, and the process ends
        matrix("<", 1, (2**30, 2**30)),
        matrix("<", 2, (2**30, 2**30), element("<", 5, b"\1\0\0\0"), element("<", 1, b"")),
        matrix("<", 2, (1, 1), element("<", 5, b"\0\0\0\0"), element("<", 1, b"ab")),
        matrix("<", 6, (1, 3), element("<", 2, b"\7")),
        matrix("<", 6, (1, -1), element("<", 2, b"\7")),
        matrix("<", 6, (1, 1), element("<", 77, b"\7")),
        matrix("<", 5, (1, 1), element("<", 2, b"\7")),  # sparse
        matrix("<", 4, (2, 1), element("<", 4, b"a\0b\0")),
        matrix("<", 6, (1, 1), struct.pack("<II", 2, 2**32 - 1)),
        matrix("<", 6, (1, 1), struct.pack("<HHI", 2, 5, 0)),
    ],
)
def test_what_is_not_there_is_not_read(content):
    try:
        found = read_variable(file_of(content), "x")
    except FAULTS:
        return
    assert found == {}  # a struct array without fields


def test_complex_numbers_do_not_lose_their_imaginary_part():
    file = saved(x=np.array([1 + 2j, 3]), y=[4.0])
    with pytest.raises(ValueError, match="complex numbers"):
        read_variable(io.BytesIO(file), "x")
    with pytest.raises(ValueError, match="complex numbers"):
        read_variable(io.BytesIO(saved(names=cells("a", np.array([1j])))), "names")


def test_what_unpacks_to_too_much_is_refused(monkeypatch):
    monkeypatch.setattr("bspml.files.matlab._LARGEST", 1000)
    packed = zlib.compress(matrix("<", 6, (1, 10_000), element("<", 2, bytes(10_000))))
    with pytest.raises(ValueError, match="unpacks to more"):
        read_variable(file_of(struct.pack("<II", 15, len(packed)) + packed), "x")


def test_damage_ends_in_an_exception_or_a_value():
    file, rng, refused = (
        saved(names=cells("a", np.arange(3), cells("b"))),
        np.random.default_rng(0),
        0,
    )
    for _ in range(500):
        data = bytearray(file)
        for place in rng.integers(100, len(data), 3):
            data[place] = rng.integers(256)
        try:
            read_variable(io.BytesIO(bytes(data[: rng.integers(50, 2 * len(data))])), "names")
        except FAULTS:
            refused += 1
    assert 100 < refused < 500
