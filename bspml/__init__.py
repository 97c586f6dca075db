"""Deep metric learning that survives wrong labels.

Every training sample gets a weight in [0, 1], learned together with the network
[Zhang et al. 2023, AAAI].  docs/formulas.md states the problem in symbols.
Names are loaded when first used, so that `bspml --help` does not wait for torch.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from types import ModuleType
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

# Import paths of 0.1 that a program can have used; each works for one release, with a warning.
_MOVED = {
    "bspml.bounded_statistics": "bspml.statistics.pair_bounded",
    "bspml.checkpoints": "bspml.files.checkpoints",
    "bspml.config": "bspml.experiment.config",
    "bspml.confusions": "bspml.statistics.confusions",
    "bspml.contrastive": "bspml.statistics.contrastive",
    "bspml.curriculum": "bspml.trainers.curriculum",
    "bspml.feature_cache": "bspml.networks.feature_cache",
    "bspml.noise_rate": "bspml.statistics.noise_rate",
    "bspml.records": "bspml.files.run",
    "bspml.run": "bspml.experiment.load",
    "bspml.sampled_contrastive": "bspml.statistics.sampled_contrastive",
}

__all__ = [*_HOME, *_MODULES]


class _FormerNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a module under the name it had in 0.1."""

    def find_spec(
        self, name: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name in _MOVED else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        now = _MOVED[spec.name]
        words = f"{spec.name} is {now} since 0.2; the old name goes with the next release."
        warnings.warn(words, DeprecationWarning, stacklevel=3)
        module = importlib.import_module(now)
        self._specs = getattr(self, "_specs", {}) | {spec.name: module.__spec__}
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import gave it the spec of the old name.
        assert module.__spec__ is not None
        module.__spec__ = self._specs[module.__spec__.name]


if not any(isinstance(finder, _FormerNames) for finder in sys.meta_path):
    sys.meta_path.append(_FormerNames())


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"bspml.{name}")
    raise AttributeError(f"module 'bspml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
