"""How well each label fits: exact, bounded or sampled statistics; and how many labels are wrong."""

from bspml.statistics.contrastive import contrastive_statistics as contrastive_statistics
from bspml.statistics.pair import (
    PairStatistics as PairStatistics,
    pair_statistics as pair_statistics,
)
from bspml.statistics.pair_bounded import (
    NeighbourStatistics as NeighbourStatistics,
    neighbour_statistics as neighbour_statistics,
)
from bspml.statistics.sampled_contrastive import (
    sampled_contrastive_statistics as sampled_contrastive_statistics,
)
