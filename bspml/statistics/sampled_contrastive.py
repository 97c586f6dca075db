"""Contrastive statistics in nearly linear time: what is averaged is sampled, with its error.

Of the statistics of `bspml.statistics.contrastive`

    s_i(y_i)      needs the sample's own class only and is exact, at a cost of sum_c N_c^2;
    t_i           averages over everyone and is sampled: `bspml.statistics.sampled_means` bounds
                  its error;
    the null      {d_i(c) : c != y_i} has N (C - 1) values; M of them, drawn independently and
                  uniformly, are computed, each s_i(c) exactly.

What follows for p-values.  Let e_i bound the error of t_i, and so of d_i = t_i - s_i, let e be the
largest e_i, b the width of a bin of the histogram, F the distribution function of the null, and F'
that of the M values computed.  By Dvoretzky, Kiefer, Wolfowitz and Massart, with probability
1 - q, the distribution function of M true values is within k = sqrt(ln(2 / q) / (2 M)) of F at
every point at once; the computed ones lie within e of the true ones.  Hence

    F'(d'_i - e_i - e - b) - k  <=  F(d_i)  <=  F'(d'_i + e_i + e + b) + k

`p_value_bounds` gives these.  Half of 1 - confidence goes to the t_i, half to the null.

That is much, as the errors might all go one way.  So the rate is not read off these p-values: some
thousand rows, drawn at random and spread evenly over the classes, are judged exactly against all
references (`exact_part`), and `bspml.statistics.noise_rate` estimates from them alone.  Its
interval is that of a count among as many labels, so it holds the error of drawing them as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bspml.shapes import Float, Tensor
from bspml.statistics.class_pairs import class_blocks
from bspml.statistics.contrastive import ContrastiveStatistics, JudgingTask, contrastive_statistics
from bspml.statistics.references import SUPPORT_EDGES, check_two_classes
from bspml.statistics.sample_lists import SampleLists
from bspml.statistics.sampled_means import sampled_soft_means
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_number, check_whole
from bspml.tensors.precision import full_precision
from bspml.tensors.unit_rows import unit_rows

EXACT_ROWS = 8192  # judged exactly: the rate's interval is less than .1 wide
_LEAST, _WIDEST = 1e-12, 2.0  # error of a soft mean, which lies in [-1, 1]
_BLOCK = 1 << 22  # similarities of null values held at a time
_TOGETHER = 256  # references of small classes to a product


@dataclass(frozen=True)
class SampledContrastiveStatistics(ContrastiveStatistics):
    """Contrastive statistics whose averages were sampled.

    They serve wherever p-values and the noise rate are estimated.  Only for the rows judged exactly
    all classes were searched: elsewhere `other_class` is -1, `other` and `margin` are NaN.

    Attributes:
        everyone_error: (N,) largest error of `everyone` and `difficulty`; NaN where not judged.
        null_error: largest error k of the null's distribution function by sampling.
        confidence: probability that all these errors hold together.
        computed: share of the similarities that were computed for `everyone`.
        exact_rows: exact statistics of rows drawn at random; None where none were.
    """

    everyone_error: Float[Tensor, " N"]
    null_error: float
    confidence: float
    computed: float
    exact_rows: ContrastiveStatistics | None = field(default=None, repr=False)

    @property
    def exact_part(self) -> ContrastiveStatistics:
        """The rows that were judged exactly; all of them, as they are, if none were."""
        return self if self.exact_rows is None else self.exact_rows

    def p_value_bounds(self) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """Bound each label's p-value from below and above, (N,) float64; NaN where not testable."""
        null = np.concatenate([[0], np.cumsum(self.null)]) / self.null.sum()  # (bins + 1,)
        bins = len(null) - 1
        width = 4 / bins
        d, error = self.difficulty.numpy(), self.everyone_error.numpy()
        tested = self.testable.numpy()
        reach = error + np.nanmax(error, initial=0.0) + width
        ends = []
        for end, rounding in ((d - reach, np.floor), (d + reach, np.ceil)):
            place = np.clip(rounding((np.where(tested, end, 0) + 2) / width), 0, bins).astype(int)
            ends.append(np.where(tested, null[place], np.nan))
        low, high = np.clip(ends[0] - self.null_error, 0, 1), ends[1] + self.null_error
        population = self.population
        high = np.clip((1 + population * high) / (1 + population), 0, 1)
        return torch.from_numpy(low), torch.from_numpy(high)

    @property
    def population(self) -> int:
        """Values in the whole null: judged samples times wrong classes that have references."""
        judged = ~self.everyone.isnan()
        referenced = self.class_support > 0
        own = referenced[self.codes[judged]].sum()
        return int(judged.sum()) * int(referenced.sum()) - int(own)


@full_precision()
def sampled_contrastive_statistics(
    embeddings: Any,
    labels: Any,
    sample_weights: Any = None,
    a: float = 10.0,
    rows: Any = None,
    error: float = 0.02,
    confidence: float = 0.99,
    null_values: int = 100_000,
    lists: int | None = None,
    seed: int = 0,
    null_bins: int = 1 << 18,
    exact_rows: int = EXACT_ROWS,
    across_ranks: bool = False,
) -> SampledContrastiveStatistics:
    """Return statistics of every label with the errors of what was sampled, for large data sets.

    Args:
        embeddings: (N, D); rows are normalised here, rows of norm 0 are left out.
        labels: (N,) of any kind `bspml.tensors.checks.encode_labels` takes.
        sample_weights: (N,) in [0, 1], w_j of each sample as a reference; 1 if None.
        a: inverse temperature, in [0.001, 40].
        rows: samples to judge, as a bool mask (N,) or sample indices; all if None.
        error: largest error of any t_i, in [1e-12, 2], the width of all there are.  Similarity
            units: small beside the spread of the null, about .05 to .1.
        confidence: probability, in [0.5, 1), that all errors given hold.
        null_values: values of the null that are drawn; 100,000 leave it open by .0054.
        lists: as in `bspml.neighbour_statistics`.
        seed: of the lists, the draws and the null.
        null_bins: bins over [-2, 2].
        exact_rows: rows that are judged exactly, for the noise rate, at a cost of as many times
            the references; 0 where no rate is asked for.
        across_ranks: share the lists among the processes of a torch.distributed group.  Each must
            make this call, with the same arguments, and gets the whole result, that of one process.

    Returns:
        `SampledContrastiveStatistics`.

    Raises:
        InputError: as `bspml.statistics.contrastive.contrastive_statistics`; error or confidence
            out of range.

    Example:
        >>> stats = sampled_contrastive_statistics(torch.eye(4).repeat(5, 1), list(range(4)) * 5)
        >>> stats.own[0].item(), stats.testable.all().item()  # its class lies in one place
        (1.0, True)
        >>> stats.everyone_error.max().item() <= 0.02  # what was asked for
        True
    """
    check_flags(across_ranks=across_ranks)
    task = JudgingTask.of(embeddings, labels, sample_weights, a, rows, null_bins)
    error = check_number(error, "error", _LEAST, _WIDEST)
    confidence = check_number(confidence, "confidence", 0.5, 1 - 1e-9)
    lists = None if lists is None else check_whole(lists, "lists")
    seed = check_whole(seed, "seed", low=0)
    count = check_whole(null_values, "null_values", high=2**24)
    exact_rows = check_whole(exact_rows, "exact_rows", 0)
    codes, weights, judged = task.labels.codes, task.weights, task.judged
    class_support = torch.bincount(codes[weights > 0], minlength=len(task.labels.classes))
    check_two_classes(class_support.numpy())
    E = unit_rows(task.embeddings)
    chance = (1 - confidence) / 2
    means = sampled_soft_means(
        SampleLists.of(E, lists, seed),
        _scaled(weights, torch.zeros_like(codes)),
        judged,
        task.a,
        error,
        1 - chance,
        seed,
        across_ranks,
    )
    own = _own_soft_means(E, task)
    difficulty = means.values - own
    null = _sampled_null(E, task, means.values, count, seed)
    drawn = _evenly_over_classes(codes, judged, exact_rows, seed)
    exact, other_class = None, torch.full((len(E),), -1)
    other = torch.full((len(E),), math.nan, dtype=torch.float64)
    if len(drawn):
        exact = contrastive_statistics(E, task.labels, weights, a, drawn, null_bins=task.bins)
        other_class, other = exact.other_class, exact.other
    return SampledContrastiveStatistics(
        own=own,
        everyone=means.values,
        difficulty=difficulty,
        testable=~own.isnan(),
        support=class_support[codes] - (weights > 0).long(),
        other_class=other_class,
        other=other,
        codes=codes,
        classes=task.labels.classes,
        class_support=class_support,
        own_bin=torch.where(difficulty.isnan(), -1, _bins(difficulty, task.bins)),
        null_by_support=null,
        zero_rows=task.zero_rows,
        a=task.a,
        everyone_error=means.errors,
        null_error=math.sqrt(math.log(2 / chance) / (2 * max(1, int(null.sum())))),
        confidence=confidence,
        computed=means.computed,
        exact_rows=exact,
    )


def _evenly_over_classes(codes: Tensor, judged: Tensor, count: int, seed: int) -> Tensor:
    """Draw `count` of the judged rows, ascending; of each class as many as is its share."""
    rows = judged.nonzero()[:, 0]
    generator = torch.Generator().manual_seed(seed + 2)
    rows = rows[torch.randperm(len(rows), generator=generator)]
    rows = rows[torch.argsort(codes[rows], stable=True)]  # by class, at random within it
    if count < len(rows):
        # Every row is as likely: equal steps from a random start.
        start = float(torch.rand(1, generator=generator, dtype=torch.float64))
        steps = (torch.arange(count, dtype=torch.float64) + start) * len(rows) / max(1, count)
        rows = rows[steps.long().clamp_max(len(rows) - 1)]
    return rows.sort().values


def _scaled(weights: Tensor, codes: Tensor) -> Tensor:
    """Return (N,) weights times a power of two for each class, whose largest is then about 1.

    No soft mean over a class depends on it, and float32 holds the products of tiny weights.
    """
    largest = torch.zeros(int(codes.max()) + 1, dtype=weights.dtype)
    exponent = largest.scatter_reduce_(0, codes, weights, "amax").frexp().exponent
    return torch.from_numpy(np.ldexp(weights.numpy(), -exponent[codes].numpy()))


def _bins(difficulty: Tensor, bins: int) -> Tensor:
    return ((difficulty.nan_to_num() + 2) / 4 * bins).floor().long().clamp(0, bins - 1)


def _own_soft_means(E: Tensor, task: JudgingTask) -> Tensor:
    """Compute s_i(y_i), (N,), NaN where not judged or without another reference."""
    sums, totals = (torch.zeros(len(E), dtype=torch.float64, device=E.device) for _ in range(2))
    w = _scaled(task.weights, task.labels.codes).to(E.device)
    for rows, columns, S, pair in class_blocks(E, task.labels.codes.to(E.device)):
        terms = S.sub_(1).mul_(task.a).exp_().masked_fill_(~pair, 0)  # (b, k)
        sums[rows] += torch.mv(terms, w[columns].to(E))
        # Summed anew, not class weight less own: that cancels when the own is nearly all of it.
        totals[rows] += torch.mv(pair.double(), w[columns])
    own = 1 + (sums / totals).log() / task.a
    return torch.where((totals.cpu() > 0) & task.judged, own.cpu(), math.nan)


def _sampled_null(
    E: Tensor, task: JudgingTask, everyone: Tensor, count: int, seed: int
) -> np.ndarray:
    """Count d_i(c) of `count` pairs drawn uniformly, c != y_i: (G, bins) int64 histograms.

    Args:
        E: (N, D) unit rows.
        task: whose labels are judged by whom.
        everyone: (N,) t_i.
        count: pairs.
        seed: of the draws.
    """
    generator = torch.Generator().manual_seed(seed + 1)
    codes, a = task.labels.codes, task.a
    samples = task.judged.nonzero()[:, 0]
    references = (task.weights > 0).nonzero()[:, 0]
    references = references[torch.argsort(codes[references], stable=True)]
    support = torch.bincount(codes[references])
    classes = support.nonzero()[:, 0]
    ends = support.cumsum(0)
    null = np.zeros((len(SUPPORT_EDGES), task.bins), np.int64)
    if len(samples) == 0:
        return null
    i, c = _draw_pairs(samples, classes, codes, count, generator)
    values = torch.empty(count, dtype=torch.float64)
    weights = _scaled(task.weights, codes)[references]
    rows, w = E[i.to(E.device)], weights.to(E)
    totals = torch.zeros(len(support), dtype=torch.float64)
    totals.index_add_(0, codes[references], weights)
    # Small classes share a product, as `class_pairs` has them; the pairs are sorted by class.
    together = (ends[c] - 1) // _TOGETHER
    sizes = together.unique_consecutive(return_counts=True)[1].tolist()
    for pairs in torch.arange(count).split(sizes):
        own = c[pairs]
        low, high = int(ends[own[0]] - support[own[0]]), int(ends[own[-1]])
        members = references[low:high]
        columns, column_codes = E[members.to(E.device)], codes[members].to(E.device)
        for part in pairs.split(max(1, _BLOCK // len(columns))):
            here = slice(int(part[0]), int(part[-1]) + 1)
            f = (rows[here] @ columns.T).sub_(1).mul_(a).exp_()
            f.masked_fill_(c[here].to(E.device)[:, None] != column_codes, 0)
            sums = torch.mv(f, w[low:high]).double().cpu()
            values[here] = 1 + (sums / totals[c[here]]).log() / a
    stratum = np.searchsorted(SUPPORT_EDGES, support[c].numpy(), side="right") - 1
    np.add.at(null, (stratum, _bins(everyone[i] - values, task.bins).numpy()), 1)
    return null


def _draw_pairs(
    samples: Tensor, classes: Tensor, codes: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw `count` independent pairs (i, c), uniform over c != y_i, sorted by class.

    Pairs with c = y_i are drawn again: what is left of a uniform draw is uniform.
    """
    i = c = torch.empty(0, dtype=torch.int64)
    while len(i) < count:
        more_i = samples[torch.randint(len(samples), (count,), generator=generator)]
        more_c = classes[torch.randint(len(classes), (count,), generator=generator)]
        wrong = codes[more_i] != more_c
        i, c = torch.cat([i, more_i[wrong]]), torch.cat([c, more_c[wrong]])
    by_class = torch.argsort(c[:count], stable=True)
    return i[by_class], c[by_class]
