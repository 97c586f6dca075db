"""Time and memory of an audit as large as Stanford Online Products: 59,551 samples, 11,318 classes.

    python benchmarks/audit_scale.py [--samples 59551] [--classes 11318] [--dim 512] [--rate 0.2]
        [--threads 2] [--search auto] [--no-save]

Synthetic embeddings: one centre per class on the sphere, classes of 2 to 12 samples, noise that
leaves neighbouring classes apart but not far; a share of the labels is redrawn at random.  Prints
seconds and the largest resident memory of the process, with and without what was there
before the audit (interpreter, libraries, embeddings).
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from command import end


def make(samples: int, classes: int, dim: int, rate: float) -> tuple[np.ndarray, ...]:
    """Embeddings (N, D) float32, labels as given, and which are wrong."""
    rng = np.random.default_rng(0)
    sizes = np.minimum(2 + rng.poisson(max(samples / classes - 2, 0.1), classes), 12)
    true = np.repeat(np.arange(classes), sizes)
    true = np.concatenate([true, rng.integers(0, classes, max(0, samples - len(true)))])[:samples]
    centres = rng.standard_normal((classes, dim)).astype(np.float32)
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    noise = rng.standard_normal((samples, dim), dtype=np.float32)
    embeddings = centres[true] + noise * np.float32(1.0 / np.sqrt(dim))
    wrong = rng.random(samples) < rate
    labels = np.where(wrong, (true + rng.integers(1, classes, samples)) % classes, true)
    return embeddings, labels, true


def peak_mib() -> float:
    """Largest resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=59_551)
    parser.add_argument("--classes", type=int, default=11_318)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--search", default="auto", choices=("auto", "exact", "neighbours"))
    parser.add_argument("--no-save", action="store_true")
    options = parser.parse_args()
    for name in ("OMP", "MKL", "NUMBA"):
        os.environ[f"{name}_NUM_THREADS"] = str(options.threads)
    # Imported once the number of threads is settled.
    import torch

    import bspml

    torch.set_num_threads(options.threads)
    embeddings, labels, true = make(options.samples, options.classes, options.dim, options.rate)
    bspml.audit(embeddings[:500], labels[:500] % 20)  # compile the kernels
    before, begin, busy = peak_mib(), time.perf_counter(), time.process_time()
    report = bspml.audit(embeddings, labels, search=options.search)
    seconds, busy = time.perf_counter() - begin, time.process_time() - busy
    wrong = labels != true
    print(
        f"{options.samples} x {options.dim}, {options.classes} classes, {options.threads} threads, "
        f"search {options.search}\n"
        f"audit: {seconds:.0f} s, {busy:.0f} s of processor time; "
        f"peak {peak_mib():.0f} MiB, {before:.0f} before it\n"
        f"{report.sentence}\ntruth: {wrong.mean():.3f}; suggested right "
        f"{(report.suggested_labels == true)[wrong].mean():.3f} of the wrong labels; "
        f"precision of weight 0 {wrong[report.flagged].mean():.3f}",
        flush=True,
    )
    if not options.no_save:
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            files = report.save(folder)
            sizes = [f"{path.name} {path.stat().st_size / 2**20:.1f}" for path in map(Path, files)]
        print(f"save: {time.perf_counter() - begin:.0f} s; peak {peak_mib():.0f} MiB; MiB: {sizes}")


if __name__ == "__main__":
    end(main)
