"""What a trained method thinks of the training labels: a weight for each sample, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bspml.experiment import methods
from bspml.experiment.build import CLEAN, WEIGHTED, make_method, make_weights
from bspml.experiment.config import Config
from bspml.experiment.data import ExperimentData
from bspml.experiment.resuming import load_method
from bspml.files.checkpoints import State
from bspml.files.run import RunFolder


@dataclass(frozen=True)
class LabelQuality:
    """The end of one method.

    Attributes:
        method: its name.
        weights: (N,) float64 in [0, 1]; below 0.5 the label is doubted.
        network: state of its network.
        p_values: (N,) of "this label is a random one", NaN where untestable; None: not computed.
        noise_rate: estimated from them, or None.
        sigma: (N,) of a SuperLoss, which may exceed 1; NaN where no batch met the sample.
    """

    method: str
    weights: Tensor
    network: State
    p_values: Tensor | None = None
    noise_rate: float | None = None
    sigma: Tensor | None = None

    @property
    def untestable(self) -> np.ndarray:
        """(N,) bool, the samples that nothing could be compared with."""
        if self.p_values is None:
            return np.zeros(len(self.weights), dtype=bool)
        return self.p_values.isnan().numpy()


def label_qualities(
    config: Config, data: ExperimentData, folder: RunFolder
) -> Iterator[LabelQuality]:
    """Those of a run's methods that judge labels, from their checkpoints; bspml's first.

    A curriculum's are its table of weights.  PRISM's say whether the sample was kept the last time
    it came; SuperLoss's are the confidences sigma of the last batch that met it, up to 1, which is
    what a sample of average loss has.  Gradient rescaling and IMAE weigh by the probability of the
    label, low ones and high ones less: no quality.  Neither is clean-only's, which was told.
    """
    for method in sorted(config.training.methods, key=lambda name: name != WEIGHTED):
        if method == CLEAN:
            continue
        weights = make_weights(method, data)
        parts = make_method(method, config, data, weights)
        if parts.curriculum_kind is None and methods.sample_confidences(parts) is None:
            continue
        state = load_method(folder, method, data.fingerprint)["trainer"]
        network = state["network"]["models"]["trunk"]
        if parts.curriculum_kind is not None:
            update = state["curriculum"]["update"]
            found = state["sample_weights"]["weights"].double()
            yield LabelQuality(
                method, found, network, update.get("p_values"), update.get("noise_rate")
            )
            continue
        parts.loss.load_state_dict(state["loss_funcs"]["metric_loss"])
        found = methods.sample_confidences(parts)
        assert found is not None
        yield LabelQuality(
            method, _as_decided(found.double(), data), network, sigma=methods.sigma(parts)
        )


def _as_decided(weights: Tensor, data: ExperimentData) -> Tensor:
    """What a person decided stands in the table, whatever the loss made of it."""
    if data.decided is None:
        return weights
    fixed = torch.from_numpy(np.asarray(data.decided.fixed))
    known: Any = torch.as_tensor(np.asarray(data.decided.weights), dtype=weights.dtype)
    return torch.where(fixed, known, weights)
