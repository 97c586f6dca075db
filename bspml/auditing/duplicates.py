"""Copies: samples with the same embedding, and pairs much nearer than neighbours usually are.

Exact copies have equal rows after normalisation, to 2^-24 per entry.

Near copies are judged by how distances grow around a sample.  With delta_r the squared distance
(1 - similarity) to the r-th nearest distinct sample, samples of local dimension m have

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
pairs fail.  Where most samples have a near copy, that is the usual distance, and none is reported.
Ours, not from a paper.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import beta

from bspml.auditing.neighbours import row_digest
from bspml.evaluation.neighbours import choose_backend, ranked_neighbours
from bspml.shapes import Float, Tensor

COLUMNS = ("kind", "first", "second", "similarity", "different_label", "group")

_SCALE = 5  # the neighbour a distance is compared with
_OUTER = 30  # the last neighbour the local dimension is told from
_FEWEST = 12  # distinct samples below which there is no usual distance to compare with
_NEAREST = 3  # neighbours of a sample that may be its copies
_PRIOR = 10.0  # neighbours' worth of the median dimension in each local one
_BY_CHANCE = (0.1, 0.2)  # v between which pairs are taken to be chance
# A copy is at least this much nearer than the fifth neighbour, in squared distance and in v: keeps
# data with few distinct distances, where h means nothing, from filling the list.
_LARGEST_RATIO, _LARGEST_V = 0.7, 0.1
_AROUND = 10  # samples around, whose nearest distance is the usual one
_LARGEST_OF_USUAL = 0.8


def find_duplicates(
    rows: Float[Tensor, "N D"], codes: np.ndarray, false_share: float = 0.5, backend: str = "auto"
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

    Returns:
        kind ("exact" or "near"), first < second (samples), similarity in [-1, 1], different_label,
        group (copies of copies share one, numbered from 0 in order of their first sample).
    """
    directed = np.flatnonzero((rows != 0).any(1).numpy())
    firsts = _first_copies(rows, directed)
    copies = directed[firsts != directed]
    exact_pairs = np.stack([firsts[firsts != directed], copies], 1)
    near_pairs, similarity = _near_pairs(rows, codes, np.unique(firsts), false_share, backend)
    pairs = np.concatenate([exact_pairs, near_pairs])
    table = pd.DataFrame(
        {
            "kind": ["exact"] * len(exact_pairs) + ["near"] * len(near_pairs),
            "first": pairs.min(1) if len(pairs) else pairs[:, 0],
            "second": pairs.max(1) if len(pairs) else pairs[:, 1],
            "similarity": np.concatenate([np.ones(len(exact_pairs)), similarity]),
            "different_label": codes[pairs[:, 0]] != codes[pairs[:, 1]],
            "group": _components(pairs),
        }
    )
    order = ["different_label", "similarity", "first", "second"]
    table = table.sort_values(order, ascending=[False, False, True, True], kind="stable")
    return table.reset_index(drop=True)


def _first_copies(rows: Tensor, directed: np.ndarray) -> np.ndarray:
    """For each sample of `directed`, the first sample with the same row."""
    first_of: dict[bytes, int] = {}
    array = rows.numpy()
    firsts = [first_of.setdefault(row_digest(array[i]), i) for i in directed.tolist()]
    return np.array(firsts, np.int64)


def _near_pairs(
    rows: Tensor, codes: np.ndarray, distinct: np.ndarray, false_share: float, backend: str
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs (P, 2) of samples and their similarities (P,)."""
    if len(distinct) < _FEWEST:
        return np.empty((0, 2), np.int64), np.empty(0)
    outer = min(_OUTER, len(distinct) - 1)
    unit = rows if len(distinct) == len(rows) else rows[distinct]
    places, squared = _nearest(unit, outer, backend)
    pairs, delta, v = _pair_volumes(places, squared)
    labels = codes[distinct]
    differs = labels[pairs[:, 0]] != labels[pairs[:, 1]]
    usual = np.median(squared[:, 0][places[:, :_AROUND]], 1)
    is_copy = delta <= _LARGEST_OF_USUAL * usual[pairs].min(1)
    is_copy &= (delta <= _LARGEST_RATIO * squared[:, _SCALE - 1][pairs].min(1)) & (v <= _LARGEST_V)
    for stratum in (differs, ~differs):
        is_copy[stratum] &= v[stratum] <= _largest_volume(v[stratum], len(distinct), false_share)
    pairs = pairs[is_copy]
    similarity = (unit[pairs[:, 0]].double() * unit[pairs[:, 1]]).sum(1).numpy()
    return distinct[pairs], similarity


def _nearest(unit: Tensor, k: int, backend: str) -> tuple[np.ndarray, np.ndarray]:
    """(N, k) places of the nearest rows, and 1 - similarity to them."""
    places = np.empty((len(unit), k), np.int64)
    squared = np.empty((len(unit), k))
    engine = choose_backend(backend, unit.device)
    everyone = torch.arange(len(unit))
    for part, neighbours in ranked_neighbours(unit, unit, k, self_rows=everyone, backend=engine):
        places[part] = neighbours.numpy()
        for r in range(k):
            similar = (unit[part].double() * unit[neighbours[:, r]]).sum(1)
            squared[part, r] = (1 - similar).clamp_min(0).numpy()
    return places, squared


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


def _pair_volumes(
    places: np.ndarray, squared: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Candidate pairs (P, 2), each once, 1 - similarity of each, and v."""
    first = np.repeat(np.arange(len(squared)), _NEAREST)
    second = places[:, :_NEAREST].ravel()
    pairs = np.stack([np.minimum(first, second), np.maximum(first, second)], 1)
    pairs, once = np.unique(pairs, axis=0, return_index=True)
    delta = squared[:, :_NEAREST].ravel()[once]
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
    n = pairs.max(initial=0) + 1
    links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    group = connected_components(links, directed=False)[1][pairs[:, 0]]
    return np.unique(group, return_inverse=True)[1].reshape(-1)
