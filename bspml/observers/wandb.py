"""Rounds written for Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bspml.errors import RunError
from bspml.observers.base import RoundWriter, package_of, pixels_of, weight_counts


class WandB(RoundWriter):
    """A run of Weights & Biases, your open one or a new one.

    Args:
        run: what `wandb.init` returned; None: the one that is open, else a new one.
        images: see `RoundWriter`.
        **settings: of `wandb.init`, for a new one.

    Raises:
        MissingDependencyError: no wandb.
        RunError: it opens no run, as without a login.

    Example:
        >>> observer = WandB(project="birds", mode="offline")  # doctest: +SKIP
    """

    def __init__(self, run: Any = None, images: Any = None, **settings: Any) -> None:
        super().__init__(images)
        self._wandb = package_of("wandb")
        open_run = None if settings else self._wandb.run
        self._is_own = run is None and open_run is None
        self.run = run or open_run or self._new_run(settings)

    def _new_run(self, settings: dict[str, Any]) -> Any:
        try:  # beside a run that is open, which wandb would return, and `close` would finish
            return self._wandb.init(**{"reinit": "create_new", **settings})
        except self._wandb.Error as err:
            raise RunError(
                f"Weights & Biases opens no run: {str(err).splitlines()[0][:300]} Without an "
                "account, set WANDB_MODE=offline; `wandb sync` sends the run later."
            ) from err

    def write(self, step: int, scalars: Mapping[str, float], weights: np.ndarray | None) -> None:
        """Log scalars and the histogram "weights".

        Args:
            step: optimiser steps so far.
            scalars: {name: finite number}.
            weights: (N,) or None.
        """
        logged: dict[str, Any] = dict(scalars)
        if weights is not None:
            logged["weights"] = self._wandb.Histogram(np_histogram=weight_counts(weights))
        self.run.log(logged, step=step)

    def write_figure(self, step: int, name: str, figure: Figure) -> None:
        """Log a picture.

        Args:
            step: optimiser steps so far.
            name: of the picture.
            figure: drawn by matplotlib.
        """
        self.run.log({name: self._wandb.Image(pixels_of(figure))}, step=step)

    def close(self) -> None:
        """Finish the run, if it was opened here."""
        if self._is_own:
            self.run.finish()
