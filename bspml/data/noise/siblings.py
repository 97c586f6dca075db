"""Asymmetric noise in a hierarchy: classes taken for others of the same group (superclass)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from bspml.data.noise.noisy_labels import NoisyLabels
from bspml.data.noise.task import NoiseTask
from bspml.errors import InputError
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_choice, encode_labels
from bspml.tensors.row_index import check_class_order


def sibling_flip(
    labels: Any,
    rate: Any,
    groups: Any,
    seed: Any = 0,
    per_class: bool = False,
    to: str = "any",
    exact: bool = True,
) -> NoisyLabels:
    """Give round(rate * N) samples another class of their own group.

    Args:
        labels: (N,) of any kind, at least two classes.
        rate: in [0, 1].
        groups: which group each class belongs to: a dictionary {label: group}, or (C,) in the
            sorted order of the labels.  `ImageSplit.superclass_of` is the latter for CIFAR-100.
        seed: of the draw.
        per_class: True changes round(rate * N_c) samples in each class.
        to: "any": each sibling is equally likely, the convention of [Wang GR 2019] appendix D.
            "next": the next class of the group in sorted order, the last one's being the first,
            that of [Patrini 2017] for CIFAR-100.
        exact: False draws each sample with probability `rate`, as both papers word it.

    Raises:
        InputError: a class without a group, or alone in its group; arguments as in `symmetric`.

    Example:
        >>> groups = {"cat": "pet", "dog": "pet", "elk": "wild", "fox": "wild"}
        >>> noisy = sibling_flip(["cat", "dog", "elk", "fox"], 1.0, groups)
        >>> noisy.labels.tolist()
        ['dog', 'cat', 'fox', 'elk']
    """
    check_flags(per_class=per_class, exact=exact)
    check_choice(to, "to", ("any", "next"))
    task = NoiseTask.of(labels, rate, seed)
    families = _families(groups, task.classes)
    rows = task.draw_rows(per_class, exact)
    # Each class's family, its place in it, and the family's size.
    first = np.cumsum([0, *map(len, families)])
    order = np.concatenate(families)
    size, place, start = (np.empty(task.num_classes, np.int64) for _ in range(3))
    for begin, family in zip(first, families, strict=False):
        size[family], place[family], start[family] = len(family), np.arange(len(family)), begin
    own = task.codes[rows]
    shift = 1 if to == "next" else task.draw.integers(1, size[own])
    return task.with_labels(rows, order[start[own] + (place[own] + shift) % size[own]])


def sibling_swap(
    labels: Any, rate: Any, groups: Any, seed: Any = 0, exact: bool = True
) -> NoisyLabels:
    """Confuse two random classes of each group with each other, and leave the rest alone.

    In either class of a pair round(rate * N_c) samples get the other's label.  `rate` is that share
    and `actual_rate` the share of all samples: two fifths of it in CIFAR-100.  Which pairs were
    drawn shows in `transition_matrix()`.

    Source: [Wang IMAE 2019] section 5.1 (2): 2 of the 5 classes of each superclass.

    Args:
        labels: (N,) of any kind, at least two classes.
        rate: share of the samples of a confused class, in [0, 1].
        groups: which group each class belongs to, as in `sibling_flip`.
        seed: of the draw.
        exact: False draws each sample with probability `rate`, as the paper words it.

    Raises:
        InputError: as `sibling_flip`.

    Example:
        >>> groups = {"cat": "pet", "dog": "pet", "elk": "wild", "fox": "wild"}
        >>> sibling_swap(["cat", "dog", "elk", "fox"], 1.0, groups).labels.tolist()
        ['dog', 'cat', 'fox', 'elk']
    """
    check_flags(exact=exact)
    task = NoiseTask.of(labels, rate, seed)
    rows, codes = [], []
    families = _families(groups, task.classes)
    pairs = [task.draw.choice(family, 2, replace=False).tolist() for family in families]
    for a, b in pairs:
        for c, other in ((a, b), (b, a)):
            drawn_rows = task.draw_members(c, rate, exact)
            rows.append(drawn_rows)
            codes.append(np.full(len(drawn_rows), other))
    return task.with_labels(np.concatenate(rows), np.concatenate(codes))


def _families(groups: Any, classes: np.ndarray) -> list[np.ndarray]:
    """The codes of the classes of each group, rising, each group at least two."""
    if isinstance(groups, Mapping):
        groups = [_group_of(label, groups) for label in classes.tolist()]
    check_class_order(groups, "groups", classes)
    try:
        encoded = encode_labels(groups, name="groups")
    except InputError as err:
        raise InputError(
            f"{err} `groups` is a dictionary from label to group, or one group per class."
        ) from err
    if len(encoded.codes) != len(classes):
        raise InputError(
            f"`groups` must have one entry per class in `labels`, ({len(classes)},); got "
            f"({len(encoded.codes)},). If some classes do not occur, pass a dictionary "
            "{label: group}."
        )
    codes = encoded.codes.numpy()
    # In the order of their first classes, so that the names of the groups change no draw.
    families = [np.flatnonzero(codes == g) for g in dict.fromkeys(codes.tolist())]
    loners = [classes[family[0]] for family in families if len(family) == 1]
    if loners:
        raise InputError(
            f"`groups` leaves {len(loners)} of {len(classes)} classes without a sibling to be "
            f"taken for, such as {loners[0]!s}. Join it to a group, or leave its samples out."
        )
    return families


def _group_of(label: Any, groups: Mapping[Any, Any]) -> Any:
    if isinstance(label, Hashable) and label in groups:
        return groups[label]
    raise InputError(f"`groups` must name the group of every label; it lacks {label!r}.")
