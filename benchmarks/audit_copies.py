"""Does an audit count copies once?

    python benchmarks/audit_copies.py [--root DATA --cache CACHE --only cub] [--draws 20]

A share of the rows stands in the data twice, with the labels that were given: exact copies, or
ones moved by normal noise of .05 or .2 of the features' scatter within classes.  Gaussian classes
(centres 3 or .7 times as far apart as the samples of one class), or data sets of local_data.py.
Printed are means over draws: the best estimate without and with the
copies, by how much a draw's moves on the mean and at most, and how many of the wrong labels among
the rows that were there first are flagged without and with them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from audit_calibration import gaussian
from command import at_least, end
from local_data import DataSet, load
from planted_noise import flip, similar_classes

import bspml

SHARES = (0.1, 0.2, 0.5, 1.0)
NOISES = ("random 0.2", "similar-1 0.2")
SHAPES = {"20 x 10 in 32, centres 3": (20, 10, 32, 3.0), "centres 0.7": (20, 10, 32, 0.7)}
JITTERS = {"exact": 0.0, "moved by .05": 0.05, "moved by .2": 0.2}


def with_copies(
    data: DataSet, labels: np.ndarray, share: float, jitter: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels, `share` of the rows again at the end."""
    rng = np.random.default_rng((seed, 2))
    rows = rng.choice(len(labels), round(share * len(labels)), replace=False)
    means = np.stack([data.features[data.labels == c].mean(0) for c in range(len(data.groups))])
    scatter = (data.features - means[data.labels]).std()
    again = data.features[rows] + jitter * scatter * rng.standard_normal(data.features[rows].shape)
    features = np.concatenate([data.features, again.astype(data.features.dtype)])
    return features, np.concatenate([labels, labels[rows]])


def main() -> None:
    """Print a row per data set, noise, kind of copy and share."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--only", nargs="+", default=list(SHAPES))
    parser.add_argument("--draws", type=at_least(1), default=20)
    options = parser.parse_args()
    if {*options.only} - {*SHAPES} and None in (options.root, options.cache):
        parser.error("photos need --root and --cache; Gaussian classes need neither")
    print("| data | noise | copies | share of rows copied | estimate without | with "
          "| moved: mean, at most | wrong labels found without | with |\n"
          "|:--|:--|:--|--:|--:|--:|:--|--:|--:|")  # fmt: skip
    for name in options.only:
        real = None if name in SHAPES else load(name, options.root, options.cache)
        for noise in NOISES:
            moves: dict[tuple[str, float], list[list[float]]] = {}
            for seed in range(options.draws):
                data = gaussian(*SHAPES[name], seed) if real is None else real
                kind, rate = noise.split()
                labels = flip(data, kind, float(rate), seed, similar_classes(data))
                wrong, n = labels != data.labels, len(labels)
                alone = bspml.audit(data.features, labels)
                for copies, jitter in JITTERS.items():
                    for share in SHARES:
                        report = bspml.audit(*with_copies(data, labels, share, jitter, seed))
                        found = [(r.flagged[:n] & wrong).sum() for r in (alone, report)]
                        rates = [alone.total_rate, report.total_rate]
                        moves.setdefault((copies, share), []).append(rates + found)
            for (copies, share), runs in moves.items():
                without, with_them, found, found_again = np.mean(runs, 0)
                moved = np.abs(np.subtract(*np.transpose(runs)[:2]))
                print(f"| {name} | {noise} | {copies} | {share:.0%} | {without:.3f} "
                      f"| {with_them:.3f} | {moved.mean():.3f}, {moved.max():.3f} | {found:.1f} "
                      f"| {found_again:.1f} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    end(main)
