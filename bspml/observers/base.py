"""What all observers of rounds do; each tracker adds how a number is written there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bspml.errors import InputError, import_optional
from bspml.files.opening import refusals
from bspml.files.run import WeightsTable
from bspml.observers.scalars import scalars_of
from bspml.report.figures import captions, contact_sheet
from bspml.report.samples import lowest_weights
from bspml.tensors.row_checks import check_reference_weights

_SHEET = 48  # samples of lowest weight shown
_REMEDY = ". Put that right, or leave the observer out, and train on: nothing trained is lost."
_BINS = 20  # of the histogram of weights


class RoundWriter:
    """An observer that writes what a round left behind; steps are passed over.

    Args:
        images: N training images by row, (H, W), (H, W, 3) or a tensor (1 or 3, H, W) each: draws
            the samples of lowest weight after every round.  None: no pictures.

    Example:
        >>> class Printer(RoundWriter):
        ...     def write(self, step, scalars, weights):
        ...         print(step, scalars["training/loss"])
        ...
        ...     def write_figure(self, step, name, figure):
        ...         print(name)
        >>> from bspml.trainers import RoundRecord
        >>> record = RoundRecord(1, 0.5, 10, 0.25, 1.0, 0.0, None, {}, 2.0, 1.0)
        >>> Printer().on_round(type("Trainer", (), {"steps": 10, "curriculum": None}), record)
        10 0.25
    """

    def __init__(self, images: Any = None) -> None:
        self.images = images

    def write(self, step: int, scalars: Mapping[str, float], weights: np.ndarray | None) -> None:
        """Write the numbers of a round.

        Args:
            step: optimiser steps so far.
            scalars: {name: finite number}.
            weights: (N,) of all training samples, in [0, 1]; None where nothing weighs them.
        """
        raise NotImplementedError

    def write_figure(self, step: int, name: str, figure: Figure) -> None:
        """Write a picture.

        Args:
            step: optimiser steps so far.
            name: of the picture.
            figure: drawn by matplotlib.
        """
        raise NotImplementedError

    def on_step(self, trainer: Any, step: int, steps: int, loss: float) -> None:
        """Pass over a step.

        Args:
            trainer: the one that tells.
            step: of this round.
            steps: of this round.
            loss: of the step.
        """

    def on_round(self, trainer: Any, record: Any) -> None:
        """Write the round: its numbers, the weights, and the samples of lowest weight.

        Args:
            trainer: the one that tells; has `steps`, and `curriculum` where samples are weighed.
            record: of the round.
        """
        table: Any = getattr(getattr(trainer, "curriculum", None), "weights", None)
        weights = None if table is None else table.weights.detach().cpu().double().numpy()
        with refusals(f"{type(self).__name__} did not take a round", _REMEDY, (Exception,)):
            self.write(trainer.steps, scalars_of(record), weights)
            if weights is not None and self.images is not None:
                sheet = lowest_weights_sheet(self.images, table.labels, weights)
                self.write_figure(trainer.steps, "lowest_weights", sheet)

    def close(self) -> None:
        """Let go of files and connections; written rounds are already safe."""


class Several:
    """Observers told one after the other, all of them also where one fails.

    Args:
        observers: each with `on_step`, `on_round` and `close`.

    Raises:
        RunError: when all have been told, what one of them says.

    Example:
        >>> Several([]).on_step(None, 1, 2, 0.5)
    """

    def __init__(self, observers: Sequence[Any]) -> None:
        self.observers = tuple(observers)

    def on_step(self, trainer: Any, step: int, steps: int, loss: float) -> None:
        """Tell each of the step.

        Args:
            trainer: the one that tells.
            step: of this round.
            steps: of this round.
            loss: of the step.
        """
        self._tell("on_step", trainer, step, steps, loss)

    def on_round(self, trainer: Any, record: Any) -> None:
        """Tell each of the round.

        Args:
            trainer: the one that tells.
            record: of the round.
        """
        self._tell("on_round", trainer, record)

    def close(self) -> None:
        """Close each."""
        self._tell("close")

    def _tell(self, event: str, *what: Any) -> None:
        with ExitStack() as each:  # which goes through all, from the last one entered
            for one in reversed(self.observers):
                said = f"{type(one).__name__} failed in `{event}`", _REMEDY, (Exception,)
                each.enter_context(refusals(*said))
                each.callback(getattr(one, event), *what)


def package_of(tracker: str) -> Any:
    """Import the package of a tracker; its extra has the same name.

    Args:
        tracker: "tensorboard", "wandb" or "mlflow".

    Raises:
        MissingDependencyError: says how to get it.
    """
    how = f"the observer {tracker!r} needs its package: `pip install 'bspml[{tracker}]'`."
    return import_optional(tracker, how)


def lowest_weights_sheet(images: Any, labels: Any, weights: np.ndarray) -> Figure:
    """Draw the samples of lowest weight, each above its row, weight and label.

    Args:
        images: N pictures by row, see `RoundWriter`.
        labels: (N,) given labels.
        weights: (N,) in [0, 1].
    """
    table = WeightsTable(np.asarray(labels).astype(str), weights, flags=[()] * len(weights))
    rows = lowest_weights(table, _SHEET)
    try:
        pictures = np.stack([_channels_last(images[row]) for row in rows.tolist()])
    except (IndexError, KeyError, ValueError) as err:
        raise InputError(
            f"`images` must hold a picture for each of {len(weights)} samples, all of one size; "
            f"got {type(err).__name__}: {err}. Give the training set's, or none."
        ) from err
    return contact_sheet(pictures, captions(table, rows), "samples of lowest weight")


def _channels_last(image: Any) -> np.ndarray:
    image = image[0] if isinstance(image, tuple | list) else image  # of a data set: (image, label)
    if isinstance(image, torch.Tensor):
        image = image.detach().cpu()
        image = image.movedim(0, -1) if image.ndim == 3 and image.shape[0] in (1, 3) else image
        return image.to(torch.float32 if image.is_floating_point() else image.dtype).numpy()
    return np.asarray(image)


def checked_weights(weights: Any) -> np.ndarray:
    """Return (N,) float64 weights; a histogram would leave out without a word what is none.

    Raises:
        InputError: NaN, or a number outside [0, 1].
    """
    return check_reference_weights(weights, len(weights), "weights").numpy()


def weight_counts(weights: np.ndarray) -> tuple[list[int], list[float]]:
    """Return the counts of weights in 20 equal bins of [0, 1], and the 21 edges.

    Args:
        weights: (N,) in [0, 1].
    """
    counts, edges = np.histogram(checked_weights(weights), _BINS, (0, 1))
    return counts.tolist(), edges.round(9).tolist()


def pixels_of(figure: Figure) -> np.ndarray:
    """Return a figure as (H, W, 3) uint8.

    Args:
        figure: drawn by matplotlib.
    """
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
