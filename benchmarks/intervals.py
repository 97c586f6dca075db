"""How often the intervals of `evaluate` hold: test classes drawn again and again, of one kind.

Classes are normal clouds around normal centres.  What the intervals are to hold is the mean over
all the test sets drawn.

    python benchmarks/intervals.py
"""

import argparse

import numpy as np
from command import at_least, end

import bspml

PER_CLASS, DIMENSIONS, SPREAD = 8, 8, 1.1


def metrics_of(classes: int, seed: int) -> bspml.evaluation.RetrievalMetrics:
    """Evaluate a test set of its own."""
    draw = np.random.default_rng(seed)
    labels = np.arange(classes).repeat(PER_CLASS)
    points = draw.normal(size=(classes, DIMENSIONS))[labels]
    points += SPREAD * draw.normal(size=points.shape)
    return bspml.evaluate(points, labels, ks=(1,), clustering=False, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=at_least(2), nargs="+", default=[10, 20, 40, 100])
    parser.add_argument("--sets", type=at_least(1), default=1000)
    args = parser.parse_args()
    print("| classes | Recall@1 | held | MAP@R | held |\n|--:|--:|--:|--:|--:|")
    for classes in args.classes:
        found = [metrics_of(classes, seed) for seed in range(args.sets)]
        cells = []
        for name in ("recall_at_1", "map_at_r"):
            value, low, high = (
                np.array([metrics.as_dict()[name + end] for metrics in found])
                for end in ("", "_low", "_high")
            )
            held = ((low <= value.mean()) & (value.mean() <= high)).mean()
            cells += [f"{value.mean():.3f}", f"{100 * held:.1f} %"]
        print(f"| {classes} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    end(main)
