"""How many labels the audit flags where few or none are wrong, on synthetic classes that overlap.

    python benchmarks/audit_flags.py [--draws 12] [--rates 0 0.1] [--strengths 0.2 0.3 0.4]

Gaussian classes as in noise_rate_synthetic.py, of weak features (centres nearer to each other than
the scatter is wide).  Per setting the means over draws of the estimated rate and its interval's low
end, of the share of right labels that get weight 0 and of wrong labels that do, each also as it
would be if the estimate were taken at its word.  Seeds are 0 .. draws - 1.
"""

from __future__ import annotations

import argparse

import numpy as np
from noise_rate_synthetic import draw

from bspml.auditing.judging import keep_weights
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.noise_rate import estimate_noise

CLASSES = (5, 10, 50)
SIZES = (20, 50, 200)
COLUMNS = (
    "strength", "classes", "size", "rate", "estimate", "low", "right flagged", "by the estimate",
    "wrong found", "by the estimate",
)  # fmt: skip


def measure(classes: int, size: int, rate: float, strength: float, draws: int) -> list[float]:
    """Means over the draws, in the order of the last six columns."""
    rows = []
    for seed in range(draws):
        embeddings, labels, wrong = draw(size, classes, rate, strength, seed)
        stats = contrastive_statistics(embeddings, labels)
        estimate = estimate_noise(stats)
        flagged, at_its_word = (
            keep_weights(stats, estimate, share) == 0
            for share in (estimate.supported_rate, estimate.noise_rate)
        )
        rows.append(
            (estimate.noise_rate, estimate.interval[0], flagged[~wrong].mean(),
             at_its_word[~wrong].mean(), flagged[wrong].mean() if wrong.any() else np.nan,
             at_its_word[wrong].mean() if wrong.any() else np.nan)
        )  # fmt: skip
    table = np.array(rows, float)
    means = np.full(table.shape[1], np.nan)
    known = np.isfinite(table).any(0)
    means[known] = np.nanmean(table[:, known], 0)
    return means.tolist()


def main() -> None:
    """Print one Markdown row per setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--rates", type=float, nargs="+", default=(0.0, 0.1))
    parser.add_argument("--strengths", type=float, nargs="+", default=(0.2, 0.3, 0.4))
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    options = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |")
    print("|" + "--:|" * len(COLUMNS))
    for rate in options.rates:
        for strength in options.strengths:
            for classes in options.classes:
                for size in options.sizes:
                    row = measure(classes, size, rate, strength, options.draws)
                    cells = [f"{strength:g}", str(classes), str(size), f"{rate:g}"]
                    cells += ["" if np.isnan(value) else f"{value:.3f}" for value in row]
                    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
