"""Contrastive statistics: does a sample fit its label better than it fits everyone?

For sample i, class c and reference weights w, with S the cosine similarities and a > 0:

    s_i(c) = (1/a) log( sum_{j != i, y_j = c} w_j exp(a S_ij) / sum_{j != i, y_j = c} w_j )
    t_i    = (1/a) log( sum_{j != i} w_j exp(a S_ij) / sum_{j != i} w_j )
    d_i(c) = t_i - s_i(c)                        the difficulty of the label c for sample i

The soft means lie in [-1, 1], so d lies in [-2, 2].  Taking d instead of s corrects for samples
that are similar to everything.  The null distribution {d_i(c) : c != y_i}, "what a random wrong
label looks like", has N (C - 1) values: it is kept as a fine histogram and the N x C table is
never held.  Ours, not from a paper; `bspml.statistics.noise_rate` turns it into p-values and a
rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from bspml.shapes import Bool, Float, Int, Tensor
from bspml.statistics.contrastive_device import DeviceRows
from bspml.statistics.contrastive_host import HostRows
from bspml.statistics.contrastive_nearest import Candidates
from bspml.statistics.contrastive_rows import ClassTables, JudgedRows
from bspml.statistics.references import References
from bspml.statistics.soft_means import SHARPNESS
from bspml.tensors.checks import (
    Labels,
    check_embeddings,
    check_number,
    check_whole,
    encode_labels,
    zero_rows,
)
from bspml.tensors.precision import float64_device, full_precision
from bspml.tensors.row_checks import check_reference_weights, check_rows
from bspml.tensors.row_index import check_same_rows

# exp(a), exp(-a) and their ratio must stay in float32; and a soft mean is a logarithm over a, of
# which a smaller a would leave the rounding only.
SMALLEST_A, LARGEST_A = 1e-3, 40.0
# Below these only float64 holds such a logarithm, and a weight times exp(-a).
_FLOAT32_A, _FLOAT32_WEIGHT = 1.0, 2.0**-64
NULL_BINS = 1 << 18
_TABLE_VALUES = 1 << 24  # of each table kept for further judges
_PACKED_VALUES = 1 << 27  # beyond, of soft means alone, packed


@dataclass(frozen=True)
class ContrastiveStatistics:
    """How well each judged sample fits its label, and how well it would fit random wrong ones.

    Attributes:
        own: (N,) s_i(y_i), in [-1, 1]; NaN where not testable.
        everyone: (N,) t_i, in [-1, 1]; NaN where not judged.
        difficulty: (N,) d_i = t_i - s_i(y_i); NaN where not testable.  High: the label fits badly.
        testable: (N,) the sample was judged and its class has another reference of positive weight.
        support: (N,) int64, number of other references of the sample's own class.
        other_class: (N,) int64, the class c != y_i of largest s_i(c) (lowest code on ties), -1
            where there is none.
        other: (N,) s_i(other_class); NaN where there is none.
        codes: (N,) int64 labels as positions in `classes`.
        classes: (C,) the original labels.
        class_support: (C,) int64, references per class.
        own_bin: (N,) int64, bin of d_i in the null histograms, -1 where not testable.
        null_by_support: (G, bins) int64, histogram of {d_i(c) : i judged, c != y_i, c has a
            reference}, a row for each stratum of `SUPPORT_EDGES`.  Bin b holds
            -2 + 4 b / bins <= d < -2 + 4 (b + 1) / bins.
        zero_rows: int64, samples of norm 0: never judged and never a reference.
        a: the inverse temperature.
    """

    own: Float[Tensor, " N"]
    everyone: Float[Tensor, " N"]
    difficulty: Float[Tensor, " N"]
    testable: Bool[Tensor, " N"]
    support: Int[Tensor, " N"]
    other_class: Int[Tensor, " N"]
    other: Float[Tensor, " N"]
    codes: Int[Tensor, " N"]
    classes: np.ndarray = field(repr=False)
    class_support: Int[Tensor, " C"]
    own_bin: Int[Tensor, " N"]
    null_by_support: np.ndarray = field(repr=False)
    zero_rows: Int[Tensor, " Z"]
    a: float

    @property
    def null(self) -> np.ndarray:
        """(bins,) int64, the whole null histogram."""
        return self.null_by_support.sum(0)

    @property
    def best_class(self) -> Int[Tensor, " N"]:
        """(N,) argmax_c s_i(c) over all classes, the given label included; it wins ties."""
        return torch.where(self.margin > 0, self.other_class, self.codes)

    @property
    def margin(self) -> Float[Tensor, " N"]:
        """(N,) s_i(other_class) - s_i(y_i): above 0, another class fits better than the label.

        An untestable sample has no s_i(y_i): its margin is NaN.
        """
        return self.other - self.own

    @property
    def exact_part(self) -> ContrastiveStatistics:
        """Exact statistics of all that were judged, or of some drawn at random, to tell a rate."""
        return self


class JudgingTask(NamedTuple):
    """The checked arguments of contrastive statistics, exact or sampled.

    Attributes:
        embeddings: (N, D) as given, in float64 for a small a.
        labels: their labels as codes.
        weights: (N,) float64 on the CPU, w_j; 0 for rows of norm 0.
        judged: (N,) bool on the CPU; False for rows of norm 0.
        zero_rows: int64 on the CPU, rows of norm 0.
        a: the inverse temperature.
        bins: of a null histogram.
    """

    embeddings: Tensor
    labels: Labels
    weights: Tensor
    judged: Tensor
    zero_rows: Tensor
    a: float
    bins: int

    @classmethod
    def of(
        cls, embeddings: Any, labels: Any, sample_weights: Any, a: Any, rows: Any, null_bins: Any
    ) -> JudgingTask:
        """Check the arguments, as `contrastive_statistics` documents them.

        Args:
            embeddings: (N, D).
            labels: (N,).
            sample_weights: (N,) in [0, 1], or None.
            a: inverse temperature.
            rows: mask (N,), sample indices, or None for all.
            null_bins: bins over [-2, 2].

        Raises:
            InputError, SampleIndexError: an argument that does not fit.
        """
        kind = getattr(getattr(rows, "dtype", None), "kind", "")
        by_row = {"labels": labels, "sample_weights": sample_weights}
        by_row |= {"rows": rows} if kind == "b" else {}  # numbers of samples have no rows
        check_same_rows(embeddings=embeddings, **by_row)
        embeddings = float64_device(check_embeddings(embeddings))
        n = len(embeddings)
        encoded = encode_labels(labels, n=n)
        weights = check_reference_weights(sample_weights, n)
        a = check_number(a, "a", SMALLEST_A, LARGEST_A)
        null_bins = check_whole(null_bins, "null_bins", low=16, high=2**24)
        zeros = zero_rows(embeddings).cpu()
        judged = torch.zeros(n, dtype=torch.bool)
        judged[slice(None) if rows is None else check_rows(rows, n)] = True
        weights[zeros], judged[zeros] = 0, False
        if a < _FLOAT32_A:
            embeddings = embeddings.double()
        return cls(embeddings, encoded, weights, judged, zeros, a, null_bins)


@full_precision()
def contrastive_statistics(
    embeddings: Any,
    labels: Any,
    sample_weights: Any = None,
    a: float = 10.0,
    rows: Any = None,
    block_size: int | None = None,
    null_bins: int = NULL_BINS,
) -> ContrastiveStatistics:
    """Return soft-mean statistics of every label, and the null histogram, in one streamed pass.

    Memory beside the embeddings: one normalised copy, O(block^2 + C x block), the histograms, and
    on a CPU up to 160 MiB of class sums.  Similarities and exponentials are computed in the
    precision of the embeddings (half precisions in float32; all in float64 where a is below 1 or a
    weight below 2^-64), sums of a block in float64, of blocks as precise as the embeddings.
    Deterministic; a different `block_size` may move a similarity by a rounding of that precision.

    Args:
        embeddings: (N, D); rows are normalised here, rows of norm 0 are left out.
        labels: (N,) of any kind `bspml.tensors.checks.encode_labels` takes.
        sample_weights: (N,) in [0, 1], w_j of each sample as a reference; 1 if None.  A sample of
            weight 0 is judged like any other but is nobody's reference, as if it were absent.
        a: inverse temperature, in [0.001, 40]; 10 weights a similarity of .9 e times one of .8.
        rows: samples to judge, as a bool mask (N,) or sample indices; all if None.  For
            cross-fitting give the references their weights and the judged half weight 0.
        block_size: rows and references to a product; chosen if None.
        null_bins: bins over [-2, 2]; a p-value is at most the share of one bin too large.

    Returns:
        `ContrastiveStatistics` with float64 and int64 tensors on the CPU.

    Raises:
        InputError: wrong shapes, weights outside [0, 1], no reference at all, or fewer than two
            classes among the references.

    Example:
        >>> stats = contrastive_statistics([[1., 0], [1, 0], [0, 1], [0, 1]], ["a", "a", "b", "b"])
        >>> stats.own[0].item(), stats.other[0].item()
        (1.0, 0.0)
    """
    task = JudgingTask.of(embeddings, labels, sample_weights, a, rows, null_bins)
    return _one_pass(task, block_size).stats


class ContrastivePass(NamedTuple):
    """What one pass over all similarities says.

    Attributes:
        stats: the statistics.
        tables: what further judges need of every class; None where these would be too large, on an
            accelerator, or where a is not the third of the other judge's sharpness.
        candidates: the most similar references of each sample; None where not asked for, or on an
            accelerator.
    """

    stats: ContrastiveStatistics
    tables: ClassTables | None
    candidates: Candidates | None


@full_precision()
def contrastive_tables(
    embeddings: Any, labels: Any, sample_weights: Any = None, a: float = 10.0, candidates: int = 0
) -> ContrastivePass:
    """Return the statistics, and of the same pass what further judges and searches need.

    Args:
        embeddings: (N, D), see `contrastive_statistics`.
        labels: (N,).
        sample_weights: (N,) in [0, 1], or None.
        a: inverse temperature.
        candidates: how many of the most similar references to keep of each sample; see
            `bspml.statistics.contrastive_nearest.Candidates` for how exact they are.

    Example:
        >>> stats, tables, _ = contrastive_tables([[1., 0], [1, 0], [0, 1], [0, 1]], [0, 0, 1, 1])
        >>> tables.means[0].round(3).tolist(), np.allclose(tables.sharp[0], [0, -30])
        ([1.0, 0.0], True)
    """
    task = JudgingTask.of(embeddings, labels, sample_weights, a, None, NULL_BINS)
    candidates = check_whole(candidates, "candidates", 0)
    shape = len(task.labels.codes), len(task.labels.classes)
    values, tables = shape[0] * shape[1], None
    if 3 * task.a == SHARPNESS and task.embeddings.device.type == "cpu":
        if values <= _TABLE_VALUES:
            kind = np.float64 if task.embeddings.dtype == torch.float64 else np.float32
            tables = ClassTables(*np.full((2, *shape), np.nan, kind))
        elif values <= _PACKED_VALUES:
            tables = ClassTables(None, np.zeros(shape, np.int16))
    return _one_pass(task, None, tables, candidates)


def _one_pass(
    task: JudgingTask,
    block: int | None = None,
    tables: ClassTables | None = None,
    candidates: int = 0,
) -> ContrastivePass:
    embeddings, judged = task.embeddings, np.flatnonzero(task.judged.numpy())
    if ((task.weights > 0) & (task.weights < _FLOAT32_WEIGHT)).any():
        embeddings = embeddings.double()
    reference = References.of(embeddings, task.labels, task.weights.numpy())
    block = None if block is None else check_whole(block, "block_size")
    on_host = reference.embeddings.device.type == "cpu"
    kind: type[JudgedRows] = HostRows if on_host else DeviceRows
    rows = kind(reference, task.labels, judged, task.a, task.bins, tables, candidates)
    rows.judge(embeddings, block)
    return ContrastivePass(_statistics(rows, task), tables, rows.nearest(len(embeddings)))


def _statistics(rows: JudgedRows, task: JudgingTask) -> ContrastiveStatistics:
    """Scatter the judged rows back to (N,)."""
    fits, null = rows.finish()
    reference, codes = rows.reference, task.labels.codes

    def scatter(values: np.ndarray, fill: float) -> Tensor:
        full = np.full(len(codes), fill, values.dtype)
        full[rows.judged] = values
        return torch.from_numpy(full)

    own, everyone = scatter(fits.own, np.nan), scatter(fits.everyone, np.nan)
    counts = np.diff(reference.starts)
    referenced = torch.from_numpy((reference.position >= 0).astype(np.int64))
    return ContrastiveStatistics(
        own=own,
        everyone=everyone,
        difficulty=everyone - own,
        testable=~own.isnan(),
        support=torch.from_numpy(counts)[codes] - referenced,
        other_class=scatter(fits.other_class, -1),
        other=scatter(fits.other, np.nan),
        codes=codes,
        classes=task.labels.classes,
        class_support=torch.from_numpy(counts),
        own_bin=scatter(fits.own_bin, -1),
        null_by_support=null,
        zero_rows=task.zero_rows,
        a=task.a,
    )
