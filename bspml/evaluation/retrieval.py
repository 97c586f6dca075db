"""Recall@K, MAP@R, R-precision from one neighbour search, NMI and AMI beside them.

What is counted.  A query is compared with every gallery row but itself (without a gallery, the
queries are the gallery, and the query is removed by its index: its duplicates stay, and a warning
names some).  Rows whose label is to be ignored count nowhere: not as queries, not as right or wrong
neighbours, not in clusters.  A query whose label no other gallery row has cannot succeed: it is
left out of every mean and counted in `num_excluded`.  Similarity is the inner product of
L2-normalised rows; equal similarities are ordered by gallery index (see `neighbours`).  Labels
should be the true ones: a recall on noisy labels measures agreement with the noise.
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
from bspml.evaluation.search_task import CollapseWarning as CollapseWarning, SearchTask
from bspml.evaluation.sides import check_ks, check_reach, flat
from bspml.shapes import Float, Int, Tensor
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_choice, check_whole
from bspml.words import interval_in_words

KS = (1, 2, 4, 8, 16, 32)  # of Recall@K, where nobody chose them; known by identity

ONE_CLASS = "ONE CLASS: whatever is found is right, so 100 % means nothing"


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
        num_ignored: rows whose label counts nowhere, queries and gallery.
        num_copies: of one set of rows, and with `query_in_gallery`, how many of the gallery are
            copies of earlier ones; else how many queries have a copy in the gallery.
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
    num_ignored: int = 0
    num_copies: int = 0
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
        if self.num_ignored:
            lines.append(f"{self.num_ignored} rows left out (ignored labels)")
        if self.num_copies:
            lines.append(f"{self.num_copies} rows find an exact copy of themselves")
        if self.chance_recall_at_1 == 1:
            lines.append(ONE_CLASS)
        if precision:
            lines.append("in brackets: 95 % intervals over the test classes, drawn anew")
        if self.collapsed:
            lines.append("COLLAPSED: all embeddings point the same way")
        return "\n".join(lines)


def evaluate(
    embeddings: Any,
    labels: Any,
    ks: Any = KS,
    gallery: Any = None,
    gallery_labels: Any = None,
    backend: str = "auto",
    seed: Any = 0,
    clustering: bool = True,
    cluster: str = "query",
    device: Any = None,
    block_size: Any = None,
    ignore: Any = (),
    query_in_gallery: bool = False,
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
        labels: (N,) of the queries: integers or strings.  Pandas objects must have one index.
        ks: the K of Recall@K.  Of the default, those beyond the gallery are left out, and said.
        gallery: (R, D) to search in; None searches the queries, each without itself.  A flat faiss
            index of vectors of norm 1 stands for them; another index is refused.
        gallery_labels: (R,), the same kind as `labels`.
        backend: "auto", "faiss" (CPU) or "torch"; the same numbers.
        seed: of k-means and of the draws behind the intervals.
        clustering: False skips NMI and AMI (NaN), which take longer than the rest.
        cluster: cluster the "query" rows (as pml does) or "query+gallery" (some papers on In-shop),
            into as many clusters as there are classes among them.
        device: where torch computes; None: where `embeddings` lie.
        block_size: queries at a time; None fits the memory named above.
        ignore: labels that count nowhere, such as (-1,): their rows are left out of both sides.
        query_in_gallery: the queries are rows of `gallery`, too, and each is compared with all but
            its own: the row that is its exact copy (equal once normalised) under the same label.
            Of several copies the n-th such query takes the n-th, and the others stay.  Without a
            gallery it is so anyway.

    Returns:
        `RetrievalMetrics`.

    Raises:
        InputError: NaN or infinite rows (named), wrong shapes, other pandas indices, a chosen K
            beyond the gallery, a query that is not in the gallery, or no query with a match.
        MissingDependencyError: backend "faiss" without faiss.

    Warns:
        CollapseWarning: all rows point the same way; Recall@1 is then no better than chance.
        UserWarning: rows that are exact copies of others, or, with a gallery, queries that are in
            it; one class only; rows of norm 0; a default K that does not fit.

    Example:
        >>> points = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
        >>> evaluate(points, ["a", "a", "b", "b"], ks=[1, 2], clustering=False).recall_at_k
        {1: 1.0, 2: 1.0}
    """
    check_flags(clustering=clustering, query_in_gallery=query_in_gallery)
    check_choice(backend, "backend", ("auto", "faiss", "torch"))
    check_choice(cluster, "cluster", ("query", "query+gallery"))
    seed = check_whole(seed, "seed", low=0)
    if block_size is not None:
        block_size = check_whole(block_size, "block_size")
    by_default, ks = ks is KS, check_ks(ks)
    place = "cpu" if backend == "faiss" else device
    task = SearchTask.of(
        embeddings, labels, gallery, gallery_labels, place, ignore, query_in_gallery
    )
    chosen = choose_backend(backend, task.queries.rows.device)
    ks = check_reach(ks, task.available, task.own is not None, "rows", by_default)
    matches = task.matches()
    answerable = (matches > 0).nonzero()[:, 0]
    if not len(answerable):
        raise InputError(
            f"`labels`: none of the {len(matches)} queries has a match in the gallery (no other "
            "row with its label), so nothing can be retrieved. Are these the right labels?"
        )
    collapsed = task.warn_of_collapse()
    task.warn_of_zero_rows()
    copies = 0 if collapsed else task.warn_of_copies()
    relevant = matches[answerable]
    first, average_precision, precision = _search(
        task, answerable, relevant, max(ks), chosen, block_size
    )
    by_query = torch.stack([(first < 1).double(), average_precision], 1)
    recall_interval, map_interval = class_intervals(by_query, task.queries.codes[answerable], seed)
    chance = float(relevant.double().mean()) / task.available
    if chance == 1:
        warnings.warn(f"`labels`: {ONE_CLASS}.", stacklevel=2)
    scores, clusterer, clustered = ClusteringScores(math.nan, math.nan, math.nan), "", ""
    if clustering:
        points, classes, clustered = task.to_cluster(cluster)
        clusters, clusterer = kmeans(points, len(np.unique(classes)), seed)
        scores = clustering_scores(classes, clusters)
    return RetrievalMetrics(
        recall_at_k={k: float((first < k).double().mean()) for k in ks},
        map_at_r=float(average_precision.mean()),
        r_precision=float(precision.mean()),
        nmi=scores.nmi,
        ami=scores.ami,
        nmi_chance=scores.nmi_chance,
        chance_recall_at_1=chance,
        num_queries=len(answerable),
        num_excluded=len(matches) - len(answerable),
        num_gallery=len(task.gallery.rows),
        num_classes=len(task.queries.codes.unique()),
        collapsed=collapsed,
        recall_at_1_low=recall_interval[0],
        recall_at_1_high=recall_interval[1],
        map_at_r_low=map_interval[0],
        map_at_r_high=map_interval[1],
        num_ignored=task.num_ignored,
        num_copies=copies,
        zero_rows=task.queries.zero,
        gallery_zero_rows=() if task.alone else task.gallery.zero,
        clustered=clustered,
        backend=chosen,
        clusterer=clusterer,
    )


def _search(
    task: SearchTask,
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
    first = torch.empty(q, dtype=torch.int64, device="cpu")
    average_precision, precision = torch.empty(2, q, dtype=torch.float64, device="cpu")
    rows, gallery = task.queries.rows, task.gallery.rows
    codes = task.queries.codes[answerable]
    queries = rows if q == len(rows) else rows[answerable.to(rows.device)]
    own = None if task.own is None else task.own[answerable].to(rows.device)
    ranks = torch.arange(1, k + 1, device="cpu")
    for part, neighbours in ranked_neighbours(queries, gallery, k, own, backend, block_size):
        hit = task.gallery.codes[neighbours] == codes[part, None]  # (b, k)
        within = hit & (ranks <= relevant[part, None])
        # argmax of a row without a hit is 0: such a row gets the rank k, which no K reaches.
        first[part] = torch.where(hit.any(1), hit.byte().argmax(1), k)
        precision_at = hit.cumsum(1) / ranks.double()
        average_precision[part] = (precision_at * within).sum(1) / relevant[part]
        precision[part] = within.sum(1) / relevant[part].double()
    return first, average_precision, precision
