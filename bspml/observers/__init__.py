"""Observers: the numbers of every round, told to the place where you look at your experiments.

An observer goes to `bspml.trainers.AlternatingTrainer(observer=)`; in a YAML file it is
`observers: [tensorboard]`.  Each writes the scalars of the round, the histogram of the weights and,
where it is given the images, the samples of lowest weight.  Names are loaded when first used.

Example:
    >>> import tempfile
    >>> from bspml.observers import JSONLines
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     observer = JSONLines(f"{folder}/rounds.jsonl")
    ...     observer.write(10, {"training/loss": 0.5}, weights=None)
    ...     print(open(f"{folder}/rounds.jsonl").read())
    {"step": 10, "training/loss": 0.5}
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bspml.observers.base import RoundWriter, Several
    from bspml.observers.json_lines import JSONLines
    from bspml.observers.mlflow import MLflow
    from bspml.observers.tensorboard import TensorBoard
    from bspml.observers.wandb import WandB

__all__ = ["JSONLines", "MLflow", "RoundWriter", "Several", "TensorBoard", "WandB"]

_HOME = {
    "JSONLines": "json_lines",
    "MLflow": "mlflow",
    "RoundWriter": "base",
    "Several": "base",
    "TensorBoard": "tensorboard",
    "WandB": "wandb",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"bspml.observers.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
