"""The k largest values of each row, kept while blocks of a table of values go by."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

_CHUNK = 64  # values that are looked at together


class Largest(NamedTuple):
    """The k largest values of each row so far, and where they stand.

    Attributes:
        values: (M, k), each row a heap, its least first.
        places: (M, k) int32, the columns of these values; -1 where none came yet.
    """

    values: np.ndarray
    places: np.ndarray

    @classmethod
    def nothing(cls, rows: int, k: int, kind: type | np.dtype, above: float = -np.inf) -> Largest:
        """Start without any value.

        Args:
            rows: M.
            k: of each row, at least 1.
            kind: data type of the values.
            above: what a value must be above to be kept; stands where none came.

        Example:
            >>> kept = Largest.nothing(1, 2, np.float32)
            >>> offer_to_rows(np.array([[3.0, 1.0, 2.0]], np.float32), 10, kept, 0, 1)
            >>> [part.tolist() for part in kept.descending()]
            [[[3.0, 2.0]], [[10, 12]]]
        """
        return cls(np.full((rows, k), above, kind), np.full((rows, k), -1, np.int32))

    def of(self, rows: slice) -> Largest:
        """Return the part of some rows, which shares its memory.

        Args:
            rows: some of the M.
        """
        return Largest(self.values[rows], self.places[rows])

    def descending(self) -> tuple[np.ndarray, np.ndarray]:
        """Return (M, k) values, the largest first, and int64 places."""
        order = np.argsort(-self.values, 1, kind="stable")
        places = np.take_along_axis(self.places, order, 1).astype(np.int64)
        return np.take_along_axis(self.values, order, 1), places


@numba.njit(cache=True, nogil=True)
def _enter(kept, row, value, place):
    """Put a value above the least of a row's heap in its place."""
    heap, places, hole = kept[0][row], kept[1][row], 0
    while True:
        child = 2 * hole + 1
        if child >= len(heap):
            break
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[hole], places[hole] = heap[child], places[child]
        hole = child
    heap[hole], places[hole] = value, place


# Of a slice, and by `|`: an index that might count from the end, or a way out of the loop, would
# keep the processor from comparing several values at once.
@numba.njit(cache=True, nogil=True)
def _any_above(values, limit):
    above = False
    for j in range(len(values)):
        above |= values[j] > limit
    return above


@numba.njit(cache=True, nogil=True)
def _any_above_its_own(values, limits):
    above = False
    for j in range(len(values)):
        above |= values[j] > limits[j]
    return above


@numba.njit(cache=True, nogil=True)
def offer_to_rows(block, left, kept, low, high):
    """Offer each row of a block its columns.

    Args:
        block: (rows, columns) values, none of them NaN.
        left: place of the first column.
        kept: `Largest` of the block's rows.
        low, high: rows.
    """
    columns = block.shape[1]
    for r in range(low, high):
        heap = kept[0][r]
        for start in range(0, columns, _CHUNK):
            stop = min(start + _CHUNK, columns)
            if _any_above(block[r, start:stop], heap[0]):
                for j in range(start, stop):
                    if block[r, j] > heap[0]:
                        _enter(kept, r, block[r, j], left + j)


@numba.njit(cache=True, nogil=True)
def offer_to_columns(block, top, kept, low, high):
    """Offer each column of a block its rows.

    Args:
        block: (rows, columns) values, none of them NaN.
        top: place of the first row.
        kept: `Largest` of the block's columns.
        low, high: columns.
    """
    least = kept[0][:, 0].copy()
    for r in range(len(block)):
        for start in range(low, high, _CHUNK):
            stop = min(start + _CHUNK, high)
            if _any_above_its_own(block[r, start:stop], least[start:stop]):
                for j in range(start, stop):
                    if block[r, j] > least[j]:
                        _enter(kept, j, block[r, j], top + r)
                        least[j] = kept[0][j, 0]
