"""Deep metric learning that survives wrong labels.

Every training sample gets a weight in [0, 1], learned together with the network
[Zhang et al. 2023, AAAI].  docs/formulas.md states the problem in symbols.
Names are loaded when first used, so that `bspml --help` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "SampleWeights": "bspml.weights.state",
    "WeightProblem": "bspml.weights.problem",
    "solve_weights": "bspml.weights.solver",
    "WeightSolution": "bspml.weights.solver",
    "pair_statistics": "bspml.statistics.pair",
    "PairStatistics": "bspml.statistics.pair",
    "neighbour_statistics": "bspml.statistics.pair_bounded",
    "NeighbourStatistics": "bspml.statistics.pair_bounded",
    "contrastive_statistics": "bspml.statistics.contrastive",
    "sampled_contrastive_statistics": "bspml.statistics.sampled_contrastive",
    "BSPMLMiner": "bspml.losses.miners.bspml_miner",
    "BSPMLLoss": "bspml.losses.bspml_loss",
    "CrossBatchMemory": "bspml.losses.cross_batch_memory",
    "IndexedDataset": "bspml.data.indexed",
    "PKSampler": "bspml.data.sampler",
    "SelfPacedCurriculum": "bspml.trainers",
    "evaluate": "bspml.evaluation.retrieval",
    "load": "bspml.experiment.load",
    "audit": "bspml.auditing",
    "Weighted": "bspml.losses.weighted",
    "SuperLoss": "bspml.losses.reducers",
    "GradientRescaling": "bspml.losses.reducers",
    "IMAE": "bspml.losses.reducers",
    "load_retrieval": "bspml.data.catalogue",
}
_MODULES = (
    "functional",
    "noise",
    "methods",
    "reducers",
    "trainers",
    "evaluation",
    "observers",
    "distributed",
    "errors",
)

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"bspml.{name}")
    raise AttributeError(f"module 'bspml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
