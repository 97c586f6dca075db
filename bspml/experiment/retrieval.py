"""A retrieval experiment: the same network trained by each method, its embeddings searched.

A run folder holds the resolved configuration, one record per round, a checkpoint per method, the
weights as a table, figures, a page, and at the end a summary.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from bspml.distributed import from_main, is_main
from bspml.errors import ConfigError, InputError
from bspml.evaluation.neighbours import choose_backend
from bspml.experiment.build import (
    CONFIGURED,
    is_automatic,
    make_curriculum,
    make_method,
    make_network,
    make_optimizer,
    make_sampler,
    make_schedule,
    make_weights,
)
from bspml.experiment.config import Config, LossConfig
from bspml.experiment.data import ExperimentData
from bspml.experiment.engine import Experiment, Outputs, Workplace
from bspml.experiment.outputs import write_outputs, write_page
from bspml.experiment.resuming import check_length
from bspml.experiment.retrieval_run import RetrievalRun
from bspml.experiment.untrained import first_network, untrained_fields
from bspml.experiment.words import opening_lines
from bspml.files.run import UNTRAINED, EpochRecord, RunFolder
from bspml.tensors.checks import check_device


class Retrieval(Experiment[RetrievalRun]):
    """Train every method of a `Config`.

    Args:
        config: the experiment.
        data: what `bspml.experiment.data.load_data(config)` gives.
    """

    config: Config
    data: ExperimentData

    def __init__(self, config: Config, data: ExperimentData) -> None:
        super().__init__(config, data)
        self.methods = list(config.training.methods)
        self.one_thread_is_faster = config.network.name == "small-conv"

    def check_parts(self, pretrained: bool) -> None:
        """Build every part of a method once: network, sampler, optimiser, curriculum."""
        config, data = self.config, self.data
        most, ks = data.most_neighbours, config.evaluation.ks
        if max(ks) > most:
            raise ConfigError(
                f"`evaluation.ks` asks for the {max(ks)} nearest, but a test sample has only "
                f"{most} others. Use ks up to {most}."
            )
        judges = data.validation_labels
        if judges is not None and ks[0] >= len(judges):
            raise ConfigError(
                f"`evaluation.ks` begins with {ks[0]}, by which the epoch is selected on the "
                f"held-out classes, and a sample of these has only {len(judges) - 1} others. Begin "
                "with less, such as 1, or set data.validation_classes to 0."
            )
        if config.training.patience is not None and data.validation_images is None:
            raise ConfigError(
                "`training.patience` waits for a better evaluation on held-out classes, and of "
                "these none is held out by default; ask for it by data.validation_classes=0.2, or "
                "set training.patience to null."
            )
        choose_backend(config.evaluation.backend, torch.device("cpu"))  # faiss, if it must be there
        make_schedule(config, config.training.epochs * len(make_sampler(config, data)))
        make_optimizer(config, make_network(config, data.width, pretrained))
        self._check_loss_is_read()
        learning_losses = []
        for method in self.methods:
            try:
                weights = make_weights(method, data)
                parts = make_method(method, config, data, weights)
            except InputError as err:
                text = f"`training.methods`: {err}"
                raise ConfigError(text.replace("`hyper.", f"`hyperparameters.{method}.")) from None
            make_curriculum(parts, config, data, weights)
            learning_losses += [method] * parts.loss_has_parameters
        factor = config.optimizer.loss_lr_factor
        if factor is not None and not learning_losses:
            raise ConfigError(
                f"`optimizer.loss_lr_factor` is {factor:g}, but no loss of `training.methods` has "
                "parameters of its own; leave it at null."
            )

    def _check_loss_is_read(self) -> None:
        config = self.config
        changed = [key for key, value in config.loss if value != getattr(LossConfig(), key)]
        # The paper's preset fills in values of its own.
        ours = config.curriculum.preset == "auto" and changed
        if ours and not CONFIGURED.keys() & set(self.methods):
            raise ConfigError(
                f"`loss.{changed[0]}` is {getattr(config.loss, changed[0])}, but the section loss "
                "is about multi-similarity, bspml and clean-only, and `training.methods` has none "
                f"of them; add one, or leave it at {getattr(LossConfig(), changed[0])}."
            )

    def check_length(self, saved: Mapping[str, Any], folder: RunFolder) -> None:
        """Refuse another length under a schedule that stretches over it, and other judges.

        Args:
            saved: configuration of the checkpoint, as plain values.
            folder: of the run.

        Raises:
            ConfigError: the run may not go on under this configuration.
        """
        check_length(saved, self.config, folder.config)
        first, ks = saved["evaluation"]["ks"][0], self.config.evaluation.ks
        if self.data.validation_images is not None and ks[0] != first:
            raise ConfigError(
                f"{folder.config}: `evaluation.ks` begins with {ks[0]}, but Recall@{first} is what "
                "`training.patience` and the choice of the network have gone by so far. Put that "
                "back, or start a new run."
            )

    def opening_lines(self) -> list[str]:
        """Say what is trained on, what is held out, what was changed about either."""
        return opening_lines(self.config, self.data)

    def start(self, place: Workplace, resumed: Collection[str]) -> list[RetrievalRun]:
        """Build every method; what will take a checkpoint needs no file of weights.

        Args:
            place: of the run.
            resumed: methods that will take the state of a checkpoint.
        """
        device = check_device(self.config.device)
        first = None
        if not set(self.methods) <= set(resumed):
            first = first_network(self.config, self.data, device)
        return [
            RetrievalRun(method, self, place, None if method in resumed else copy.deepcopy(first))
            for method in self.methods
        ]

    def before_training(self, place: Workplace, runs: Sequence[RetrievalRun]) -> None:
        """Measure the network before its first step, once for all methods.

        Args:
            place: of the run.
            runs: every method, where it will go on.
        """
        fresh = [run for run in runs if run.trainer.steps == 0]
        records = from_main(place.log.read)
        if not fresh or (records and records[0].method != UNTRAINED):
            return  # the latter is a run of an older version, which goes on without
        features, first = untrained_fields(self.config, fresh[0].measuring, fresh[0].evaluated)
        for run in fresh:
            run.first = first
        if is_main() and not records:  # in a run that goes on it stands already
            record = EpochRecord(UNTRAINED, 0, steps=0, **features)
            place.log.append(record)
            place.narrator.record(record)

    def write_outputs(
        self, place: Workplace, runs: Sequence[RetrievalRun], figures: bool
    ) -> Outputs:
        """Write the weights of every method that judges labels, and figures of the first.

        Args:
            place: of the run, with a checkpoint and records of every method.
            runs: the trained methods.
            figures: False leaves out what only people look at.
        """
        judged = {run.method: run.label_quality() for run in runs}
        order = sorted(judged, key=lambda method: not is_automatic(method))  # those first
        qualities = {one: quality for one in order if (quality := judged[one]) is not None}
        kept = {run.method: run.kept_epoch for run in runs}
        return write_outputs(self.config, self.data, place, qualities, kept, figures)

    def write_page(self, folder: RunFolder) -> None:
        """Write report.html."""
        write_page(folder)
