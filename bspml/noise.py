"""Wrong labels made on purpose, with a record of which are wrong.

Every function takes labels of any kind and returns `NoisyLabels` of the same kind: strings stay
strings, dtypes are kept, tensors stay tensors.  Three rules hold throughout:

- *Counts are exact.*  A rate names a number of samples, not a probability per sample: rate * n is
  rounded to the nearest whole number, halves to the even one (Python's `round`).  The rate is read
  as the decimal it prints as, so 0.1 and float32's 0.1 mean a tenth and 0.29 * 50 is 14.5.
- *A wrong label is wrong*: never the sample's own, always one that occurs in `labels`.
- *The same seed gives the same flags*, whatever the global generators, workers or device are.

`is_noisy` is the record.  It is not `labels != true_labels` recomputed by whoever reads it.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, overload

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from bspml.checks import (
    as_numbers,
    check_embeddings,
    check_number,
    check_whole,
    encode_labels,
    normalize_rows,
    some_of,
)
from bspml.errors import InputError


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Labels with known mistakes.

    Attributes:
        labels: (N,) given labels, some wrong: array, or tensor if a tensor came in.
        true_labels: (N,) the labels that came in.
        is_noisy: (N,) bool, which of `labels` are wrong.
        is_outlier: (N,) bool, which samples belong to no class that still occurs in `labels`.  They
            are noisy too (no given label fits), so they are not among the clean samples.
        rate: the noise rate asked for, in [0, 1].
        classes: (C,) the distinct true labels, sorted.
    """

    labels: Any
    true_labels: Any
    is_noisy: Any
    is_outlier: Any
    rate: float
    classes: np.ndarray

    @property
    def actual_rate(self) -> float:
        """The share of wrong labels: `rate` up to rounding to whole samples (or classes)."""
        return float(np.mean(_numpy(self.is_noisy)))

    @overload
    def transition_matrix(self, sparse: Literal[False] = ...) -> np.ndarray: ...
    @overload
    def transition_matrix(self, sparse: Literal[True]) -> csr_array: ...
    def transition_matrix(self, sparse: bool = False) -> np.ndarray | csr_array:
        """Share of the samples of each true class (row) that got each label (column).

        (C, C) in the order of `classes`; rows sum to 1.  `sparse=True` for many classes: 11,318
        of them make a dense matrix of 1 GB.
        """
        true = np.searchsorted(self.classes, _plain(self.true_labels))
        given = np.searchsorted(self.classes, _plain(self.labels))
        c = len(self.classes)
        share = 1.0 / np.bincount(true, minlength=c)[true]
        matrix = csr_array((share, (true, given)), shape=(c, c))
        return matrix if sparse else matrix.toarray()


def symmetric(labels: Any, rate: Any, seed: Any = 0, per_class: bool = False) -> NoisyLabels:
    """Give round(rate * N) samples another class, every other class being equally likely.

    Args:
        labels: (N,) of any kind, at least two classes.
        rate: share of wrong labels, in [0, 1].
        seed: of the draw.
        per_class: True changes round(rate * N_c) samples in each class, the protocol of [Zhang
            2023].  On small classes the total then strays from rate * N.

    Raises:
        InputError: rate outside [0, 1] or NaN, or a single class.

    Example:
        >>> noisy = symmetric(["cat"] * 5 + ["dog"] * 5, rate=0.3)
        >>> int(noisy.is_noisy.sum()), noisy.transition_matrix().sum(1).tolist()
        (3, [1.0, 1.0])
    """
    task = _Task.of(labels, rate, seed)
    rows = task.draw_rows(per_class)
    shift = task.draw.integers(1, task.num_classes, len(rows))
    return task.with_labels(rows, (task.codes[rows] + shift) % task.num_classes)


def pair_flip(labels: Any, rate: Any, seed: Any = 0, per_class: bool = False) -> NoisyLabels:
    """Give round(rate * N) samples the class after theirs, in sorted order; the last, the first.

    Source: the pair flipping of [Han 2018], with exact counts.  Arguments as in `symmetric`.
    """
    task = _Task.of(labels, rate, seed)
    rows = task.draw_rows(per_class)
    return task.with_labels(rows, (task.codes[rows] + 1) % task.num_classes)


def asymmetric(
    labels: Any,
    rate: Any = None,
    mapping: Any = None,
    transition: Any = None,
    seed: Any = 0,
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

    Raises:
        InputError: both or neither of `mapping` and `transition`; a label that does not occur; rows
            that do not sum to 1; rate outside [0, 1].
    """
    if (mapping is None) == (transition is None):
        raise InputError("`asymmetric` needs either `mapping` or `transition`.")
    if mapping is not None and rate is None:
        raise InputError("`rate` must be given with `mapping`; got None.")
    task = _Task.of(labels, 0 if rate is None else rate, seed)
    if mapping is not None:
        plan = task.plan_of_mapping(mapping)
    else:
        plan = _plan_of_transition(transition, task.num_classes)
    rows, codes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for c, targets, probabilities, share in plan:
        members = task.members(c)
        count = round(_decimal(share if rate is None else rate) * len(members))
        rows.append(task.draw.choice(members, count, replace=False))
        codes.append(task.draw.choice(targets, count, p=probabilities))
    overall = None if rate is not None else sum(map(len, rows)) / len(task.codes)
    return task.with_labels(np.concatenate(rows), np.concatenate(codes), rate=overall)


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
        cluster_size: samples per cluster, on average.

    Raises:
        InputError: rate 1 (one class must stay), or so small that no whole class fits.
    """
    size = check_whole(cluster_size, "cluster_size")
    task = _Task.of(labels, rate, seed)
    rows = None
    if embeddings is not None:
        rows = normalize_rows(task.check_rows(embeddings)).cpu().numpy()
    return task.dissolve(lambda members: _clusters(members, size, rows, task.draw))


def open_set(labels: Any, rate: Any, seed: Any = 0) -> NoisyLabels:
    """Turn whole classes into outliers: each of their samples gets some class that stays.

    The label set shrinks; `is_outlier` marks the samples of classes that are gone.  The number of
    outliers is the one nearest to rate * N that whole classes allow.

    Differs: [Wang 2018] replaces images by images of another data set.  Here the outliers come
    from the data set itself, so nothing has to be replaced.

    Raises:
        InputError: rate 1 (one class must stay), or so small that no whole class fits.
    """
    return _Task.of(labels, rate, seed).dissolve(lambda members: np.arange(len(members)))


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
    """
    temperature = check_number(temperature, "temperature", 0.0, open_low=True)
    task = _Task.of(labels, rate, seed)
    margin, nearest = task.margins(task.check_rows(embeddings))
    # The count largest of weight + Gumbel noise: weighted sampling without replacement.
    score = task.draw.gumbel(size=len(margin)) - margin / temperature
    rows = np.sort(np.argsort(-score, kind="stable")[: task.count()])
    return task.with_labels(rows, nearest[rows])


# For each class to confuse: its code, the wrong codes, their probabilities, the share gone wrong.
_Plan = list[tuple[int, np.ndarray, np.ndarray, float]]


@dataclass(frozen=True, eq=False)
class _Task:
    """Checked arguments, and what the kinds of noise share."""

    given: Any
    codes: np.ndarray  # (N,)
    classes: np.ndarray  # (C,)
    rate: float
    exact_rate: Fraction
    draw: np.random.Generator

    @classmethod
    def of(cls, labels: Any, rate: Any, seed: Any) -> _Task:
        number = check_number(rate, "rate", 0.0, 1.0)
        seed = check_whole(seed, "seed", low=0)
        encoded = encode_labels(labels)
        if len(encoded.classes) < 2:
            raise InputError(
                f"`labels` must have at least 2 classes, so that a label can be wrong; got "
                f"{len(encoded.classes)}."
            )
        given = labels.detach() if isinstance(labels, Tensor) else np.asarray(labels)
        draw = np.random.default_rng(seed)
        return cls(given, encoded.codes.numpy(), encoded.classes, number, _decimal(rate), draw)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    def members(self, c: int) -> np.ndarray:
        return np.flatnonzero(self.codes == c)

    def count(self) -> int:
        return round(self.exact_rate * len(self.codes))

    def draw_rows(self, per_class: bool) -> np.ndarray:
        """The samples to change, in order."""
        order = self.draw.permutation(len(self.codes))
        if not per_class:
            return np.sort(order[: self.count()])
        sizes = np.bincount(self.codes)
        quota = np.array([round(self.exact_rate * int(size)) for size in sizes])
        order = order[np.argsort(self.codes[order], kind="stable")]  # by class, shuffled inside
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(order[place < np.repeat(quota, sizes)])

    def with_labels(
        self,
        rows: np.ndarray,
        codes: np.ndarray,
        outlier: bool = False,
        rate: float | None = None,
    ) -> NoisyLabels:
        """`NoisyLabels` in which `rows` have the classes `codes`."""
        assert (codes != self.codes[rows]).all()
        # A row of each class, to copy the label from: kind and dtype stay as they came.
        example = np.unique(self.codes, return_index=True)[1]
        source: Any = np.arange(len(self.codes))
        source[rows] = example[codes]
        noisy: Any = np.zeros(len(self.codes), dtype=bool)
        noisy[rows] = True
        outliers: Any = noisy & outlier
        given = self.given
        if isinstance(given, Tensor):
            source, noisy, outliers = (
                torch.from_numpy(array).to(given.device) for array in (source, noisy, outliers)
            )
        return NoisyLabels(
            labels=given[source],
            true_labels=given.clone() if isinstance(given, Tensor) else given.copy(),
            is_noisy=noisy,
            is_outlier=outliers,
            rate=self.rate if rate is None else rate,
            classes=self.classes,
        )

    def dissolve(self, split: Any) -> NoisyLabels:
        """Empty random classes; `split(members)` says which of their samples move together."""
        if self.exact_rate == 1:
            raise InputError("`rate` must be below 1: at least one class must stay.")
        leaving = self._classes_nearest_to_rate()
        if not len(leaving) and self.rate > 0:
            smallest = np.bincount(self.codes).min()
            raise InputError(
                f"`rate` {self.rate:g} of {len(self.codes)} samples is at most half of the "
                f"smallest class ({smallest} samples), and only whole classes can be dissolved. "
                "Use a larger rate, or `symmetric`."
            )
        staying = np.setdiff1d(np.arange(self.num_classes), leaving)
        rows, codes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for c in leaving.tolist():
            members = self.members(c)
            group = split(members)
            rows.append(members)
            codes.append(self.draw.choice(staying, int(group.max()) + 1)[group])
        return self.with_labels(np.concatenate(rows), np.concatenate(codes), outlier=True)

    def _classes_nearest_to_rate(self) -> np.ndarray:
        sizes, target, moved = np.bincount(self.codes), self.count(), 0
        leaving: list[int] = []
        for c in self.draw.permutation(self.num_classes).tolist():
            nearer = abs(target - moved - sizes[c]) < abs(target - moved)
            if nearer and len(leaving) < self.num_classes - 1:
                leaving.append(c)
                moved += sizes[c]
        return np.array(leaving, dtype=np.int64)

    def plan_of_mapping(self, mapping: Any) -> _Plan:
        if not isinstance(mapping, Mapping):
            raise InputError(
                "`mapping` must be a dictionary {label: wrong label}; "
                f"got {type(mapping).__name__}. Use `symmetric` to confuse all classes."
            )
        place = {label: c for c, label in enumerate(self.classes.tolist())}
        plan: _Plan = []
        for source, target in mapping.items():
            for label in (source, target):
                if not isinstance(label, Hashable) or label not in place:
                    raise InputError(f"`mapping` names the label {label!r}, which does not occur.")
            if source == target:
                raise InputError(f"`mapping` maps {source!r} to itself; leave it out.")
            plan.append((place[source], np.array([place[target]]), np.ones(1), 1.0))
        return plan

    def check_rows(self, embeddings: Any) -> Tensor:
        rows = check_embeddings(embeddings)
        if len(rows) != len(self.codes):
            raise InputError(
                f"`embeddings` must have one row per label, {len(self.codes)}; got {len(rows)}."
            )
        return rows.detach()

    def margins(self, embeddings: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Own similarity less that to the nearest other class mean, and that class; in blocks."""
        rows = normalize_rows(embeddings.cpu().double())
        codes = torch.from_numpy(self.codes)
        sums = rows.new_zeros(self.num_classes, rows.shape[1]).index_add_(0, codes, rows)
        means = normalize_rows(sums)
        own = (normalize_rows(sums[codes] - rows) * rows).sum(1)  # 0 for a class of one
        other = torch.empty(len(rows), dtype=torch.float64)
        nearest = torch.empty(len(rows), dtype=torch.int64)
        step = max(1, 2**24 // (8 * self.num_classes))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            similarity = rows[part] @ means.T
            similarity.scatter_(1, codes[part, None], -torch.inf)
            other[part], nearest[part] = similarity.max(1)
        return (own - other).numpy(), nearest.numpy()


def _decimal(rate: Any) -> Fraction:
    """The rate as the decimal it prints as: float32's .1 is 1/10, not .100000001."""
    if isinstance(rate, Tensor):
        rate = rate.detach().cpu()
        if rate.dtype == torch.bfloat16 or rate.element_size() == 1:
            return _shortest_decimal(rate)  # numpy has no such floats to print
        rate = rate.numpy()
    if isinstance(rate, np.ndarray):
        rate = rate.reshape(())[()]
    return Fraction(str(rate if isinstance(rate, np.generic) else float(rate)))


def _shortest_decimal(rate: Tensor) -> Fraction:
    """The decimal of fewest digits that rounds to `rate`."""
    value = float(rate)
    decimals = (f"{value:.{digits}g}" for digits in range(1, 18))
    exact = (d for d in decimals if torch.tensor(float(d)).to(rate.dtype).double() == value)
    return Fraction(next(exact))


def _numpy(values: Any) -> np.ndarray:
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _plain(labels: Any) -> np.ndarray:
    """Labels in the dtype of `NoisyLabels.classes`."""
    encoded = encode_labels(labels)
    return encoded.classes[encoded.codes.numpy()]


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


def _clusters(
    members: np.ndarray, size: int, rows: np.ndarray | None, draw: np.random.Generator
) -> np.ndarray:
    """A group number 0, 1, ... for each member of a class."""
    groups = max(1, len(members) // size)
    if rows is None:
        return draw.permutation(np.arange(len(members)) % groups)
    from sklearn.cluster import KMeans

    seed = int(draw.integers(2**31))
    found = KMeans(groups, n_init=1, random_state=seed).fit_predict(rows[members])
    return np.unique(found, return_inverse=True)[1]
