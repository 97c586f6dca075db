"""What the contrastive statistics ask of the engine that multiplies: `HostRows` or `DeviceRows`.

Judged rows against references: similarities, their class sums, a few numbers per row, counts in
the null histograms.  `HostRows` does this on a processor, `DeviceRows` on an accelerator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from torch import Tensor

from bspml.statistics.contrastive_nearest import Candidates
from bspml.statistics.contrastive_sums import weight_of_mates
from bspml.statistics.references import SUPPORT_EDGES, References, weight_elsewhere
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
        means: (N, C) s_i(c); NaN where a class has no other reference; None where both tables
            would be too large.
        sharp: (N, C) K_i(c), as `bspml.statistics.soft_means.SoftMeans.table` returns it; packed
            where `means` is None.
    """

    means: np.ndarray | None
    sharp: np.ndarray


class JudgedRows(ABC):
    """M judged rows against R references in C classes.

    Args:
        reference: whom they are judged by.
        labels: of all N samples.
        judged: (M,) sample indices.
        a: inverse temperature.
        bins: of a null histogram.
        tables: to fill beside, or None; on the host.
        candidates: nearest references to keep of each row; on the host.
    """

    def __init__(
        self,
        reference: References,
        labels: Labels,
        judged: np.ndarray,
        a: float,
        bins: int,
        tables: ClassTables | None = None,
        candidates: int = 0,
    ) -> None:
        self.reference, self.judged, self.a, self.bins = reference, judged, a, bins
        self.tables, self.candidates = tables, candidates
        counts = np.diff(reference.starts)
        self.stratum = np.searchsorted(SUPPORT_EDGES, counts, side="right") - 1  # -1: no reference
        self.codes = labels.codes.numpy()[judged]
        self.position = reference.position[judged]
        # Weight of each row's class and of the others, the row itself left out.
        mates = weight_of_mates(reference.weights, reference.starts)[self.position]
        self.mates = np.where(self.position >= 0, mates, reference.totals[self.codes])
        self.rest = weight_elsewhere(reference.totals)[self.codes]

    @abstractmethod
    def judge(self, embeddings: Tensor, block: int | None) -> None:
        """Judge all rows.

        Args:
            embeddings: (N, D) of all samples, not normalised.
            block: rows at a time; None to choose.
        """

    @abstractmethod
    def finish(self) -> tuple[RowFits, np.ndarray]:
        """Return what was found, and (G, bins) int64, a histogram for each of `SUPPORT_EDGES`."""

    def nearest(self, n: int) -> Candidates | None:
        """Return the candidates of all n samples, where they were asked for and can be kept."""
        return None
