"""Candidates for the nearest neighbours of rows among themselves, each product computed once.

S is symmetric: a block of rows times a block of columns serves both, half the work of a search of
the rows in a gallery.  Blocks near the diagonal come first: where rows lie in order, as those of a
class or of a film, the nearest are met early and few others are kept for a while.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from bspml.shapes import Float, Int, Tensor
from bspml.tensors.largest import Largest, offer_to_columns, offer_to_rows
from bspml.tensors.precision import full_precision

_BLOCK = 1024  # rows and columns to a product


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
    kept = Largest.nothing(n, count, np.float32)
    buffer = rows.new_empty(_BLOCK * _BLOCK)
    with full_precision(), torch.no_grad(), ThreadPoolExecutor(threads) as pool:
        # One thread does it all itself: the block is still in its core's memory.
        run: Any = pool.map if threads > 1 else map
        for away in range(0, n, _BLOCK):
            for low in range(0, n - away, _BLOCK):
                above, beside = slice(low, low + _BLOCK), slice(low + away, low + away + _BLOCK)
                left, right = rows[above], rows[beside]
                block = buffer[: len(left) * len(right)].view(len(left), len(right))
                products = torch.mm(left, right.T, out=block).numpy()
                jobs = [
                    (offer_to_rows, products, beside.start, kept.of(above), *cut)
                    for cut in _shares(len(left), threads)
                ]
                if away:
                    jobs += [
                        (offer_to_columns, products, low, kept.of(beside), *cut)
                        for cut in _shares(len(right), threads)
                    ]
                list(run(lambda job: job[0](*job[1:]), jobs))
    return torch.from_numpy(kept.values), torch.from_numpy(kept.places)


def _shares(n: int, threads: int) -> list[tuple[int, int]]:
    """Return a run of n for each thread."""
    return list(pairwise(n * thread // threads for thread in range(threads + 1)))
