"""Miners for pytorch-metric-learning that know the sample weights."""

from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.losses.miners.distance_weighted import DistanceWeightedMiner

__all__ = ["BSPMLMiner", "DistanceWeightedMiner"]
