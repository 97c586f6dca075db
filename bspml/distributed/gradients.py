"""The gradients of all ranks as one: what makes W processes take the step of one."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, distributed

from bspml.distributed.group import ranks
from bspml.distributed.rows import add_over_ranks

_BUCKET = 1 << 26  # bytes sent at a time


def add_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace each gradient by its sum over the ranks, in place.

    For a network whose loss every rank computed from the gathered batch (`gather_batch`).
    Parameters without a gradient are left out; they must be the same on every rank.
    """
    grads = [p.grad for p in parameters if p.grad is not None]
    if ranks() == 1 or not grads:
        return
    for bucket in _buckets(grads):
        flat = torch.cat([grad.reshape(-1) for grad in bucket])
        add_over_ranks(flat)
        for grad, summed in zip(bucket, flat.split([g.numel() for g in bucket]), strict=True):
            grad.copy_(summed.view_as(grad))


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Replace each gradient by its mean over the ranks, in place.

    For what every rank computed in full: parameters of the loss, such as proxies.  The ranks'
    gradients then differ by rounding only, and must not drift apart.
    """
    parameters = list(parameters)
    add_gradients(parameters)
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.div_(ranks())


def check_same_form(parameters: Iterable[Tensor]) -> None:
    """Fail if the gradients of the ranks do not line up: added, they would be nonsense.

    Raises:
        RuntimeError: names the number of values on each rank.
    """
    if ranks() == 1:
        return
    own = [tuple(p.shape) for p in parameters if p.grad is not None]
    everyone: list[list] = [[] for _ in range(ranks())]
    distributed.all_gather_object(everyone, own)
    if any(theirs != own for theirs in everyone):
        raise RuntimeError(
            "the ranks have gradients of different parameters "
            f"({', '.join(str(len(theirs)) for theirs in everyone)} tensors)."
        )


def _buckets(grads: list[Tensor]) -> Iterable[list[Tensor]]:
    """Yield runs of gradients of one kind that together fit a bucket, or a single larger one."""
    run: list[Tensor] = []
    size = 0
    for grad in grads:
        added = grad.numel() * grad.element_size()
        alike = not run or (grad.dtype, grad.device) == (run[0].dtype, run[0].device)
        if run and (not alike or size + added > _BUCKET):
            yield run
            run, size = [], 0
        run.append(grad)
        size += added
    if run:
        yield run
