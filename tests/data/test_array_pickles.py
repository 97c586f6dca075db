"""Pickles of arrays are read, by numpy's own account; whatever else a pickle can do is refused."""

import os
import pickle
import struct

import numpy as np
import pytest

from bspml.data import array_pickles
from helpers.comparisons import same

VALUES = {
    "labels": np.arange(7),
    "pixels": np.arange(24, dtype=np.uint8).reshape(2, 12),
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "other byte order": np.arange(5, dtype=">i4"),
    "bool": np.array([True, False]),
    "no dimension": np.array(3),
    "empty": np.empty((0, 4), np.float32),
    "scalar": np.int64(5),
    "list": [1, "a", 2.5, None, True],
    "nested": [[np.arange(2)], {"k": np.arange(3)}],
    "bytes": b"\x00\xff",
}


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("name", VALUES)
def test_values_come_back_as_numpy_would_give_them(name, protocol):
    read = array_pickles.loads(pickle.dumps({name: VALUES[name]}, protocol))
    assert same(read, {name: VALUES[name]})


def test_an_array_of_objects_comes_as_a_list():
    array = np.array([{"a": np.arange(3)}], dtype=object)
    assert same(array_pickles.loads(pickle.dumps(array, 4)), [{"a": np.arange(3)}])


def python2_pickle(pixels, labels):
    """What Python 2 wrote: its text and its bytes are one type, numpy's core has its old name."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01" + b"".join(b"J" + struct.pack("<i", n) for n in pixels.shape) + b"\x86"
        b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    )
    items = b"".join(b"K" + bytes([n]) for n in labels)
    return b"\x80\x02}(U\x04data" + array + b"U\x06labels](" + items + b"eu."


def test_python_2_wrote_arrays_that_are_read_too():
    pixels = np.arange(250, dtype=np.uint8).reshape(2, 125)
    data = python2_pickle(pixels, [3, 1])
    reference = pickle.loads(data, encoding="latin1")
    assert np.array_equal(reference["data"], pixels)
    assert same(array_pickles.loads(data), {"data": pixels, "labels": [3, 1]})


class Runs:
    """Pickles as a call of `function(*arguments)`."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_code_does_not_run(tmp_path, protocol):
    marker = tmp_path / "ran"
    data = pickle.dumps({"data": Runs(os.mkdir, str(marker))}, protocol)
    with pytest.raises(pickle.UnpicklingError, match=r"it names \w+.mkdir, which no data needs"):
        array_pickles.loads(data)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Runs(np.ndarray, (1,), object, b"12345678"), r"it names \w+.object"),
        (Runs(np.ndarray, (1,), np.dtype("O"), b"12345678"), "in a way that numpy does not"),
        (Runs(np.dtype, [("a", "O")]), "holds an array of"),
        (Runs(np.dtype, "U5"), "holds an array of 'U5'"),
        (np.array(["text"]), "holds an array of 'U4'"),
        (np.array(["2020-01-01"], "M8[D]"), "holds an array of 'M8'"),
        (np.zeros(2, [("x", "i4")]), "holds an array of 'V4'"),
        (np.random.default_rng, "it names numpy.random"),
        (getattr, "it names builtins.getattr|__builtin__.getattr"),
    ],
)
def test_only_plain_arrays_are_built(value, message):
    with pytest.raises(pickle.UnpicklingError, match=message):
        array_pickles.loads(pickle.dumps(value, 2))


def test_an_array_with_too_few_bytes_is_refused():
    data = pickle.dumps(np.arange(5, dtype=np.uint8), 2)
    assert data.count(b"K\x05\x85") == 1
    with pytest.raises(pickle.UnpicklingError, match="has 5 bytes"):
        array_pickles.loads(data.replace(b"K\x05\x85", b"K\x06\x85"))


def test_damage_anywhere_is_an_unpickling_error_or_plain_data():
    sound = pickle.dumps({"data": np.arange(4, dtype=np.uint8), "labels": [1, 2]}, 2)
    for place in range(len(sound)):
        with pytest.raises(pickle.UnpicklingError):
            array_pickles.loads(sound[:place])
        for byte in (0, 0x2E, 0x52, 0xFF):
            damaged = sound[:place] + bytes([byte]) + sound[place + 1 :]
            try:
                array_pickles.loads(damaged)
            except pickle.UnpicklingError:
                continue
