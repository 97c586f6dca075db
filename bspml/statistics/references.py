"""The reference samples of the contrastive statistics: those of positive weight, sorted by class.

A label is judged by how similar its sample is to the references of each class.  Every form of the
statistics starts here, exact or sampled, on the host or on an accelerator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from bspml.errors import InputError
from bspml.shapes import Tensor
from bspml.tensors.checks import Labels
from bspml.tensors.unit_rows import unit_rows

# The null is kept apart by the number of references of its class: stratum g holds the classes with
# SUPPORT_EDGES[g] <= references < SUPPORT_EDGES[g + 1].  A soft mean over 2 references spreads
# more than one over 30, so small classes need a null of their own.
SUPPORT_EDGES = (1, 2, 3, 4, 5, 6, 8, 11, 16, 26)


def check_two_classes(counts: np.ndarray) -> None:
    """Refuse references, counted by class (C,), of fewer than two classes."""
    if (counts > 0).sum() < 2:
        raise InputError(
            "contrastive statistics need references of at least two classes; got "
            f"{int((counts > 0).sum())} (samples of weight 0 and rows of norm 0 do not count). "
            "With one class there is no wrong label to compare with."
        )


@dataclass(frozen=True)
class _Sorted:
    """Some rows in some order, normalised when they are first asked for."""

    given: Tensor  # (N, D)
    order: np.ndarray  # (R,)

    @cached_property
    def rows(self) -> Tensor:
        """(R, D)."""
        return unit_rows(self.given[torch.from_numpy(self.order)])


@dataclass(frozen=True)
class References:
    """The samples of positive weight, sorted by class so that a class is a run of columns."""

    samples: _Sorted
    weights: np.ndarray  # (R,) float64
    position: np.ndarray  # (N,) int64 column of a sample, -1 if it is no reference
    starts: np.ndarray  # (C + 1,) int64 first column of each class
    totals: np.ndarray  # (C,) float64 weight of each class

    @classmethod
    def of(cls, embeddings: Tensor, labels: Labels, weights: np.ndarray) -> References:
        """Sort the samples of positive weight.

        Args:
            embeddings: (N, D).
            labels: (N,) as codes.
            weights: (N,) float64, at least 0.
        """
        reference = cls.sorted_by_class(embeddings, labels, weights)
        check_two_classes(np.diff(reference.starts))
        return reference

    @classmethod
    def sorted_by_class(cls, embeddings: Tensor, labels: Labels, weights: np.ndarray) -> References:
        """Sort the samples of any weight but 0, of however few classes.

        Args:
            embeddings: (N, D).
            labels: (N,) as codes.
            weights: (N,) float64.
        """
        codes = labels.codes.numpy()
        rows_kept = np.flatnonzero(weights)
        order = rows_kept[np.argsort(codes[rows_kept], kind="stable")]
        counts = np.bincount(codes[order], minlength=len(labels.classes))
        position = np.full(len(codes), -1, np.int64)
        position[order] = np.arange(len(order))
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        totals = np.bincount(codes[order], weights[order], minlength=len(counts))
        return cls(_Sorted(embeddings, order), weights[order], position, starts, totals)

    @property
    def embeddings(self) -> Tensor:
        """(R, D) normalised."""
        return self.samples.rows

    def spread(self) -> np.ndarray:
        """Return (N,) the weights, 0 where a sample is no reference."""
        weights = np.zeros(len(self.position))
        weights[self.position >= 0] = self.weights[self.position[self.position >= 0]]
        return weights

    def reweighted(self, weights: np.ndarray) -> References:
        """Return the same references with other weights.

        Args:
            weights: (N,) float64, above 0 for the references.
        """
        own = np.empty(len(self.weights))
        own[self.position[self.position >= 0]] = weights[self.position >= 0]
        classes = np.repeat(np.arange(len(self.totals)), np.diff(self.starts))
        totals = np.bincount(classes, own, minlength=len(self.totals))
        return replace(self, weights=own, totals=totals)


def weight_elsewhere(weights: np.ndarray) -> np.ndarray:
    """Return (n,) sum of all entries but each one, from both ends: nothing cancels beside a large
    one."""
    before = np.concatenate([[0.0], np.cumsum(weights)[:-1]])
    after = np.concatenate([np.cumsum(weights[::-1])[::-1][1:], [0.0]])
    return before + after
