"""Pair statistics of the whole training set: how far each sample is from its class and how near
to the others.

    xi_pos_i = (1/alpha) log(1 + sum_{j != i, y_j  = y_i} w_j exp(-alpha (S_ij - base)))
    xi_neg_i = (1/beta)  log(1 + sum_{j: y_j != y_i}      w_j exp( beta  (S_ij - base)))

[Zhang 2023] eq. (3), with all w_j = 1.  S is symmetric, so the samples are sorted by class, cut
into blocks, and each block above the diagonal serves its rows and its columns: half of the
N x N x D products, and never more than one block of S in memory.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import Any, NamedTuple

import torch
from torch import Tensor

from bspml.distributed.group import rank, ranks
from bspml.distributed.rows import add_over_ranks, gather_rows
from bspml.shapes import ArrayLike, Float, Int
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import (
    check_embeddings,
    check_number,
    check_whole,
    encode_labels,
    some_of,
    zero_rows,
)
from bspml.tensors.precision import float64_device, full_precision
from bspml.tensors.row_checks import check_reference_weights
from bspml.tensors.row_index import check_same_rows
from bspml.tensors.unit_rows import unit_rows

# exp() of a float32 stays finite up to here, also N of them together: where their logarithms come
# to more, sums are kept as logarithms.
LARGEST_EXPONENT = 88.0
# Of alpha and beta: beyond, a float32 of sqrt(beta) times a row would lose its similarities.
_SCALES = 1e-9, 1e9
_BLOCKS_PER_RANK = 4  # at least, along each side: the ranks then have nearly the same to do
_STRIP, _DEVICE_STRIP = 256, 2048  # rows of a block that look for pairs of one class together


@dataclass(frozen=True)
class PairStatistics:
    """Pair statistics of N samples.

    Attributes:
        xi_pos: (N,) float64 on the CPU, >= 0: distance to the sample's own class.
        xi_neg: (N,) float64 on the CPU, >= 0: nearness to all other classes.
        zero_rows: rows of norm 0, whose similarities were taken as 0.

    Example:
        >>> stats = pair_statistics([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [0, 0, 1, 1])
        >>> (stats.xi_neg[3] > stats.xi_neg[2]).item()  # the last leans towards class 0
        True
    """

    xi_pos: Float[Tensor, " N"]
    xi_neg: Float[Tensor, " N"]
    zero_rows: Int[Tensor, " Z"]


class PairTask(NamedTuple):
    """The checked arguments of pair statistics, exact or bounded.

    Attributes:
        embeddings: (N, D) as given.
        codes: (N,) int64 class of each sample.
        weights: (N,) float64, w_j.
        alpha: positive scale.
        beta: negative scale.
        base: similarity at which a pair counts as 1 in the sums.
        zero_rows: int64 on the CPU, rows of norm 0.
    """

    embeddings: Tensor
    codes: Tensor
    weights: Tensor
    alpha: float
    beta: float
    base: float
    zero_rows: Tensor

    @classmethod
    def of(
        cls, embeddings: Any, labels: Any, alpha: Any, beta: Any, base: Any, sample_weights: Any
    ) -> PairTask:
        """Check the arguments, as `pair_statistics` documents them, and warn of zero rows.

        Args:
            embeddings: (N, D).
            labels: (N,).
            alpha: positive scale.
            beta: negative scale.
            base: similarity.
            sample_weights: (N,) in [0, 1], or None.

        Raises:
            InputError: an argument that does not fit.
        """
        check_same_rows(embeddings=embeddings, labels=labels, sample_weights=sample_weights)
        embeddings = float64_device(check_embeddings(embeddings))
        codes = encode_labels(labels, len(embeddings)).codes
        alpha = check_number(alpha, "alpha", *_SCALES)
        beta = check_number(beta, "beta", *_SCALES)
        base = check_number(base, "base", -_SCALES[1], _SCALES[1])
        weights = check_reference_weights(sample_weights, len(embeddings))
        zeros = zero_rows(embeddings).cpu()
        if len(zeros):
            warnings.warn(
                f"embeddings: rows {some_of(zeros)} are zero vectors; their similarities count as "
                "0. Look for dead inputs.",
                stacklevel=4,
            )
        return cls(embeddings, codes, weights, alpha, beta, base, zeros)


@full_precision()
def pair_statistics(
    embeddings: Float[Tensor, "N D"] | ArrayLike,
    labels: Int[Tensor, " N"] | ArrayLike,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    sample_weights: Float[Tensor, " N"] | ArrayLike | None = None,
    block_size: int | None = None,
    across_ranks: bool = False,
) -> PairStatistics:
    """Return xi_pos and xi_neg of every sample against the whole training set, exactly.

    Source: [Zhang 2023], eq. (3); the paper sets alpha 2, beta 50, base (its rho) 1.
    Differs: `base` defaults to 0.5, because at 1 the negative term is nearly switched off;
        `sample_weights` puts each sample's weight inside the sums of the others, so that weight 0
        is the sample's absence.  None is the paper's statistic.

    Products and exponentials run in the embeddings' precision (at least float32); sums over
    blocks are float64.  A class of one sample has xi_pos = 0, a single class has xi_neg = 0.

    Args:
        embeddings: (N, D), any scale and device; rows are normalised here.
        labels: (N,) integers or strings, possibly wrong.
        alpha: positive scale, in [1e-9, 1e9].
        beta: negative scale, in [1e-9, 1e9].
        base: similarity at which a pair counts as 1 in the sums.
        sample_weights: (N,) in [0, 1], or None for all 1.
        block_size: rows per block; None picks one for the device.
        across_ranks: share the blocks among the processes of a torch.distributed group.  Each
            must make this call, with the same arguments, and gets the whole result.

    Returns:
        `PairStatistics`, on the CPU.

    Raises:
        InputError: shapes differ, NaN or infinity in the embeddings or the scales, weights outside
            [0, 1].

    Example:
        >>> stats = pair_statistics([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0, 0, 1])
        >>> [round(x, 4) for x in stats.xi_pos.tolist()]  # log(1 + exp(-1)) / 2
        [0.1566, 0.1566, 0.0]
    """
    check_flags(across_ranks=across_ranks)
    task = PairTask.of(embeddings, labels, alpha, beta, base, sample_weights)
    return exact_statistics(task, block_size, across_ranks)


def exact_statistics(
    task: PairTask, block_size: int | None = None, across_ranks: bool = False
) -> PairStatistics:
    """Compute both statistics of every sample from all pairs.

    Args:
        task: the checked arguments.
        block_size: rows per block; None picks one for the device.
        across_ranks: see `pair_statistics`.

    Returns:
        `PairStatistics`, on the CPU.
    """
    E = unit_rows(task.embeddings)
    order = torch.argsort(task.codes, stable=True)
    by_class = task._replace(codes=task.codes[order], weights=task.weights[order])
    sums = _PairSums(E[order.to(E.device)], by_class)
    across_ranks = across_ranks and ranks() > 1
    # Large enough that the products run at full speed, 16 MiB in float32.
    block = 2048 if E.device.type == "cpu" else 8192
    if block_size is not None:
        block = check_whole(block_size, "block_size")
    elif across_ranks:
        block = min(block, max(1, len(E) // (_BLOCKS_PER_RANK * ranks())))
    blocks = [slice(i, min(i + block, len(E))) for i in range(0, len(E), block)]
    pairs = list(combinations_with_replacement(blocks, 2))  # on and above the diagonal
    # Every W-th: neighbours in the list cost about the same.
    for rows, columns in pairs[rank() :: ranks()] if across_ranks else pairs:
        sums.add(rows, columns)
    if across_ranks:
        sums.add_other_ranks()
    log_pos, log_neg = sums.logarithms()
    xi_pos, xi_neg = torch.empty(2, len(E), dtype=torch.float64)
    xi_pos[order] = log_pos / task.alpha
    xi_neg[order] = log_neg / task.beta
    return PairStatistics(xi_pos, xi_neg, task.zero_rows)


class _PairSums:
    """Running sums of the two exponentials over blocks of S, for class-sorted samples.

    The rows are scaled by sqrt(beta), so that a block of their product is beta S: where
    exp(beta S) stays in range, it is all that most blocks need, and exp(-beta base) is a factor
    of the sums.  Terms that underflow are lost beside the 1 inside the logarithm anyway.  Beyond
    that range (beta 150 with base 0) the sums are kept as logarithms, block by block.
    """

    def __init__(self, E: Tensor, task: PairTask) -> None:
        self.alpha, self.beta, self.base = task.alpha, task.beta, task.base
        self.rows, self.codes = E * math.sqrt(self.beta), task.codes.to(E.device)
        self.weights = task.weights.to(E)
        largest = max(self.alpha * (1 + self.base), self.beta * (1 - self.base), self.beta)
        self.direct = largest + math.log(max(1, len(E))) <= LARGEST_EXPONENT
        fill = 0.0 if self.direct else -math.inf
        self.pos = torch.full((len(E),), fill, dtype=torch.float64, device=E.device)
        self.neg = self.pos.clone()
        self.log_weights = self.weights.log()
        self.buffer = E.new_empty(0)
        # On the CPU, so that choosing the path never waits for the device.
        counts = torch.unique_consecutive(task.codes, return_counts=True)[1]
        ends = counts.cumsum(0)
        self.class_end = torch.repeat_interleave(ends, counts).tolist()
        self.class_start = torch.repeat_interleave(ends - counts, counts).tolist()
        self.strip = _STRIP if E.device.type == "cpu" else _DEVICE_STRIP

    def add(self, rows: slice, columns: slice) -> None:
        """Add the block S[rows, columns], and its transpose unless it lies on the diagonal."""
        product = self._product(rows, columns)  # (b, b) beta S
        # Sorted by class: only a band about the diagonal of S holds pairs of one class.
        for start in range(rows.start, rows.stop, self.strip):
            strip = slice(start, min(start + self.strip, rows.stop))
            low = max(columns.start, self.class_start[strip.start])
            high = min(columns.stop, self.class_end[strip.stop - 1])
            if low < high:
                above = slice(strip.start - rows.start, strip.stop - rows.start)
                part = product[above, low - columns.start : high - columns.start]
                self._take_positives(part, strip, slice(low, high), rows == columns)
        exponent = product if self.direct else product.sub_(self.beta * self.base)
        self._accumulate(self.neg, exponent, rows, columns, rows == columns)

    def _take_positives(self, part: Tensor, rows: slice, columns: slice, diagonal: bool) -> None:
        """Add the pairs of one class in a part of a block, and leave it without them."""
        same = self.codes[rows, None] == self.codes[None, columns]  # (b, k)
        positive = (part * (-self.alpha / self.beta)).add_(self.alpha * self.base)
        part.masked_fill_(same, -math.inf)
        if diagonal:
            i = torch.arange(rows.start, rows.stop, device=part.device)
            same &= i[:, None] != torch.arange(columns.start, columns.stop, device=part.device)
        self._accumulate(self.pos, positive.masked_fill_(~same, -math.inf), rows, columns, diagonal)

    def _product(self, rows: slice, columns: slice) -> Tensor:
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        if self.buffer.numel() < shape[0] * shape[1]:
            self.buffer = self.rows.new_empty(shape[0] * shape[1])
        out = self.buffer[: shape[0] * shape[1]].view(shape)
        return torch.mm(self.rows[rows], self.rows[columns].T, out=out)

    def _accumulate(
        self, sums: Tensor, exponent: Tensor, rows: slice, columns: slice, diagonal: bool
    ) -> None:
        if self.direct:
            terms = exponent.exp_()
            sums[rows] += torch.mv(terms, self.weights[columns])
            if not diagonal:
                sums[columns] += torch.mv(terms.T, self.weights[rows])
            return
        by_row = torch.logsumexp(exponent + self.log_weights[columns], 1).double()
        sums[rows] = torch.logaddexp(sums[rows], by_row)
        if not diagonal:
            by_column = torch.logsumexp(exponent + self.log_weights[rows, None], 0).double()
            sums[columns] = torch.logaddexp(sums[columns], by_column)

    def add_other_ranks(self) -> None:
        """Add the sums of the blocks that other ranks did."""
        for sums in (self.pos, self.neg):
            if self.direct:
                add_over_ranks(sums)
            else:
                sums.copy_(torch.logsumexp(gather_rows(sums[None]), 0))

    def logarithms(self) -> tuple[Tensor, Tensor]:
        """Return log(1 + sum) of positive and of negative terms, (N,) float64 on the CPU."""
        if self.direct:
            negative = self.neg * math.exp(-self.beta * self.base)
            return self.pos.log1p().cpu(), negative.log1p().cpu()
        one = torch.zeros(1, dtype=torch.float64, device=self.pos.device)
        return torch.logaddexp(self.pos, one).cpu(), torch.logaddexp(self.neg, one).cpu()
