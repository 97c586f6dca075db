"""The nearest samples of a sample's own class and of the class that fits best instead."""

from __future__ import annotations

import numba
import numpy as np
import torch

from bspml.evaluation.neighbours import choose_backend, ranked_neighbours
from bspml.shapes import Float, Tensor
from bspml.statistics.copies.nearest import Nearest
from bspml.tensors.class_ids import by_code

_FEW = 128  # samples of a class that are compared one by one


def nearest_in_class(
    rows: Float[Tensor, "N D"],
    codes: np.ndarray,
    asked: np.ndarray,
    k: int = 3,
    near: Nearest | None = None,
    most: int | None = None,
) -> np.ndarray:
    """Return the k samples labelled `asked[i]` most similar to sample i, best first, without i.

    Exact: read off the sample's nearest of all where these hold enough of the class, else by a
    search of the class, so there is no N x N table.  Equal similarities go by index.

    Args:
        rows: from `bspml.tensors.unit_rows.grid_unit_rows`; rows of norm 0 are nobody's neighbour.
        codes: (N,) int64 labels.
        asked: (N,) int64, the class to search for each sample; negative: none.
        k: neighbours per sample.
        near: of `bspml.statistics.copies.nearest.nearest_rows`, of all these rows, if at hand.
        most: samples of a class that are searched where `near` does not hold enough; None for all.

    Returns:
        (N, k) int64 sample indices, -1 where the class has no further sample.
    """
    neighbours = np.full((len(codes), k), -1, np.int64)
    directed = (rows != 0).any(1).numpy()
    kept = np.where(directed, codes, -1)
    wanted = np.where(directed, asked, -1)
    sizes = np.bincount(kept[kept >= 0], minlength=max(asked.max(initial=0), codes.max()) + 1)
    members, starts = np.argsort(kept, kind="stable"), (kept < 0).sum() + np.cumsum(sizes) - sizes
    runs = members, starts, sizes
    if near is not None:
        _read_off(rows.numpy(), kept, wanted, sizes, near.places, near.squared, neighbours)
    _search_few(rows.numpy(), wanted, *runs, neighbours)
    # All that an asker is shown was filled in at once.
    open_ = np.where(neighbours[:, 0] < 0, wanted, -1) if k else np.full(len(codes), -1)
    for c, askers in by_code(open_).items():
        gallery = members[starts[c] : starts[c] + sizes[c]]
        if most is not None and len(gallery) > most:
            gallery = gallery[np.linspace(0, len(gallery) - 1, most).astype(int)]
        for inside in (True, False):  # the asker itself, in the gallery
            queries = askers[np.isin(askers, gallery) == inside]
            count = min(k, len(gallery) - inside)
            if len(queries) and count > 0:
                own = torch.from_numpy(np.searchsorted(gallery, queries)) if inside else None
                backend = choose_backend("auto", rows.device)
                for part, places in ranked_neighbours(
                    rows[queries], rows[gallery], count, self_rows=own, backend=backend
                ):
                    neighbours[queries[part], :count] = gallery[places.numpy()]
    return neighbours


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # exact in any order
def _product(a, b):
    total = 0.0
    for d in range(len(a)):
        total += np.float64(a[d]) * np.float64(b[d])
    return total


@numba.njit(cache=True, nogil=True)
def _insert(found, scores, count, j, score):
    """Put j among the best so far, behind those as good of a lower index; returns how many."""
    place = count
    while place > 0 and (
        scores[place - 1] < score or (scores[place - 1] == score and found[place - 1] > j)
    ):
        place -= 1
    if place == len(found):
        return count
    for r in range(min(count, len(found) - 1), place, -1):
        found[r], scores[r] = found[r - 1], scores[r - 1]
    found[place], scores[place] = j, score
    return min(count + 1, len(found))


@numba.njit(cache=True, nogil=True)
def _read_off(rows, codes, wanted, sizes, places, squared, neighbours):
    """Fill the rows whose nearest hold all that is asked for.

    Whatever is not among the nearest is no more similar.  2 S_ij = |x_i|^2 + |x_j|^2 - squared:
    exact, as all are multiples of 2^-48.
    """
    norms = np.empty(len(rows))
    for i in range(len(rows)):
        norms[i] = _product(rows[i], rows[i])
    k = neighbours.shape[1]
    found, scores = np.empty(k, np.int64), np.empty(k)
    for i in range(len(rows)):
        if wanted[i] < 0:
            continue
        count = 0
        for r in range(places.shape[1]):
            j = places[i, r]
            if codes[j] == wanted[i]:
                count = _insert(found, scores, count, j, norms[j] - squared[i, r])
        if count >= min(k, sizes[wanted[i]] - (codes[i] == wanted[i])):
            for r in range(count):  # a slice would take seconds to compile
                neighbours[i, r] = found[r]


@numba.njit(cache=True, nogil=True)
def _search_few(rows, wanted, members, starts, sizes, neighbours):
    """Fill the rows that ask for a class of few samples and are not filled yet."""
    k = neighbours.shape[1]
    found, scores = np.empty(k, np.int64), np.empty(k)
    for i in range(len(rows)):
        c = wanted[i]
        if c < 0 or sizes[c] > _FEW or neighbours[i, 0] >= 0:
            continue
        count = 0
        for j in members[starts[c] : starts[c] + sizes[c]]:
            if j != i:
                count = _insert(found, scores, count, j, _product(rows[i], rows[j]))
        for r in range(count):
            neighbours[i, r] = found[r]
