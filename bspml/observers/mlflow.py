"""Rounds written for MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bspml.errors import RunError
from bspml.observers.base import RoundWriter, package_of, weight_counts


class MLflow(RoundWriter):
    """A run of MLflow, your active one or a new one.

    MLflow has no histograms: the counts of the weights in 20 equal bins are logged as the artifact
    weights/STEP.json.

    Args:
        experiment: name, for a new run; None: MLflow's own default.
        run_name: of a new run.
        tracking_uri: a server, or a local folder or database; None: MLflow's own setting.
        images: see `RoundWriter`.

    Raises:
        MissingDependencyError: no mlflow.
        RunError: the server does not answer, or the store is of a kind that is not installed.

    Example:
        >>> observer = MLflow(experiment="birds")  # doctest: +SKIP
    """

    def __init__(
        self,
        experiment: str | None = None,
        run_name: str | None = None,
        tracking_uri: str | None = None,
        images: Any = None,
    ) -> None:
        super().__init__(images)
        mlflow = package_of("mlflow")
        active = mlflow.active_run() if tracking_uri is None and experiment is None else None
        self._is_own = active is None
        try:
            self._client = mlflow.MlflowClient(tracking_uri)
            self.run_id = active.info.run_id if active else self._new_run(experiment, run_name)
        except Exception as err:  # of any of its stores
            raise RunError(
                f"MLflow keeps no run at {tracking_uri or mlflow.get_tracking_uri()}: "
                f"{str(err).splitlines()[0][:300]} Name another place in MLFLOW_TRACKING_URI, or "
                "install all of mlflow, where mlflow-skinny is."
            ) from err

    def _new_run(self, experiment: str | None, run_name: str | None) -> str:
        name = experiment or "Default"
        known = self._client.get_experiment_by_name(name)
        where = known.experiment_id if known else self._client.create_experiment(name)
        return self._client.create_run(where, run_name=run_name).info.run_id

    def write(self, step: int, scalars: Mapping[str, float], weights: np.ndarray | None) -> None:
        """Log metrics, and the counts of the weights.

        Args:
            step: optimiser steps so far.
            scalars: {name: finite number}.
            weights: (N,) or None.
        """
        for name, value in scalars.items():
            self._client.log_metric(self.run_id, name, value, step=step)
        if weights is not None:
            counts, edges = weight_counts(weights)
            bins = {"edges": edges, "counts": counts}
            self._client.log_dict(self.run_id, bins, f"weights/{step}.json")

    def write_figure(self, step: int, name: str, figure: Figure) -> None:
        """Log a picture as the artifact NAME/STEP.png.

        Args:
            step: optimiser steps so far.
            name: of the picture.
            figure: drawn by matplotlib.
        """
        self._client.log_figure(self.run_id, figure, f"{name}/{step}.png")

    def close(self) -> None:
        """End the run, if it was opened here."""
        if self._is_own:
            self._client.set_terminated(self.run_id)
