"""Wrong labels planted among right ones: at random, of the classes of nearest centroid, or moved.

Moved: from each class to one other, as far on in number as the seed says, wherever that class lies.
"""

from __future__ import annotations

import numpy as np
from local_data import DataSet


def similar_classes(data: DataSet) -> np.ndarray:
    """(C, C) classes by centroid similarity, nearest first; other groups and itself last."""
    unit = data.features / np.linalg.norm(data.features, axis=1, keepdims=True)
    classes = data.labels.max() + 1
    centroids = np.stack([unit[data.labels == c].mean(0) for c in range(classes)])
    centroids -= unit.mean(0)
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    similar = centroids @ centroids.T - 9 * (data.groups[:, None] != data.groups)
    np.fill_diagonal(similar, -99)
    return np.argsort(-similar, 1)


def flip(data: DataSet, kind: str, rate: float, seed: int, near: np.ndarray) -> np.ndarray:
    """Labels with a share `rate` of every class wrong."""
    rng = np.random.default_rng(seed)
    labels = data.labels.copy()
    classes = labels.max() + 1
    step = int(rng.integers(1, classes)) if kind == "moved" else 0
    for c in range(classes):
        members = np.flatnonzero(data.labels == c)
        chosen = rng.choice(members, round(rate * len(members)), replace=False)
        if kind == "moved":
            labels[chosen] = (c + step) % classes
        elif kind == "random":
            labels[chosen] = (c + rng.integers(1, classes, len(chosen))) % classes
        else:
            labels[chosen] = near[c, rng.integers(0, int(kind.split("-")[1]), len(chosen))]
    return labels
