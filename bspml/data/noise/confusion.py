"""Particular classes taken for particular others."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from bspml.data.noise.noisy_labels import NoisyLabels
from bspml.data.noise.task import NoiseTask
from bspml.errors import InputError
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import as_numbers, some_of
from bspml.tensors.row_index import check_class_order

# For each class to confuse: its code, the wrong codes, their probabilities, the share gone wrong.
_Plan = list[tuple[int, np.ndarray, np.ndarray, float]]


def pair_flip(
    labels: Any, rate: Any, seed: Any = 0, per_class: bool = False, exact: bool = True
) -> NoisyLabels:
    """Give round(rate * N) samples the class after theirs, in sorted order; the last, the first.

    Source: the pair flipping of [Han 2018], with exact counts.

    Args:
        labels: (N,) of any kind, at least two classes.
        rate: share of wrong labels, in [0, 1].
        seed: of the draw.
        per_class: True changes round(rate * N_c) samples in each class.
        exact: False draws each sample with probability `rate`; not with `per_class`.

    Raises:
        InputError: rate outside [0, 1] or NaN, or a single class.

    Example:
        >>> pair_flip(["cat", "dog", "elk"], rate=1).labels.tolist()
        ['dog', 'elk', 'cat']
    """
    check_flags(per_class=per_class, exact=exact)
    task = NoiseTask.of(labels, rate, seed)
    rows = task.draw_rows(per_class, exact)
    return task.with_labels(rows, (task.codes[rows] + 1) % task.num_classes)


def asymmetric(
    labels: Any,
    rate: Any = None,
    mapping: Any = None,
    transition: Any = None,
    seed: Any = 0,
    exact: bool = True,
) -> NoisyLabels:
    """Confuse particular classes: by a mapping {from: to}, or by a transition matrix.

    In each class c named by `mapping`, round(rate * N_c) samples get the label `mapping[c]`.  With
    `transition`, round((1 - T[c, c]) * N_c) samples of class c are wrong, or round(rate * N_c) if
    a rate is given; their labels are drawn with the probabilities T[c, :] off the diagonal.

    Args:
        labels: (N,) of any kind, at least two classes.
        rate: in [0, 1]; needed with `mapping`.
        mapping: dictionary from label to label; several classes may map to one, none to itself.
        transition: (C, C) of probabilities, rows summing to 1, classes in sorted order.
        seed: of the draw.
        exact: False draws each sample of a class with the probability that is otherwise a share.

    Raises:
        InputError: both or neither of `mapping` and `transition`; a label that does not occur; rows
            that do not sum to 1; rate outside [0, 1].

    Example:
        >>> asymmetric(["cat", "dog", "elk"], 1, mapping={"cat": "dog"}).labels.tolist()
        ['dog', 'dog', 'elk']
    """
    check_flags(exact=exact)
    if (mapping is None) == (transition is None):
        raise InputError("`asymmetric` needs either `mapping` or `transition`.")
    if mapping is not None and rate is None:
        raise InputError("`rate` must be given with `mapping`; got None.")
    task = NoiseTask.of(labels, 0 if rate is None else rate, seed)
    if mapping is not None:
        plan = _plan_of_mapping(mapping, task.classes)
    else:
        check_class_order(transition, "transition", task.classes)
        plan = _plan_of_transition(transition, task.num_classes)
    rows, codes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for c, targets, probabilities, share in plan:
        drawn_rows = task.draw_members(c, share if rate is None else rate, exact)
        rows.append(drawn_rows)
        codes.append(task.draw.choice(targets, len(drawn_rows), p=probabilities))
    overall = None if rate is not None else sum(map(len, rows)) / len(task.codes)
    return task.with_labels(np.concatenate(rows), np.concatenate(codes), rate=overall)


def _plan_of_mapping(mapping: Any, classes: np.ndarray) -> _Plan:
    if not isinstance(mapping, Mapping):
        raise InputError(
            "`mapping` must be a dictionary {label: wrong label}; "
            f"got {type(mapping).__name__}. Use `symmetric` to confuse all classes."
        )
    if not mapping:
        raise InputError("`mapping` must name at least one class, or no label is wrong; got {}.")
    place = {label: c for c, label in enumerate(classes.tolist())}
    plan: _Plan = []
    for source, target in mapping.items():
        for label in (source, target):
            if not isinstance(label, Hashable) or label not in place:
                raise InputError(f"`mapping` names the label {label!r}, which does not occur.")
        if source == target:
            raise InputError(f"`mapping` maps {source!r} to itself; leave it out.")
        plan.append((place[source], np.array([place[target]]), np.ones(1), 1.0))
    return plan


def _plan_of_transition(transition: Any, c: int) -> _Plan:
    numbers = as_numbers(
        transition,
        "transition",
        f"(C, C) = ({c}, {c}) probabilities",
        "Rows are true classes, columns given labels.",
    )
    matrix: np.ndarray = numbers.detach().cpu().double().numpy()
    if matrix.shape != (c, c):
        raise InputError(
            f"`transition` must be (C, C) = ({c}, {c}), a row per class in sorted order; got "
            f"{matrix.shape}."
        )
    off = ~(np.isclose(matrix.sum(1), 1, atol=1e-6) & (matrix >= 0).all(1))
    if off.any():
        raise InputError(
            "`transition` must hold probabilities, each row summing to 1; not so in rows "
            f"{some_of(np.flatnonzero(off))}. Rows are true classes, columns given labels."
        )
    plan: _Plan = []
    for row in range(c):
        targets = np.flatnonzero(matrix[row] * (np.arange(c) != row))
        if len(targets):
            p = matrix[row, targets]
            # 1 - .7 prints as .30000000000000004; the twelfth digit is nobody's intention.
            plan.append((row, targets, p / p.sum(), round(float(p.sum()), 12)))
    return plan
