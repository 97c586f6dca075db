"""Bias, coverage and false alarms of the noise-rate estimate on synthetic classes.

    python benchmarks/noise_rate_synthetic.py --runs 100 [--out curves.csv] [--figure curves.svg]

C Gaussian classes of n samples in 64 dimensions (centres at `strength` times a standard normal
vector, unit scatter), labels redrawn at random with the given probability.  Per setting: mean of
estimate minus realised rate, share of runs whose 95 % interval holds the realised rate, mean
interval, and the share of wrong labels among those kept at q < .05.  Seeds are 0 .. runs - 1.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np
from command import at_least, end

from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.noise_rate import estimate_noise

SIZES = (2, 3, 5, 10, 20, 40)
CLASSES = (2, 3, 5, 10, 100)
RATES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)
FIELDS = (
    "strength", "classes", "size", "rate", "runs", "bias", "storey_bias", "rmse", "coverage",
    "low", "high", "kept", "kept_wrong", "false_alarms",
)  # fmt: skip


def draw(size: int, classes: int, rate: float, strength: float, seed: int):
    """Embeddings, given labels and which are wrong."""
    rng = np.random.default_rng(seed)
    centres = strength * rng.normal(size=(classes, 64))
    true = np.repeat(np.arange(classes), size)
    embeddings = centres[true] + rng.normal(size=(len(true), 64))
    wrong = rng.random(len(true)) < rate
    labels = np.where(wrong, (true + rng.integers(1, classes, len(true))) % classes, true)
    return embeddings.astype(np.float32), labels, wrong


def measure(size: int, classes: int, rate: float, strength: float, runs: int) -> dict:
    """One row of the table."""
    rows = []
    for seed in range(runs):
        embeddings, labels, wrong = draw(size, classes, rate, strength, seed)
        if len(np.unique(labels)) < 2:
            continue
        estimate = estimate_noise(contrastive_statistics(embeddings, labels, null_bins=1 << 14))
        truth = wrong.mean()
        low, high = estimate.interval
        keep = (estimate.q_values < 0.05).numpy()
        kept_wrong = wrong[keep].mean() if keep.any() else np.nan
        dropped = (estimate.q_values >= 0.05).numpy() & ~wrong
        rows.append(
            (estimate.noise_rate - truth, estimate.storey - truth, low <= truth <= high, low, high,
             keep.mean(), kept_wrong, dropped.sum() / max(1, (~wrong).sum()))
        )  # fmt: skip
    table = np.array(rows, float)
    mean = np.nanmean(table, 0) if np.isfinite(table[:, 6]).any() else table.mean(0)
    return {
        "strength": strength,
        "classes": classes,
        "size": size,
        "rate": rate,
        "runs": len(rows),
        "bias": mean[0],
        "storey_bias": mean[1],
        "rmse": float(np.sqrt((table[:, 0] ** 2).mean())),
        "coverage": mean[2],
        "low": mean[3],
        "high": mean[4],
        "kept": mean[5],
        "kept_wrong": mean[6],
        "false_alarms": mean[7],
    }


def draw_curves(rows: list[dict], path: Path) -> None:
    """Estimate minus truth over class size, a panel per class count, a line per rate."""
    from matplotlib.figure import Figure

    counts = sorted({r["classes"] for r in rows})
    figure = Figure(figsize=(3 * len(counts), 3), layout="constrained")
    for axis, count in zip(figure.subplots(1, len(counts), sharey=True, squeeze=False)[0], counts,
                           strict=True):  # fmt: skip
        for rate in RATES:
            line = [r for r in rows if r["classes"] == count and r["rate"] == rate]
            if line:
                sizes = [r["size"] for r in line]
                axis.plot(sizes, [r["bias"] for r in line], "o-", ms=3, label=f"rate {rate:g}")
        axis.set(xscale="log", title=f"{count} classes", xlabel="samples a class")
        axis.axhline(0, color="0.6", lw=0.8)
    figure.axes[0].set_ylabel("mean estimate minus truth")
    figure.axes[-1].legend(fontsize=7)
    figure.savefig(path)


def main() -> None:
    """Measure every setting; print a table, and write CSV and figure if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=at_least(1), default=100)
    parser.add_argument("--strength", type=float, default=1.0)
    parser.add_argument("--classes", type=at_least(2), nargs="+", default=CLASSES)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    rows = []
    print("| classes | size | rate | estimate - truth | Storey - truth | covered | interval | "
          "kept at q<.05 (wrong) |\n|---|---|---|---|---|---|---|---|")  # fmt: skip
    begin = time.perf_counter()
    for classes in options.classes:
        for size in options.sizes:
            for rate in RATES:
                if rate >= (classes - 1) / classes:
                    continue  # renamed classes: no statistic can tell
                row = measure(size, classes, rate, options.strength, options.runs)
                rows.append(row)
                print(
                    f"| {classes} | {size} | {rate:g} | {row['bias']:+.3f} | "
                    f"{row['storey_bias']:+.3f} | {row['coverage']:.2f} | "
                    f"{row['low']:.2f}-{row['high']:.2f} | {row['kept']:.2f} "
                    f"({row['kept_wrong']:.3f}) |",
                    flush=True,
                )
    below = sum(r["coverage"] < 0.9 for r in rows)
    print(f"\n{len(rows)} settings, coverage below .90 in {below}; "
          f"{time.perf_counter() - begin:.0f} s")  # fmt: skip
    if options.out:
        with options.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)
    if options.figure:
        draw_curves(rows, options.figure)


if __name__ == "__main__":
    end(main)
