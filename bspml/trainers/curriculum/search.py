"""Which statistics a curriculum takes: exact ones, or nearly linear ones with a proved error."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bspml.statistics.contrastive import ContrastiveStatistics
from bspml.statistics.pair import PairStatistics, pair_statistics
from bspml.statistics.pair_bounded import neighbour_statistics
from bspml.statistics.sampled_contrastive import EXACT_ROWS, sampled_contrastive_statistics
from bspml.statistics.sharded import sharded_contrastive_statistics
from bspml.trainers.settings import Scales

# On the CPU; from here the exact statistics take minutes.  An accelerator takes seconds.
NEIGHBOURS_FROM = 200_000
PAIR_ERROR, CONTRASTIVE_ERROR = 1e-3, 2e-2


@dataclass(frozen=True)
class StatisticsSearch:
    """Compute the statistics of the whole training set, exactly or by neighbours.

    Attributes:
        search: "exact"; "neighbours", nearly linear in N where embeddings gather in clusters; or
            "auto", exact below `NEIGHBOURS_FROM` samples and on an accelerator.
        error: largest error of a statistic by neighbours; None for 1e-3 (xi_neg) and 2e-2 (t_i,
            together with confidence .99).

    Several processes share the statistics; the pair statistics by neighbours each computes alone.
    """

    search: str
    error: float | None

    def pair_statistics(
        self, embeddings: Tensor, codes: Tensor, scales: Scales, sample_weights: Tensor | None
    ) -> PairStatistics:
        """Return the paper's statistics, as `bspml.pair_statistics` gives them.

        Args:
            embeddings: (N, D) of the whole training set.
            codes: (N,) class codes.
            scales: alpha, beta and base of eq. (3).
            sample_weights: (N,) in [0, 1]; None: all 1.
        """
        arguments = (embeddings, codes, scales.alpha, scales.beta, scales.base, sample_weights)
        if self.is_exact(embeddings):
            return pair_statistics(*arguments, across_ranks=True)
        return neighbour_statistics(*arguments, error=self.error or PAIR_ERROR)

    def contrastive_statistics(
        self,
        embeddings: Tensor,
        codes: Tensor,
        sample_weights: Tensor,
        rows: Tensor | None,
        for_rate: bool,
    ) -> ContrastiveStatistics:
        """Return ours, as `bspml.statistics.contrastive.contrastive_statistics` gives them.

        Args:
            embeddings: (N, D) of the whole training set.
            codes: (N,) class codes.
            sample_weights: (N,) in [0, 1]; rows of positive weight are the reference.
            rows: (M,) the rows to judge; None: all.
            for_rate: a noise rate will be estimated from them.
        """
        if self.is_exact(embeddings):
            return sharded_contrastive_statistics(embeddings, codes, sample_weights, rows)
        return sampled_contrastive_statistics(
            embeddings,
            codes,
            sample_weights=sample_weights,
            rows=rows,
            error=self.error or CONTRASTIVE_ERROR,
            exact_rows=EXACT_ROWS if for_rate else 0,
            across_ranks=True,
        )

    def is_exact(self, embeddings: Tensor) -> bool:
        """Say whether the statistics are exact.

        Args:
            embeddings: (N, D) of the whole training set.
        """
        if self.search != "auto":
            return self.search == "exact"
        return len(embeddings) < NEIGHBOURS_FROM or embeddings.device.type != "cpu"
