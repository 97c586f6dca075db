"""What the kinds of noise share: checked arguments, the draw of samples, and the result."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bspml.data.noise.noisy_labels import NoisyLabels, copy_of
from bspml.data.noise.rates import as_decimal
from bspml.errors import InputError
from bspml.tensors.checks import check_embeddings, check_number, check_whole, encode_labels


@dataclass(frozen=True, eq=False)
class NoiseTask:
    """Labels to be changed.

    Attributes:
        given: (N,) the caller's labels, array or tensor.
        codes: (N,) int64, the same as 0..C-1.
        classes: (C,) the distinct labels, sorted.
        rate: in [0, 1].
        exact_rate: the rate as the decimal that was meant.
        draw: the generator everything is drawn from.
    """

    given: Any
    codes: np.ndarray
    classes: np.ndarray
    rate: float
    exact_rate: Fraction
    draw: np.random.Generator

    @classmethod
    def of(cls, labels: Any, rate: Any, seed: Any) -> NoiseTask:
        """Check the arguments that every kind of noise has.

        Args:
            labels: (N,) of any kind, at least two classes.
            rate: in [0, 1].
            seed: a whole number, at least 0.

        Raises:
            InputError: one of them is not so.
        """
        number = check_number(rate, "rate", 0.0, 1.0)
        seed = check_whole(seed, "seed", low=0)
        encoded = encode_labels(labels)
        if len(encoded.classes) < 2:
            raise InputError(
                f"`labels` must have at least 2 classes, so that a label can be wrong; got "
                f"{len(encoded.classes)}."
            )
        given, draw = copy_of(labels, encoded), np.random.default_rng(seed)
        return cls(given, encoded.codes.numpy(), encoded.classes, number, as_decimal(rate), draw)

    @property
    def num_classes(self) -> int:
        """C, at least 2."""
        return len(self.classes)

    def members(self, c: int) -> np.ndarray:
        """Return the rows of class c."""
        return np.flatnonzero(self.codes == c)

    def count(self) -> int:
        """Return round(rate * N)."""
        return round(self.exact_rate * len(self.codes))

    def draw_rows(self, per_class: bool = False, exact: bool = True) -> np.ndarray:
        """Draw the samples to change.

        Args:
            per_class: True draws round(rate * N_c) of each class, False round(rate * N) of all.
            exact: False draws each sample with probability `rate`.

        Returns:
            Their rows, rising.

        Raises:
            InputError: per_class and not exact.
        """
        if not exact:
            if per_class:
                raise InputError(
                    "`per_class` fixes the number of samples in each class, `exact=False` leaves "
                    "it to chance; leave one of them out."
                )
            return np.flatnonzero(self.draw.random(len(self.codes)) < self.rate)
        order = self.draw.permutation(len(self.codes))
        if not per_class:
            return np.sort(order[: self.count()])
        sizes = np.bincount(self.codes)
        quota = np.array([round(self.exact_rate * int(size)) for size in sizes])
        order = order[np.argsort(self.codes[order], kind="stable")]  # by class, shuffled inside
        place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.sort(order[place < np.repeat(quota, sizes)])

    def draw_members(self, c: int, rate: Any, exact: bool) -> np.ndarray:
        """Draw the samples of one class to change, at a rate of their own.

        Args:
            c: code of the class.
            rate: in [0, 1].
            exact: False draws each sample with probability `rate`.

        Returns:
            Their rows.
        """
        members = self.members(c)
        if not exact:
            return members[self.draw.random(len(members)) < float(rate)]
        return self.draw.choice(members, round(as_decimal(rate) * len(members)), replace=False)

    def with_labels(
        self, rows: np.ndarray, codes: np.ndarray, rate: float | None = None
    ) -> NoisyLabels:
        """Return the labels with some of them replaced.

        Args:
            rows: samples whose labels become wrong, each once.
            codes: classes they get, never their own.
            rate: the rate to report, in place of the task's.
        """
        assert (codes != self.codes[rows]).all()
        # A row of each class, to copy the label from: kind and dtype stay as they came.
        example = np.unique(self.codes, return_index=True)[1]
        source: Any = np.arange(len(self.codes))
        noisy = np.isin(source, rows)
        source[rows] = example[codes]
        outliers = ~np.isin(self.codes, self.codes[source])  # their own class has no label now
        labels, found = self.given, [source, noisy, outliers]
        if isinstance(labels, Tensor):
            found = [torch.from_numpy(array).to(labels.device) for array in found]
        return NoisyLabels(
            labels=labels[found[0]],
            true_labels=labels,
            is_noisy=found[1],
            is_outlier=found[2],
            rate=self.rate if rate is None else rate,
            classes=self.classes,
        )

    def check_rows(self, embeddings: Any) -> Tensor:
        """Return (N, D) embeddings of the same samples, detached; half ones as float32."""
        rows = check_embeddings(embeddings)
        if len(rows) != len(self.codes):
            raise InputError(
                f"`embeddings` must have one row per label, {len(self.codes)}; got {len(rows)}."
            )
        return rows.detach().to(torch.promote_types(rows.dtype, torch.float32))
