"""Whole classes that vanish from the label set, their samples spread over the classes that stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bspml.data.noise.noisy_labels import NoisyLabels
from bspml.data.noise.task import NoiseTask
from bspml.errors import InputError
from bspml.tensors.checks import check_whole, normalize_rows
from bspml.tensors.row_index import check_same_rows


def small_cluster(
    labels: Any, rate: Any, seed: Any = 0, embeddings: Any = None, cluster_size: Any = 2
) -> NoisyLabels:
    """Dissolve whole classes: split each into small clusters and merge every cluster elsewhere.

    What an automatic collection does to a class it does not know: similar samples stay together
    under one wrong label.  Classes are dissolved in random order until about rate * N samples are
    moved (the number that whole classes allow nearest to it); no dissolved class occurs in
    `labels` any more, so its samples are outliers.

    Source: the small-cluster noise of [Liu 2021].  Differs: their class count follows from the
    number of classes, ours from the number of samples; clusters go to classes that stay.
    Args:
        labels: (N,) of any kind, at least two classes.
        rate: in [0, 1).
        seed: of the draw and of k-means.
        embeddings: (N, D); clusters are then found by k-means on the normalised rows of a class,
            N_c / cluster_size of them.  None: random groups.
        cluster_size: samples per cluster, on average, where it divides N_c; else a little more.

    Raises:
        InputError: rate 1 (one class must stay), or so small that no whole class fits; or pandas
            objects of other indices.

    Example:
        >>> noisy = small_cluster(["a"] * 4 + ["b"] * 4 + ["c"] * 4, rate=1 / 3)
        >>> len(set(noisy.labels.tolist())), int(noisy.is_outlier.sum())
        (2, 4)
    """
    size = check_whole(cluster_size, "cluster_size")
    check_same_rows(labels=labels, embeddings=embeddings)
    task = NoiseTask.of(labels, rate, seed)
    rows = None
    if embeddings is not None:
        rows = normalize_rows(task.check_rows(embeddings)).cpu().numpy()
    return _dissolve(task, lambda members: _clusters(members, size, rows, task.draw))


def open_set(labels: Any, rate: Any, seed: Any = 0) -> NoisyLabels:
    """Turn whole classes into outliers: each of their samples gets some class that stays.

    The label set shrinks; `is_outlier` marks the samples of classes that are gone.  The number of
    outliers is the one nearest to rate * N that whole classes allow.

    Differs: [Wang 2018] replaces images by images of another data set.  Here the outliers come
    from the data set itself, so nothing has to be replaced.

    Args:
        labels: (N,) of any kind, at least two classes.
        rate: in [0, 1).
        seed: of the draw.

    Raises:
        InputError: rate 1 (one class must stay), or so small that no whole class fits.

    Example:
        >>> noisy = open_set(["a", "a", "b", "b", "c", "c"], rate=1 / 3)
        >>> len(set(noisy.labels.tolist())), int(noisy.is_outlier.sum())
        (2, 2)
    """
    return _dissolve(NoiseTask.of(labels, rate, seed), lambda members: np.arange(len(members)))


def _dissolve(task: NoiseTask, split: Callable[[np.ndarray], np.ndarray]) -> NoisyLabels:
    """Empty random classes; `split(members)` says which of their samples move together."""
    if task.exact_rate == 1:
        raise InputError("the rate must be below 1: at least one class must stay.")
    leaving = _classes_nearest_to_rate(task)
    if not len(leaving) and task.rate > 0:
        smallest = np.bincount(task.codes).min()
        raise InputError(
            f"the rate {task.rate:g} of {len(task.codes)} samples is at most half of the "
            f"smallest class ({smallest} samples), and only whole classes can be dissolved. "
            "Use a larger rate, or symmetric noise."
        )
    staying = np.setdiff1d(np.arange(task.num_classes), leaving)
    rows, codes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for c in leaving.tolist():
        members = task.members(c)
        group = split(members)
        rows.append(members)
        codes.append(task.draw.choice(staying, int(group.max()) + 1)[group])
    return task.with_labels(np.concatenate(rows), np.concatenate(codes))


def _classes_nearest_to_rate(task: NoiseTask) -> np.ndarray:
    """Of classes in random order, the first that together have the number nearest to rate * N."""
    sizes, target = np.bincount(task.codes), task.exact_rate * len(task.codes)
    order = task.draw.permutation(task.num_classes)
    # 0 is as near as twice the target; one class stays.
    most = min(int(2 * target), len(task.codes) - 1)
    last = np.full(most + 1, -1)  # place in the order of the class with which a number is reached
    last[0] = 0
    for place, size in enumerate(sizes[order].tolist()):
        if last[min(round(target), most)] >= 0:
            break
        reached = np.flatnonzero(last[: max(most + 1 - size, 0)] >= 0) + size
        last[reached[last[reached] < 0]] = place
    numbers = np.flatnonzero(last >= 0)
    above = numbers.searchsorted(int(target), side="right")  # the nearest is there or before
    left = min(numbers[above - 1 : above + 1].tolist(), key=lambda number: abs(number - target))
    places = []
    while left > 0:
        places.append(last[left])
        left -= int(sizes[order[last[left]]])
    return order[places[::-1]]


def _clusters(
    members: np.ndarray, size: int, rows: np.ndarray | None, draw: np.random.Generator
) -> np.ndarray:
    """A group number 0, 1, ... for each member of a class."""
    groups = max(1, len(members) // size)
    if rows is None:
        return draw.permutation(np.arange(len(members)) % groups)
    from sklearn.cluster import KMeans

    seed = int(draw.integers(2**31))
    clusters = KMeans(groups, n_init=1, random_state=seed).fit_predict(rows[members])
    return np.unique(clusters, return_inverse=True)[1]
