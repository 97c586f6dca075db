"""Nearest rows of large data by faiss's inverted lists: approximate, with a measured recall.

The rows are cut into about 4 sqrt(N) lists by k-means, and each query searches those nearest to it.
How many is measured: of `_MEASURED` rows the true neighbours are searched, too, and the lists
visited are doubled until `LEAST_RECALL` of these are found.
"""

from __future__ import annotations

import math

import numpy as np

from bspml.evaluation.neighbours import find_faiss
from bspml.shapes import Float, Tensor

LEAST_RECALL = 0.98
_MEASURED = 500  # rows whose true neighbours are searched
_FIRST_VISITED = 8  # lists
_TRAINED_ON = 64  # rows a list
QUERIES = 4096  # at a time


def listed_neighbours(
    rows: Float[Tensor, "N D"], queries: np.ndarray, k: int
) -> tuple[np.ndarray, float]:
    """Return (Q, k) int64 rows near each of the rows `queries`, itself left out, and the recall.

    Args:
        rows: (N, D) of norm 1 or 0, on the CPU.
        queries: (Q,) int64 row numbers.
        k: neighbours, below N.

    Returns:
        The neighbours, the nearest first up to float32's rounding, and the share of the true ones
        that were found for some rows.

    Example:
        >>> import torch
        >>> x = torch.nn.functional.normalize(torch.arange(1.0, 41.0)[:, None] ** torch.arange(2))
        >>> listed_neighbours(x, np.array([0]), 1)[0].tolist()
        [[1]]
    """
    faiss = find_faiss()
    assert faiss is not None
    x = np.ascontiguousarray(rows.numpy(), np.float32)
    count = max(1, min(len(x) // 40, round(4 * math.sqrt(len(x)))))
    index = faiss.index_factory(x.shape[1], f"IVF{count},Flat", faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = 0
    index.cp.min_points_per_centroid = 1  # below 39 rows faiss would warn, of a single list
    chosen = np.random.default_rng(0).permutation(len(x))[: _TRAINED_ON * count]
    index.train(x[np.sort(chosen)])
    index.add(x)
    index.nprobe = min(count, _FIRST_VISITED)
    # Of all rows, whoever asks: several processes then visit as many lists.
    some = np.linspace(0, len(x) - 1, min(_MEASURED, len(x))).astype(int)
    flat = faiss.IndexFlatIP(x.shape[1])
    flat.add(x)
    true = _without_self(flat.search(x[some], k + 1)[1], some)
    del flat
    while True:
        found = _without_self(index.search(x[some], k + 1)[1], some)
        hits = [len(np.intersect1d(a, b)) for a, b in zip(found, true, strict=True)]
        recall = float(np.sum(hits)) / true.size
        if recall >= LEAST_RECALL or index.nprobe >= count:
            break
        index.nprobe = min(count, 2 * index.nprobe)
    places = np.empty((len(queries), k), np.int64)
    for start in range(0, len(queries), QUERIES):
        part = queries[start : start + QUERIES]
        places[start : start + len(part)] = _without_self(index.search(x[part], k + 1)[1], part)
    short = np.flatnonzero((places < 0).any(1))  # the lists visited hold fewer
    if len(short):
        index.nprobe = count
        places[short] = _without_self(index.search(x[queries[short]], k + 1)[1], queries[short])
    return places, recall


def _without_self(found: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Take each query out of its (Q, k + 1) neighbours, or else the last one."""
    other = found != queries[:, None]
    other[other.all(1), -1] = False
    return found[other].reshape(len(found), -1)
