"""Nearest neighbours by inner product, exact down to the last tie.

A float32 matrix product depends on how it is cut into blocks: two identical gallery rows can get
similarities that differ in the last bit, and then the block size decides who is nearer.  Here
similarities are exact, so a tie is a tie whatever computes it:

    rows are scaled to norm 1 and rounded to multiples of 2^-24 (float32 holds these exactly);
    a product of two entries is a multiple of 2^-48, and by Cauchy-Schwarz every partial sum of a
    similarity stays below 2 in size.  Multiples of 2^-48 below 2^5 fit float64's 53 bits, so a
    float64 product adds them without any rounding, in any order, fused or not.

The rounding moves a similarity by about 2.4e-8 (standard deviation), less than a float32 product
does.  Ties go to the lower gallery index.  Products in float32 only propose candidates, those of
faiss or, of rows among themselves, of `candidates`: close ones are rescored exactly, and a query
whose candidates are not proved complete is searched exhaustively.  So faiss, torch, every block
size and every device give the same neighbours.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
import torch

from bspml.errors import InputError, MissingDependencyError
from bspml.evaluation.candidates import propose_among
from bspml.shapes import Float, Int, Tensor
from bspml.tensors.unit_rows import GRID
from bspml.words import some_of

_GROUP = 64  # columns that share one maximum when the best of a long row are sought
_TILE_ROWS = 4096  # gallery rows turned into float64 at a time
_BLOCK_BYTES = 128 * 2**20  # of similarities held at once
_FAISS_QUERIES = 4096
_UNIT = 1e-2  # a norm this close to 1 was meant to be; float16 reaches 1e-3
_FAISS_MAX_K = 1024  # above this, a full row is cheaper than faiss's heap
_MOST = 0.6  # of the gallery: as queries, they are searched among themselves


def find_faiss() -> Any | None:
    """Return the faiss module, or None where it is not installed."""
    try:
        import faiss
    except ImportError:
        return None
    return faiss


def vectors_in(gallery: Any) -> Any:
    """Return the vectors that a flat faiss index holds, in order; anything else as it is.

    Raises:
        InputError: another index, which is approximate or has an order or a measure of its own; or
            vectors whose norm is not 1, for which the index ranks by something else than cosines.
    """
    faiss = sys.modules.get("faiss")  # who has an index has imported it
    if faiss is None or not isinstance(gallery, faiss.Index):
        return gallery
    index = faiss.downcast_index(gallery)
    measures = (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2)
    if not isinstance(index, faiss.IndexFlat) or index.metric_type not in measures:
        raise InputError(
            "`gallery` must be a flat faiss index of inner products or L2, or the vectors; got "
            f"{type(index).__name__}, which is approximate or ranks in its own way. Pass the "
            "vectors: what is measured is then the embedding and not the index."
        )
    vectors = index.reconstruct_n(0, index.ntotal)
    norms = np.linalg.norm(vectors, axis=1)
    off = np.flatnonzero(np.abs(norms - 1) > _UNIT)
    if len(off):
        raise InputError(
            f"`gallery`: the index must hold vectors of norm 1, so that it ranks by cosine; rows "
            f"{some_of(off)} are not, the first of norm {norms[off[0]]:.4g}. Call "
            "`faiss.normalize_L2` before `add`, or pass the vectors, which are normalised here."
        )
    return vectors


def choose_backend(backend: str, device: torch.device) -> str:
    """Resolve "auto": faiss on the CPU if it is installed, torch otherwise and on accelerators.

    faiss-gpu is never used: it takes every card, and its k ends at 2048.

    Args:
        backend: "auto", "faiss" or "torch".
        device: where the embeddings are.

    Raises:
        MissingDependencyError: "faiss" was asked for and is not installed.
    """
    if backend == "faiss" and find_faiss() is None:
        raise MissingDependencyError(
            "faiss is not installed; `pip install 'bspml[cpu]'`, or backend='torch' "
            "(the same numbers)."
        )
    if backend != "auto":
        return backend
    return "faiss" if device.type == "cpu" and find_faiss() is not None else "torch"


def ranked_neighbours(
    queries: Float[Tensor, "Q D"],
    gallery: Float[Tensor, "R D"],
    k: int,
    self_rows: Int[Tensor, " Q"] | None = None,
    backend: str = "torch",
    block_size: int | None = None,
) -> Iterator[tuple[slice, Tensor]]:
    """Return the k most similar gallery rows of each query, best first, block of queries by block.

    Equal similarities are ordered by gallery index.  Memory is bounded by the block, or by a
    quarter of the gallery where this is more, not by Q x R or Q x k.

    Args:
        queries, gallery: rows from `grid_unit_rows`, on one device.
        k: neighbours per query.
        self_rows: the gallery row that is query i itself and is left out, by index: a duplicate
            of the query elsewhere in the gallery stays.  Equal to the query.  None if the gallery
            holds no query.
        backend: "faiss" or "torch"; the same result.  Under "faiss", most of a gallery searched
            for at once is searched by `candidates`, each product computed once.
        block_size: queries at a time; None fits about 128 MiB.

    Yields:
        (slice of the queries, gallery indices (b, k) int64 on the CPU).

    Raises:
        InputError: k exceeds the gallery (less the query itself); nothing is ever padded.
    """
    available = len(gallery) - (self_rows is not None)
    if k > available:
        less = " without the query itself" if self_rows is not None else ""
        raise InputError(
            f"k = {k} neighbours asked for, but the gallery has {available} rows{less}. "
            f"Use k <= {available}."
        )
    proposed = backend == "faiss" and k <= min(_FAISS_MAX_K, len(gallery) // 8)
    if block_size is None:
        block_size = _FAISS_QUERIES if proposed else _rows_per_block(len(gallery), k)
    among = None
    count = min(k + int(self_rows is not None) + max(16, k // 4), len(gallery))
    if proposed and self_rows is not None and _is_among(len(self_rows), gallery, count):
        among = propose_among(gallery, count)
    for start in range(0, len(queries), block_size):
        part = slice(start, min(start + block_size, len(queries)))
        own = None if self_rows is None else self_rows[part]
        if not proposed:
            yield part, _search_exhaustively(queries[part], gallery, own, k)
            continue
        if among is None or own is None:
            candidates = _propose(queries[part], gallery, count)
        else:
            candidates = _of(among, own)
        # Inner products of D terms of rows of norm 1 are off by at most D 2^-24 in float32, in any
        # order of summation.
        error = 1.01 * queries.shape[1] / GRID
        yield part, rank_proposals(*candidates, queries[part], gallery, k, error, own)


def _is_among(queries: int, gallery: Float[Tensor, "R D"], count: int) -> bool:
    """Whether most of the gallery is searched for, and its candidates need little memory."""
    small = 8 * count * len(gallery) <= max(_BLOCK_BYTES, gallery.nbytes // 4)
    return small and queries >= _MOST * len(gallery)


def _rows_per_block(gallery_rows: int, k: int) -> int:
    # A float64 row of similarities, and about 64 bytes per neighbour in whoever reads them.
    return max(1, _BLOCK_BYTES // (8 * gallery_rows + 64 * k))


def _search_exhaustively(
    queries: Float[Tensor, "B D"],
    gallery: Float[Tensor, "R D"],
    self_rows: Int[Tensor, " B"] | None,
    k: int,
) -> Int[Tensor, "B K"]:
    similarity = _similarity(queries, gallery)
    if self_rows is not None:
        similarity[torch.arange(len(queries), device=self_rows.device), self_rows] = -torch.inf
    best, columns = _largest(similarity, k + 1)
    ranked = _by_score_then_index(best[:, :k], columns[:, :k]).cpu()
    # Where the k-th and the next are equal, `topk` chose between them by no rule: redo by index.
    tied = best[:, k - 1] == best[:, k] if best.shape[1] > k else best.new_zeros(0)
    for row in tied.nonzero()[:, 0].tolist():
        ranked[row] = torch.from_numpy(_top_of_row(similarity[row].cpu().numpy(), k))
    return ranked


def _similarity(
    queries: Float[Tensor, "B D"], gallery: Float[Tensor, "R D"]
) -> Float[Tensor, "B Rpadded"]:
    """Compute exact similarities, with columns of -inf up to a multiple of `_GROUP`."""
    queries = queries.double()
    padded = -(-len(gallery) // _GROUP) * _GROUP
    out = queries.new_empty((len(queries), padded))
    out[:, len(gallery) :] = -torch.inf
    for start in range(0, len(gallery), _TILE_ROWS):
        tile = gallery[start : start + _TILE_ROWS].double()
        out[:, start : start + len(tile)] = queries @ tile.T
    return out


def _largest(
    similarity: Float[Tensor, "B R"], k: int
) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    """Compute `similarity.topk(k)`, a few times faster for small k: first among group maxima.

    An entry among the k largest lies in one of the k groups with the largest maxima.
    """
    k = min(k, similarity.shape[1])
    grouped = similarity.unflatten(1, (-1, _GROUP))  # (B, R/64, 64)
    if 4 * k > grouped.shape[1]:
        return similarity.topk(k)
    groups = grouped.amax(2).topk(k).indices  # (B, k)
    inside = grouped.gather(1, groups[..., None].expand(-1, -1, _GROUP)).flatten(1)
    best, place = inside.topk(k)
    return best, groups.gather(1, place // _GROUP) * _GROUP + place % _GROUP


def _by_score_then_index(
    scores: Float[Tensor, "B K"], columns: Int[Tensor, "B K"]
) -> Int[Tensor, "B K"]:
    columns, by_index = columns.sort(1)
    by_score = scores.gather(1, by_index).sort(stable=True, dim=1, descending=True).indices
    return columns.gather(1, by_score)


def _top_of_row(row: np.ndarray, k: int) -> np.ndarray:
    """Return the indices of the k largest of one row, equal ones in order of index."""
    cut = np.partition(row, len(row) - k)[len(row) - k]
    above = np.flatnonzero(row > cut)
    above = above[np.argsort(-row[above], kind="stable")]
    level = np.flatnonzero(row == cut)[: k - len(above)]
    return np.concatenate([above, level])


def _propose(
    queries: Float[Tensor, "B D"], gallery: Float[Tensor, "R D"], count: int
) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    faiss = find_faiss()
    assert faiss is not None
    measure = faiss.METRIC_INNER_PRODUCT
    rough, indices = faiss.knn(queries.numpy(), gallery.numpy(), count, metric=measure)
    return torch.from_numpy(rough), torch.from_numpy(indices)


def _of(
    among: tuple[Float[Tensor, "R K"], Int[Tensor, "R K"]], rows: Int[Tensor, " B"]
) -> tuple[Float[Tensor, "B K"], Int[Tensor, "B K"]]:
    rough, order = among[0][rows].sort(1, descending=True)
    return rough, among[1][rows].gather(1, order).long()


def rank_proposals(
    rough: Float[Tensor, "B P"],
    proposed: Int[Tensor, "B P"],
    queries: Float[Tensor, "B D"],
    gallery: Float[Tensor, "R D"],
    k: int,
    error: float,
    self_rows: Int[Tensor, " B"] | None = None,
) -> Int[Tensor, "B K"]:
    """Return the k most similar gallery rows of each query, exactly, from somebody's proposals.

    As `ranked_neighbours` does, at the cost of a few products a query where the proposals hold the
    neighbours and some more.  Only proposals within 2 `error` of a neighbour in the ranking need
    their exact score.  A row that was not proposed scores at most (the last score) + `error`: if
    the k-th lies 2 `error` above that, the k best were all proposed; if not, the query is searched
    exhaustively.

    Args:
        rough: (B, P) similarities of the P > k gallery rows that seem nearest, descending.
        proposed: (B, P) int64 their rows, the query's own allowed.
        queries, gallery: rows from `grid_unit_rows`, on the CPU.
        k: neighbours per query.
        error: how far a rough similarity is at most from the exact one, unlisted ones included.
        self_rows: the gallery row that is query i itself, left out; or None.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> rough, proposed = torch.tensor([[1.0, 0.0]] * 3), torch.tensor([[2, 1], [1, 0], [0, 1]])
        >>> rank_proposals(rough, proposed, rows, rows, 1, 1e-6, torch.arange(3)).tolist()
        [[2], [0], [0]]
    """
    reach = k + int(self_rows is not None)
    scores = rough.double()
    last = scores[:, -1].clone()
    _settle(scores, proposed, queries, gallery, reach, error)
    if self_rows is not None:
        scores.masked_fill_(proposed == self_rows[:, None], -torch.inf)
    ranked = _by_score_then_index(scores, proposed)[:, :k].contiguous()
    if rough.shape[1] == len(gallery):
        return ranked
    kth = scores.topk(k).values[:, -1]
    doubtful = (kth <= last + 2 * error).nonzero()[:, 0]
    step = _rows_per_block(len(gallery), k)
    for rows in doubtful.split(step) if len(doubtful) else ():
        own = None if self_rows is None else self_rows[rows]
        ranked[rows] = _search_exhaustively(queries[rows], gallery, own, k)
    return ranked


def _settle(
    scores: Float[Tensor, "B K"],
    columns: Int[Tensor, "B K"],
    queries: Float[Tensor, "B D"],
    gallery: Float[Tensor, "R D"],
    reach: int,
    error: float,
) -> None:
    """Replace, in place, descending rough scores by exact ones wherever the order is open.

    Behind the first `reach`, only those chained to them by close scores count.
    """
    close = scores[:, :-1] - scores[:, 1:] <= 2 * error  # (B, K - 1): between i and i + 1
    open_ = torch.zeros_like(scores, dtype=torch.bool)
    open_[:, :-1] |= close
    open_[:, 1:] |= close
    open_[:, reach:] &= close[:, reach - 1 :].cumprod(1).bool()
    row, place = open_.nonzero(as_tuple=True)
    column = columns[row, place]
    exact = _exact_products(queries.numpy(), gallery.numpy(), row.numpy(), column.numpy())
    scores[row, place] = torch.from_numpy(exact)


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # exact in any order
def _exact_products(queries, gallery, row, column):
    exact = np.empty(len(row))
    for p in range(len(row)):
        a, b = queries[row[p]], gallery[column[p]]
        total = 0.0
        for d in range(len(a)):
            total += np.float64(a[d]) * np.float64(b[d])
        exact[p] = total
    return exact
