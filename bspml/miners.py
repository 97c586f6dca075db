"""Miners that know the sample weights: the public door of `bspml.losses.miners`."""

from bspml.losses.miners import (
    BSPMLMiner,
    DistanceWeightedMiner,
)

__all__ = [
    "BSPMLMiner",
    "DistanceWeightedMiner",
]
