"""Are the numbers that an audit promises of its rate, flags and suggestions right?

    python benchmarks/audit_calibration.py --root DATA --cache CACHE --store STORE [--draws 20]
        [--only cub ...] [--noise "random 0.1" ...]

For each data set and noise of label_errors.py (Omniglot: its first five alphabets) and for Gaussian
classes, over draws.  The first table: the true rate, the best estimate with its deviation and mean
error, and in how many draws the truth lies between the report's two ends.  The second, means: how
many labels the report's default flags, `select(n=100)` and `select(precision=.8)` choose, and the
share of all chosen ones that is wrong, expected and found; and of the suggestions, by their
probability, how many there are and how many are right.

What was said of a draw is kept in STORE, so that a run that was stopped goes on where it was; take
a new one after a change of bspml.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from command import at_least, end
from label_errors import ALPHABETS, draw, first_groups
from local_data import DataSet, load, made_once, named_after
from planted_noise import similar_classes

import bspml

NOISES = ("random 0", "random 0.1", "random 0.3", "random 0.5", "similar-1 0.1",
          "similar-1 0.3", "similar-3 0.1", "similar-3 0.3")  # fmt: skip
CHOICES = ({}, {"n": 100}, {"precision": 0.8})
EDGES = (0.5, 0.8, 0.95, 1.01)

TITLE_OF_FIVE = "20 x 5 in 32, centres 0.7"
WRONG_OF_FIVE = {"0.1": "0.2", "0.3": "0.4", "0.5": "0.6"}  # one, two, three of five

GAUSSIAN = {
    "20 x 10 in 32, centres 0.7": (20, 10, 32, 0.7),
    TITLE_OF_FIVE: (20, 5, 32, 0.7),
    "10 x 100 in 32, centres 0.4": (10, 100, 32, 0.4),
}


def gaussian(classes: int, each: int, dims: int, apart: float, seed: int) -> DataSet:
    """Classes of unit scatter whose centres are `apart` times a standard normal vector."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(classes), each)
    centres = apart * rng.standard_normal((classes, dims))
    features = centres[labels] + rng.standard_normal((len(labels), dims))
    return DataSet(features, labels, np.zeros(classes, int), {})


def sources(options: argparse.Namespace) -> dict[str, Callable[[int], DataSet]]:
    """By title, what gives the data of a draw: Gaussian classes anew, real ones always the same."""
    found: dict[str, Callable[[int], DataSet]] = {}
    for name in options.only:
        if name == "gaussian":
            found |= {title: partial(gaussian, *shape) for title, shape in GAUSSIAN.items()}
        else:
            data = load(name, options.root, options.cache)
            if name == "omniglot":
                data = first_groups(data, ALPHABETS)
            found[name] = partial(lambda same, seed: same, data)
    return found


def measure(features: np.ndarray, labels: np.ndarray, true: np.ndarray) -> np.ndarray:
    """What one draw says, in the order of the columns.

    Truth, estimate and both ends; how many are flagged, expected and found wrong, for each choice;
    suggestions and right ones for each bin.
    """
    report = bspml.audit(features, labels)
    wrong = labels != true
    numbers = [wrong.mean(), report.total_rate, report.lower_bound, report.upper_bound]
    for choice in CHOICES:
        chosen = report.select(**choice)
        numbers += [len(chosen.rows), chosen.wrong, wrong[chosen.rows].sum()]
    changed = report.suggested_labels != labels
    place = np.digitize(report.suggestion_probability, EDGES) - 1
    for k in range(len(EDGES) - 1):
        some = changed & (place == k)
        numbers += [some.sum(), (report.suggested_labels == true)[some].sum()]
    return np.array(numbers, np.float64)


def rate_row(title: str, runs: np.ndarray) -> str:
    """A row of the first table; where no upper end is claimed any truth lies below it."""
    truth, estimate, low, high = runs[:, :4].T
    error = estimate - truth
    holds = ((low <= truth) & ~(truth > high)).sum()
    spread = f" ({error.std(ddof=1):.3f})" if len(runs) > 1 else ""
    return (
        f"| {title} | {truth.mean():.3f} | {estimate.mean():.3f}{spread} | {error.mean():+.3f} "
        f"| {low.mean():.3f} to {high.mean():.3f} | {holds} of {len(runs)} |"
    )


def flag_row(title: str, runs: np.ndarray) -> str:
    """A row of the second table."""
    chosen, bins = np.split(runs[:, 4:].mean(0), [3 * len(CHOICES)])
    cells = [
        f"{n:.0f}: {said / n:.2f}, {found / n:.2f}" if n else "0"
        for n, said, found in chosen.reshape(-1, 3)
    ]
    cells += [f"{n:.0f}, {right / n:.2f}" if n else "0" for n, right in bins.reshape(-1, 2)]
    return f"| {title} | " + " | ".join(cells) + " |"


def main() -> None:
    """Compute what is missing, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--draws", type=at_least(1), default=20)
    parser.add_argument("--only", nargs="+", default=("gaussian", "cub", "cifar", "omniglot"))
    parser.add_argument("--noise", nargs="+", default=NOISES)
    options = parser.parse_args()
    if {*options.only} - {"gaussian"} and None in (options.root, options.cache):
        parser.error("photos need --root and --cache; --only gaussian needs neither")
    rows: dict[str, np.ndarray] = {}
    for name, data_of in sources(options).items():
        for noise in options.noise:
            if name == TITLE_OF_FIVE:
                kind, rate = noise.split()
                noise = f"{kind} {WRONG_OF_FIVE.get(rate, rate)}"
            title, runs = f"{name} | {noise}", []
            for seed in range(options.draws if noise != "random 0" or " x " in name else 1):
                data = data_of(seed)
                drawn = draw(data, noise, seed, similar_classes(data))
                path = options.store / f"{name}, {noise}, {seed}.npy"
                place = named_after(path, drawn.features, drawn.labels)
                said = partial(measure, drawn.features, drawn.labels, data.labels)
                runs.append(made_once(place, said))
            rows[title] = np.stack(runs)
            print(rate_row(title, rows[title]), file=sys.stderr, flush=True)
    print("| data | noise | true rate | best estimate (deviation of its error) | mean error "
          "| least to most | holds the truth |\n|:--|:--|--:|:--|--:|:--|--:|")  # fmt: skip
    print("\n".join(rate_row(title, runs) for title, runs in rows.items()))
    print("\n| data | noise | flagged: expected, found wrong | n = 100 | precision .8 "
          "| suggestions of .5 to .8, right | .8 to .95 | above .95 |\n"
          "|:--|:--|:--|:--|:--|:--|:--|:--|")  # fmt: skip
    print("\n".join(flag_row(title, runs) for title, runs in rows.items()))


if __name__ == "__main__":
    end(main)
