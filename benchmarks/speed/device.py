"""The steps on a CUDA device, in under five minutes: ratios, memory, and whether anything waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from speed.measuring import Row, alternate, row
from speed.steps import (
    MINER_BAR,
    SUPERLOSS_BAR,
    make_batch,
    miner_steps,
    superloss_steps,
)

BATCHES = (64, 256, 1024, 4096)


def measure_device(quick: bool) -> list[Row]:
    """A line per step and batch size; a line that says so without a device."""
    if not torch.cuda.is_available():
        reason = {"reason": "no CUDA device"}
        return [{"row": "steps on the device", "bar": "", "met": None, "details": reason}]
    lines = []
    for size in BATCHES[:2] if quick else BATCHES:
        emb, labels = make_batch(size, 512, "cuda")
        steps = miner_steps(emb, labels)
        lines.append(_line(f"miner + loss step, batch {size}, GPU", MINER_BAR, steps, 0.5))
        steps = superloss_steps(emb, labels)
        steps = {key: steps[key] for key in ("reference", "ours")}
        lines.append(_line(f"SuperLoss step, batch {size}, GPU", SUPERLOSS_BAR, steps, 1.5))
    return lines


def _line(name: str, bar: str, calls: dict[str, Callable[[], Any]], limit: float) -> Row:
    torch.cuda.reset_peak_memory_stats()
    _finished(calls["ours"])()
    peak = torch.cuda.max_memory_allocated() / 1e6
    seconds = alternate({key: _finished(call) for key, call in calls.items()}, 30, 5)
    waits = {key: _waits(call) for key, call in calls.items() if key != "reference"}
    return row(name, bar, seconds, limit, peak, waits_for_the_device=waits)


def _finished(call: Callable[[], Any]) -> Callable[[], None]:
    """The call and all its kernels."""

    def whole() -> None:
        call()
        torch.cuda.synchronize()

    return whole


def _waits(call: Callable[[], Any]) -> str:
    """What torch says of the first wait for the device; "no" if there is none."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    except RuntimeError as err:
        return str(err).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "no"
