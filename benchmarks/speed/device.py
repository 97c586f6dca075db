"""Everything that runs on a CUDA device, in under five minutes.

Steps with their memory and whether anything waits for the device; the statistics of the training
set against the blocked product there; Recall@K against a bare search for one neighbour; rounds of a
ResNet-50 against epochs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

import bspml
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.pair import pair_statistics
from speed.epoch import measure_epochs_on
from speed.measuring import Row, alternate, row
from speed.recall import BAR as RECALL_BAR, make_data
from speed.statistics import EXACT_BAR, blocked_product, clustered
from speed.steps import (
    MINER_BAR,
    SUPERLOSS_BAR,
    make_batch,
    miner_steps,
    superloss_steps,
)

BATCHES = (64, 256, 1024, 4096)
BLOCKS = (4096, 8192, 16384, 32768)
SIZES = ((25_882, 512), (59_551, 512))


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
    for samples, dim in ((3_000, 64),) if quick else SIZES:
        lines += _statistics(samples, dim)
    return [*lines, _million(quick), _recall(quick), *measure_epochs_on("cuda", quick)]


def _statistics(samples: int, dim: int) -> list[Row]:
    """Both exact statistics against the best blocked product, in classes of 6."""
    draw = torch.Generator().manual_seed(0)
    E = torch.nn.functional.normalize(torch.randn(samples, dim, generator=draw)).cuda()
    labels = torch.arange(samples) // 6
    products = {block: _finished(blocked_product(E, block)) for block in BLOCKS}
    tried = alternate(products, 3)
    reference = products[min(products, key=lambda block: sorted(tried[block])[1])]
    lines = []
    for name, call, bar, limit in (
        ("exact pair statistics", pair_statistics, EXACT_BAR, 1.0),
        ("exact contrastive statistics", contrastive_statistics, "", None),
    ):
        calls = {"ours": lambda call=call: call(E, labels), "reference": reference}
        lines.append(_line(f"{name}, {samples:,} x {dim}, GPU", bar, calls, limit, 5, False))
    return lines


def _million(quick: bool) -> Row:
    """The exact pair statistics of a million samples: the quadratic cost on a device, once."""
    E, labels = clustered(8_000 if quick else 1_000_000)
    E = E.cuda()
    call = _finished(lambda: pair_statistics(E, labels))
    pair_statistics(E[:5000], labels[:5000])
    torch.cuda.reset_peak_memory_stats()
    seconds = alternate({"ours": call}, 1, 0)["ours"][0]
    return {
        "row": f"exact pair statistics, {len(E):,} x {E.shape[1]}, GPU",
        "bar": "",
        "ours_s": seconds,
        "met": None,
        "peak_mb": torch.cuda.max_memory_allocated() / 1e6,
        "details": {},
    }


def _recall(quick: bool) -> Row:
    """All K by `bspml.evaluate` against the nearest neighbour alone by blocks of `topk`."""
    embeddings, labels = make_data(2_000 if quick else 60_502, 512, 5)
    E = embeddings.cuda()

    def nearest() -> None:
        for start in range(0, len(E), 4096):
            (E[start : start + 4096] @ E.T).topk(2)

    calls = {
        "ours": lambda: bspml.evaluate(E, labels, clustering=False),
        "reference": nearest,
    }
    name = f"Recall@K, all K, {len(E):,} x 512, GPU"
    return _line(name, f"{RECALL_BAR} (here: a float32 `topk`)", calls, None, 3, False)


def _line(
    name: str,
    bar: str,
    calls: dict[str, Callable[[], Any]],
    limit: float | None,
    turns: int = 30,
    step: bool = True,
) -> Row:
    """A row; of a training `step`, also whether it waits."""
    _finished(calls["ours"])()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    _finished(calls["ours"])()
    peak = (torch.cuda.max_memory_allocated() - before) / 1e6
    seconds = alternate({key: _finished(call) for key, call in calls.items()}, turns, 5 * step)
    if not step:
        return row(name, bar, seconds, limit, peak)
    waits = {key: _waits(call) for key, call in calls.items()}
    return row(name, bar, seconds, limit, peak, waits=waits)


def _finished(call: Callable[[], Any]) -> Callable[[], None]:
    """The call and all its kernels."""

    def whole() -> None:
        call()
        torch.cuda.synchronize()

    return whole


def _waits(call: Callable[[], Any]) -> int:
    """How often the call waits for the device, as torch counts it."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing" in str(warning.message) for warning in seen)
