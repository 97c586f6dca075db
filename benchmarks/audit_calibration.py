"""Are the numbers that an audit promises of its flags and suggestions right?

    python benchmarks/audit_calibration.py --root DATA --cache CACHE [--draws 20] [--only cub ...]

For each data set and noise of label_errors.py (Omniglot: its first five alphabets) and for Gaussian
classes, means over draws: how many labels the report's default flags, `select(n=100)` and
`select(precision=.8)` choose, and the share of them that is wrong, expected and found; and of the
suggestions, by their probability, how many there are and how many are right.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from command import at_least, end
from label_errors import ALPHABETS, draw, first_groups
from local_data import DataSet, load
from planted_noise import similar_classes

import bspml

NOISES = ("random 0.1", "random 0.3", "random 0.5", "similar-1 0.1", "similar-1 0.3",
          "similar-3 0.1", "similar-3 0.3")  # fmt: skip
CHOICES = ({}, {"n": 100}, {"precision": 0.8})
EDGES = (0.5, 0.8, 0.95, 1.01)


def gaussian(classes: int, each: int, dims: int, apart: float) -> DataSet:
    """Classes of unit scatter whose centres are `apart` times a standard normal vector."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), each)
    centres = apart * rng.standard_normal((classes, dims))
    features = centres[labels] + rng.standard_normal((len(labels), dims))
    return DataSet(features, labels, np.zeros(classes, int), {})


GAUSSIAN = {
    "20 x 10 in 32, centres 0.7": (20, 10, 32, 0.7),
    "20 x 5 in 32, centres 0.7": (20, 5, 32, 0.7),
    "10 x 100 in 32, centres 0.4": (10, 100, 32, 0.4),
}


def measure(features: np.ndarray, labels: np.ndarray, true: np.ndarray) -> list[float]:
    """Flagged, expected and found for each choice; counted and right for each bin."""
    report = bspml.audit(features, labels)
    wrong, numbers = labels != true, []
    for choice in CHOICES:
        chosen = report.select(**choice)
        n = max(1, len(chosen.rows))
        numbers += [len(chosen.rows), chosen.wrong / n, wrong[chosen.rows].sum() / n]
    changed = report.suggested_labels != labels
    place = np.digitize(report.suggestion_probability, EDGES) - 1
    for k in range(len(EDGES) - 1):
        some = changed & (place == k)
        numbers += [some.sum(), (report.suggested_labels == true)[some].sum()]
    return numbers


def main() -> None:
    """Print a row per data set and noise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--draws", type=at_least(1), default=20)
    parser.add_argument("--only", nargs="+", default=("gaussian", "cub", "cifar", "omniglot"))
    options = parser.parse_args()
    if {*options.only} - {"gaussian"} and None in (options.root, options.cache):
        parser.error("photos need --root and --cache; --only gaussian needs neither")
    sets: dict[str, DataSet] = {}
    for name in options.only:
        if name == "gaussian":
            sets |= {title: gaussian(*shape) for title, shape in GAUSSIAN.items()}
        else:
            data = load(name, options.root, options.cache)
            sets[name] = first_groups(data, ALPHABETS) if name == "omniglot" else data
    print("| data | noise | flagged: expected, found wrong | n = 100 | precision .8 "
          "| suggestions of .5 to .8, right | .8 to .95 | above .95 |\n"
          "|:--|:--|:--|:--|:--|:--|:--|:--|")  # fmt: skip
    for name, data in sets.items():
        near = similar_classes(data)
        for noise in NOISES:
            runs = []
            for seed in range(options.draws):
                drawn = draw(data, noise, seed, near)
                runs.append(measure(drawn.features, drawn.labels, data.labels))
            v = np.mean(runs, 0)
            cells = [f"{v[3 * i]:.0f}: {v[3 * i + 1]:.2f}, {v[3 * i + 2]:.2f}" for i in range(3)]
            for k in range(len(EDGES) - 1):
                count, right = v[9 + 2 * k], v[10 + 2 * k]
                cells.append(f"{count:.0f}, {right / count:.2f}" if count else "0")
            print(f"| {name} | {noise} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    end(main)
