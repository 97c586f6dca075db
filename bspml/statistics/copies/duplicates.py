"""Copies: samples with the same embedding, and pairs much nearer than neighbours usually are.

Exact copies have equal rows after normalisation, to 2^-24 per entry.

Near copies are sought twice.  First `bursts` takes out groups of samples far from all others, which
works however many samples have copies: below, a group counts as its first sample.  Then single
near copies are judged by how distances grow around a sample.  With delta_r the squared distance
to the r-th nearest distinct sample, samples of local dimension m have

    delta_r^h,  h = m / 2,   growing like volume: uniform spacings around the sample

so v = (delta_1 / delta_5)^h has P(v <= x) = 1 - (1 - x)^4, whatever the density.  h is Hill's
estimate from the 5th to 30th neighbour, so up to four copies of a sample do not disturb it:

    1/h = ( sum_{r = 5}^{29} log(delta_30 / delta_r) + 4 log(delta_30 / delta_5) ) / 25

It is drawn towards the median over all samples, as 25 neighbours tell it badly, and scaled so that
neither (delta_1 / delta_5)^h nor (delta_2 / delta_5)^h has a lower median than it must have: noise
makes the dimension higher at small distances, and in small classes the first neighbours are near
and the fifth is far.  Of a pair, the lower delta_5 counts.

The number of chance pairs up to v is  kappa N (1 - (1 - v)^4) / 2,  with kappa <= 1 such that it
is right between v = .1 and .2, where there are few copies; below 1, as a chance pair must be near
from both sides.  Pairs are kept while this is at most `false_share` of them, pairs under different
labels and under the same label apart: neighbours rarely have different labels, so among such pairs
copies stand out more.  And a pair must be at most .8 times as far (squared) as nearest neighbours
are around it (the median over its 10 nearest samples, the lower of both sides), which most chance
pairs fail.  Where most samples have a near copy of this fainter sort, that is the usual distance,
and none is reported.  Ours, not from a paper.

Where hashes of the samples' pictures are given, pairs that these know are near copies as well
(`bspml.auditing.picture_hashes`).  Of neighbours nearer than that usual distance a likeness is
enough that chance brings to others.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
from scipy.stats import beta

from bspml.shapes import Float, Tensor
from bspml.statistics.copies.bursts import find_bursts
from bspml.statistics.copies.copy_groups import first_in_group
from bspml.statistics.copies.crowds import find_crowds
from bspml.statistics.copies.nearest import Nearest, among_groups
from bspml.tensors.copies import first_equal

COLUMNS = ("kind", "first", "second", "similarity", "different_label", "group")

_SCALE = 5  # the neighbour a distance is compared with
OUTER = 30  # the last neighbour the local dimension is told from
_FEWEST = 12  # distinct samples below which there is no usual distance to compare with
_NEAREST = 3  # neighbours of a sample that may be its copies
_PRIOR = 10.0  # neighbours' worth of the median dimension in each local one
_BY_CHANCE = (0.1, 0.2)  # v between which pairs are taken to be chance
# A copy is at least this much nearer than the fifth neighbour, in squared distance and in v: keeps
# data with few distinct distances, where h means nothing, from filling the list.
_LARGEST_RATIO, _LARGEST_V = 0.7, 0.1
_AROUND = 10  # samples around, whose nearest distance is the usual one
_LARGEST_OF_USUAL = 0.8


@runtime_checkable
class KnownPairs(Protocol):
    """What knows further copies, such as `bspml.auditing.picture_hashes.PictureHashes`."""

    def pairs(self, near: np.ndarray) -> np.ndarray:
        """Return (P, 2) int64 samples that are copies, the smaller first.

        Args:
            neighbours: (Q, 2) int64, samples near each other, worth a look.
        """


def find_duplicates(
    rows: Float[Tensor, "N D"],
    codes: np.ndarray,
    false_share: float = 0.1,
    backend: str = "auto",
    near: Nearest | None = None,
    pictures: KnownPairs | None = None,
) -> pd.DataFrame:
    """Return all pairs of copies, different labels first, then the most similar.

    A group of n exact copies gives n - 1 pairs with its first sample; near copies of any of them
    are looked for from that first sample alone.

    Args:
        rows: from `bspml.tensors.unit_rows.grid_unit_rows`; rows of norm 0 are nobody's copy.
        codes: (N,) int64 labels.
        false_share: of the near pairs, how many may be chance by the count above; few of these
            pass the last test.
        backend: of the neighbour search: "auto", "faiss" or "torch".
        near: the rows' neighbours if they are known, 30 each or more; else they are searched.
        pictures: hashes of the samples' pictures, which know further copies.

    Returns:
        kind ("exact" or "near"), first < second (samples), similarity in [-1, 1], different_label,
        group (copies of copies share one, numbered from 0 in order of their first sample).
    """
    # For each sample the first one with the same row, -1 for rows of norm 0.
    first = np.where((rows != 0).any(1).numpy(), first_equal(rows), -1)
    copies = np.flatnonzero((first >= 0) & (first != np.arange(len(rows))))
    exact_pairs = np.stack([first[copies], copies], 1)
    near_pairs = _near_pairs(rows, codes, first, false_share, backend, near, pictures)
    pairs = np.concatenate([exact_pairs, near_pairs])
    similarity = (rows[near_pairs[:, 0]].double() * rows[near_pairs[:, 1]]).sum(1).numpy()
    table = pd.DataFrame(
        {
            "kind": ["exact"] * len(exact_pairs) + ["near"] * len(near_pairs),
            "first": pairs[:, 0],
            "second": pairs[:, 1],
            "similarity": np.concatenate([np.ones(len(exact_pairs)), similarity]),
            "different_label": codes[pairs[:, 0]] != codes[pairs[:, 1]],
            "group": _components(pairs),
        }
    )
    return _ordered(table)


def renumbered(table: pd.DataFrame, numbers: np.ndarray) -> pd.DataFrame:
    """Return a table of pairs with the samples called otherwise.

    Args:
        table: from `find_duplicates`.
        numbers: (N,) int64, of each sample.

    Example:
        >>> import torch
        >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> table = find_duplicates(rows, np.array([4, 5, 4]))
        >>> renumbered(table, np.array([1, 2, 0]))[["first", "second"]].values.tolist()
        [[0, 1]]
    """
    pairs = np.sort(numbers[table[["first", "second"]].to_numpy(np.int64)], 1)
    group = _components(pairs)
    return _ordered(table.assign(first=pairs[:, 0], second=pairs[:, 1], group=group))


def _ordered(table: pd.DataFrame) -> pd.DataFrame:
    order = ["different_label", "similarity", "first", "second"]
    table = table.sort_values(order, ascending=[False, False, True, True], kind="stable")
    return table.reset_index(drop=True)


def _near_pairs(
    rows: Tensor,
    codes: np.ndarray,
    first: np.ndarray,
    false_share: float,
    backend: str,
    near: Nearest | None,
    pictures: KnownPairs | None,
) -> np.ndarray:
    """Pairs (P, 2) of samples that are no exact copies, the smaller first."""
    found = [np.empty((0, 2), np.int64)]
    distinct = np.unique(first[first >= 0])
    neighbours = found[0]
    if len(distinct) >= _FEWEST:
        distinct, near = among_groups(near, rows, first, OUTER, backend)
        pairs, delta = _candidates(near, 1)
        neighbours = distinct[pairs[_is_nearer_than_usual(near, pairs, delta)]]
        bursts = find_bursts(near, codes[distinct])
        inside = [pair for group in bursts for pair in combinations(group.tolist(), 2)]
        # Of a crowd, pairs with its first sample alone: all of them would be too many.
        for crowd in find_crowds(near, codes[distinct], rows[distinct]):
            inside += [(crowd[0], member) for member in crowd[1:]]
        paired = np.array(inside, np.int64).reshape(-1, 2)
        found.append(distinct[paired])
        # The rest of the data tells what is usual, where a burst counts as one sample.
        alone = first_in_group(paired, len(distinct))
        kept, near = among_groups(near, rows[distinct], alone, OUTER, backend)
        if len(kept) >= _FEWEST:
            found.append(distinct[kept[_lone_pairs(near, codes[distinct[kept]], false_share)]])
    if pictures is not None:
        alike = pictures.pairs(neighbours)
        same = (first[alike[:, 0]] == first[alike[:, 1]]) & (first[alike[:, 0]] >= 0)
        found.append(alike[~same])
    return np.unique(np.concatenate(found), axis=0)


def _lone_pairs(near: Nearest, labels: np.ndarray, false_share: float) -> np.ndarray:
    """Pairs (P, 2) of places that are near for where they are."""
    squared = near.squared
    pairs, delta, v = _pair_volumes(near)
    differs = labels[pairs[:, 0]] != labels[pairs[:, 1]]
    is_copy = _is_nearer_than_usual(near, pairs, delta)
    is_copy &= (delta <= _LARGEST_RATIO * squared[:, _SCALE - 1][pairs].min(1)) & (v <= _LARGEST_V)
    for stratum in (differs, ~differs):
        is_copy[stratum] &= v[stratum] <= _largest_volume(v[stratum], len(labels), false_share)
    return pairs[is_copy]


def _is_nearer_than_usual(near: Nearest, pairs: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """(P,) bool, by how far nearest neighbours are around both of a pair; delta: (P,) squared."""
    usual = np.median(near.squared[:, 0][near.places[:, :_AROUND]], 1)
    return delta <= _LARGEST_OF_USUAL * usual[pairs].min(1)


def _largest_volume(v: np.ndarray, n: int, false_share: float) -> float:
    """The largest v up to which at most `false_share` of the pairs are chance; -1 for none."""
    low, high = _BY_CHANCE
    between = ((v > low) & (v <= high)).sum()
    kappa = min(1.0, (between + 1) / (_chance_pairs(high, n) - _chance_pairs(low, n)))
    ordered = np.sort(v[v <= _LARGEST_V])
    by_chance = kappa * _chance_pairs(ordered, n)
    enough = np.flatnonzero(by_chance <= false_share * np.arange(1, len(ordered) + 1))
    return float(ordered[enough[-1]]) if len(enough) else -1.0


def _chance_pairs(v: Any, n: int) -> Any:
    return n * (1 - (1 - v) ** (_SCALE - 1)) / 2


def _candidates(near: Nearest, count: int = _NEAREST) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (P, 2) of each sample and its `count` nearest, each once, and squared distances."""
    first = np.repeat(np.arange(len(near.places)), count)
    second = near.places[:, :count].ravel()
    pairs = np.stack([np.minimum(first, second), np.maximum(first, second)], 1)
    pairs, once = np.unique(pairs, axis=0, return_index=True)
    return pairs, near.squared[:, :count].ravel()[once]


def _pair_volumes(near: Nearest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Candidate pairs (P, 2), the squared distance of each, and v."""
    pairs, delta = _candidates(near)
    squared = near.squared
    scale = np.maximum(squared[:, _SCALE - 1], np.finfo(np.float64).tiny)
    ratio = np.minimum(delta / scale[pairs].min(1), 1)
    return pairs, delta, ratio ** (1 / _inverse_dimension(squared)[pairs].mean(1))


def _inverse_dimension(squared: np.ndarray) -> np.ndarray:
    """(N,) 1 / h of each sample, above 0."""
    tiny = np.finfo(np.float64).tiny
    logs = np.log(np.maximum(squared, tiny))
    outer = squared.shape[1] - _SCALE  # exponential spacings that are told apart
    spacings = (logs[:, -1:] - logs[:, _SCALE - 1 : -1]).sum(1)
    inverse = (spacings + (_SCALE - 1) * (logs[:, -1] - logs[:, _SCALE - 1])) / outer
    inverse = (inverse * outer + np.median(inverse) * _PRIOR) / (outer + _PRIOR)
    inverse = np.maximum(inverse, tiny)
    scales = [
        np.median((logs[:, _SCALE - 1] - logs[:, r - 1]) / inverse)
        / -np.log(beta.median(r, _SCALE - r))
        for r in (1, 2)
    ]
    return np.maximum(inverse * max(scales), tiny)


def _components(pairs: np.ndarray) -> np.ndarray:
    """(P,) number of the connected group each pair belongs to, in order of its first sample."""
    group = first_in_group(pairs, int(pairs.max(initial=0)) + 1)[pairs[:, 0]]
    return np.unique(group, return_inverse=True)[1].reshape(-1)
