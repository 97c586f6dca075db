"""The judged rows of the contrastive statistics on a processor: compiled, a share per thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, no_type_check

import numba
import numpy as np
import torch
from torch import Tensor

from bspml.statistics.contrastive_rows import ClassTables, JudgedRows, RowFits
from bspml.statistics.references import SUPPORT_EDGES

_BLOCK_BYTES = 1 << 26  # of similarities held at a time
_COLUMNS = 2048  # references to a product


class _Classes(NamedTuple):
    """The references as runs of columns, a class after the other; see `References`; and a."""

    starts: np.ndarray  # (C + 1,) int64
    weights: np.ndarray  # (R,) float64
    totals: np.ndarray  # (C,) float64
    stratum: np.ndarray  # (C,) int64, row of the class in the null histogram
    a: float


class HostRows(JudgedRows):
    """On the CPU; all sums in float64."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        n, reference = len(self.judged), self.reference
        self.fits = RowFits(*np.full((3, n), np.nan), *np.full((2, n), -1, np.int64))
        of_classes = reference.starts, reference.weights, reference.totals, self.stratum
        self.classes = _Classes(*of_classes, float(self.a))
        self.parts = self.reference.embeddings.split(_COLUMNS)
        self.buffer = self.reference.embeddings.new_empty(0, len(self.reference.weights))
        # One histogram per thread; integers, so their sum does not depend on the split.
        threads = torch.get_num_threads()
        self.nulls = [np.zeros((len(SUPPORT_EDGES), self.bins), np.int64) for _ in range(threads)]
        self.pool = ThreadPoolExecutor(threads)

    def default_block(self) -> int:
        """Return the rows whose block has about 64 MiB of similarities."""
        references = len(self.reference.weights)
        return max(1, min(len(self.judged), _BLOCK_BYTES // (4 * references)))

    def judge(self, first: int, rows: Tensor) -> None:
        """Judge one block: its exponentials, reduced by all threads.

        exp(a S) lies in [e^-a, e^a], which float32 holds for the a allowed.

        Args:
            first: place of the block's first row among the judged.
            rows: (B, D) of norm a.
        """
        exponentials = self._products(rows).exp_().numpy()
        cuts = np.linspace(0, len(rows), len(self.nulls) + 1).astype(int).tolist()
        jobs = [
            self.pool.submit(self._reduce, first + low, exponentials[low:high], k)
            for k, (low, high) in enumerate(pairwise(cuts))
        ]
        for job in jobs:
            job.result()

    def _products(self, rows: Tensor) -> Tensor:
        """Multiply by parts, faster than one wide product: (B, R), overwritten by the next."""
        if len(self.buffer) < len(rows):
            self.buffer = self.buffer.new_empty(len(rows), self.buffer.shape[1])
        out = self.buffer[: len(rows)]
        for part, columns in zip(self.parts, out.split(_COLUMNS, 1), strict=True):
            torch.mm(rows, part.T, out=columns)
        return out

    def _reduce(self, first: int, exponentials: np.ndarray, thread: int) -> None:
        rows = slice(first, first + len(exponentials))
        fits = RowFits(*(values[rows] for values in self.fits))
        codes, position = self.codes[rows], self.position[rows]
        width = 0 if self.tables is None else len(self.classes.totals)
        tables = ClassTables(*np.empty((2, len(codes), width), exponentials.dtype))
        into = fits, tables, self.nulls[thread]
        _reduce_rows(exponentials, codes, position, self.classes, into)
        if self.tables is not None:
            for whole, part in zip(self.tables, tables, strict=True):
                whole[self.judged[rows]] = part

    def finish(self) -> tuple[RowFits, np.ndarray]:
        """Sum the threads' histograms."""
        self.pool.shutdown()
        return self.fits, np.sum(self.nulls, axis=0)


# The order of the additions is free, so that they use the processor's vectors; one program adds
# in one order, and the sums stay float64.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
@no_type_check
def _weighted_sum(weights, exponentials, r, start, stop):
    value = 0.0
    for j in range(start, stop):
        value += weights[j] * exponentials[r, j]
    return value


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
@no_type_check
def _weighted_cubes(weights, exponentials, r, start, stop):
    value = 0.0
    for j in range(start, stop):
        e = np.float64(exponentials[r, j])
        value += weights[j] * (e * e * e)
    return value


@numba.njit(cache=True, nogil=True)
@no_type_check
def _reduce_rows(exponentials, codes, position, references, into):
    """Reduce a block to class sums, soft means and histogram entries, into the last two arguments.

    Args:
        exponentials: (B, R) exp(a S), columns sorted by class; overwritten at i = j.
        codes: (B,) given class of each row.
        position: (B,) its own column, -1 if it is no reference.
        references: `_Classes`.
        into: `RowFits` of the block, its `ClassTables`, of no column where they are not asked for,
            and the (G, bins) histogram.
    """
    starts, weights, totals, _, _ = references
    keeps = into[1][1].shape[1] > 0
    classes = len(totals)
    values, cubes = np.empty(classes), np.zeros(classes)
    for r in range(len(codes)):
        y, self_column = codes[r], position[r]
        if self_column >= 0:
            exponentials[r, self_column] = 0.0  # j != i
        for c in range(classes):
            start, stop = starts[c], starts[c + 1]
            values[c] = _weighted_sum(weights, exponentials, r, start, stop)
            if keeps:
                cubes[c] = _weighted_cubes(weights, exponentials, r, start, stop)
        mates = totals[y]
        if self_column >= 0:
            # Summed anew: totals[y] - w_i would cancel when w_i is nearly all of it.
            mates = weight_beside(weights, starts[y], starts[y + 1], self_column)
        judge_row((r, r), y, values, cubes, mates, references, into)


@numba.njit(cache=True, nogil=True)
@no_type_check
def weight_beside(weights, start, stop, place):
    """Return the sum of the weights from `start` to `stop`, without that at `place`."""
    weight = 0.0
    for j in range(start, stop):
        if j != place:
            weight += weights[j]
    return weight


@numba.njit(cache=True, nogil=True)
@no_type_check
def judge_row(places, y, values, cubes, mates, references, into):
    """Write what the class sums of one row say of it.

    Args:
        places: its places in the fits and in the tables.
        y: its class.
        values: (C,) sum_j w_j exp(a S) over each class, the row itself left out.
        cubes: (C,) the same of exp(3 a S), of which the sharp table is; read where it has columns.
        mates: weight of its own class, the row itself left out.
        references: `_Classes`.
        into: `RowFits`, `ClassTables` and the (G, bins) histogram.
    """
    _, _, totals, stratum, a = references
    (r, row), (fits, (means, sharp), null) = places, into
    own, everyone, other, other_class, own_bin = fits
    keeps, sharpness = sharp.shape[1] > 0, 3.0 * a
    classes, bins = len(totals), null.shape[1]
    mean = np.empty(classes)  # s_i(c), NaN: no reference
    total, total_weight = 0.0, 0.0
    for c in range(classes):
        weight = mates if c == y else totals[c]
        mean[c] = np.log(values[c] / weight) / a if weight > 0 else np.nan
        if keeps:
            means[row, c] = mean[c]
            if weight > 0:
                sharp[row, c] = max(np.log(cubes[c] / weight) - sharpness, -2.0 * sharpness)
            else:  # its own class without it, or one of no reference at all
                sharp[row, c] = np.nan if totals[c] > 0 else -np.inf
        total += values[c]
        total_weight += weight
    if total_weight <= 0:
        return
    t = np.log(total / total_weight) / a
    best_other = -1
    for c in range(classes):
        if np.isnan(mean[c]) or c == y:
            continue
        if best_other < 0 or mean[c] > mean[best_other]:
            best_other = c
    everyone[r] = t
    if best_other >= 0:
        other[r], other_class[r] = mean[best_other], best_other
    for c in range(classes):
        if np.isnan(mean[c]):
            continue
        b = int(np.floor((t - mean[c] + 2.0) / 4.0 * bins))
        b = min(max(b, 0), bins - 1)
        if c == y:
            own[r], own_bin[r] = mean[c], b
        else:
            null[stratum[c], b] += 1
