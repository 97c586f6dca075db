"""Symmetric noise: any class may become any other."""

from __future__ import annotations

from typing import Any

from bspml.data.noise.noisy_labels import NoisyLabels
from bspml.data.noise.task import NoiseTask
from bspml.tensors.arguments import check_flags


def symmetric(
    labels: Any,
    rate: Any,
    seed: Any = 0,
    per_class: bool = False,
    keep_original: bool = False,
    exact: bool = True,
) -> NoisyLabels:
    """Give round(rate * N) samples another class, every other class being equally likely.

    Args:
        labels: (N,) of any kind, at least two classes.
        rate: share of wrong labels, in [0, 1].
        seed: of the draw.
        per_class: True changes round(rate * N_c) samples in each class, the protocol of [Zhang
            2023].  On small classes the total then strays from rate * N.
        keep_original: True draws the new label from all C classes, so that it may be the original
            one ([Castells 2020], table 4): `rate` is then the share of samples drawn, and about
            rate * (C - 1) / C of the labels are wrong, half of the drawn ones if C = 2.
            `is_noisy` marks the wrong ones only.
        exact: False draws each sample with probability `rate` ([Wang GR 2019] section 4.2, [Wang
            IMAE 2019] section 5.1); not with `per_class`.

    Raises:
        InputError: rate outside [0, 1] or NaN, or a single class.

    Example:
        >>> noisy = symmetric(["cat"] * 5 + ["dog"] * 5, rate=0.3)
        >>> int(noisy.is_noisy.sum()), noisy.transition_matrix().sum(1).tolist()
        (3, [1.0, 1.0])
    """
    check_flags(per_class=per_class, keep_original=keep_original, exact=exact)
    task = NoiseTask.of(labels, rate, seed)
    rows = task.draw_rows(per_class, exact)
    shift = task.draw.integers(0 if keep_original else 1, task.num_classes, len(rows))
    rows, shift = rows[shift > 0], shift[shift > 0]
    return task.with_labels(rows, (task.codes[rows] + shift) % task.num_classes)
