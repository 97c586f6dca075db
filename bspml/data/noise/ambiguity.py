"""Noise on the samples that look like another class."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bspml.data.noise.noisy_labels import NoisyLabels
from bspml.data.noise.task import NoiseTask
from bspml.tensors.checks import check_number, normalize_rows
from bspml.tensors.row_index import check_same_rows


def instance_dependent(
    labels: Any, rate: Any, embeddings: Any, seed: Any = 0, temperature: Any = 0.1
) -> NoisyLabels:
    """Mislabel the samples that look like another class, as that class.

    margin_i = similarity to the mean of the own class (without i) - to the nearest other mean.
    round(rate * N) samples are drawn without replacement, with weights exp(-margin / temperature),
    and get the label of the nearest other mean.  Our own protocol, close to what annotators do.

    Args:
        labels: (N,) of any kind, at least two classes.
        rate: in [0, 1].
        embeddings: (N, D), normalised here.
        seed: of the draw.
        temperature: of the draw, in cosine units; small: only the most ambiguous samples.

    Raises:
        InputError: as in `symmetric`, or embeddings of another length, or with NaN.

    Example:
        >>> x = [[1.0, 0.0], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0], [0.2, 0.8]]
        >>> instance_dependent(["a", "a", "b", "b", "a"], 0.2, x, temperature=0.01).labels.tolist()
        ['a', 'a', 'b', 'b', 'b']
    """
    temperature = check_number(temperature, "temperature", 0.0, open_low=True)
    check_same_rows(labels=labels, embeddings=embeddings)
    task = NoiseTask.of(labels, rate, seed)
    margin, nearest = margins(task.check_rows(embeddings), task.codes)
    # The count largest of weight + Gumbel noise: weighted sampling without replacement.
    score = task.draw.gumbel(size=len(margin)) - margin / temperature
    rows = np.sort(np.argsort(-score, kind="stable")[: task.count()])
    return task.with_labels(rows, nearest[rows])


def margins(embeddings: Tensor, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how much nearer each sample is to its own class than to another, and to which other.

    Args:
        embeddings: (N, D), normalised here.
        codes: (N,) classes 0..C-1, at least two.

    Returns:
        (N,) similarity to the own class mean without the sample (0 in a class of one) less that
        to the nearest other class mean, and (N,) that class.
    """
    rows = normalize_rows(embeddings.cpu().double())
    own_class = torch.from_numpy(codes)
    c = int(codes.max()) + 1
    sums = rows.new_zeros(c, rows.shape[1]).index_add_(0, own_class, rows)
    means = normalize_rows(sums)
    own = (normalize_rows(sums[own_class] - rows) * rows).sum(1)
    other, nearest = rows.new_empty(len(rows)), torch.empty_like(own_class)
    step = max(1, 2**24 // (8 * c))  # 16 MB of similarities at a time
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        similarity = rows[part] @ means.T
        similarity.scatter_(1, own_class[part, None], -torch.inf)
        other[part], nearest[part] = similarity.max(1)
    return (own - other).numpy(), nearest.numpy()
