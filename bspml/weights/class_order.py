"""The samples in class order, so that one class is one contiguous slice for the kernels."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np


class ClassSorted(NamedTuple):
    """The data of a weight problem in class order.

    Attributes:
        order: (N,) sample at each position, classes as they first appear, samples in the
            order of the data within a class.
        starts: (C + 1,) class c occupies positions starts[c] to starts[c + 1].
        codes: (N,) class of each position.
        xi_pos: (N,) positive statistic of each position.
        xi_neg: (N,) negative statistic of each position.
    """

    order: np.ndarray
    starts: np.ndarray
    codes: np.ndarray
    xi_pos: np.ndarray
    xi_neg: np.ndarray

    def scatter(self, values: np.ndarray) -> np.ndarray:
        """Return (N,) values of the positions, in the order of the data."""
        scattered = np.empty_like(values)
        scattered[self.order] = values
        return scattered


@numba.njit(cache=True)
def sort_by_class(codes, sizes, xi_pos, xi_neg):
    """Sort the samples by class, by counting: O(N), where a comparison sort takes 20 x as long.

    Args:
        codes: (N,) class of each sample, in 0..C-1.
        sizes: (C,) how often each class occurs.
        xi_pos: (N,) positive statistic of each sample.
        xi_neg: (N,) negative statistic of each sample.

    Returns:
        The data as `ClassSorted`.
    """
    N, C = len(codes), len(sizes)
    starts = np.zeros(C + 1, np.int64)
    for c in range(C):
        starts[c + 1] = starts[c] + np.int64(sizes[c])
    order, sorted_codes = np.empty(N, np.int64), np.empty(N, np.int64)
    sorted_pos, sorted_neg = np.empty(N), np.empty(N)
    following = starts[:-1].copy()  # where the next sample of each class goes
    for i in range(N):
        c = codes[i]
        at = following[c]
        following[c] = at + 1
        order[at], sorted_codes[at] = i, c
        sorted_pos[at], sorted_neg[at] = xi_pos[i], xi_neg[i]
    return ClassSorted(order, starts, sorted_codes, sorted_pos, sorted_neg)
