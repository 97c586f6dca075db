"""Groups of copies: which samples are one, and which picture stands for many labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bspml.tensors.class_ids import by_code
from bspml.tensors.copies import linked

PLACEHOLDER_LABELS = 3  # labels of one picture from which it says nothing about any of them


@dataclass(frozen=True)
class CopyGroup:
    """Samples that are copies of each other, at least two.

    Attributes:
        samples: (n,) int64, ascending.
        label_counts: samples of the group by label code, the most frequent first.
        kind: "exact" if all are exact copies, else "near".

    Example:
        >>> CopyGroup(np.array([0, 4, 7]), {1: 1, 2: 1, 5: 1}, "exact").placeholder
        True
    """

    samples: np.ndarray
    label_counts: dict[int, int]
    kind: str

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def placeholder(self) -> bool:
        """Return whether it belongs to none of its labels; see `is_placeholder`."""
        most = max(self.label_counts.values())
        return bool(is_placeholder(len(self.label_counts), most, len(self)))


def is_placeholder(num_labels: Any, most: Any, size: Any) -> Any:
    """Return whether a picture stands under three labels or more, as "no image" pictures do.

    A picture that most of its copies give one label belongs to that class.

    Args:
        num_labels: under how many labels its copies are, a number or an array.
        most: how many of them are under the most frequent one.
        size: how many they are.

    Example:
        >>> is_placeholder(3, 1, 3), is_placeholder(3, 4, 6)
        (True, False)
    """
    return (num_labels >= PLACEHOLDER_LABELS) & (2 * most <= size)


def first_in_group(pairs: np.ndarray, n: int) -> np.ndarray:
    """Return the first sample of each one's group, the groups connected by pairs.

    Args:
        pairs: (P, 2) int64 samples.
        n: samples.

    Returns:
        (n,) int64, at most the sample itself.

    Example:
        >>> first_in_group(np.array([[0, 3], [3, 1]]), 5).tolist()
        [0, 0, 2, 0, 4]
    """
    number = linked(pairs[:, 0], pairs[:, 1], n)
    return np.unique(number, return_index=True)[1][number]


def copy_groups(table: pd.DataFrame, n: int) -> np.ndarray:
    """Return the group of each sample; one without copies has a group of its own.

    Args:
        table: of pairs, from `bspml.statistics.copies.duplicates.find_duplicates`.
        n: samples.

    Returns:
        (n,) int64 group numbers from 0, in order of the groups' first samples.

    Example:
        >>> copy_groups(pd.DataFrame({"first": [0, 3], "second": [3, 4]}), 5).tolist()
        [0, 1, 2, 0, 0]
    """
    first = first_in_group(table[["first", "second"]].to_numpy(np.int64), n)
    return np.unique(first, return_inverse=True)[1].reshape(-1)


def list_copy_groups(table: pd.DataFrame, codes: np.ndarray) -> tuple[CopyGroup, ...]:
    """Return the groups of two samples or more, in order of their first samples.

    Args:
        table: of pairs, from `bspml.statistics.copies.duplicates.find_duplicates`.
        codes: (N,) int64 labels.

    Example:
        >>> table = pd.DataFrame({"kind": ["exact"] * 2, "first": [0, 0], "second": [1, 3]})
        >>> group = list_copy_groups(table, np.array([4, 5, 4, 4]))[0]
        >>> group.samples.tolist(), group.label_counts, group.kind, group.placeholder
        ([0, 1, 3], {4: 2, 5: 1}, 'exact', False)
    """
    number = copy_groups(table, len(codes))
    with_near = set(number[table["first"].to_numpy(np.int64)[(table["kind"] == "near").to_numpy()]])
    groups = []
    for samples in by_code(number).values():
        if len(samples) > 1:
            labels, counts = np.unique(codes[samples], return_counts=True)
            ranked = np.argsort(-counts, kind="stable")
            by_label = dict(zip(labels[ranked].tolist(), counts[ranked].tolist(), strict=True))
            kind = "near" if number[samples[0]] in with_near else "exact"
            groups.append(CopyGroup(samples, by_label, kind))
    return tuple(groups)
