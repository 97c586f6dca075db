"""How well each label fits: exact, bounded or sampled statistics; and how many labels are wrong."""

from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.pair import PairStatistics, pair_statistics
from bspml.statistics.pair_bounded import NeighbourStatistics, neighbour_statistics
from bspml.statistics.sampled_contrastive import sampled_contrastive_statistics

__all__ = [
    "NeighbourStatistics",
    "PairStatistics",
    "contrastive_statistics",
    "neighbour_statistics",
    "pair_statistics",
    "sampled_contrastive_statistics",
]
