"""Observers made from the names in a YAML file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bspml.observers.base import RoundWriter, Several, package_of
from bspml.observers.json_lines import JSONLines
from bspml.observers.mlflow import MLflow
from bspml.observers.tensorboard import TensorBoard
from bspml.observers.wandb import WandB


def check_observers(names: Sequence[str]) -> None:
    """Refuse observers whose package is missing, before anything is trained.

    Args:
        names: of `bspml.observers.names.NAMES`.

    Raises:
        MissingDependencyError: says which one, and how to get it.
    """
    for name in names:
        if name != "json-lines":
            package_of(name)


def make_observer(
    names: Sequence[str], folder: Path, project: str, method: str, images: Any = None
) -> Several:
    """Return the observers of one method in training, as one.

    TensorBoard and JSON lines write below `folder`; Weights & Biases and MLflow where they are
    set up to (WANDB_*, MLFLOW_TRACKING_URI), under the project and the name of folder and method.

    Args:
        names: of `bspml.observers.names.NAMES`.
        folder: of the run.
        project: the experiment's name.
        method: in training.
        images: see `RoundWriter`.

    Example:
        >>> make_observer([], Path("runs/glyphs"), "glyphs", "bspml").observers
        ()
    """
    run, file = f"{folder.name} {method}", method.replace(":", "-")
    made: list[RoundWriter] = []
    for name in names:
        if name == "tensorboard":
            made.append(TensorBoard(folder / "tensorboard" / file, images))
        elif name == "wandb":
            made.append(WandB(images=images, project=project, name=run, dir=str(folder)))
        elif name == "mlflow":
            made.append(MLflow(project, run, images=images))
        else:
            made.append(JSONLines(folder / f"observed-{file}.jsonl", images))
    return Several(made)
