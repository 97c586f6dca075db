"""Candidates for the nearest neighbours of rows among themselves, each product computed once.

S is symmetric: a block of rows times a block of columns serves both, half the work of a search of
the rows in a gallery.  Blocks near the diagonal come first: where rows lie in order, as those of a
class or of a film, the nearest are met early and few others are kept for a while.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, no_type_check

import numba
import numpy as np
import torch

from bspml.shapes import Float, Int, Tensor
from bspml.tensors.precision import full_precision

_BLOCK = 1024  # rows and columns to a product
_RUN = 128  # entries that are compared with the bar before any is looked at


def propose_among(
    rows: Float[Tensor, "N D"], count: int
) -> tuple[Float[Tensor, "N K"], Int[Tensor, "N K"]]:
    """Return for each row the `count` rows of the largest float32 products, itself among them.

    Args:
        rows: on the CPU.
        count: at most N.

    Returns:
        (N, K) float32 products in no order, and int32 indices.

    Example:
        >>> scores, columns = propose_among(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), 2)
        >>> columns.sort(1).values.tolist()
        [[0, 2], [1, 2], [1, 2]]
    """
    n, threads = len(rows), torch.get_num_threads()
    scores = np.full((n, count), -np.inf, np.float32)  # each a heap, the least of it first
    columns = np.zeros((n, count), np.int32)
    bars = np.full(n, -np.inf, np.float32)  # what a product must be above to be kept
    starts = range(0, n, _BLOCK)
    buffer = rows.new_empty(_BLOCK * _BLOCK)
    with full_precision(), torch.no_grad(), ThreadPoolExecutor(threads) as pool:
        # One thread does it all itself: the block is still in its core's memory.
        run: Any = pool.map if threads > 1 else map
        for away in starts:
            for low in range(0, n - away, _BLOCK):
                above, beside = rows[low : low + _BLOCK], rows[low + away : low + away + _BLOCK]
                block = buffer[: len(above) * len(beside)].view(len(above), len(beside))
                products = torch.mm(above, beside.T, out=block).numpy()
                state = products, low, low + away, (scores, columns, bars)
                jobs = [(_keep_of_rows, *cut) for cut in _shares(len(above), threads)]
                if away:
                    jobs += [(_keep_of_columns, *cut) for cut in _shares(len(beside), threads)]
                list(run(lambda job, state=state: job[0](*state, *job[1:]), jobs))
    return torch.from_numpy(scores), torch.from_numpy(columns)


def _shares(n: int, threads: int) -> list[tuple[int, int]]:
    """Return a run of n for each thread."""
    return list(pairwise(n * thread // threads for thread in range(threads + 1)))


@numba.njit(cache=True, nogil=True)
@no_type_check
def _keep(scores, columns, bars, i, score, j):
    """Put j in the place of the least of row i's heap."""
    heap, of_heap, count, place = scores[i], columns[i], scores.shape[1], 0
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        if child + 1 < count and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= score:
            break
        heap[place], of_heap[place] = heap[child], of_heap[child]
        place = child
    heap[place], of_heap[place] = score, j
    bars[i] = heap[0]


@numba.njit(cache=True, nogil=True)
@no_type_check
def _keep_of_rows(products, low, left, kept, first, last):
    """Offer the columns of a block to a share of its rows."""
    scores, columns, bars = kept
    for r in range(first, last):
        i = low + r
        for start in range(0, products.shape[1], _RUN):
            run, bar, above = products[r, start : start + _RUN], bars[i], 0
            for c in range(len(run)):  # of a slice, by number: this compiles to vector code
                above += run[c] > bar
            for c in range(len(run) if above else 0):
                if run[c] > bars[i]:
                    _keep(scores, columns, bars, i, run[c], left + start + c)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _keep_of_columns(products, low, left, kept, first, last):
    """Offer the rows of a block to a share of its columns."""
    scores, columns, bars = kept
    for r in range(products.shape[0]):
        for start in range(first, last, _RUN):
            stop, above = min(start + _RUN, last), 0
            run, bar = products[r, start:stop], bars[left + start : left + stop]
            for c in range(len(run)):
                above += run[c] > bar[c]
            for c in range(len(run) if above else 0):
                if run[c] > bar[c]:
                    _keep(scores, columns, bars, left + start + c, run[c], low + r)
