"""How well k-means recovers the classes: NMI, and AMI beside it.

With few samples per class NMI is high for any clustering, a random one included (about 0.8 at
five per class).  So AMI, which takes that share off, and the share itself are computed with it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import mutual_info_score, normalized_mutual_info_score

from bspml.evaluation.neighbours import find_faiss
from bspml.shapes import Float, Tensor
from bspml.tensors.copies import row_keys

_ITERATIONS = 20
_BATCH = 64  # starting points between two passes over all rows
# Squared distances below this are float32 rounding of 2 - 2 s: such a row is a point already taken.
_SAME = 1e-6


@dataclass(frozen=True)
class ClusteringScores:
    """Agreement of clusters with classes.

    Attributes:
        nmi: normalised mutual information, arithmetic mean of the entropies, in [0, 1].
        ami: mutual information adjusted for chance: 1 perfect, 0 as good as random.
        nmi_chance: the expected NMI of random clusters of the same sizes.
    """

    nmi: float
    ami: float
    nmi_chance: float


def kmeans(rows: Float[Tensor, "N D"], clusters: int, seed: int = 0) -> tuple[np.ndarray, str]:
    """Cluster rows of norm 1 (or 0): a careful start, then at most 20 Lloyd iterations.

    The start is k-means++ [Arthur 2007] or farthest-first [Gonzalez 1985], whichever leaves the
    rows closer to it: the first suits overlapping classes, and the second never misses one of
    classes that lie further apart than they are wide.

    Rows are taken in an order of their own, that of keys drawn from their content: in whatever
    order they come, the draws of the start and so the clusters are the same.

    Lloyd runs in faiss if installed, else in scikit-learn, from the same start: up to rounding
    the same clusters.  Deterministic in (rows, clusters, seed); no global generator is used.
    With fewer distinct rows than clusters, there are only as many clusters as distinct rows.

    Rotating the embeddings, which changes no distance, draws another start: the keys are of their
    numbers.  Where classes overlap, the clusters of two starts differ, and NMI and AMI with them,
    by as much as between two seeds, and by as much after a change of the numbers in their last
    float32 digit.  So this is the spread of k-means itself; several seeds show it.

    Differs from pytorch-metric-learning, which starts from random rows, once: on well separated
    classes that start misses some, and perfect embeddings score below 1.

    Args:
        rows: (N, D), each of norm 1 or 0.
        clusters: how many to make.
        seed: of the start.

    Returns:
        (cluster of each row (N,) int64, "faiss" or "sklearn").
    """
    order = np.argsort(row_keys(rows.cpu(), seed), kind="stable")
    clustered = np.empty(len(order), dtype=np.int64)
    clustered[order], library = _in_order(rows.cpu().numpy()[order], clusters, seed)
    return clustered, library


def _in_order(array: np.ndarray, clusters: int, seed: int) -> tuple[np.ndarray, str]:
    """Cluster rows as `kmeans` does, drawing them in the order in which they stand."""
    array = np.ascontiguousarray(array, dtype=np.float32)
    drawn_rows, drawn_cost = _plus_plus(array, clusters, seed)
    far_rows, far_cost = _farthest_first(array, clusters, int(drawn_rows[0]))
    start = array[far_rows if far_cost < drawn_cost else drawn_rows]
    faiss = find_faiss()
    if faiss is not None:
        # All rows count in every update, and small clusters, normal here, cause no warning.
        run = faiss.Kmeans(
            array.shape[1],
            len(start),
            niter=_ITERATIONS,
            min_points_per_centroid=1,
            max_points_per_centroid=len(array),
        )
        run.train(array, init_centroids=start)
        return run.index.search(array, 1)[1][:, 0], "faiss"
    from sklearn.cluster import KMeans

    model = KMeans(len(start), init=start, n_init=1, max_iter=_ITERATIONS, tol=0, random_state=0)
    with warnings.catch_warnings():
        # Clusters may end up on one point; `evaluate` reports a collapse in its own words.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(array).predict(array).astype(np.int64), "sklearn"


def _farthest_first(rows: np.ndarray, k: int, first: int) -> tuple[np.ndarray, float]:
    """Choose rows to start from, each farthest from those before; return the distances left too.

    Distances of all rows are brought up to date once per pool: of the rows outside the pool none
    is farther than the pool's smallest old distance, so inside it the choice is exact as long as
    its farthest row is beyond that.
    """
    square = np.einsum("nd,nd->n", rows, rows)
    chosen, pending = [], [first]
    distance = np.full(len(rows), np.inf, dtype=np.float32)
    size = min(len(rows), 4 * _BATCH)
    while True:
        chosen += pending
        to_pending = square[:, None] + square[pending] - 2 * (rows @ rows[pending].T)
        np.minimum(distance, to_pending.min(1), out=distance)
        distance[distance < _SAME] = 0
        if len(chosen) >= k or distance.max() == 0:
            return np.array(chosen), float(distance.sum(dtype=np.float64))
        pool = np.sort(np.argpartition(-distance, size - 1)[:size])
        inside, bound = distance[pool].copy(), distance[pool].min()
        pending = []
        while len(pending) < _BATCH and len(chosen) + len(pending) < k:
            best = int(inside.argmax())
            if inside[best] == 0 or (pending and inside[best] < bound):
                break
            row = int(pool[best])
            pending.append(row)
            now = square[pool] + square[row] - 2 * (rows[pool] @ rows[row])
            np.minimum(inside, now, out=inside)
            inside[inside < _SAME] = 0


def _plus_plus(rows: np.ndarray, k: int, seed: int) -> tuple[np.ndarray, float]:
    """Draw rows to start from by their squared distance d; return the sum of distances left too.

    Exactly k-means++ [Arthur 2007], but d is brought up to date for all rows only once per
    `_BATCH` centres.  In between, a row is drawn by the old d and accepted with probability
    d_now / d_old, which is the same distribution: one matrix product instead of k passes.
    """
    draw = np.random.default_rng(seed)
    square = np.einsum("nd,nd->n", rows, rows)
    chosen: list[int] = []
    pending = [int(draw.integers(len(rows)))]
    distance = np.full(len(rows), np.inf, dtype=np.float32)
    while True:
        chosen += pending
        to_pending = square[:, None] + square[pending] - 2 * (rows @ rows[pending].T)  # (N, batch)
        np.minimum(distance, to_pending.min(1), out=distance)
        distance[distance < _SAME] = 0
        cumulative = distance.cumsum(dtype=np.float64)
        if len(chosen) == k or cumulative[-1] == 0:
            return np.array(chosen), float(cumulative[-1])
        pending = []
        for _ in range(4 * _BATCH):
            row = int(np.searchsorted(cumulative, draw.random() * cumulative[-1], side="right"))
            if pending:
                now = square[row] + square[pending] - 2 * (rows[pending] @ rows[row])
                if draw.random() * distance[row] >= now.min() or now.min() < _SAME:
                    continue
            pending.append(row)
            if len(pending) == _BATCH or len(chosen) + len(pending) == k:
                break


def clustering_scores(classes: np.ndarray, clusters: np.ndarray) -> ClusteringScores:
    """NMI, AMI and the NMI of chance of two partitions of the same samples.

    One class: there is nothing to find, and all three are NaN (scikit-learn says 1).  One cluster
    for several classes: all 0.

    Differs: equals `sklearn.metrics.adjusted_mutual_info_score`, but adds up the expectation once
    per pair of distinct sizes, not once per pair of class and cluster: 11,000 classes take
    milliseconds, not 15 seconds.

    Args:
        classes: (N,) class of each sample.
        clusters: (N,) cluster of each sample.
    """
    n = len(classes)
    a = np.unique(classes, return_counts=True)[1]
    b = np.unique(clusters, return_counts=True)[1]
    if len(a) == 1:
        return ClusteringScores(float("nan"), float("nan"), float("nan"))
    nmi = float(normalized_mutual_info_score(classes, clusters))
    mean_entropy = (_entropy(a) + _entropy(b)) / 2
    expected = _expected_mutual_information(a, b, n)
    room = mean_entropy - expected
    # Every sample its own class and cluster: perfect by necessity; 1, as scikit-learn has it.
    ami = (mutual_info_score(classes, clusters) - expected) / room if room > 1e-12 else 1.0
    return ClusteringScores(nmi, float(ami), max(0.0, expected / mean_entropy))


def _entropy(sizes: np.ndarray) -> float:
    p = sizes / sizes.sum()
    return float(-(p * np.log(p)).sum())


def _expected_mutual_information(a: np.ndarray, b: np.ndarray, n: int) -> float:
    """Average the mutual information over random pairs of partitions with these sizes.

    E = sum_{a, b} sum_m (m/n) log(n m / (a b)) P(m),  P hypergeometric: m of the b samples of a
    cluster fall into a class of size a.
    """
    total = 0.0
    sizes_b = _distinct(b)
    for size_a, times_a in _distinct(a):
        for size_b, times_b in sizes_b:
            m = np.arange(max(1, size_a + size_b - n), min(size_a, size_b) + 1)
            if not len(m):
                continue
            log_p = (
                _log_choose(size_a, m)
                + _log_choose(n - size_a, size_b - m)
                - _log_choose(n, size_b)
            )
            gain = m / n * (np.log(n) + np.log(m) - np.log(size_a) - np.log(size_b))
            total += times_a * times_b * float((gain * np.exp(log_p)).sum())
    return total


def _distinct(sizes: np.ndarray) -> list[tuple[int, int]]:
    values, times = np.unique(sizes, return_counts=True)
    return list(zip(values.tolist(), times.tolist(), strict=True))


def _log_choose(n: int, k: Any) -> Any:
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
