"""Seconds in alternation, peak memory, and a description of the machine."""

from __future__ import annotations

import os
import platform
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def alternate(
    calls: dict[str, Callable[[], Any]],
    repeats: int,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each call, `repeats` times in turn, so that a slow minute meets all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(warm_up + repeats):
        for name, call in calls.items():
            begin = clock()
            call()
            if turn >= warm_up:
                seconds[name].append(clock() - begin)
    return seconds


def row(
    name: str,
    bar: str,
    seconds: dict[str, list[float]],
    limit: float | None,
    peak_mb: float | None = None,
    **details: Any,
) -> Row:
    """One line of the table from the seconds of "ours" and "reference".

    The ratio is the median over the turns of ours / reference of that turn: what slows the machine
    for a while slows both.  `limit` is the largest ratio allowed.
    """
    ratios = [o / r for o, r in zip(seconds["ours"], seconds["reference"], strict=True)]
    ratio = statistics.median(ratios)
    return {
        "row": name,
        "bar": bar,
        "ours_s": statistics.median(seconds["ours"]),
        "reference_s": statistics.median(seconds["reference"]),
        "ratio": ratio,
        "ratio_spread": [min(ratios), max(ratios)],
        "met": None if limit is None else ratio <= limit,
        "peak_mb": peak_mb,
        "details": details,
    }


class Peak(threading.Thread):
    """Highest resident size while the block runs, read every 5 ms.

        with Peak() as peak: work()
        peak.highest, peak.before

    Both in bytes, of the whole process: interpreter, libraries and inputs included.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before, self.highest, self._done = 0, 0, threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.005):
            self.highest = max(self.highest, resident_bytes())

    def __enter__(self) -> Peak:
        self.before = self.highest = resident_bytes()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join()
        self.highest = max(self.highest, resident_bytes())


def resident_bytes() -> int:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    import numpy
    import pytorch_metric_learning
    import torch

    cuda = torch.cuda.is_available()
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "gpu": torch.cuda.get_device_name(0) if cuda else "no CUDA device",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "pytorch_metric_learning": pytorch_metric_learning.__version__,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
