"""Variables of MATLAB's files of level 5, as `save -v6` and `save -v7` write them.

Read here, because scipy.io.loadmat ends the process by a signal on one in some hundred damaged
files.  Every length is held against the bytes that are there before anything is made of them.
"""

from __future__ import annotations

import struct
import zlib
from io import BufferedIOBase
from math import prod
from typing import Any

import numpy as np

_HEADER, _LARGEST, _DEEPEST = 128, 2**28, 16  # bytes, bytes unpacked, cells in cells
# Kinds of elements, and classes of arrays.
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_NUMBERS |= {12: "i8", 13: "u8"}
_TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_MATRIX, _COMPRESSED = 14, 15
_COMPLEX = 0x0800  # a flag: the imaginary parts follow the real ones
_CELL, _STRUCT, _CHAR, _NUMERIC = 1, 2, 4, range(6, 16)


def read_variable(file: BufferedIOBase, name: str) -> Any:
    """Return a variable: numbers as a flat array in MATLAB's order, text, a cell array as a list, a
    struct array as {field: list}.

    Args:
        file: open for reading bytes.
        name: of the variable.

    Raises:
        KeyError: it is not there.
        NotImplementedError: the file is of format 7.3.
        ValueError, struct.error, zlib.error: damage, or a kind of array that is not read.
    """
    header = file.read(_HEADER)
    if len(header) < _HEADER or header[126:] not in (b"IM", b"MI"):
        raise ValueError("it does not begin as MATLAB's files do")
    is_little = header[126:] == b"IM"
    if header[125 if is_little else 124] == 2:
        raise NotImplementedError("format 7.3")
    elements = _Elements(file.read(), "<" if is_little else ">")
    while elements.left >= 8:
        kind, content = elements.next()
        if kind == _COMPRESSED:
            unpacking = zlib.decompressobj()
            unpacked = unpacking.decompress(content, _LARGEST)
            if unpacking.unconsumed_tail:
                raise ValueError(f"a variable unpacks to more than {_LARGEST >> 20} MiB")
            kind, content = _Elements(unpacked, elements.order).next()
        if kind == _MATRIX:
            array = _Elements(content, elements.order)
            head = array.head()
            if head[-1] == name:
                return array.values(*head[:-1])
    raise KeyError(name)


class _Elements:
    """Elements one after the other: a kind, a length, and that many bytes."""

    def __init__(self, data: bytes, order: str, depth: int = 0) -> None:
        self.data, self.order, self.depth, self.at = data, order, depth, 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def next(self) -> tuple[int, bytes]:
        """The kind and the bytes of the next element."""
        kind, size = struct.unpack_from(f"{self.order}II", self.data, self.at)
        start, end = self.at + 8, self.at + 8 + size
        if kind >> 16:  # up to four bytes stand where the length would
            kind, size, start, end = kind & 0xFFFF, kind >> 16, self.at + 4, self.at + 8
        elif kind != _COMPRESSED:
            end += -size % 8
        if start + size > min(len(self.data), end):
            raise ValueError("an array says that it is longer than what is there")
        self.at = end
        return kind, self.data[start : start + size]

    def numbers(self) -> np.ndarray:
        kind, data = self.next()
        if kind not in _NUMBERS:
            raise ValueError(f"numbers of kind {kind} are not known")
        return np.frombuffer(data, self.order + _NUMBERS[kind])

    def head(self) -> tuple[int, int, int, str]:
        """Class, number of rows, number of entries, and name of an array."""
        flags, shape, name = self.numbers(), self.numbers().tolist(), self.next()[1]
        if not len(flags) or len(shape) < 2 or min(shape) < 0:
            raise ValueError("an array has no shape")
        if int(flags[0]) & _COMPLEX:
            raise ValueError("an array holds complex numbers, which are none of what is read here")
        return int(flags[0]) & 0xFF, shape[0], prod(shape), name.decode("latin-1")

    def values(self, kind: int, rows: int, count: int) -> Any:
        """What an array holds, after its head."""
        if kind == _CELL:
            return self._matrices(count)
        if kind == _STRUCT:
            width = int(self.numbers()[0])
            names = self.next()[1]
            if width < 1:
                raise ValueError("its fields have no names")
            cuts = range(0, len(names), width)
            fields = [names[i : i + width].split(b"\0")[0].decode("latin-1") for i in cuts]
            inside = self._matrices(count * len(fields))
            return {field: inside[i :: len(fields)] for i, field in enumerate(fields)}
        if kind == _CHAR:
            coding, data = self.next()
            if coding not in _TEXTS or rows > 1:
                raise ValueError("text of several rows, or of a coding that is not known")
            ends = "" if coding in (1, 2, 16) else {"<": "-le", ">": "-be"}[self.order]
            return data.decode(_TEXTS[coding] + ends)
        if kind not in _NUMERIC:
            raise ValueError(f"arrays of class {kind} are not read")
        numbers = self.numbers()
        if len(numbers) != count:
            raise ValueError(f"an array of {count} numbers holds {len(numbers)}")
        return numbers

    def _matrices(self, count: int) -> list[Any]:
        """The arrays in a cell or struct array."""
        if 8 * count > self.left or self.depth == _DEEPEST:
            raise ValueError("an array says that it holds more than what is there")
        return [self._matrix() for _ in range(count)]

    def _matrix(self) -> Any:
        kind, data = self.next()
        if kind != _MATRIX:
            raise ValueError("what should be an array is none")
        inner = _Elements(data, self.order, self.depth + 1)
        return inner.values(*inner.head()[:-1]) if data else np.empty(0)
