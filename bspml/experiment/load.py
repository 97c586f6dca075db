"""A finished or interrupted run, opened for use: its network, weights and records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bspml.errors import CheckpointError, InputError, RunError, about
from bspml.experiment.build import WEIGHTED, is_automatic, make_network
from bspml.experiment.config import Config, load_config
from bspml.experiment.data import image_shape
from bspml.experiment.resuming import check_unchanged, has_checkpoint, load_method
from bspml.files.run import EpochRecord, RecordLog, RunFolder, read_json
from bspml.networks import embed
from bspml.tensors.arguments import check_kind
from bspml.trainers.state import faults_named


def _trunk(trainer: Mapping[str, Any]) -> Mapping[str, Tensor]:
    """Return the weights that are kept: of the selected epoch, or the last, averaged or not."""
    kept = (trainer.get("patience") or {}).get("kept")
    if kept is not None:
        return kept
    network = trainer["network"]
    if "averaged" not in network:
        return network["models"]["trunk"]
    average = network["averaged"]["trunk"]  # beside the number of steps in it
    prefix = "module."
    return {k.removeprefix(prefix): v for k, v in average.items() if k.startswith(prefix)}


def _input_width(weights: Mapping[str, Tensor]) -> int:
    """Return how many channels or features go in: the first weights are (outputs, these, ...)."""
    return next(w.shape[1] for w in weights.values() if w.ndim > 1)


@dataclass(frozen=True)
class Run:
    """What `bspml.load` gives.

    Attributes:
        config: the resolved configuration.
        folder: where everything lies.
        method: which of the run's networks `model` is.
        model: the trained network, eval mode, on the CPU.
        sample_weights: (N,) float32, all 1 where no curriculum weighs.
        records: one per round and method, oldest first.
        finished: whether the run came to its end.
    """

    config: Config
    folder: RunFolder
    method: str
    model: nn.Module
    sample_weights: Tensor
    records: list[EpochRecord]
    finished: bool

    def embed(self, images: Any, batch_size: int = 256) -> Tensor:
        """Embed images with the run's network.

        Args:
            images: (N, channels, S, S) in [0, 1], or a data set of such images, or (N, F) features
                where the network takes those.
            batch_size: images per forward pass.

        Returns:
            (N, D) float32.

        Raises:
            InputError: integers, of which nobody knows whether they are pixels up to 255; images
                of another shape, or features of another length, than those of the training.
        """
        if isinstance(images, Tensor | np.ndarray):
            images = torch.as_tensor(images)
            if not images.is_floating_point():
                raise InputError(f"`images` must be floats; got {images.dtype}. Divide by 255.")
            images = images.float()
            self._check_shape(tuple(images.shape))
        return embed(self.model, images, batch_size)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        kind, remedy, width = "features", "the backbone that made those", self.features_width
        own: list[tuple[int, ...]] = [(width,)] if width is not None else []
        if width is None:
            size, channels = image_shape(self.config)
            own, kind, remedy = [(channels, size, size)], "images", "that size; one is image[None]"
            if self.config.network.name != "small-conv":  # the others take grey and RGB alike
                own += [(1, size, size), (3, size, size)]
        if shape[1:] not in own:
            sizes = ", ".join(map(str, own[0]))
            raise InputError(
                f"`images` must be {kind} (N, {sizes}), as this run's were; got {shape}. Make "
                f"them with {remedy}."
            )

    @property
    def features_width(self) -> int | None:
        """How many numbers a sample's features have, None of a network that takes images."""
        if not self.config.data.holds_features:
            return None
        return _input_width(self.model.state_dict())

    def summary(self) -> Any:
        """Return the final figures.

        Raises:
            RunError: the run did not finish.
        """
        return read_json(self.folder.summary)


def _meant(trained: tuple[str, ...]) -> str:
    """Return the method meant where none is named: bspml, or the first automatic or only one."""
    if WEIGHTED in trained or len(trained) == 1:
        return WEIGHTED if WEIGHTED in trained else trained[0]
    return next(filter(is_automatic, trained), WEIGHTED)


def load(path: str | os.PathLike[str], method: str | None = None) -> Run:
    """Open a run folder that `bspml train` wrote.

    Args:
        path: the folder.
        method: whose network: one of the run's `training.methods`; None: the one that the
            automatic curriculum weighs (bspml, else the first), or the only one.

    Raises:
        RunError: no such run, or it has no such method.
        CheckpointError: the checkpoint is damaged.
        ConfigError: config.yaml was changed since.

    Example:
        >>> load("runs/glyphs")  # where `bspml train` has not been yet
        Traceback (most recent call last):
        bspml.errors.RunError: runs/glyphs: no such run folder...
    """
    check_kind(path, "path", (str, os.PathLike), "the path of a run folder")
    folder = RunFolder.open(path)
    config = load_config(folder.config, unread_may_stand=True)
    trained = config.training.methods
    method = _meant(trained) if method is None else method
    file = folder.checkpoint(method) if method in trained else None
    if file is None or not has_checkpoint(folder, method):
        saved_methods = [m for m in trained if has_checkpoint(folder, m)]
        raise RunError(
            f"{path}: has no checkpoint of method {method!r}; it has "
            f"{', '.join(saved_methods) or 'none yet'}."
        )
    saved = load_method(folder, method)
    check_unchanged(saved["config"], config, folder.config)
    state = saved["trainer"]
    with about(file, CheckpointError), faults_named():
        trunk = _trunk(state)
        model = make_network(config, _input_width(trunk), pretrained=False)
        model.load_state_dict(trunk)
        table = state["sample_weights"]
        count = state.get("drawn_from", {}).get("num_samples", 0)  # not kept once
        weights = torch.ones(count) if table is None else table["weights"]
    records = RecordLog(folder.records).read()
    return Run(config, folder, method, model.eval(), weights, records, folder.finished)
