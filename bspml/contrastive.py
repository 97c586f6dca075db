"""Contrastive statistics: does a sample fit its label better than it fits everyone?

For sample i, class c and reference weights w, with S the cosine similarities and a > 0:

    s_i(c) = (1/a) log( sum_{j != i, y_j = c} w_j exp(a S_ij) / sum_{j != i, y_j = c} w_j )
    t_i    = (1/a) log( sum_{j != i} w_j exp(a S_ij) / sum_{j != i} w_j )
    d_i(c) = t_i - s_i(c)                        the difficulty of the label c for sample i

The soft means lie in [-1, 1], so d lies in [-2, 2].  Taking d instead of s corrects for samples
that are similar to everything.  The null distribution {d_i(c) : c != y_i}, "what a random wrong
label looks like", has N (C - 1) values: it is kept as a fine histogram and the N x C table is
never held.  Ours, not from a paper; `bspml.noise_rate` turns it into p-values and a rate.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, no_type_check

import numba
import numpy as np
import torch

from bspml.checks import (
    Labels,
    check_embeddings,
    check_number,
    check_reference_weights,
    check_sample_index,
    check_whole,
    encode_labels,
    normalize_rows,
    zero_rows,
)
from bspml.errors import InputError
from bspml.shapes import Bool, Float, Int, Tensor

__all__ = ["SUPPORT_EDGES", "ContrastiveStatistics", "contrastive_statistics"]

# The null is kept apart by the number of references of its class: stratum g holds the classes with
# SUPPORT_EDGES[g] <= references < SUPPORT_EDGES[g + 1].  A soft mean over 2 references spreads
# more than one over 30, so small classes need a null of their own.
SUPPORT_EDGES = (1, 2, 3, 4, 5, 6, 8, 11, 16, 26)

_BLOCK_BYTES = 1 << 26  # of similarities held at a time
_COLUMNS = 2048  # references to a product
LARGEST_A = 40.0  # exp(a), exp(-a) and their ratio must stay in float32


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
        null_without_best: (bins,) int64, the same without each sample's best class
            argmin_c d_i(c) (all classes, its own included, compete to be best).
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
    null_without_best: np.ndarray = field(repr=False)
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


def contrastive_statistics(
    embeddings: Any,
    labels: Any,
    sample_weights: Any = None,
    a: float = 10.0,
    rows: Any = None,
    block_size: int | None = None,
    null_bins: int = 1 << 18,
) -> ContrastiveStatistics:
    """Soft-mean statistics of every label, and the null histogram, in one streamed pass.

    Memory beside the embeddings: one normalised copy, O(N x block + C x block) and the histograms.
    Similarities and exponentials are computed in the precision of the embeddings (half precisions
    in float32), all sums in float64.  Deterministic; a different `block_size` may move a
    similarity by a rounding of that precision.

    Args:
        embeddings: (N, D); rows are normalised here, rows of norm 0 are left out.
        labels: (N,) of any kind `bspml.checks.encode_labels` takes.
        sample_weights: (N,) in [0, 1], w_j of each sample as a reference; 1 if None.  A sample of
            weight 0 is judged like any other but is nobody's reference, as if it were absent.
        a: inverse temperature, in (0, 40]; 10 weights a similarity of .9 e times one of .8.
        rows: samples to judge, as a bool mask (N,) or sample indices; all if None.  For
            cross-fitting give the references their weights and the judged half weight 0.
        block_size: rows per block; about 64 MiB of similarities if None.
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
    embeddings = check_embeddings(embeddings)
    encoded = encode_labels(labels, n=len(embeddings))
    weights = check_reference_weights(sample_weights, len(embeddings)).numpy()
    a = check_number(a, "a", 0, LARGEST_A, open_low=True)
    null_bins = check_whole(null_bins, "null_bins", low=16)
    zeros = zero_rows(embeddings).cpu()
    weights[zeros] = 0
    judged = judged_rows(rows, len(embeddings), zeros)
    reference = References.of(embeddings, encoded, weights)
    if block_size is None:
        block_size = max(1, min(len(judged), _BLOCK_BYTES // (4 * len(reference.weights))))
    blocks = _similarity_blocks(
        reference, embeddings, judged, a, check_whole(block_size, "block_size")
    )
    table = _Accumulator(reference, encoded, judged, a, null_bins)
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for first, exponentials in blocks:
            table.add(first, exponentials, pool)
    return table.result(len(embeddings), zeros)


def judged_rows(rows: Any, n: int, zeros: Tensor) -> np.ndarray:
    """Sample indices to judge, ascending, without rows of norm 0."""
    judged = np.zeros(n, bool)
    if rows is None:
        judged[:] = True
    else:
        rows = torch.as_tensor(rows).detach().cpu()
        if rows.dtype == torch.bool:
            if rows.shape != (n,):
                raise InputError(
                    f"`rows` as a mask must be ({n},) like the embeddings; got "
                    f"{tuple(rows.shape)}. Or give sample indices."
                )
            judged[:] = rows.numpy()
        else:
            judged[check_sample_index(rows, n, None, "rows").numpy()] = True
    judged[zeros.numpy()] = False
    return np.flatnonzero(judged)


def check_two_classes(counts: np.ndarray) -> None:
    """Refuse references, counted by class (C,), of fewer than two classes."""
    if (counts > 0).sum() < 2:
        raise InputError(
            "contrastive statistics need references of at least two classes; got "
            f"{int((counts > 0).sum())} (samples of weight 0 and rows of norm 0 do not count). "
            "With one class there is no wrong label to compare with."
        )


@dataclass(frozen=True)
class References:
    """The samples of positive weight, sorted by class so that a class is a run of columns."""

    embeddings: Tensor  # (R, D) normalised
    weights: np.ndarray  # (R,) float64
    position: np.ndarray  # (N,) int64 column of a sample, -1 if it is no reference
    starts: np.ndarray  # (C + 1,) int64 first column of each class
    totals: np.ndarray  # (C,) float64 weight of each class

    @classmethod
    def of(cls, embeddings: Tensor, labels: Labels, weights: np.ndarray) -> References:
        """Sort the samples of positive weight and normalise them."""
        codes = labels.codes.numpy()
        kept = np.flatnonzero(weights > 0)
        order = kept[np.argsort(codes[kept], kind="stable")]
        counts = np.bincount(codes[order], minlength=len(labels.classes))
        check_two_classes(counts)
        position = np.full(len(codes), -1, np.int64)
        position[order] = np.arange(len(order))
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        totals = np.bincount(codes[order], weights[order], minlength=len(counts))
        rows = normalize_rows(working_precision(embeddings[torch.from_numpy(order)]))
        return cls(rows, weights[order], position, starts, totals)


def working_precision(embeddings: Tensor) -> Tensor:
    """Float64 stays, every other precision becomes float32."""
    embeddings = embeddings.detach()
    return embeddings if embeddings.dtype == torch.float64 else embeddings.float()


def _similarity_blocks(
    reference: References, embeddings: Tensor, judged: np.ndarray, a: float, block_size: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, exp(a S) as (block, R)); the next block overwrites it.

    In [e^-a, e^a] for the a allowed, which float32 holds.  The columns are taken in parts: a wide
    product runs at two thirds of the speed of a square one.
    """
    parts = reference.embeddings.split(_COLUMNS)
    buffer = reference.embeddings.new_empty(min(block_size, len(judged)), len(reference.weights))
    for first in range(0, len(judged), block_size):
        index = torch.from_numpy(judged[first : first + block_size])
        rows = normalize_rows(working_precision(embeddings[index.to(embeddings.device)])) * a
        exponentials = buffer[: len(rows)]
        for part, columns in zip(parts, exponentials.split(_COLUMNS, 1), strict=True):
            torch.mm(rows, part.T, out=columns)
        yield first, exponentials.exp_().cpu().numpy()


class _Accumulator:
    """Holds what survives of each block: a few numbers per row, and the null histograms."""

    def __init__(
        self, reference: References, labels: Labels, judged: np.ndarray, a: float, bins: int
    ) -> None:
        self.reference, self.labels, self.judged, self.a = reference, labels, judged, a
        counts = np.diff(reference.starts)
        self.stratum = np.searchsorted(SUPPORT_EDGES, counts, side="right") - 1  # -1: no reference
        n = len(judged)
        self.own, self.everyone, self.other = (np.full(n, np.nan) for _ in range(3))
        self.other_class, self.own_bin = (np.full(n, -1, np.int64) for _ in range(2))
        self.codes = labels.codes.numpy()[judged]
        self.position = reference.position[judged]
        # One set of histograms per thread; integers, so their sum does not depend on the split.
        threads = torch.get_num_threads()
        self.nulls = [np.zeros((len(SUPPORT_EDGES), bins), np.int64) for _ in range(threads)]
        self.bests = [np.zeros(bins, np.int64) for _ in range(threads)]

    def add(self, first: int, exponentials: np.ndarray, pool: ThreadPoolExecutor) -> None:
        """Reduce one block, its rows split over the threads."""
        cuts = np.linspace(0, len(exponentials), len(self.nulls) + 1).astype(int).tolist()
        jobs = [
            pool.submit(self._reduce, first + low, exponentials[low:high], k)
            for k, (low, high) in enumerate(pairwise(cuts))
        ]
        for job in jobs:
            job.result()

    def _reduce(self, first: int, exponentials: np.ndarray, thread: int) -> None:
        rows = slice(first, first + len(exponentials))
        reference = self.reference
        _reduce_rows(
            exponentials, self.codes[rows], self.position[rows], reference.starts,
            reference.weights, reference.totals, self.stratum, self.a,
            self.own[rows], self.everyone[rows], self.other[rows], self.other_class[rows],
            self.own_bin[rows], self.nulls[thread], self.bests[thread],
        )  # fmt: skip

    def result(self, n: int, zeros: Tensor) -> ContrastiveStatistics:
        """Scatter the judged rows back to (N,) and sum the histograms."""
        own, everyone, other = (
            self._scatter(v, n, np.nan) for v in (self.own, self.everyone, self.other)
        )
        counts = np.diff(self.reference.starts)
        codes = self.labels.codes
        referenced = torch.from_numpy((self.reference.position >= 0).astype(np.int64))
        support = torch.from_numpy(counts)[codes] - referenced
        return ContrastiveStatistics(
            own=own,
            everyone=everyone,
            difficulty=everyone - own,
            testable=~own.isnan(),
            support=support,
            other_class=self._scatter(self.other_class, n, -1),
            other=other,
            codes=codes,
            classes=self.labels.classes,
            class_support=torch.from_numpy(counts),
            own_bin=self._scatter(self.own_bin, n, -1),
            null_by_support=np.sum(self.nulls, axis=0),
            null_without_best=np.sum(self.bests, axis=0),
            zero_rows=zeros,
            a=self.a,
        )

    def _scatter(self, values: np.ndarray, n: int, fill: float) -> Tensor:
        full = np.full(n, fill, values.dtype)
        full[self.judged] = values
        return torch.from_numpy(full)


# The order of the additions is free, so that they use the processor's vectors; one program adds
# in one order, and the sums stay float64.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
@no_type_check
def _weighted_sum(weights, exponentials, r, start, stop):
    value = 0.0
    for j in range(start, stop):
        value += weights[j] * exponentials[r, j]
    return value


@numba.njit(cache=True, nogil=True)
@no_type_check
def _reduce_rows(
    exponentials, codes, position, starts, weights, totals, stratum, a,
    own, everyone, other, other_class, own_bin, null, without_best,
):  # fmt: skip
    """Class sums, soft means and histogram entries of one block; writes into the last seven.

    exponentials: (B, R) exp(a S), columns sorted by class; everything else as in
    `References` and `_Accumulator`.  Sums in float64.
    """
    classes = len(totals)
    bins = len(without_best)
    mean = np.empty(classes)  # s_i(c), NaN: no reference
    for r in range(len(codes)):
        y, self_column = codes[r], position[r]
        if self_column >= 0:
            exponentials[r, self_column] = 0.0  # j != i
        total, total_weight = 0.0, 0.0
        for c in range(classes):
            start, stop = starts[c], starts[c + 1]
            value = _weighted_sum(weights, exponentials, r, start, stop)
            weight = totals[c]
            if c == y and self_column >= 0:
                # Summed anew: totals[c] - w_i would cancel when w_i is nearly all of it.
                weight = 0.0
                for j in range(start, stop):
                    if j != self_column:
                        weight += weights[j]
            mean[c] = np.log(value / weight) / a if weight > 0 else np.nan
            total += value
            total_weight += weight
        if total_weight <= 0:
            continue
        t = np.log(total / total_weight) / a
        best, best_other = -1, -1
        for c in range(classes):
            if np.isnan(mean[c]):
                continue
            if c != y and (best_other < 0 or mean[c] > mean[best_other]):
                best_other = c
            if best < 0 or mean[c] > mean[best] or (c == y and mean[c] == mean[best]):
                best = c
        everyone[r] = t
        if best_other >= 0:
            other[r], other_class[r] = mean[best_other], best_other
        for c in range(classes):
            if np.isnan(mean[c]):
                continue
            b = int(np.floor((t - mean[c] + 2.0) / 4.0 * bins))
            b = min(max(b, 0), bins - 1)
            if c == y:
                own[r], own_bin[r] = mean[c], b
            else:
                null[stratum[c], b] += 1
                if c != best:
                    without_best[b] += 1
