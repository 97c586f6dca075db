"""Rounds written as lines of JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bspml.errors import RunError
from bspml.files.atomic import atomic_write
from bspml.files.opening import is_special, refusals
from bspml.files.run.plain import to_json
from bspml.observers.base import RoundWriter, weight_counts
from bspml.report.saving import save_figure


class JSONLines(RoundWriter):
    """A file with one line of JSON per round, complete after each.

    Lines of an earlier run at the same step or later are dropped when the first round is written,
    so that a run that goes on leaves each step once.  The counts of the weights in 20 equal bins
    of [0, 1] stand under "weights"; pictures go beside the file, as STEM-NAME-STEP.png.

    Args:
        path: of the file; its folder is made.
        images: see `RoundWriter`.

    Raises:
        RunError: the file cannot be written, or what is there is none of these.

    Example:
        >>> observer = JSONLines("rounds.jsonl")
    """

    def __init__(self, path: str | os.PathLike[str], images: Any = None) -> None:
        super().__init__(images)
        self.path = Path(path)
        self._lines: list[str] | None = None

    def write(self, step: int, scalars: Mapping[str, float], weights: np.ndarray | None) -> None:
        """Write one line.

        Args:
            step: optimiser steps so far.
            scalars: {name: number}; what is not finite, which JSON does not know, becomes null.
            weights: (N,) or None.
        """
        if self._lines is None:
            with refusals(f"{self.path.parent}: cannot be made"):
                self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lines = self._earlier(step)
        line: dict[str, Any] = {"step": step, **scalars}
        if weights is not None:
            line["weights"] = weight_counts(weights)[0]
        self._lines.append(to_json(line))
        atomic_write(self.path, "\n".join([*self._lines, ""]))

    def _earlier(self, step: int) -> list[str]:
        if not self.path.exists() or is_special(self.path):  # which writing refuses
            return []
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
            return [line for line in lines if _step_of(line) < step]
        except (OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as err:
            raise RunError(
                f"{self.path}: expected lines of JSON with a `step` each and numbers called "
                f"training/..., as are written here; got something else ({type(err).__name__}). "
                "Name another file."
            ) from None

    def write_figure(self, step: int, name: str, figure: Figure) -> None:
        """Write a picture beside the file.

        Args:
            step: optimiser steps so far.
            name: of the picture.
            figure: drawn by matplotlib.
        """
        save_figure(figure, self.path.with_name(f"{self.path.stem}-{name}-{step}.png"))


def _step_of(line: str) -> int:
    """The step of a line written here; somebody else's has one, too, and must not be cut."""
    content = json.loads(line)
    if not any(str(name).startswith("training/") for name in content):
        raise KeyError("training/")
    return int(content["step"])
