"""N rows over W ranks: who does which, and all of them back in order.

Shares are runs of consecutive rows, in the order of the ranks, that differ by one row (or one
block) at most, so that gathering is putting one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, distributed

from bspml.distributed.group import message_device, rank, ranks
from bspml.errors import InputError
from bspml.tensors.checks import check_whole

# Backends differ in whether they take these kinds of numbers.
_TRAVELS_AS = {torch.bool: torch.uint8, torch.bfloat16: torch.float32, torch.float16: torch.float32}


def share_of(n: int, block: int = 1, *, of_rank: int | None = None) -> slice:
    """Return this rank's run of n rows.

    Args:
        n: rows in all, at least 0.
        block: rows that stay together: shares are cut between blocks of this size only.
        of_rank: another rank's share.

    Example:
        >>> share_of(10)  # without other ranks
        slice(0, 10, None)
    """
    own = rank() if of_rank is None else of_rank
    return nth_share(check_whole(n, "n", low=0), own, ranks(), check_whole(block, "block"))


def nth_share(n: int, number: int, shares: int, block: int = 1) -> slice:
    """Return the slice of run `number` when n rows are cut into `shares` runs.

    Args:
        n: number of rows.
        number: which run, in [0, shares).
        shares: number of runs.
        block: rows that stay together.

    Example:
        >>> [nth_share(8, r, 3) for r in range(3)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None)]
    """
    blocks = -(-n // block)
    size, remainder = divmod(blocks, shares)
    start = number * size + min(number, remainder)
    stop = start + size + (number < remainder)
    return slice(min(start * block, n), min(stop * block, n))


def gather_rows(part: Tensor) -> Tensor:
    """Return the rows of every rank, one rank after the other, on every rank.

    Args:
        part: (n_r, ...) this rank's; n_r may differ between ranks and be 0, the rest may not.

    Returns:
        (sum of n_r, ...), on the device of `part`, without gradient.
    """
    return torch.cat(gather_parts(part))


def gather_parts(part: Tensor, sizes: list[int] | None = None) -> list[Tensor]:
    """Return the rows of each rank, [(n_0, ...), (n_1, ...), ...], without gradient.

    Args:
        part: (n_r, ...).
        sizes: n_0, n_1, ... if known; else the ranks ask each other.
    """
    if ranks() == 1:
        return [part.detach()]
    if sizes is None:
        sizes = gather_sizes(len(part))
    home, longest = part.device, max(sizes)
    # Backends differ in whether they take tensors of unequal size.
    sent = part.detach().to(_TRAVELS_AS.get(part.dtype, part.dtype))
    sent = sent.to(message_device()) if home.type == "cpu" else sent
    padded = sent.new_zeros((longest, *sent.shape[1:]))
    padded[: len(sent)] = sent
    received = [torch.empty_like(padded) for _ in sizes]
    distributed.all_gather(received, padded)
    return [rows[:n].to(home, part.dtype) for rows, n in zip(received, sizes, strict=True)]


def gather_sizes(n: int) -> list[int]:
    """Return each rank's n."""
    if ranks() == 1:
        return [n]
    own = torch.tensor([n], device=message_device())
    sizes = [torch.empty_like(own) for _ in range(ranks())]
    distributed.all_gather(sizes, own)
    return [int(size) for size in sizes]


def computed_by_rows(
    n: int, compute: Callable[[slice], Tensor], block: int = 1, device: torch.device | str = "cpu"
) -> Tensor:
    """Return `compute(slice(0, n))`, each rank computing its share of the rows.

    Args:
        n: rows, at least 1.
        compute: returns the (stop - start, ...) results of a slice of rows, on `device`.
        block: rows per batch of `compute`: shares are cut between batches only, so that every
            batch is the one that a single process computes, bit for bit.
        device: this rank's, of one kind on all ranks.

    Returns:
        (n, ...) on every rank, on its `device`.
    """
    if ranks() == 1:
        return compute(slice(0, n))
    rows = share_of(n, block)
    part = compute(rows) if rows.stop > rows.start else None
    # A rank without rows learns from rank 0, which always has some, what a row looks like.
    form = [None if part is None else (part.shape[1:], part.dtype)]
    distributed.broadcast_object_list(form, src=0)
    if form[0] is None:
        raise InputError("there must be at least one row to compute; got none.")
    if part is None:
        part = torch.empty((0, *form[0][0]), dtype=form[0][1], device=device)
    return gather_rows(part)


def add_over_ranks(values: Tensor) -> Tensor:
    """Return the sum over the ranks of a tensor of the same shape on each, in place."""
    return _in_place(values, distributed.all_reduce)


def copy_of_main(values: Tensor) -> Tensor:
    """Return rank 0's tensor on every rank, in place; of the same shape on each."""
    return _in_place(values, lambda sent: distributed.broadcast(sent, src=0))


def _in_place(values: Tensor, exchange: Callable[[Tensor], object]) -> Tensor:
    if ranks() == 1:
        return values
    sent = values.to(message_device()) if values.device.type == "cpu" else values
    sent = sent.contiguous()
    exchange(sent)
    return values if sent is values else values.copy_(sent)
