"""The calculator of pytorch-metric-learning's testers, with the numbers of `bspml.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from bspml.errors import InputError
from bspml.evaluation.retrieval import KS, RetrievalMetrics, evaluate
from bspml.evaluation.sides import check_columns, check_ks, is_ignored, several
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_embeddings, check_whole, encode_labels, some_of
from bspml.words import shown

_CLUSTERING = ("NMI", "AMI")


class AccuracyCalculator:
    """Measure what a tester of pytorch-metric-learning embeds as `bspml.evaluate` does.

    Takes the place of pml's class of this name: `GlobalEmbeddingSpaceTester(accuracy_calculator=
    AccuracyCalculator())`, or `WithSameParentLabelTester`.  The metrics are `precision_at_1`,
    `recall_at_K` of each K, `r_precision`, `mean_average_precision_at_r`, `NMI` and `AMI`.

    Differs from pml's: there is Recall@K; vectors are normalised here, too; integer labels stay
    whole numbers (pml's float32 makes one class of 2^24 and 2^24 + 1); the neighbours always
    cover R, and none is invented where the gallery is small; k-means starts better.  As there, a
    query without a match in the reference is left out of every mean of neighbours; `latest` counts
    these, and a call in which no query has one is an error, where pml returns NaN.

    Args:
        include: metrics to compute; all if empty.
        exclude: metrics to leave out.
        ks: the K of Recall@K.  Of the default, those beyond the reference are NaN, and said.
        ignore: labels that count nowhere, such as (-1,).
        seed: of k-means.

    Attributes:
        latest: `RetrievalMetrics` of the latest call, with intervals and counts; None before it.

    Raises:
        InputError: a name that is no metric, or a K that is no whole number.

    Example:
        >>> calculator = AccuracyCalculator(include=("precision_at_1", "recall_at_2"), ks=(1, 2))
        >>> points = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> calculator.get_accuracy(points, torch.tensor([0, 1, 1, 0]))
        {'precision_at_1': 0.0, 'recall_at_2': 0.5}
    """

    def __init__(
        self,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        *,
        ks: Any = KS,
        ignore: Any = (),
        seed: int = 0,
    ) -> None:
        self.latest: RetrievalMetrics | None = None
        self._ks = ks if ks is KS else check_ks(ks)  # the default is known by identity
        self._ignore, self._seed = ignore, check_whole(seed, "seed", low=0)
        recalls = [f"recall_at_{k}" for k in self._ks]
        self._metrics = ["precision_at_1", *recalls, "r_precision", "mean_average_precision_at_r"]
        self._metrics += _CLUSTERING
        self._metrics = self._current = self._chosen(include, exclude)

    def get_curr_metrics(self) -> list[str]:
        """Return the names of the metrics of the latest call, or of the next before the first."""
        return list(self._current)

    def requires_knn(self) -> list[str]:
        """Return the names of the metrics that look at neighbours."""
        return [name for name in self._metrics if name not in _CLUSTERING]

    def requires_clustering(self) -> list[str]:
        """Return the names of the metrics of k-means clusters."""
        return list(_CLUSTERING)

    def description(self) -> str:
        """Return what a tester adds to the name of its results: nothing."""
        return ""

    def get_accuracy(
        self,
        query: Any,
        query_labels: Any,
        reference: Any = None,
        reference_labels: Any = None,
        ref_includes_query: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> dict[str, float]:
        """Compute the metrics; every share is in [0, 1].

        Args:
            query: (N, D) embeddings.
            query_labels: (N,) integers or strings.
            reference: (R, D) to search in; None searches the queries, each without itself.
            reference_labels: (R,), the same kind as `query_labels`.
            ref_includes_query: the first N rows of `reference` are the queries, and query i is not
                compared with row i.
            include: of the metrics chosen before, those to compute; all if empty.
            exclude: those to leave out.

        Returns:
            {metric: value}, in the order of `get_curr_metrics`.

        Raises:
            InputError: the first rows of `reference` are others, a name that is no metric or was
                left out before, or whatever `bspml.evaluate` refuses.
        """
        check_flags(ref_includes_query=ref_includes_query)
        self._current = self._chosen(include, exclude)
        if reference is not None and ref_includes_query:
            reference = _starting_with(query, query_labels, reference, reference_labels)
        asked = tuple(k for k in self._ks if f"recall_at_{k}" in self._current)
        sides = [encode_labels(y) for y in (query_labels, reference_labels) if y is not None]
        # One calculator is for many splits: what one of them does not have is no mistake.
        there = [v for v in several(self._ignore) if any(is_ignored(s, v).any() for s in sides)]
        self.latest = found = evaluate(
            query,
            query_labels,
            ks=KS if self._ks is KS and asked else (1, *asked),  # known by identity there, too
            gallery=reference,
            gallery_labels=reference_labels,
            seed=self._seed,
            clustering=any(name in self._current for name in _CLUSTERING),
            ignore=there,
            query_in_gallery=reference is not None and ref_includes_query,
        )
        values = {f"recall_at_{k}": v for k, v in found.recall_at_k.items()} | {
            "precision_at_1": found.recall_at_k[1],
            "r_precision": found.r_precision,
            "mean_average_precision_at_r": found.map_at_r,
            "NMI": found.nmi,
            "AMI": found.ami,
        }
        return {name: values.get(name, float("nan")) for name in self._current}

    def _chosen(self, include: Sequence[str], exclude: Sequence[str]) -> list[str]:
        """Return the metrics of these that there are."""
        for argument, names in (("include", include), ("exclude", exclude)):
            listed = isinstance(names, list | tuple | set | frozenset)  # a text is no such list
            unknown = [n for n in names if n not in self._metrics] if listed else [names]
            if unknown:
                raise InputError(
                    f"`{argument}` must name some of {', '.join(self._metrics)}; got "
                    f"{shown(unknown[0])}."
                )
        return [n for n in self._metrics if (n in include or not include) and n not in exclude]


def _starting_with(query: Any, labels: Any, reference: Any, reference_labels: Any) -> Any:
    """Return the reference, whose first rows are the queries to the last bit.

    Embedded twice, the same samples differ by a rounding.  As their rows come first, the n-th copy
    of a query is the n-th such row: leaving out copies leaves each query's own row out.
    """
    queries, rows = check_embeddings(query, "query"), check_embeddings(reference, "reference")
    check_columns(queries, rows)
    n = len(queries)
    ours = encode_labels(labels, n, "query_labels")
    theirs = encode_labels(reference_labels, len(rows), "reference_labels")
    if len(rows) >= n:
        own = rows[:n].to(queries)
        same = torch.isclose(queries, own, atol=1e-6).all(1).cpu().numpy()
        same &= ours.classes[ours.codes.numpy()] == theirs.classes[theirs.codes[:n].numpy()]
        off = np.flatnonzero(~same)
        if not len(off):
            return torch.cat([queries, rows[n:].to(queries)])
        what = f"rows {some_of(off)} are others, or have other labels"
    else:
        what = f"it has {len(rows)} rows, and there are {n} queries"
    raise InputError(
        "`ref_includes_query` is true, so the first rows of `reference` and its labels must be the "
        f"queries and theirs, in order; {what}. Put the queries first, or leave it false."
    )
