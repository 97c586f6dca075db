"""What one rank does for all: load first, solve once, write, and share the outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import distributed, nn

from bspml.distributed.failure import portable
from bspml.distributed.group import is_main, ranks, wait_for_all
from bspml.distributed.rows import copy_of_main

Outcome = TypeVar("Outcome")


@runtime_checkable
class Weighted(Protocol):
    """What moves sample weights: a weight update of a curriculum."""

    weights: Any

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the weights."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what `state_dict` returned."""


def from_main(function: Callable[[], Outcome]) -> Outcome:
    """Call `function` on rank 0 only; every rank returns its result, or raises its error.

    Every rank must come here.  The result travels as a pickle.

    Example:
        >>> from_main(lambda: 2 + 2)  # without other ranks
        4
    """
    if ranks() == 1:
        return function()
    outcome: list[Any] = [None, None]
    if is_main():
        try:
            outcome[0] = function()
        except Exception as err:
            outcome[1] = portable(err)
            distributed.broadcast_object_list(outcome, src=0)
            raise
    distributed.broadcast_object_list(outcome, src=0)
    if outcome[1] is not None:
        outcome[1].said_elsewhere = True
        raise outcome[1]
    return outcome[0]


def main_first(function: Callable[[], Outcome]) -> Outcome:
    """Call `function` on every rank, on rank 0 before the others: they find what it cached."""
    if is_main():
        result = function()
        wait_for_all()
        return result
    wait_for_all()
    return function()


def solved_once(update: Weighted, solve: Callable[[], Outcome]) -> Outcome:
    """Call `solve`, which moves `update` and its weights, on rank 0; the others take its outcome.

    Args:
        update: what `solve` changes.
        solve: returns plain values.
    """
    if ranks() == 1:
        return solve()

    def on_main() -> tuple[Outcome, dict[str, Any], Any, Any]:
        result, table = solve(), update.weights
        return result, update.state_dict(), table.weights.cpu(), table.current_codes.cpu()

    result, state, weights, codes = from_main(on_main)
    if not is_main():
        update.load_state_dict(state)
        update.weights.relabel(codes)
        update.weights.update(weights)
    return result


def sync_weights(module: nn.Module) -> None:
    """Give every rank the parameters and buffers that rank 0 has, in place.

    For a `SampleWeights` that only rank 0 updated, or a network before the first step.
    """
    if ranks() == 1:
        return
    for tensor in module.state_dict().values():
        if isinstance(tensor, torch.Tensor):
            copy_of_main(tensor.detach())
    for part in module.modules():
        notice: Any = getattr(part, "notice_repairs", None)  # of a SampleWeights, unknown here
        if notice is not None:
            notice()
