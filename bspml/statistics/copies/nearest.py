"""The nearest rows of every row with their distances: searched once, read by all who need them."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import torch

from bspml.distributed.group import ranks
from bspml.distributed.rows import gather_rows, share_of
from bspml.evaluation.neighbours import choose_backend, rank_proposals, ranked_neighbours
from bspml.shapes import Float, Tensor
from bspml.statistics.contrastive_nearest import Candidates
from bspml.statistics.copies.listed import QUERIES, listed_neighbours
from bspml.tensors.unit_rows import GRID

LISTS = "lists"  # the backend that is approximate


@dataclass(frozen=True)
class Nearest:
    """The k nearest rows of each of N rows, the row itself left out.

    Attributes:
        places: (N, k) int64, nearest first.
        squared: (N, k) float64 squared distances, ascending; any multiple of them will do.
        recall: share of the true neighbours among them; below 1 it was measured on some rows.

    Example:
        >>> Nearest(np.array([[1], [0]]), np.array([[2.0], [2.0]])).places.shape
        (2, 1)
    """

    places: np.ndarray
    squared: np.ndarray
    recall: float = 1.0


def nearest_rows(
    rows: Float[Tensor, "N D"], k: int, backend: str = "auto", queries: np.ndarray | None = None
) -> Nearest:
    """Search the k nearest of `rows` of each row, or of the rows `queries` alone.

    Squared distances are exact: differences of grid rows are multiples of 2^-24, so their squares
    add up in float64 without rounding.  1 - similarity would not do: between rows nearer than
    about 2^-12 it is what rounding left of their norms.

    Args:
        rows: from `bspml.tensors.unit_rows.grid_unit_rows`.
        k: neighbours per row, below N.
        backend: "auto", "faiss" or "torch", the same result; `LISTS`, an approximate one.
        queries: (Q,) int64 rows to search for; None for all.

    Example:
        >>> found = nearest_rows(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), 2)
        >>> found.places.tolist(), found.squared.tolist()
        ([[2, 1], [0, 2], [0, 1]], [[0.0, 2.0], [2.0, 2.0], [0.0, 2.0]])
    """
    asked = np.arange(len(rows)) if queries is None else queries
    if backend == LISTS:
        places, recall = listed_neighbours(rows, asked, k)
        return _by_distance(rows, asked, places, recall)
    own = torch.from_numpy(asked)
    wanted = rows if queries is None else rows[own]
    places = np.empty((len(asked), k), np.int64)
    engine = choose_backend(backend, rows.device)
    for part, found in ranked_neighbours(wanted, rows, k, self_rows=own, backend=engine):
        places[part] = found.numpy()
    return _by_distance(rows, asked, places, 1.0)


def nearest_of_candidates(
    rows: Float[Tensor, "N D"], candidates: Candidates | None, k: int
) -> Nearest | None:
    """Return what `nearest_rows` does of all rows, told from a pass over their similarities.

    Args:
        rows: from `bspml.tensors.unit_rows.grid_unit_rows`.
        candidates: of the same rows, more than k, if at hand.
        k: neighbours per row.

    Returns:
        None where there are no candidates, or for some rows too few; none are of norm 0.
    """
    if candidates is None or (candidates.rows < 0).any():
        return None
    error = candidates.error + 1.01 * rows.shape[1] ** 0.5 / GRID
    own = torch.arange(len(rows))
    listed = torch.from_numpy(candidates.similarities), torch.from_numpy(candidates.rows)
    places = rank_proposals(*listed, rows, rows, k, error, own).numpy()
    return _by_distance(rows, own.numpy(), places, 1.0)


def _by_distance(rows: Tensor, asked: np.ndarray, places: np.ndarray, recall: float) -> Nearest:
    squared = np.empty(places.shape)
    # Those with a common one together: it is in the cache.
    together = np.argsort(places.min(1), kind="stable")
    squared[together] = _squared_distances(rows.numpy(), asked[together], places[together])
    order = np.argsort(squared, 1, kind="stable")  # similarities put the very nearest out of order
    places, squared = (np.take_along_axis(values, order, 1) for values in (places, squared))
    return Nearest(places, squared, recall)


def nearest_of_all(
    rows: Float[Tensor, "N D"], k: int, backend: str = "auto", across_ranks: bool = False
) -> Nearest:
    """Search the k nearest of each row; the same from one process or several.

    Args:
        rows: from `bspml.tensors.unit_rows.grid_unit_rows`.
        k: neighbours per row, below N.
        backend: as in `nearest_rows`.
        across_ranks: share the rows among the processes of a torch.distributed group, which all
            make this call and get the whole result.

    Example:
        >>> nearest_of_all(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), 1).places.tolist()
        [[1], [0]]
    """
    if not across_ranks or ranks() == 1:
        return nearest_rows(rows, k, backend)
    mine = share_of(len(rows), QUERIES)  # the blocks of one process
    part = nearest_rows(rows, k, backend, np.arange(mine.start, mine.stop))
    places, squared = (gather_rows(torch.from_numpy(v)) for v in (part.places, part.squared))
    return Nearest(places.numpy(), squared.numpy(), part.recall)


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # exact in any order
def _squared_distances(rows, asked, places):
    squared = np.empty(places.shape, np.float64)
    for i in range(len(places)):
        for r in range(places.shape[1]):
            a, b = asked[i], places[i, r]
            total = 0.0
            for d in range(rows.shape[1]):
                difference = np.float64(rows[a, d]) - np.float64(rows[b, d])
                total += difference * difference
            squared[i, r] = total
    return squared


def among_groups(
    near: Nearest | None,
    rows: Float[Tensor, "N D"],
    first: np.ndarray,
    k: int,
    backend: str = "auto",
) -> tuple[np.ndarray, Nearest]:
    """Return each group's first row, and the nearest other groups of it.

    Of a group among the neighbours its nearest row counts.  Only where `near` does not reach far
    enough, as most of it are copies, is there another search, among the first rows.

    Args:
        near: of all rows; None to search.
        rows: from `bspml.tensors.unit_rows.grid_unit_rows`.
        first: (N,) int64, the first row of each row's group; -1 for rows to leave out.
        k: other groups wanted, fewer if there are fewer.
        backend: "auto", "faiss" or "torch"; the same result.

    Returns:
        (G,) int64 first rows, ascending, and their nearest as places among these.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> kept, near = among_groups(None, rows, np.array([0, 0, 2]), 1)
        >>> kept.tolist(), near.places.tolist()
        ([0, 2], [[1], [0]])
    """
    kept = np.unique(first[first >= 0])
    k = min(k, len(kept) - 1)
    everyone = len(kept) == len(rows)
    if near is not None and everyone and near.places.shape[1] >= k:
        return kept, Nearest(near.places[:, :k], near.squared[:, :k])
    unit = rows if everyone else rows[kept]
    if near is None:
        return kept, nearest_rows(unit, k, backend)
    group = first[near.places[kept]]  # (G, k of near)
    is_other = (group >= 0) & (group != kept[:, None]) & _first_of_its_value(group)
    enough = is_other.sum(1) >= k
    columns = np.argsort(~is_other, 1, kind="stable")[:, :k]
    places = np.zeros((len(kept), k), np.int64)
    squared = np.zeros((len(kept), k))
    if enough.any():
        found = np.take_along_axis(group, columns, 1)
        places[enough] = np.searchsorted(kept, found[enough])
        squared[enough] = np.take_along_axis(near.squared[kept], columns, 1)[enough]
    if not enough.all():
        again = nearest_rows(unit, k, backend, np.flatnonzero(~enough))
        places[~enough], squared[~enough] = again.places, again.squared
    return kept, Nearest(places, squared)


def _first_of_its_value(table: np.ndarray) -> np.ndarray:
    """Where a value stands for the first time in its row, (N, k) bool."""
    order = np.argsort(table, 1, kind="stable")
    ordered = np.take_along_axis(table, order, 1)
    is_first = np.ones(table.shape, bool)
    np.put_along_axis(is_first, order[:, 1:], ordered[:, 1:] != ordered[:, :-1], 1)
    return is_first
