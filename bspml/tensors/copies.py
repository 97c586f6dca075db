"""Equal rows, exactly or within a rounding, and an order by content: not in N x N time."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from bspml.shapes import Float, Tensor

# Of a projection of size 600, so one is 1.5e-4 of a row's length; irrational, as rows of whole
# numbers would be left without a fraction.
_PERIODS = 8 * math.sqrt(2)
_GOLDEN = 0.6180339887498949  # its multiples spread evenly over [0, 1)
_BLOCK = 256  # rows in float64 at a time
_DIRECTIONS = 8  # of a projection in which near rows are sought
_NEAREST = 4  # rows that each is compared with


def row_digests(rows: Float[Tensor, "N D"]) -> np.ndarray:
    """Return a digest of each row, equal for equal rows: -0 counts as 0.

    Args:
        rows: (N, D) of one dtype; `bspml.tensors.unit_rows.grid_unit_rows` for rows of equal
            direction to be equal.

    Returns:
        (N,) texts of 32 bytes.
    """
    array = rows.detach().cpu().numpy()
    return np.array([row_digest(row) for row in array], dtype="S32")


def row_digest(row: np.ndarray) -> bytes:
    """Return the digest of one row of floats."""
    return hashlib.blake2b((row + row.dtype.type(0)).tobytes(), digest_size=16).hexdigest().encode()


def content_order(rows: Float[Tensor, "N D"], codes: np.ndarray) -> np.ndarray:
    """Return (N,) int64 samples in an order that neither theirs nor the classes' numbers decide.

    By the digest of the row, equal rows by all rows of their class, and those of one class as they
    came.

    Args:
        rows: (N, D), see `row_digests`.
        codes: (N,) int64 labels, at least 0.

    Example:
        >>> rows = torch.tensor([[0.0], [2.0], [1.0], [2.0]])
        >>> codes, moved = np.array([0, 0, 1, 1]), np.array([3, 0, 2, 1])
        >>> again = moved[content_order(rows[moved], 1 - codes[moved])]
        >>> content_order(rows, codes).tolist() == again.tolist()
        True
    """
    numbers = np.array([int(digest[:15], 16) for digest in row_digests(rows).tolist()])
    of_class = np.zeros(codes.max(initial=-1) + 1, np.int64)
    np.add.at(of_class, codes, numbers)  # in any order the same, as whole numbers wrap around
    return np.lexsort((of_class[codes], numbers))


def rounding(precision: float, dims: int) -> float:
    """Return how far a unit row lies from itself after its numbers were rounded, at most.

    Args:
        precision: epsilon of the coarser type; the rows came through it once or twice.
        dims: D, as `bspml.tensors.unit_rows.grid_unit_rows` rounds every entry.
    """
    return 2 * precision + math.sqrt(dims) * 2.0**-24


def near_digests(sides: Sequence[Float[Tensor, "_ D"]], tolerance: float) -> list[np.ndarray]:
    """Return `row_digests` of several tensors, alike for rows that lie within a tolerance.

    In time that grows like N log N: of each row the few nearest in a projection are looked at.

    Args:
        sides: (N, D) each, from `bspml.tensors.unit_rows.grid_unit_rows`.
        tolerance: distance of two rows that count as equal.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1e-6]])
        >>> near, = near_digests([rows], tolerance=1e-5)
        >>> first_copies(near).tolist(), first_copies(row_digests(rows)).tolist()
        ([0, 1, 0], [0, 1, 2])
    """
    digests = np.concatenate([row_digests(side) for side in sides])
    names, first, place = np.unique(digests, return_index=True, return_inverse=True)
    normal = np.random.default_rng(5).normal(size=(sides[0].shape[1], _DIRECTIONS))
    turned = torch.from_numpy(np.linalg.qr(normal)[0])  # distances do not grow
    blocks = [block for side in sides for block in side.split(_BLOCK)]
    places = turned.new_empty((len(digests), turned.shape[1]))
    # Written in place: results kept between the blocks would leave holes in the memory.
    for block, its_places in zip(blocks, places.split(list(map(len, blocks))), strict=True):
        torch.mm(block.cpu().double(), turned, out=its_places)
    points = places.numpy()[first]
    reach = np.arange(2, max(2, min(len(points), _NEAREST + 1)) + 1)
    _, near = cKDTree(points).query(points, k=reach, distance_upper_bound=1.001 * tolerance)
    one = np.nonzero(near < len(points))[0]
    other = near[near < len(points)]
    close = _distances(sides, first[one], first[other]) <= tolerance
    one, other = one[close], other[close]
    group = linked(one, other, len(points))
    leader = np.unique(group, return_index=True)[1][group]
    return np.split(names[leader][place.reshape(-1)], np.cumsum([len(side) for side in sides])[:-1])


def linked(one: np.ndarray, other: np.ndarray, n: int) -> np.ndarray:
    """Return (n,) the number of each one's group, the groups connected by pairs.

    Args:
        one, other: (P,) the sides of the pairs, in [0, n).
        n: how many there are.
    """
    pairs = coo_array((np.ones(len(one)), (one, other)), shape=(n, n))
    return connected_components(pairs, directed=False)[1]


def _distances(sides: Sequence[Tensor], one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the distances of pairs of rows, which are counted through all sides."""
    starts = np.cumsum([0, *map(len, sides)])

    def rows(numbers: np.ndarray) -> Tensor:
        found = torch.empty(len(numbers), sides[0].shape[1], dtype=torch.float64, device="cpu")
        for side, start, stop in zip(sides, starts, starts[1:], strict=False):
            here = np.flatnonzero((start <= numbers) & (numbers < stop))
            found[torch.from_numpy(here)] = side[numbers[here] - start].cpu().double()
        return found

    apart = np.empty(len(one))
    for low in range(0, len(one), _BLOCK):
        some = slice(low, low + _BLOCK)
        apart[some] = torch.linalg.vector_norm(rows(one[some]) - rows(other[some]), dim=1).numpy()
    return apart


def first_copies(digests: np.ndarray) -> np.ndarray:
    """Return for each row the first one that is equal to it, (N,) int64; at most itself.

    Example:
        >>> first_copies(np.array(["a", "b", "a"])).tolist()
        [0, 1, 0]
    """
    _, first, place = np.unique(digests, return_index=True, return_inverse=True)
    return first[place.reshape(-1)]


def first_equal(rows: Float[Tensor, "N D"]) -> np.ndarray:
    """Return for each row the first one that is equal to it, (N,) int64; at most itself.

    Only rows of equal projections are digested.

    Args:
        rows: (N, D) float32 from `bspml.tensors.unit_rows.grid_unit_rows`.

    Example:
        >>> first_equal(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).tolist()
        [0, 1, 0]
    """
    return _first_equal(rows, _projections(rows, 0))


def _first_equal(rows: Tensor, projections: np.ndarray) -> np.ndarray:
    first = np.arange(len(rows))
    _, place, counts = np.unique(projections, return_inverse=True, return_counts=True)
    some = np.flatnonzero(counts[place.reshape(-1)] > 1)
    first[some] = some[first_copies(row_digests(rows[torch.from_numpy(some)]))]
    return first


def _projections(rows: Tensor, seed: int) -> np.ndarray:
    """Return (N,) a random projection, exact, as grid rows are multiples of 2^-24 and its weights
    whole: so neither place nor block matters, and equal rows have equal ones."""
    some = (rows != 0).any(0)  # a column of zeros moves no other one's weight
    weights = np.random.default_rng([seed, 3]).integers(-1024, 1025, int(some.sum()))
    projection = torch.zeros(len(some), dtype=torch.float64, device="cpu")
    projection[some] = torch.from_numpy(weights).double()
    return torch.cat([block.double() @ projection for block in rows.split(_BLOCK)]).numpy()


def own_rows(queries: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    """Return the gallery row that each query itself is, -1 where there is none.

    The n-th query of some digest is the n-th row of that digest, so that further copies in the
    gallery stay other samples; where the queries have more of them than the gallery, the last.

    Args:
        queries: (Q,) digests.
        gallery: (R,) digests.

    Returns:
        (Q,) int64.

    Example:
        >>> own_rows(np.array(["b", "a", "b", "c"]), np.array(["a", "b", "b", "b"])).tolist()
        [1, 0, 2, -1]
    """
    order = np.argsort(gallery, kind="stable")
    start, end = (np.searchsorted(gallery[order], queries, side=side) for side in ("left", "right"))
    by_query = np.argsort(queries, kind="stable")
    turn = np.empty(len(queries), np.int64)  # how many equal queries came before
    turn[by_query] = np.arange(len(queries)) - np.searchsorted(queries[by_query], queries[by_query])
    rows, found = np.full(len(queries), -1, np.int64), end > start
    rows[found] = order[np.minimum(start + turn, end - 1)[found]]
    return rows


def row_keys(rows: Float[Tensor, "N D"], seed: int) -> np.ndarray:
    """Return (N,) keys in [0, 1) to draw and order samples by, from rows and seed alone.

    Args:
        rows: (N, D) float32 from `bspml.tensors.unit_rows.grid_unit_rows`.
        seed: of the projection.

    The fractional part of a random projection: without relation to where a row lies, and yet
    hardly moved by a rounding of it.  Equal rows are told apart by their number.
    """
    places = _projections(rows, seed)
    first = _first_equal(rows, places)
    order = np.argsort(first, kind="stable")
    number = np.empty(len(rows))  # how many equal rows came before
    number[order] = np.arange(len(rows)) - np.searchsorted(first[order], first[order])
    return (_PERIODS * places + _GOLDEN * number) % 1
