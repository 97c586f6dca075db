"""One batch over several ranks: the loss must see all of its rows, as one process would.

Mining and pair losses are about pairs, and a pair may have its two samples on two ranks.  So
each rank embeds its part, gathers everybody's embeddings, and computes the loss of the whole
batch.  Only its own rows carry a gradient; with L the loss of the whole batch and e_r the rows
of rank r, the gradient of a parameter theta is

    dL/d theta = sum_r (d e_r / d theta)^T dL/d e_r,

so adding the ranks' gradients gives that of one process with the whole batch, exactly, however
uneven the parts are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bspml.distributed.group import rank, ranks
from bspml.distributed.rows import gather_parts


def gather_batch(part: Tensor, sizes: list[int] | None = None) -> Tensor:
    """Return the batch of all ranks, in the order of the ranks: the same on each.

    Args:
        part: (B_r, ...) this rank's rows; B_r may differ between ranks.
        sizes: B_0, B_1, ... if known.

    Returns:
        (B, ...); this rank's rows keep their gradient, the others are constants.
    """
    if ranks() == 1:
        return part
    parts = gather_parts(part, sizes)
    parts[rank()] = part
    return torch.cat(parts)


def gather_own_first(part: Tensor) -> Tensor:
    """Return the batch of all ranks as pytorch-metric-learning's DistributedLossWrapper orders it.

    This rank's rows come first, then the others' in the order of the ranks: another order on
    every rank.  With `part` the batch's sample indices, these are the rows to announce to
    `SampleWeights.set_batch` before that wrapper is called.

    Args:
        part: (B_r, ...); B_r may differ between ranks, which the wrapper itself does not allow.

    Returns:
        (B, ...); this rank's rows keep their gradient.
    """
    if ranks() == 1:
        return part
    parts = gather_parts(part)
    del parts[rank()]
    return torch.cat([part, *parts])


def gathered(value: Any, gather: Callable[[Tensor], Tensor] = gather_batch) -> Any:
    """Gather each tensor in a tuple, list or dict; None and the like stay as they are.

    Args:
        value: a tensor, or a nesting of tuples, lists and dicts.
        gather: what to apply to each tensor.
    """
    if isinstance(value, Tensor):
        return gather(value)
    if isinstance(value, tuple | list):
        return type(value)(gathered(v, gather) for v in value)
    if isinstance(value, dict):
        return {key: gathered(v, gather) for key, v in value.items()}
    return value


def mark_joint(module: Any) -> None:
    """Tell the parts of a loss or miner that each rank shows them the whole batch, in one order.

    A running threshold then counts the batch once, not once per rank, and a memory queues it as
    it comes.
    """
    for part in module.modules():
        if hasattr(part, "joint_batches"):
            part.joint_batches = True
