"""Every judged row against every other on a processor, each product once: S is symmetric.

A block of rows times a block of columns serves the sums of both, so the sums of all rows and
classes are held, which costs N x C numbers; `HostRows` costs none and twice the time.
"""

from __future__ import annotations

from concurrent.futures import Future
from itertools import pairwise
from typing import Any, no_type_check

import numba
import numpy as np
import torch
from torch import Tensor

from bspml.statistics.contrastive_host import HostRows, judge_row, weight_beside

LARGEST = 1 << 24  # of N x C
_BLOCK = 1024  # rows and columns to a product


class SquareRows(HostRows):
    """On the CPU, where every reference is judged, too; all sums in float64."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        assert self.tables is not None
        self.order = np.argsort(self.codes, kind="stable")  # judged rows by class
        self.sums = np.zeros((2, len(self.order), len(self.classes.totals)))

    def default_block(self) -> int:
        """Return all rows."""
        return len(self.judged)

    def judge(self, first: int, rows: Tensor) -> None:
        """Judge all rows.

        Args:
            first: 0.
            rows: (B, D) of norm a.
        """
        rows = rows[torch.from_numpy(self.order)].div_(self.a**0.5)
        codes, place = self.codes[self.order], self.position[self.order]
        weights = np.where(place >= 0, self.reference.weights[place], 0.0)
        blocks = list(pairwise([*range(0, len(rows), _BLOCK), len(rows)]))
        for k, (low, high) in enumerate(blocks):
            for left, right in blocks[k:]:
                E = torch.mm(rows[low:high], rows[left:right].T).exp_()
                if left == low:
                    E.fill_diagonal_(0)  # j != i
                self._shared(E.numpy(), codes, weights, low, left)
        self._shared_rows(codes, place)

    def _shared(
        self, exponentials: np.ndarray, codes: np.ndarray, weights: np.ndarray, low: int, left: int
    ) -> None:
        """Add a block to the sums of its rows and, beside the diagonal, of its columns."""
        high, right = low + exponentials.shape[0], left + exponentials.shape[1]
        above, beside = slice(low, high), slice(left, right)
        jobs = []
        for some in self._shares(high - low):
            sums = self.sums[:, above][:, some]
            part = exponentials[some], codes[beside], weights[beside]
            jobs.append(self._submit(_add_to_rows, *part, sums))
        for some in self._shares(right - left if left > low else 0):
            part = exponentials[:, some], codes[above], weights[above]
            jobs.append(self._submit(_add_to_columns, *part, self.sums[:, beside][:, some]))
        for job in jobs:
            job.result()

    def _shared_rows(self, codes: np.ndarray, place: np.ndarray) -> None:
        assert self.tables is not None
        jobs = []
        for k, some in enumerate(self._shares(len(codes))):
            to, rows = self.order[some], self.judged[self.order[some]]
            part = self.sums[:, some], codes[some], place[some], to, rows, self.classes
            into = self.fits, self.tables, self.nulls[k]
            jobs.append(self._submit(_judge_rows, *part, into))
        for job in jobs:
            job.result()

    def _submit(self, function: Any, *arguments: Any) -> Future[None]:
        return self.pool.submit(function, *arguments)

    def _shares(self, n: int) -> list[slice]:
        """A run of n for each thread."""
        cuts = np.linspace(0, n, len(self.nulls) + 1).astype(int).tolist()
        return [slice(low, high) for low, high in pairwise(cuts) if low < high]


_FREE = {"reassoc", "contract"}


@numba.njit(cache=True, nogil=True, fastmath=_FREE)
@no_type_check
def _run(exponentials, weights, start, stop):
    value, cubes = 0.0, 0.0
    for j in range(start, stop):
        e = np.float64(exponentials[j])
        weighted = weights[j] * e
        value += weighted
        cubes += weighted * e * e
    return value, cubes


@numba.njit(cache=True, nogil=True)
@no_type_check
def _add_to_rows(exponentials, codes, weights, sums):
    for r in range(len(exponentials)):
        start = 0
        while start < len(codes):
            stop = start + 1
            while stop < len(codes) and codes[stop] == codes[start]:
                stop += 1
            value, cubes = _run(exponentials[r], weights, start, stop)
            sums[0, r, codes[start]] += value
            sums[1, r, codes[start]] += cubes
            start = stop


@numba.njit(cache=True, nogil=True, fastmath=_FREE)
@no_type_check
def _add_weighted(exponentials, weight, values, cubes):
    for j in range(len(values)):
        e = np.float64(exponentials[j])
        weighted = weight * e
        values[j] += weighted
        cubes[j] += weighted * e * e


@numba.njit(cache=True, nogil=True)
@no_type_check
def _add_to_columns(exponentials, codes, weights, sums):
    n = exponentials.shape[1]
    values, cubes = np.zeros(n), np.zeros(n)
    for r in range(len(codes)):
        _add_weighted(exponentials[r], weights[r], values, cubes)
        if r + 1 == len(codes) or codes[r + 1] != codes[r]:
            for j in range(n):
                sums[0, j, codes[r]] += values[j]
                sums[1, j, codes[r]] += cubes[j]
            values[:] = 0.0
            cubes[:] = 0.0


@numba.njit(cache=True, nogil=True)
@no_type_check
def _judge_rows(sums, codes, place, to, rows, references, into):
    starts, weights, totals, _, _ = references
    for r in range(len(codes)):
        y = codes[r]
        mates = totals[y]
        if place[r] >= 0:
            mates = weight_beside(weights, starts[y], starts[y + 1], place[r])
        values, cubes = sums[0, r], sums[1, r]
        judge_row((to[r], rows[r]), y, values, cubes, mates, references, into)
