"""Copies count once: the distinct samples of an audit, and the groups of copies behind them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bspml.statistics.copies.copy_groups import copy_groups, is_placeholder


@dataclass(frozen=True)
class Distinct:
    """Samples of which none is the copy of another under the same label; M of N.

    Attributes:
        group: (N,) int64 group of copies of each sample; most have one of their own.
        codes: (N,) int64 labels.
        first: (M,) int64, the first sample of each group and label, ascending.
        place: (N,) int64, which of these stands for each sample.
        num_labels: (M,) int64, under how many labels the sample's group is.
        wrong_share: (M,) float64, of the group, how many are under other labels.
        placeholder: (M,) bool, one picture under so many labels that it belongs to none of them.
        proven_wrong: labels of exact copies that are not the most frequent one of these: one label
            of a picture may be right, so that as many are wrong whatever anybody thinks.
    """

    group: np.ndarray
    codes: np.ndarray
    first: np.ndarray
    place: np.ndarray
    num_labels: np.ndarray
    wrong_share: np.ndarray
    placeholder: np.ndarray
    proven_wrong: int

    @classmethod
    def of(cls, duplicates: pd.DataFrame, codes: np.ndarray) -> Distinct:
        """Take copies together.

        Args:
            duplicates: pairs from `find_duplicates`.
            codes: (N,) int64 labels.

        Example:
            >>> pairs = pd.DataFrame({"kind": ["exact"] * 2, "first": [0, 0], "second": [1, 2]})
            >>> once = Distinct.of(pairs, np.array([5, 5, 6, 6]))
            >>> once.first.tolist(), once.place.tolist(), once.num_labels.tolist()
            ([0, 2, 3], [0, 0, 1, 2], [2, 2, 1])
            >>> once.proven_wrong
            1
        """
        exact = copy_groups(duplicates[duplicates["kind"] == "exact"], len(codes))
        return cls.of_groups(copy_groups(duplicates, len(codes)), codes, exact)

    @classmethod
    def of_groups(
        cls, group: np.ndarray, codes: np.ndarray, exact: np.ndarray | None = None
    ) -> Distinct:
        """Take copies together that are known by group.

        Args:
            group: (N,) int64 from 0, equal for copies.
            codes: (N,) int64 labels.
            exact: likewise, of exact copies alone; None: nothing is proved.
        """
        pairs = np.stack([group, codes], 1)
        _, first, place, counts = np.unique(
            pairs, axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        by_first = np.argsort(first)
        where = np.argsort(by_first)[place.reshape(-1)]
        first, counts = first[by_first], counts[by_first]
        size = np.bincount(group)[group[first]]
        labels = np.bincount(group[first])[group[first]]
        aside = is_placeholder(labels, largest_counts(group[first], counts)[group[first]], size)
        proven = 0
        if exact is not None:
            of_label = np.unique(np.stack([exact, codes], 1), axis=0, return_counts=True)
            proven = len(codes) - int(largest_counts(of_label[0][:, 0], of_label[1]).sum())
        return cls(group, codes, first, where, labels, 1 - counts / size, aside, proven)

    @property
    def vouching(self) -> np.ndarray:
        """(M,) bool: the sample's group is under its label alone, or mostly."""
        return self.wrong_share < 0.5


def largest_counts(group: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return (G,) the largest of each group's counts.

    Args:
        group: (M,) int64.
        counts: (M,) of each label in the group.

    Example:
        >>> largest_counts(np.array([0, 0, 1]), np.array([2, 3, 1])).tolist()
        [3, 1]
    """
    largest = np.zeros(group.max(initial=-1) + 1, np.int64)
    np.maximum.at(largest, group, counts)
    return largest
