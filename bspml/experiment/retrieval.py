"""A retrieval experiment: the same network trained by each method, its embeddings searched.

A run folder holds the resolved configuration, one record per round, a checkpoint per method, the
weights as a table, figures, a page, and at the end a summary.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bspml.data.indexed import IndexedDataset, sample_index_getter
from bspml.distributed import computed_by_rows, from_main
from bspml.errors import ConfigError, InputError
from bspml.evaluation.neighbours import choose_backend
from bspml.evaluation.retrieval import RetrievalMetrics, evaluate
from bspml.experiment import methods
from bspml.experiment.build import (
    is_automatic,
    is_clean,
    make_curriculum,
    make_method,
    make_network,
    make_optimizer,
    make_sampler,
    make_schedule,
    make_weights,
)
from bspml.experiment.config import Config
from bspml.experiment.data import ExperimentData, Inputs
from bspml.experiment.engine import Experiment, MethodRun, Outputs, Workplace
from bspml.experiment.outputs import LabelQuality, write_outputs, write_page
from bspml.experiment.words import opening_lines
from bspml.files.run import SUSPECT_BELOW, EpochRecord, RunFolder
from bspml.networks import embed
from bspml.trainers.alternating import AlternatingTrainer, RoundRecord
from bspml.trainers.averaging import average_weights
from bspml.trainers.curriculum import CurriculumRecord
from bspml.trainers.patience import Patience
from bspml.trainers.schedules import Schedule
from bspml.trainers.step import StepTrainer


def _field_names(record: type) -> set[str]:
    return {field.name for field in dataclasses.fields(record)}


# What a weight update says under the same name as the records.
_SAME = sorted(_field_names(EpochRecord) & _field_names(CurriculumRecord))


class Retrieval(Experiment["RetrievalRun"]):
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
        choose_backend(config.evaluation.backend, torch.device("cpu"))  # faiss, if it must be there
        make_schedule(config, config.training.epochs * len(make_sampler(config, data.codes)))
        make_optimizer(config, make_network(config, data.width, pretrained))
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

    def check_length(self, saved: Mapping[str, Any], folder: RunFolder) -> None:
        """Refuse another length under a schedule that stretches over it, and other judges.

        Args:
            saved: configuration of the checkpoint, as plain values.
            folder: of the run.

        Raises:
            ConfigError: the run may not go on under this configuration.
        """
        then, now = saved["training"]["epochs"], self.config.training.epochs
        schedule, ks = self.config.schedule, self.config.evaluation.ks
        if schedule.stretches and then != now:
            raise ConfigError(
                f"{folder.config}: `training.epochs` is {now}, but the run was trained with {then} "
                f"so far, and the {schedule.name} schedule stretches over all of them. Put that "
                "back, or start a new run."
            )
        first = saved["evaluation"]["ks"][0]
        if self.config.training.patience is not None and ks[0] != first:
            raise ConfigError(
                f"{folder.config}: `evaluation.ks` begins with {ks[0]}, but Recall@{first} is what "
                "`training.patience` has waited for so far. Put that back, or start a new run."
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
        return [
            RetrievalRun(method, self, place, pretrained=method not in resumed)
            for method in self.methods
        ]

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
        return write_outputs(self.config, self.data, place, qualities, figures)

    def write_page(self, folder: RunFolder) -> None:
        """Write report.html."""
        write_page(folder)


class RetrievalRun(MethodRun):
    """One method of a retrieval experiment in training.

    Args:
        method: its name.
        experiment: configuration and data.
        place: of the run.
        pretrained: read the network's file of weights; False where a checkpoint is taken next.
    """

    data: ExperimentData

    def __init__(
        self, method: str, experiment: Experiment, place: Workplace, pretrained: bool = True
    ) -> None:
        super().__init__(method, experiment, place)
        network = make_network(self.config, self.data.width, pretrained)
        self.network = network.to(self.device)
        decay = self.config.training.ema
        self.average = None if decay is None else average_weights(self.network, decay)
        # What is measured, saved for use, and judges the labels.
        self.evaluated = self.network if self.average is None else self.average.module
        self.weights = make_weights(method, self.data).to(self.device)
        self.parts = make_method(method, self.config, self.data, self.weights)
        self.notes = self.parts.notes
        self.trainer = self._build_trainer()

    def _build_trainer(self) -> AlternatingTrainer:
        config = self.config
        sampler = make_sampler(config, self.data.codes)
        loss = self.parts.loss.to(self.device)
        optimizers = {"trunk_optimizer": make_optimizer(config, self.network)}
        if self.parts.loss_has_parameters:
            factor = config.optimizer.loss_lr_factor or self.parts.loss_lr_factor
            optimizers["metric_loss_optimizer"] = make_optimizer(config, loss, factor)
        miner = self.parts.miner
        trainer = StepTrainer(
            models={"trunk": self.network},
            optimizers=optimizers,
            batch_size=sampler.batch_size,
            loss_funcs={"metric_loss": loss},
            mining_funcs={} if miner is None else {"tuple_miner": miner.to(self.device)},
            dataset=IndexedDataset(_Pairs(self.data)),
            data_device=self.device,
            sampler=sampler,
            dataloader_num_workers=config.workers,
            data_and_label_getter=sample_index_getter(self.weights),
            micro_batches=config.training.micro_batches,
            precision=config.training.precision,
            channels_last=config.training.channels_last,
            prefetch=config.training.prefetch,
            clip_norm=config.optimizer.clip_norm,
        )
        curriculum = make_curriculum(self.parts, config, self.data, self.weights)
        # What never saw a label judges first: the features themselves, not a new head on them.
        features = self.data.features if curriculum and curriculum.starts_with_update else None
        patience = config.training.patience
        return AlternatingTrainer(
            trainer,
            sampler,
            curriculum,
            self._embed_training_set,
            evaluate=self._evaluate,
            evaluate_every=config.evaluation.every,
            embeddings=config.curriculum.embeddings,
            embed_rows=self._embed_training_rows,
            initial_embeddings=features,
            observer=self,
            # What changes no rate keeps no state, so that older checkpoints fit.
            schedule=None if config.schedule == Schedule() else config.schedule,
            averaged=self.average,
            patience=None if patience is None else Patience(patience, self._validation),
        )

    def _embed(self, inputs: Any, network: nn.Module | None = None) -> Tensor:
        size, workers = self.config.evaluation.batch_size, self.config.workers
        model = self.evaluated if network is None else network

        def compute(rows: slice) -> Tensor:
            part = _rows_of(inputs, rows)
            return embed(model, part, size, self.device, workers, output_device=home)

        # On a CUDA device statistics and evaluation go on where the network computed; other
        # accelerators lack the float64 that these sum in.
        home = self.device if self.device.type == "cuda" else torch.device("cpu")
        return computed_by_rows(len(inputs), compute, size, home)

    def _embed_training_set(self) -> Tensor:
        return self._embed(self.data.images)

    def _embed_training_rows(self, rows: Tensor) -> Tensor:
        # These stand beside vectors of the steps, which the average did not compute.
        return self._embed(_rows_of(self.data.images, rows.cpu()), self.network)

    def _scores(self, queries: Tensor, labels: Any, ks: Any, **options: Any) -> RetrievalMetrics:
        backend = self.config.evaluation.backend
        return from_main(lambda: evaluate(queries, labels, ks=ks, backend=backend, **options))

    def _evaluate(self, last: bool) -> dict[str, Any]:
        """Measure the test classes and those held out; fields of an `EpochRecord`."""
        settings, data = self.config.evaluation, self.data
        gallery = None if data.gallery_images is None else self._embed(data.gallery_images)
        test = self._scores(
            self._embed(data.test_images),
            data.test_labels,
            settings.ks,
            gallery=gallery,
            gallery_labels=data.gallery_labels,
            clustering=last and settings.clustering,
            seed=self.config.seed,
        )
        ends = ("recall_at_1_low", "recall_at_1_high", "map_at_r_low", "map_at_r_high")
        names = ("map_at_r", "r_precision", "nmi", "ami", *ends)
        fields = {name: getattr(test, name) for name in names}
        fields["recall_at_k"] = test.recall_at_k
        fields["notes"] = ("all embeddings point the same way",) if test.collapsed else ()
        if data.validation_images is not None:
            fields["extra"] = {"validation": self._validate()}  # where `select_epochs` looks
        return fields

    def _validate(self) -> dict[str, float]:
        """Measure what selects the epoch: {metric: value} on the held-out classes."""
        labels = self.data.validation_labels
        assert labels is not None
        ks = [k for k in self.config.evaluation.ks if k < len(labels)] or [1]
        metrics = self._scores(
            self._embed(self.data.validation_images), labels, ks, clustering=False
        )
        recalls = {f"recall_at_{k}": value for k, value in metrics.recall_at_k.items()}
        return recalls | {"map_at_r": metrics.map_at_r, "r_precision": metrics.r_precision}

    def _validation(self, metrics: Mapping[str, Any]) -> float:
        """Read from an evaluation what the patience waits for: as `select_epochs` selects."""
        key = f"recall_at_{self.config.evaluation.ks[0]}"
        return metrics["extra"]["validation"].get(key, math.nan)

    def train(self) -> None:
        """Train to the end, from wherever the trainer stands."""
        self.trainer.train(self.config.training.epochs)

    def label_quality(self) -> LabelQuality | None:
        """Return what this method thinks of the training labels; None where it judges none.

        A curriculum's are its table of weights.  PRISM's say whether the sample was kept the last
        time it came; SuperLoss's are the confidences sigma of the last batch that met it, up to 1,
        which is what a sample of average loss has.  Gradient rescaling and IMAE weigh by the
        probability of the label, low ones and high ones less: no judgement.  Neither is
        clean-only's, which was told.
        """
        if is_clean(self.method):
            return None
        if self.trainer.curriculum is not None:
            update = self.trainer.curriculum.state_dict()["update"]
            p_values, rate = update.get("p_values"), update.get("total_rate")
            rate = update.get("noise_rate") if rate is None else rate
            repairs = update.get("repair") is not None
            current = self.weights.current_codes.cpu() if repairs else None
            weights = _on_cpu(self.weights.weights)
            return LabelQuality(weights, self.evaluated, p_values, rate, current=current)
        trust = methods.sample_confidences(self.parts)
        if trust is None:
            return None
        trust, decided = _on_cpu(trust), self.data.decided
        if decided is not None:  # stands in the table, whatever the loss made of it
            rows = np.flatnonzero(decided.fixed)
            trust[rows] = torch.as_tensor(decided.weights[rows], dtype=trust.dtype)
        return LabelQuality(trust, self.evaluated, sigma=methods.sigma(self.parts))

    def position(self) -> str:
        """Say at which round and step the training goes on."""
        return f"round {self.trainer.round + 1}, step {self.trainer.step + 1}"

    def epoch_record(self, done: RoundRecord) -> EpochRecord:
        """Turn a round of `AlternatingTrainer` into a line of the records.

        The one place where a round and its weight update become a record.  The update stands there
        twice: under the names that tables read, and whole under `extra["curriculum"]`.
        """
        metrics, update = dict(done.metrics), done.curriculum
        notes, extra = (*done.notes, *metrics.pop("notes", ())), metrics.pop("extra", {})
        extra = {"lr": done.lr, **extra}
        fields: dict[str, Any] = {"maw": done.maw, "sdaw": done.sdaw}
        seconds = done.seconds_train + done.seconds_embed
        if update is not None:
            values = update.as_dict()
            fields = {name: values[name] for name in _SAME}
            if update.score_auroc is not None:  # finer than that of the weights
                fields["detection_auroc"] = update.score_auroc
            rate, interval = update.held
            fields["noise_rate"] = rate
            if interval is not None:
                fields["noise_rate_low"], fields["noise_rate_high"] = interval
            extra = {"curriculum": values, **extra}
            seconds += update.seconds_statistics + update.seconds_solve
        return EpochRecord(
            method=self.method,
            epoch=done.epochs,
            steps=done.steps,
            seconds=seconds,
            loss=done.loss,
            kept=float((self.weights.weights >= SUSPECT_BELOW).float().mean()),
            notes=notes,
            extra=extra,
            **fields,
            **metrics,
        )


class _Pairs(torch.utils.data.Dataset):
    """(view, code) of the training set."""

    def __init__(self, data: ExperimentData) -> None:
        self.views, self.codes = data.views, data.codes

    def set_epoch(self, epoch: int) -> None:
        """Draw other random views in this epoch."""
        if hasattr(self.views, "set_epoch"):
            self.views.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, sample_index: int) -> tuple[Tensor, int]:
        return self.views[sample_index], int(self.codes[sample_index])


def _on_cpu(numbers: Tensor) -> Tensor:
    """Return a float64 copy on the CPU."""
    return numbers.detach().cpu().double().clone()


def _rows_of(inputs: Any, rows: slice | Tensor) -> Inputs:
    """Return some rows of a tensor, or of a data set."""
    if isinstance(inputs, Tensor):
        return inputs[rows]
    numbers = range(rows.start, rows.stop) if isinstance(rows, slice) else rows.tolist()
    return torch.utils.data.Subset(inputs, numbers)
