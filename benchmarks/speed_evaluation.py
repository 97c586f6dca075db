"""Retrieval metrics for every K against pml's precision_at_1 alone: seconds and peak memory.

    python benchmarks/speed_evaluation.py                     # 60,502 x 512, classes like SOP's
    python benchmarks/speed_evaluation.py --samples 120000 --dim 100

Random unit embeddings with a weak class signal.  Each measurement is a process of its own, so that
the peaks do not add up; the peak is of the whole process, libraries and embeddings included, and
`before` is what it held when the measurement began.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path

RUNS = ("ours", "ours-torch", "ours-clustering", "pml")


def make_data(samples: int, dim: int, class_size: int, seed: int = 0):
    import torch

    draw = torch.Generator().manual_seed(seed)
    # Sizes from 2 to 2 * class_size - 2, as in SOP (2 to 12, 5.3 on average).
    sizes = torch.randint(2, max(3, 2 * class_size - 1), (samples // 2,), generator=draw)
    labels = torch.repeat_interleave(torch.arange(len(sizes)), sizes)[:samples]
    embeddings = torch.randn(samples, dim, generator=draw)
    for start in range(0, samples, 4096):
        part = slice(start, start + 4096)
        for row, label in enumerate(labels[part].tolist(), start):
            centre = torch.Generator().manual_seed(label)
            embeddings[row] += 0.5 * torch.randn(dim, generator=centre)
    return torch.nn.functional.normalize(embeddings), labels


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Peak(threading.Thread):
    """Highest resident size while the measurement runs, sampled every 20 ms."""

    def __init__(self):
        super().__init__(daemon=True)
        self.before, self.highest, self.done = resident_bytes(), 0, threading.Event()

    def run(self):
        while not self.done.wait(0.02):
            self.highest = max(self.highest, resident_bytes())


def measure(name: str, args: argparse.Namespace) -> dict:
    import torch

    embeddings, labels = make_data(args.samples, args.dim, args.class_size)
    if name == "pml":
        from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

        calculator = AccuracyCalculator(
            include=("precision_at_1",), k=1, device=torch.device("cpu")
        )

        def work(x, y):
            return calculator.get_accuracy(x, y)["precision_at_1"]
    else:
        import bspml

        backend = "torch" if name == "ours-torch" else "auto"

        def work(x, y):
            found = bspml.evaluate(x, y, backend=backend, clustering=name == "ours-clustering")
            return found.recall_at_k[1]

    work(embeddings[:500], labels[:500])  # imports and first calls are not what is compared
    peak = Peak()
    peak.start()
    start, cpu = time.perf_counter(), time.process_time()
    recall = work(embeddings, labels)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak.done.set()
    peak.join()
    # the kernel's own high-water mark, in case the sampling missed a spike during the work
    high = max(peak.highest, resident_bytes())
    return {
        "run": name,
        "recall_at_1": recall,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),
        "peak_gb": round(high / 1e9, 2),
        "before_gb": round(peak.before / 1e9, 2),
        "process_peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=60_502)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--class-size", type=int, default=5)
    parser.add_argument("--runs", nargs="+", default=list(RUNS), choices=RUNS)
    parser.add_argument("--only", choices=RUNS, help=argparse.SUPPRESS)  # the child process
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure(args.only, args)))
        return
    size = ["--samples", args.samples, "--dim", args.dim, "--class-size", args.class_size]
    results = []
    for name in args.runs:
        command = [sys.executable, __file__, "--only", name, *map(str, size)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        results.append(json.loads(output.splitlines()[-1]))
        print(json.dumps(results[-1]), flush=True)
    seconds = {r["run"]: r["seconds"] for r in results}
    if "pml" in seconds:
        for name in seconds:
            print(f"{name}: {seconds[name] / seconds['pml']:.2f} x pml's precision_at_1")


if __name__ == "__main__":
    main()
