"""What the contrastive statistics ask of the engine that multiplies: `HostRows` or `DeviceRows`.

A block of judged rows at a time: similarities to all references, their class sums, a few numbers
per row, counts in the null histograms.  `HostRows` does this on a processor, `DeviceRows` on an
accelerator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from torch import Tensor

from bspml.statistics.references import SUPPORT_EDGES, References
from bspml.tensors.checks import Labels


class RowFits(NamedTuple):
    """How well M judged rows fit their labels and the others, on the host.

    Attributes:
        own: (M,) float64 s_i(y_i); NaN: there is none.
        everyone: (M,) float64 t_i; NaN: there is none.
        other: (M,) float64 s_i(other_class); NaN: there is none.
        other_class: (M,) int64, -1: there is none.
        own_bin: (M,) int64 bin of d_i in the null histograms, -1: there is none.
    """

    own: np.ndarray
    everyone: np.ndarray
    other: np.ndarray
    other_class: np.ndarray
    own_bin: np.ndarray


class ClassTables(NamedTuple):
    """What the pass over the similarities says of every sample and class, where that can be held.

    In float64 if the embeddings are, else in float32.

    Attributes:
        means: (N, C) s_i(c); NaN where a class has no other reference.
        sharp: (N, C) K_i(c), as `bspml.statistics.soft_means.SoftMeans.table` returns it.
    """

    means: np.ndarray
    sharp: np.ndarray


class JudgedRows(ABC):
    """M judged rows against R references in C classes, block by block.

    Args:
        reference: whom they are judged by.
        labels: of all N samples.
        judged: (M,) sample indices.
        a: inverse temperature.
        bins: of a null histogram.
        tables: to fill beside, or None.
    """

    def __init__(
        self,
        reference: References,
        labels: Labels,
        judged: np.ndarray,
        a: float,
        bins: int,
        tables: ClassTables | None = None,
    ) -> None:
        self.reference, self.judged, self.a, self.bins = reference, judged, a, bins
        self.tables = tables
        counts = np.diff(reference.starts)
        self.stratum = np.searchsorted(SUPPORT_EDGES, counts, side="right") - 1  # -1: no reference
        self.codes = labels.codes.numpy()[judged]
        self.position = reference.position[judged]

    @abstractmethod
    def default_block(self) -> int:
        """Return how many rows to judge at a time."""

    @abstractmethod
    def judge(self, first: int, rows: Tensor) -> None:
        """Judge one block.

        Args:
            first: place of the block's first row among the judged.
            rows: (B, D) of norm a.
        """

    @abstractmethod
    def finish(self) -> tuple[RowFits, np.ndarray]:
        """Return what was found, and (G, bins) int64, a histogram for each of `SUPPORT_EDGES`."""
