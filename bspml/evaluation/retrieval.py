"""Recall@K, MAP@R, R-precision from one neighbour search, NMI and AMI beside them.

What is counted.  A query is compared with every gallery row but itself (without a gallery, the
queries are the gallery, and the query is removed by its index: its duplicates stay).  A query
whose label no other gallery row has cannot succeed: it is left out of every mean and counted in
`num_excluded`.  Similarity is the inner product of L2-normalised rows; equal similarities are
ordered by gallery index (see `neighbours`).  Labels should be the true ones: a recall on noisy
labels measures agreement with the noise.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bspml.errors import InputError
from bspml.evaluation.clustering import ClusteringScores, clustering_scores, kmeans
from bspml.evaluation.intervals import class_intervals
from bspml.evaluation.neighbours import choose_backend, ranked_neighbours
from bspml.evaluation.sides import check_columns, check_ks, check_reach, encode_jointly, flat
from bspml.shapes import Float, Int, Tensor
from bspml.tensors.checks import (
    check_choice,
    check_device,
    check_embeddings,
    check_whole,
    encode_labels,
    some_of,
    zero_rows,
)
from bspml.tensors.unit_rows import grid_unit_rows
from bspml.words import interval_in_words

# Mean squared distance to the mean direction, below which similarities differ by about 1e-6:
# the order of the neighbours is then mostly float32 rounding.
_COLLAPSE = 1e-6


class CollapseWarning(UserWarning):
    """All embeddings point the same way; what is retrieved is an accident."""


@dataclass(frozen=True)
class RetrievalMetrics:
    """What `evaluate` found; every share is in [0, 1].

    Attributes:
        recall_at_k: {k: share of queries with a match among their k nearest}.
        map_at_r: mean over queries of (1/R) sum_{i <= R} precision@i [i-th is a match], R the
            matches in the gallery [Musgrave 2020].
        r_precision: mean over queries of the share of matches among the R nearest.
        nmi, ami: of k-means with as many clusters as classes; NaN if left out or for one class.
        nmi_chance: the NMI that random clusters of the same sizes reach: read `nmi` against it.
        chance_recall_at_1: the Recall@1 of random neighbours.
        num_queries: queries in the means.
        num_excluded: queries without any match in the gallery, not in the means.
        num_gallery: gallery rows.
        num_classes: distinct labels among the queries.
        collapsed: all rows point (nearly) the same way.
        recall_at_1_low, recall_at_1_high, map_at_r_low, map_at_r_high: 95 % intervals, by drawing
            the classes anew (see `intervals`); NaN for one class.
        zero_rows, gallery_zero_rows: rows of norm 0; their similarities are all 0.
        clustered: the rows that NMI and AMI are about, "query" or "query+gallery"; "" if left out.
        backend, clusterer: the libraries that searched and clustered.
    """

    recall_at_k: dict[int, float]
    map_at_r: float
    r_precision: float
    nmi: float
    ami: float
    nmi_chance: float
    chance_recall_at_1: float
    num_queries: int
    num_excluded: int
    num_gallery: int
    num_classes: int
    collapsed: bool
    recall_at_1_low: float = math.nan
    recall_at_1_high: float = math.nan
    map_at_r_low: float = math.nan
    map_at_r_high: float = math.nan
    zero_rows: tuple[int, ...] = ()
    gallery_zero_rows: tuple[int, ...] = ()
    clustered: str = ""
    backend: str = field(default="torch", compare=False)
    clusterer: str = field(default="", compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Flat and ready for JSON: "recall_at_1", ..., NaN as None, zero rows as their number."""
        return flat(self, "recall_at_")

    def table(self) -> str:
        """Return one line per number, for a terminal."""
        recall = interval_in_words(100 * self.recall_at_1_low, 100 * self.recall_at_1_high, 2)
        precision = interval_in_words(100 * self.map_at_r_low, 100 * self.map_at_r_high, 2)
        lines = [
            f"Recall@{k:<8d}{100 * v:6.2f} %{recall if k == 1 else ''}"
            for k, v in self.recall_at_k.items()
        ]
        lines += [
            f"{'MAP@R':<15}{100 * self.map_at_r:6.2f} %{precision}",
            f"{'R-precision':<15}{100 * self.r_precision:6.2f} %",
        ]
        if not math.isnan(self.nmi):
            if self.clustered == "query+gallery":
                lines.append("clusters of queries and gallery together:")
            lines += [
                f"{'NMI':<15}{self.nmi:6.3f}    (random clusters: {self.nmi_chance:.3f})",
                f"{'AMI':<15}{self.ami:6.3f}    (random clusters: 0)",
            ]
        lines.append(
            f"{self.num_queries} queries, {self.num_gallery} gallery rows, {self.num_excluded} "
            "queries left out (no other sample of their class)"
        )
        if precision:
            lines.append("in brackets: 95 % intervals over the test classes, drawn anew")
        if self.collapsed:
            lines.append("COLLAPSED: all embeddings point the same way")
        return "\n".join(lines)


def evaluate(
    embeddings: Any,
    labels: Any,
    ks: Any = (1, 2, 4, 8, 16, 32),
    gallery: Any = None,
    gallery_labels: Any = None,
    backend: str = "auto",
    seed: Any = 0,
    clustering: bool = True,
    cluster: str = "query",
    device: Any = None,
    block_size: Any = None,
) -> RetrievalMetrics:
    """Measure retrieval (and clustering) of `embeddings` against `labels`.

    All K and R come from one exact neighbour search, streamed: memory is the embeddings, one
    normalised copy and about 300 MB, whatever N x N or N x classes would be.

    Equals pytorch-metric-learning's precision_at_1, r_precision and mean_average_precision_at_r on
    normalised embeddings with k at least the largest class, where no two similarities tie; NMI and
    AMI are defined as there.  Differs: pml takes what k leaves of R (MAP@R then means something
    else); here k always covers R.  k-means starts better than pml's (see `kmeans`).

    Args:
        embeddings: queries (N, D), any floating type; normalised here.
        labels: (N,) of the queries: integers or strings.
        ks: the K of Recall@K.
        gallery: (R, D) to search in; None searches the queries, each without itself.
        gallery_labels: (R,), the same kind as `labels`.
        backend: "auto", "faiss" (CPU) or "torch"; the same numbers.
        seed: of k-means and of the draws behind the intervals.
        clustering: False skips NMI and AMI (NaN), which take longer than the rest.
        cluster: cluster the "query" rows (as pml does) or "query+gallery" (some papers on In-shop),
            into as many clusters as there are classes among them.
        device: where torch computes; None: where `embeddings` lie.
        block_size: queries at a time; None fits the memory named above.

    Returns:
        `RetrievalMetrics`.

    Raises:
        InputError: NaN or infinite rows (named), wrong shapes, a K beyond the gallery, or no query
            with a match.
        MissingDependencyError: backend "faiss" without faiss.

    Warns:
        CollapseWarning: all rows point the same way; Recall@1 is then no better than chance.

    Example:
        >>> points = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
        >>> evaluate(points, ["a", "a", "b", "b"], ks=[1, 2], clustering=False).recall_at_k
        {1: 1.0, 2: 1.0}
    """
    check_choice(backend, "backend", ("auto", "faiss", "torch"))
    check_choice(cluster, "cluster", ("query", "query+gallery"))
    seed = check_whole(seed, "seed", low=0)
    if block_size is not None:
        block_size = check_whole(block_size, "block_size")
    ks = check_ks(ks)
    sides = _prepare_sides(
        embeddings, labels, gallery, gallery_labels, "cpu" if backend == "faiss" else device
    )
    chosen = choose_backend(backend, sides.queries.device)
    check_reach(ks, sides.available, sides.alone, "rows")
    matches = sides.matches()
    answerable = (matches > 0).nonzero()[:, 0]
    if not len(answerable):
        raise InputError(
            f"`labels`: none of the {len(matches)} queries has a match in the gallery (no other "
            "row with its label), so nothing can be retrieved. Are these the right labels?"
        )
    collapsed = _warn_of_degenerate_rows(sides)
    relevant = matches[answerable]
    first, average_precision, precision = _search(
        sides, answerable, relevant, max(ks), chosen, block_size
    )
    by_query = torch.stack([(first < 1).double(), average_precision], 1)
    recall_interval, map_interval = class_intervals(by_query, sides.codes[answerable], seed)
    scores, clusterer = ClusteringScores(math.nan, math.nan, math.nan), ""
    clustered = ""
    if clustering:
        clustered = "query" if sides.alone else cluster
        points, classes = sides.to_cluster(cluster)
        clusters, clusterer = kmeans(points, len(np.unique(classes)), seed)
        scores = clustering_scores(classes, clusters)
    return RetrievalMetrics(
        recall_at_k={k: float((first < k).double().mean()) for k in ks},
        map_at_r=float(average_precision.mean()),
        r_precision=float(precision.mean()),
        nmi=scores.nmi,
        ami=scores.ami,
        nmi_chance=scores.nmi_chance,
        chance_recall_at_1=float(relevant.double().mean()) / sides.available,
        num_queries=len(answerable),
        num_excluded=len(matches) - len(answerable),
        num_gallery=len(sides.gallery),
        num_classes=len(sides.codes.unique()),
        collapsed=collapsed,
        recall_at_1_low=recall_interval[0],
        recall_at_1_high=recall_interval[1],
        map_at_r_low=map_interval[0],
        map_at_r_high=map_interval[1],
        zero_rows=sides.zero,
        gallery_zero_rows=sides.gallery_zero,
        clustered=clustered,
        backend=chosen,
        clusterer=clusterer,
    )


@dataclass(frozen=True, eq=False)
class _Sides:
    """Checked queries and gallery: unit rows, codes over the union of the labels, zero rows."""

    queries: Float[Tensor, "N D"]
    codes: Int[Tensor, " N"]
    zero: tuple[int, ...]
    gallery: Float[Tensor, "R D"]
    gallery_codes: Int[Tensor, " R"]
    gallery_zero: tuple[int, ...]
    alone: bool  # the gallery is the queries

    @property
    def available(self) -> int:
        """Gallery rows that a query is compared with."""
        return len(self.gallery) - int(self.alone)

    def matches(self) -> Int[Tensor, " N"]:
        """Count the gallery rows of each query's label, without the query itself."""
        sizes = torch.bincount(self.gallery_codes, minlength=int(self.codes.max()) + 1)
        return sizes[self.codes] - int(self.alone)

    def to_cluster(self, side: str) -> tuple[Tensor, np.ndarray]:
        """Return the rows for k-means and their classes."""
        if side == "query" or self.alone:
            return self.queries, self.codes.numpy()
        codes = torch.cat([self.codes, self.gallery_codes])
        return torch.cat([self.queries, self.gallery]), codes.numpy()


def _prepare_sides(
    embeddings: Any, labels: Any, gallery: Any, gallery_labels: Any, device: Any
) -> _Sides:
    queries, zero = _prepare_rows(embeddings, "embeddings", device)
    if gallery is None and gallery_labels is None:
        codes = encode_labels(labels, len(queries)).codes
        return _Sides(queries, codes, zero, queries, codes, (), alone=True)
    if gallery is None or gallery_labels is None:
        raise InputError("`gallery` and `gallery_labels` come together; got only one of them.")
    rows, rows_zero = _prepare_rows(gallery, "gallery", queries.device)
    check_columns(queries, rows)
    codes, rows_codes = encode_jointly(labels, len(queries), gallery_labels, len(rows))
    return _Sides(queries, codes, zero, rows, rows_codes, rows_zero, alone=False)


def _prepare_rows(values: Any, name: str, device: Any) -> tuple[Tensor, tuple[int, ...]]:
    """Return checked rows of norm 1, and which had norm 0."""
    with torch.no_grad():
        checked = check_embeddings(values, name).detach()
        if not len(checked):
            raise InputError(f"`{name}` must have at least one row; got {tuple(checked.shape)}.")
        device = checked.device if device is None else check_device(device)
        if device.type == "mps":  # no float64 there
            device = torch.device("cpu")
        zero = tuple(zero_rows(checked).tolist())
        return grid_unit_rows(checked.to(device)), zero


def _warn_of_degenerate_rows(sides: _Sides) -> bool:
    """Warn of zero rows and of a collapse; return whether there is one."""
    blocks = (sides.queries,) if sides.alone else (sides.queries, sides.gallery)
    n = sum(len(block) for block in blocks)
    mean = torch.stack([block.sum(0, dtype=torch.float64) for block in blocks]).sum(0) / n
    norms = [torch.linalg.vector_norm(block, dtype=torch.float64) for block in blocks]
    # mean squared distance to the mean = mean square - square of the mean
    spread = torch.stack(norms).square().sum() / n - mean.square().sum()
    collapsed = bool(spread < _COLLAPSE)
    if collapsed:
        warnings.warn(
            "the embeddings have collapsed: all rows point the same way, so neighbours are chosen "
            "by index and Recall@1 is at chance. Look at the learning rate and the loss.",
            CollapseWarning,
            stacklevel=3,
        )
    for name, zero in (("embeddings", sides.zero), ("gallery", sides.gallery_zero)):
        if zero:
            warnings.warn(
                f"`{name}` has rows of norm 0: {some_of(zero)}; their similarities are all 0.",
                stacklevel=3,
            )
    return collapsed


def _search(
    sides: _Sides,
    answerable: Int[Tensor, " Q"],
    relevant: Int[Tensor, " Q"],
    k: int,
    backend: str,
    block_size: int | None,
) -> tuple[Int[Tensor, " Q"], Float[Tensor, " Q"], Float[Tensor, " Q"]]:
    """Per answerable query: rank of the first match (from 0), average precision, R-precision.

    Kept per query and averaged at the end, so that blocks do not change the sums.
    """
    k = max(k, int(relevant.max()))
    q = len(answerable)
    first = torch.empty(q, dtype=torch.int64)
    average_precision, precision = torch.empty(2, q, dtype=torch.float64)
    rows = answerable.to(sides.queries.device)
    queries = sides.queries if q == len(sides.queries) else sides.queries[rows]
    own = rows if sides.alone else None
    ranks = torch.arange(1, k + 1)
    for part, neighbours in ranked_neighbours(queries, sides.gallery, k, own, backend, block_size):
        hit = sides.gallery_codes[neighbours] == sides.codes[answerable[part], None]  # (b, k)
        within = hit & (ranks <= relevant[part, None])
        # argmax of a row without a hit is 0: such a row gets the rank k, which no K reaches.
        first[part] = torch.where(hit.any(1), hit.byte().argmax(1), k)
        precision_at = hit.cumsum(1) / ranks.double()
        average_precision[part] = (precision_at * within).sum(1) / relevant[part]
        precision[part] = within.sum(1) / relevant[part].double()
    return first, average_precision, precision
