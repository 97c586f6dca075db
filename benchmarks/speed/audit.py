"""A whole audit against the blocked product of its features with themselves.

    python benchmarks/speed/audit.py                     # every size
    python benchmarks/speed/audit.py 8000 1280 400       # one, in this process

Features of C classes, each a Gaussian cloud around a random direction as wide as the direction is
long, at least two samples a class; a fifth of the labels is redrawn from the other classes. The
product, `torch.mm` block by block with the same threads and its best block size, is timed directly
before and after the audit in the same process, and the ratio is to the mean of both. Seconds are
those of the processor, all threads together, so that others on a shared machine count less, though
they take its caches; `wall_s` is what one waits. Every size has a process of its own, so its peak
memory is its own; it is that of the whole process, interpreter, libraries and features included.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Python put this folder first, where `statistics` stands before the library's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import time

import numpy as np
import torch

import bspml
from speed.measuring import Peak, Row
from speed.statistics import blocked_product

SHAPES = ((8_000, 1_280), (25_882, 512))
CLASSES = (10, 400, 3_997)
LIMIT = 2.5
RATE = 0.2
BLOCKS = (1024, 2048)


def measure_audit(quick: bool) -> list[Row]:
    """A line for every size, each measured by a process of its own."""
    shapes = ((1_000, 64),) if quick else SHAPES
    return [
        _in_a_process(samples, dim, classes)
        for samples, dim in shapes
        for classes in ((10,) if quick else CLASSES)
    ]


def _in_a_process(*size: int) -> Row:
    command = [sys.executable, __file__, *map(str, size), str(torch.get_num_threads())]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def features(samples: int, dim: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels as the module says."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((classes, dim), dtype=np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    each = min(2, samples // classes)
    rest = rng.integers(0, classes, samples - each * classes)
    true = np.concatenate([np.repeat(np.arange(classes), each), rest])
    noise = rng.standard_normal((samples, dim), dtype=np.float32) / np.float32(np.sqrt(dim))
    others = (true + rng.integers(1, classes, samples)) % classes
    return centres[true] + noise, np.where(rng.random(samples) < RATE, others, true)


def measure_one(samples: int, dim: int, classes: int) -> Row:
    """One line, here."""
    x, labels = features(samples, dim, classes)
    small = features(500, 16, 20)
    bspml.audit(*small), bspml.audit(*small, a=9.0)  # compile either engine of the statistics
    before = _product_seconds(x)
    with Peak() as peak:
        begin, start = time.process_time(), time.perf_counter()
        report = bspml.audit(x, labels)
        seconds, wall = time.process_time() - begin, time.perf_counter() - start
    reference = (before + _product_seconds(x)) / 2
    ratio = seconds / reference
    return {
        "row": f"audit, {samples:,} x {dim:,}, {classes:,} classes",
        "bar": f"at most {LIMIT} x the blocked product",
        "ours_s": seconds,
        "reference_s": reference,
        "ratio": ratio,
        "met": ratio <= LIMIT,
        "peak_mb": peak.highest / 1e6,
        "details": {
            "wall_s": wall,
            "before_mb": peak.before / 1e6,
            "rate": report.total_rate,
            "planted": RATE,
        },
    }


def _product_seconds(x: np.ndarray) -> float:
    rows, seconds = torch.from_numpy(x), []
    for block in BLOCKS:
        call, begin = blocked_product(rows, block), time.process_time()
        call()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def main(arguments: list[str]) -> None:
    if not arguments:
        for line in measure_audit(quick=False):
            print(json.dumps(line), flush=True)
        return
    numbers: Any = [int(number) for number in arguments]
    torch.set_num_threads(numbers[3] if len(numbers) > 3 else 1)
    print(json.dumps(measure_one(*numbers[:3])))


if __name__ == "__main__":
    main(sys.argv[1:])
