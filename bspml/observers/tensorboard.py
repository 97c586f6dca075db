"""Rounds written for TensorBoard."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bspml.files.opening import refusals
from bspml.observers.base import RoundWriter, checked_weights, package_of, pixels_of


class TensorBoard(RoundWriter):
    """Event files of TensorBoard, by torch's own writer.

    A run that goes on hides what was written after the step it goes on from.

    Args:
        log_dir: folder of the event files, made when the first round ends.
        images: see `RoundWriter`.

    Raises:
        MissingDependencyError: no tensorboard.

    Example:
        >>> observer = TensorBoard("runs/mine")  # doctest: +SKIP
        >>> trainer = AlternatingTrainer(..., observer=observer)  # doctest: +SKIP
    """

    def __init__(self, log_dir: str | os.PathLike[str], images: Any = None) -> None:
        super().__init__(images)
        package_of("tensorboard")
        self._make = importlib.import_module("torch.utils.tensorboard").SummaryWriter
        self.log_dir, self._writer = os.fspath(log_dir), None

    def _at(self, step: int) -> Any:
        if self._writer is None:
            with refusals(f"{self.log_dir}: cannot be a folder of TensorBoard", ". Name another."):
                self._writer = self._make(self.log_dir, purge_step=step)
        return self._writer

    def write(self, step: int, scalars: Mapping[str, float], weights: np.ndarray | None) -> None:
        """Write scalars and the histogram "weights".

        Args:
            step: optimiser steps so far.
            scalars: {name: finite number}.
            weights: (N,) or None.
        """
        writer = self._at(step)
        for name, value in scalars.items():
            writer.add_scalar(name, value, step)
        if weights is not None:
            writer.add_histogram("weights", checked_weights(weights), step)
        writer.flush()

    def write_figure(self, step: int, name: str, figure: Figure) -> None:
        """Write a picture.

        Args:
            step: optimiser steps so far.
            name: of the picture.
            figure: drawn by matplotlib.
        """
        self._at(step).add_image(name, pixels_of(figure), step, dataformats="HWC")
        self._at(step).flush()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()
