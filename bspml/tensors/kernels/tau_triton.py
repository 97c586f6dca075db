"""A step of `RunningTau` by one kernel written in Triton, for CUDA.

The equations of `bspml.reducers.tau` on its four numbers: what takes torch some fifty launches.
"""

from __future__ import annotations

from typing import no_type_check

import torch
import triton
import triton.language as tl

from bspml.shapes import Tensor


def learn(
    batch: Tensor,
    count: float | None,
    buffers: tuple[Tensor, Tensor, Tensor, Tensor],
    momentum: float,
    exponential: bool,
    training: bool,
) -> Tensor:
    """Move the buffers, if training, and return tau, 0-d float64.

    Args:
        batch: float64, the batch's sum of w l and, after it if `count` is None, of w.
        count: the latter where the host knows it.
        buffers: average, total, correction and count, 0-d float64, changed in place.
        momentum: share of the old average kept.
        exponential: whether tau is the average; else the mean of all losses seen.
        training: whether the batch is learnt.
    """
    tau = torch.empty_like(buffers[0])
    with torch.cuda.device_of(batch):
        _learn[(1,)](
            batch,
            *buffers,
            tau,
            0.0 if count is None else count,
            momentum,
            COUNTED=count is not None,
            EXPONENTIAL=exponential,
            TRAINING=training,
        )
    return tau


@triton.jit
@no_type_check
def _learn(
    batch_ptr,
    average_ptr,
    total_ptr,
    correction_ptr,
    seen_ptr,
    tau_ptr,
    count: tl.float64,
    momentum: tl.float64,
    COUNTED: tl.constexpr,
    EXPONENTIAL: tl.constexpr,
    TRAINING: tl.constexpr,
):
    """One program.  COUNTED: the batch's number of losses is `count`, else beside its sum."""
    added = tl.load(batch_ptr)
    average, seen = tl.load(average_ptr), tl.load(seen_ptr)
    total, correction = tl.load(total_ptr), tl.load(correction_ptr)
    if COUNTED:
        number = seen * 0 + count
    else:
        number = tl.load(batch_ptr + 1)
    counts = (tl.abs(added) < float("inf")) & (number > 0)  # NaN compares false
    mean = added / tl.where(number > 0, number, 1.0)
    if TRAINING:
        kept = tl.where(seen > 0, seen * 0 + momentum, 0.0)
        average = tl.where(counts, kept * average + (1 - kept) * mean, average)
        addend = tl.where(counts, added, 0.0)
        summed = total + addend
        larger = tl.abs(total) >= tl.abs(addend)
        # What the addition rounds away (Neumaier's sum).
        correction += tl.where(larger, (total - summed) + addend, (addend - summed) + total)
        total = summed
        seen += tl.where(counts, number, 0.0)
        tl.store(average_ptr, average)
        tl.store(total_ptr, total)
        tl.store(correction_ptr, correction)
        tl.store(seen_ptr, seen)
    if EXPONENTIAL:
        now = average
    else:
        now = (total + correction) / seen
    tl.store(tau_ptr, tl.where(seen > 0, now, tl.where(counts, mean, 0.0)))
