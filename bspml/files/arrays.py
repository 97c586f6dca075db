"""Arrays in .npy and .npz files, judged by what their headers declare before anything is built.

No pickle is opened, and no array of objects or of several fields is read.  A few kilobytes may
declare, and unpack to, gigabytes: such an array is refused unread.
"""

from __future__ import annotations

import itertools
import sys
import tokenize
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from io import BufferedIOBase
from math import prod
from typing import Any

import numpy as np

from bspml.errors import DataError
from bspml.files.columns import find_column

# Above this many bytes, an array that was packed tighter than that is no measurement.
_MUCH, _TIGHTEST = 2**28, 200
_ENDS = ".ends"
_FEW, _SPARSE = 2**22, 8  # characters of room that are no matter; times all texts that are
# What numpy raises on it, and Python's parser; not what zipfile does, whose words are its own.
_NO_HEADER = (
    *(ValueError, KeyError, TypeError, EOFError, SyntaxError, tokenize.TokenError),
    *(MemoryError, RecursionError),
)
HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}  # a header of version 3 holds names of fields

Header = tuple[tuple[int, ...], np.dtype, int]  # and where the values begin


def read_array(file: BufferedIOBase) -> np.ndarray:
    """Read the array of an .npy file.

    Raises:
        DataError: an archive, or an array of objects or fields.
        ValueError: damage; so may whatever numpy raises.
    """
    if file.read(4) == b"PK\3\4":
        raise DataError("is an archive of arrays; name it .npz.")
    file.seek(0)
    shape, dtype, start = _header(file, "its array")
    end = file.seek(0, 2)
    _check_size("its array", shape, dtype, end - start)
    file.seek(0)
    return _values(file, "its array")


class Archive:
    """The arrays of an .npz file, each read when it is asked for; those of `packed_texts` as one.

    Args:
        file: open for reading bytes.

    Raises:
        DataError: a single array, or two arrays of one name.
        zipfile.BadZipFile: no archive, or a damaged one.
    """

    def __init__(self, file: BufferedIOBase) -> None:
        start = file.read(len(np.lib.format.MAGIC_PREFIX))
        if start == np.lib.format.MAGIC_PREFIX:
            raise DataError("is a single array, and no archive of them; name it .npy.")
        self._zip = zipfile.ZipFile(file)
        self._members = {info.filename.removesuffix(".npy"): info for info in self._zip.infolist()}
        self._headers: dict[str, Header] = {}
        counts = Counter(info.filename.removesuffix(".npy") for info in self._zip.infolist())
        twice = [name for name, count in counts.items() if count > 1]
        if twice:
            raise DataError(f"has {counts[twice[0]]} arrays {twice[0]!r}; keep one.")

    @property
    def names(self) -> list[str]:
        """Names of the arrays, in the file's order."""
        ends = {f"{name}{_ENDS}" for name in self._members}
        return [name for name in self._members if name not in ends]

    def find(self, wanted: Sequence[str]) -> str | None:
        """Return the name of the first of the `wanted` arrays that is there, in whatever case.

        Raises:
            DataError: there are two.
        """
        lower = [name.lower() for name in self.names]
        place = find_column(lower, wanted)
        return None if place is None else self.names[place]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return what the header of an array says, without reading it."""
        ends = f"{name}{_ENDS}"
        return self._header(ends if ends in self._members else name)[0]

    def read(self, name: str) -> np.ndarray:
        """Return an array, packed texts as Python's.

        Raises:
            DataError: it is of objects or fields, or a giant in a tiny file.
            ValueError: damage; so may whatever numpy and zipfile raise.
        """
        pair = [other for other in (name, f"{name}{_ENDS}") if other in self._members]
        return unpacked_texts({other: self._read(other) for other in pair})[name]

    def _read(self, name: str) -> np.ndarray:
        shape, dtype, start = self._header(name)
        info, size = self._members[name], prod(shape) * dtype.itemsize
        _check_size(f"its array {name!r}", shape, dtype, info.file_size - start)
        if size > _MUCH and size > _TIGHTEST * info.compress_size:
            raise DataError(
                f"its array {name!r} unpacks to {size >> 20} MiB, from {info.compress_size} bytes. "
                "If that is right, save it unpacked, with numpy.savez."
            )
        with self._zip.open(info) as member:
            return _values(member, f"its array {name!r}")

    def _header(self, name: str) -> Header:
        if name not in self._headers:
            with self._zip.open(self._members[name]) as member:
                self._headers[name] = _header(member, f"its array {name!r}")
        return self._headers[name]


def texts_of(array: np.ndarray) -> list[str]:
    """Return (N,) text, bytes or numbers as texts; bytes that are no UTF-8 as lone surrogates."""
    if array.dtype.kind == "S":
        return [value.decode("utf-8", "surrogateescape") for value in array.tolist()]
    # Of numbers, numpy's own: 0.1 in float32 is '0.1'.  Text is never copied at its full width.
    return array.tolist() if array.dtype.kind in "UO" else array.astype(str).tolist()


def text_objects(texts: Iterable[Any]) -> np.ndarray:
    """Return (N,) Python texts, of which a long one makes no other longer.

    Example:
        >>> text_objects(["a", "b" * 1000]).nbytes < 100
        True
    """
    values = [str(text) for text in texts]
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def packed_texts(name: str, texts: Iterable[Any]) -> dict[str, np.ndarray]:
    """Return N texts as two arrays for an archive, without pickle and as large as they are.

    Args:
        name: of the first array, their UTF-8 one after the other; the other has `.ends` behind it.
        texts: N.

    Example:
        >>> unpacked_texts(packed_texts("names", ["a", "é"]))["names"].tolist()
        ['a', 'é']
    """
    pieces = [str(text).encode("utf-8", "surrogatepass") for text in texts]
    ends = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    return {name: np.frombuffer(b"".join(pieces), np.uint8), f"{name}{_ENDS}": ends}


def text_column(name: str, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Return N texts for an archive: as numpy's array, or packed where one is so long that the
    array, which gives each as much room, would be far larger than all of them.

    Args:
        name: of the array, or of the first of two.
        texts: N.

    Example:
        >>> list(text_column("names", ["a", "b"]))
        ['names']
    """
    lengths = [len(text) for text in texts]
    room = max(lengths, default=0) * len(texts)
    is_plain = room < max(_FEW, _SPARSE * sum(lengths))
    return {name: np.array(texts, dtype=str)} if is_plain else packed_texts(name, texts)


def unpacked_texts(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays, those of `packed_texts` as (N,) Python texts.

    Raises:
        ValueError: the two do not fit each other.
    """
    found = {name: array for name, array in arrays.items() if not name.endswith(_ENDS)}
    for name, ends in arrays.items():
        if not name.endswith(_ENDS):
            continue
        name = name.removesuffix(_ENDS)
        content = found.get(name, np.empty(0))
        starts = np.concatenate([[0], ends.reshape(-1)])
        if (
            (content.dtype, content.ndim) != (np.uint8, 1)
            or (ends.dtype, ends.ndim) != (np.int64, 1)
            or starts[-1] != len(content)
            or (np.diff(starts) < 0).any()
        ):
            raise ValueError(f"`{name}` holds no texts")
        whole = content.tobytes()
        found[name] = text_objects(
            whole[start:end].decode("utf-8", "surrogatepass")
            for start, end in itertools.pairwise(starts.tolist())
        )
    return found


def _header(file: Any, what: str) -> Header:
    """The shape and type that an array declares; numpy's own words advise to trust the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers as Python 2 wrote them
            shape, _, dtype = HEADERS[np.lib.format.read_magic(file)](file)
    except _NO_HEADER as err:
        raise ValueError(f"{what} does not begin as an array does") from err
    if dtype.hasobject:
        raise DataError(
            f"{what} holds Python objects, which could run code when they are read. Save text by "
            "array.astype(str), numbers by array.astype(float) or (int)."
        )
    if dtype.fields is not None or dtype.kind == "V":
        raise DataError(f"{what} holds rows of fields, {dtype!s:.80}; save each as its own array.")
    return shape, dtype, file.tell()


def _values(file: Any, what: str) -> np.ndarray:
    """The array; its texts, four bytes a character, must be of characters that there are."""
    array = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind == "U" and array.dtype.itemsize:
        characters = array.reshape(-1).view(array.dtype.byteorder + "u4")
        if characters.size and characters.max() > sys.maxunicode:
            raise ValueError(f"{what} holds characters beyond Unicode's last")
    return array


def _check_size(what: str, shape: tuple[int, ...], dtype: np.dtype, there: int) -> None:
    size = prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size > there:
        raise ValueError(f"{what} declares {size} bytes, {shape!s:.80} of {dtype}, and has {there}")
