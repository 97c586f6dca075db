"""The references most similar to each row, kept while a pass over all similarities goes by.

What a pass sees are rounded similarities, so these are candidates: `Candidates` says how far off a
similarity is at most, and whoever needs the nearest exactly settles their order anew.
"""

from __future__ import annotations

from typing import NamedTuple, no_type_check

import numba
import numpy as np

_CHUNK = 64  # similarities that are looked at together

_EXPONENTIAL = 8.0  # relative error of an exponential, in units of its rounding


class Candidates(NamedTuple):
    """The k references most similar to each sample, the sample itself left out.

    Attributes:
        similarities: (N, k) float64, descending, rounded; -inf where there is no further reference.
        rows: (N, k) int64 their sample indices, -1 likewise.
        error: how far a similarity is at most from the product of the rows, each normalised
            exactly.  So a sample that is not listed is at most as similar as the last that is, plus
            twice this.

    Example:
        >>> from bspml.statistics.contrastive import contrastive_tables
        >>> rows = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> found = contrastive_tables(rows, [0, 1, 1], candidates=1).candidates
        >>> found.rows.tolist(), found.similarities.round(3).tolist()
        ([[1], [2], [1]], [[0.6], [0.8], [0.8]])
    """

    similarities: np.ndarray
    rows: np.ndarray
    error: float


class CandidateLists:
    """The k largest of many values of each row, offered block by block.

    Args:
        rows: M.
        k: of each, at least 1.
        kind: data type of the values.
    """

    def __init__(self, rows: int, k: int, kind: np.dtype) -> None:
        self.values = np.zeros((rows, k), kind)  # descending; exponentials are above 0
        self.places = np.full((rows, k), -1, np.int64)
        self.least = np.zeros(rows, kind)  # the last of each list

    def found(self, a: float, dims: int) -> tuple[np.ndarray, np.ndarray, float]:
        """Return similarities, places and the error as `Candidates` has them.

        Args:
            a: of the exponentials exp(a S).
            dims: D of the products.
        """
        with np.errstate(divide="ignore"):
            similarities = np.log(self.values.astype(np.float64)) / a
        # Of the product, whose terms' sizes add up to at most 1, and of two norms, in any order of
        # the sums; of scaling; of the exponential, whose relative error is a times a similarity's.
        unit = float(np.finfo(self.values.dtype).eps) / 2
        return similarities, self.places, 1.01 * unit * (2 * dims + 16 + _EXPONENTIAL / a)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _enter(lists, row, value, place):
    values, places, least = lists
    k = values.shape[1] - 1
    while k > 0 and values[row, k - 1] < value:
        values[row, k], places[row, k] = values[row, k - 1], places[row, k - 1]
        k -= 1
    values[row, k], places[row, k] = value, place
    least[row] = values[row, values.shape[1] - 1]


# Numbers only, and no difference between the zeros: so a maximum uses the processor's vectors.
_NUMBERS = {"reassoc", "nnan", "nsz"}


@numba.njit(cache=True, nogil=True, fastmath=_NUMBERS)
@no_type_check
def _largest(values, start, stop):
    largest = values[start]
    for j in range(start, stop):
        largest = max(largest, values[j])
    return largest


@numba.njit(cache=True, nogil=True, fastmath=_NUMBERS)
@no_type_check
def _largest_excess(values, start, stop, limits):
    largest = values[start] - limits[start]
    for j in range(start, stop):
        largest = max(largest, values[j] - limits[j])
    return largest


@numba.njit(cache=True, nogil=True)
@no_type_check
def offer_to_rows(block, left, lists, low, high):
    """Offer each row of a block its columns.

    Args:
        block: (rows, columns).
        left: place of the first column.
        lists: values, places and least of the block's rows; see `CandidateLists`.
        low, high: rows.
    """
    columns = block.shape[1]
    for r in range(low, high):
        for start in range(0, columns, _CHUNK):
            stop = min(start + _CHUNK, columns)
            if _largest(block[r], start, stop) > lists[2][r]:
                for j in range(start, stop):
                    if block[r, j] > lists[2][r]:
                        _enter(lists, r, block[r, j], left + j)


@numba.njit(cache=True, nogil=True)
@no_type_check
def offer_to_columns(block, top, lists, low, high):
    """Offer each column of a block its rows.

    Args:
        block: (rows, columns).
        top: place of the first row.
        lists: values, places and least of the block's columns; see `CandidateLists`.
        low, high: columns.
    """
    for r in range(len(block)):
        for start in range(low, high, _CHUNK):
            stop = min(start + _CHUNK, high)
            if _largest_excess(block[r], start, stop, lists[2]) > 0:
                for j in range(start, stop):
                    if block[r, j] > lists[2][j]:
                        _enter(lists, j, block[r, j], top + r)
