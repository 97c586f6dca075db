"""Tables with a row per sample or class: smoothed losses, and the confidences last given.

    values (n,), keys (n,)  ->  mean of the batch per key  ->  (K,) buffers

A batch may name a key many times (a sample is in many pairs) or never; the mean of its values
counts once.  With other ranks the sums of all are added first, so the tables stay equal.
"""

from __future__ import annotations

import math

import torch

from bspml.distributed.rows import add_over_ranks, copy_of_main
from bspml.losses.reducers.tau import check_momentum
from bspml.shapes import Float, Int, Tensor
from bspml.tensors.checks import check_whole
from bspml.tensors.precision import KeepsDigits


class KeyedAverage(KeepsDigits):
    """An exponential average per key; the first value of a key starts it.

    Args:
        rows: K, the number of keys.
        momentum: share of the old average kept, in [0, 1); 0 keeps the last batch's mean.

    Attributes:
        average: (K,) float32 buffer.
        seen: (K,) bool buffer, False where no batch has named the key.
        unjudged: (K,) bool buffer, True where the last values could not be used; not saved.
    """

    average: Tensor
    seen: Tensor
    unjudged: Tensor

    def __init__(self, rows: int, momentum: float | int) -> None:
        super().__init__()
        self.joint_batches = False  # whether every rank already sees the batch of all
        self.momentum = check_momentum(momentum)
        self.register_buffer("average", torch.zeros(check_whole(rows, "rows")))
        self.register_buffer("seen", torch.zeros(rows, dtype=torch.bool))
        self.register_buffer("unjudged", torch.zeros(rows, dtype=torch.bool), persistent=False)

    @torch.no_grad()
    def update(self, values: Float[Tensor, " M"], keys: Int[Tensor, " M"]) -> None:
        """Move the average of each key that occurs, in train mode only.

        A key whose mean is not finite stays as it is; a negative key stands for nothing.

        Args:
            values: (M,).
            keys: (M,) row of each value, negative: none.
        """
        if not self.training:
            return
        if self.average.device != values.device:
            self.to(values.device)
        keys, is_known = keys.to(values.device), (keys >= 0).to(values.device)
        sums = values.new_zeros(2, len(self.average), dtype=torch.float64)
        rows = keys.clamp(min=0)
        sums[0].index_add_(0, rows, torch.where(is_known, values, 0).double())
        sums[1].index_add_(0, rows, is_known.double())
        total, count = copy_of_main(sums) if self.joint_batches else add_over_ranks(sums)
        mean = total / count.clamp(min=1)  # (K,)
        counts = (count > 0) & torch.isfinite(mean)
        factor = self.momentum * self.seen.to(mean)  # (K,)
        moved = factor * self.average + (1 - factor) * mean
        self.average.copy_(torch.where(counts, moved, self.average.double()))
        self.seen.logical_or_(counts)

    @torch.no_grad()
    def note_unjudged(self, lost: Int[Tensor, " L"], judged: Int[Tensor, " M"]) -> None:
        """Note which keys of a batch had values, but none that could be used.

        Args:
            lost: (L,) keys of values that could not be used, negative: none.
            judged: (M,) keys of those that could.
        """
        marks = self.unjudged.new_zeros(2, len(self.unjudged) + 1)
        for mark, keys in zip(marks, (lost, judged), strict=True):
            mark[keys.to(marks.device).clamp(min=-1) + 1] = True
        without, having = marks[:, 1:]
        self.unjudged.logical_or_(without).logical_and_(~having)

    def look_up(self, keys: Int[Tensor, " M"], fallback: Float[Tensor, " M"]) -> Tensor:
        """Return (M,) the averages of these keys; `fallback` where there is none yet.

        Args:
            keys: (M,) rows of the table.
            fallback: (M,).
        """
        average, seen = self.average.to(fallback), self.seen.to(fallback.device)
        keys = keys.to(fallback.device)
        rows = keys.clamp(min=0)
        return torch.where(seen[rows] & (keys >= 0), average[rows], fallback)

    def filled(self) -> Float[Tensor, " K"]:
        """Return (K,) the averages, NaN where no batch has named the key; a copy."""
        return torch.where(self.seen, self.average, math.nan)

    def extra_repr(self) -> str:
        """Size, for `print(loss)`."""
        return f"{len(self.average)} rows, momentum={self.momentum:g}"
