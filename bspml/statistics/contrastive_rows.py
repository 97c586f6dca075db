"""What survives of the similarities of the judged rows, whoever computes them.

A block of rows at a time: similarities to all references, their class sums, a few numbers per
row, counts in the null histograms.  `HostRows` and `DeviceRows` do this on a processor and on an
accelerator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from torch import Tensor

from bspml.statistics.references import SUPPORT_EDGES, References
from bspml.tensors.checks import Labels


class JudgedRows(ABC):
    """Of M judged rows against R references in C classes.

    Attributes:
        own, everyone, other: (M,) float64 s_i(y_i), t_i and s_i(other_class); NaN: there is none.
        other_class, own_bin: (M,) int64, -1: there is none.
        null: (G, bins) int64, a histogram for each stratum of `SUPPORT_EDGES`.

    All of them on the host, and complete after `finish`.
    """

    own: np.ndarray
    everyone: np.ndarray
    other: np.ndarray
    other_class: np.ndarray
    own_bin: np.ndarray
    null: np.ndarray

    def __init__(
        self, reference: References, labels: Labels, judged: np.ndarray, a: float, bins: int
    ) -> None:
        self.reference, self.judged, self.a, self.bins = reference, judged, a, bins
        counts = np.diff(reference.starts)
        self.stratum = np.searchsorted(SUPPORT_EDGES, counts, side="right") - 1  # -1: no reference
        self.codes = labels.codes.numpy()[judged]
        self.position = reference.position[judged]

    @abstractmethod
    def default_block(self) -> int:
        """Rows per block."""

    @abstractmethod
    def judge(self, first: int, rows: Tensor) -> None:
        """Judge the rows from `first` on, (B, D) of norm a."""

    @abstractmethod
    def finish(self) -> None:
        """Complete the attributes."""
