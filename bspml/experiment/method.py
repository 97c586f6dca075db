"""One method of a retrieval experiment: its network trained, embedded and measured each round."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from bspml.data.indexed import IndexedDataset, sample_index_getter
from bspml.distributed import computed_by_rows, from_main
from bspml.evaluation.retrieval import RetrievalMetrics, evaluate
from bspml.experiment.build import (
    make_curriculum,
    make_method,
    make_network,
    make_optimizer,
    make_sampler,
    make_weights,
)
from bspml.experiment.data import ExperimentData, Inputs
from bspml.experiment.engine import Experiment, MethodRun, Workplace
from bspml.files.run import SUSPECT_BELOW, EpochRecord
from bspml.networks import embed
from bspml.trainers.alternating import AlternatingTrainer, RoundRecord
from bspml.trainers.curriculum import CurriculumRecord
from bspml.trainers.step import StepTrainer


def _names(record: type) -> set[str]:
    return {field.name for field in dataclasses.fields(record)}


# What a weight update says under the same name as the records.
_SAME = sorted(_names(EpochRecord) & _names(CurriculumRecord))


class RetrievalRun(MethodRun):
    """One method of a retrieval experiment in training.

    Args:
        method: its name.
        experiment: configuration and data.
        workplace: of the run.
        pretrained: read the network's file of weights; False where a checkpoint is taken next.
    """

    data: ExperimentData

    def __init__(
        self, method: str, experiment: Experiment, workplace: Workplace, pretrained: bool = True
    ) -> None:
        super().__init__(method, experiment, workplace)
        network = make_network(self.config, self.data.width, pretrained)
        self.network = network.to(self.device)
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
            factor = self.parts.loss_lr_factor
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
        )
        curriculum = make_curriculum(self.parts, config, self.data, self.weights)
        # What never saw a label judges first: the features themselves, not a new head on them.
        features = self.data.features if curriculum and curriculum.starts_with_update else None
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
        )

    def _embed(self, inputs: Any) -> Tensor:
        size, workers = self.config.evaluation.batch_size, self.config.workers

        def compute(rows: slice) -> Tensor:
            part = _rows(inputs, rows)
            return embed(self.network, part, size, self.device, workers, output_device=home)

        # On a CUDA device statistics and evaluation go on where the network computed; other
        # accelerators lack the float64 that these sum in.
        home = self.device if self.device.type == "cuda" else torch.device("cpu")
        return computed_by_rows(len(inputs), compute, size, home)

    def _embed_training_set(self) -> Tensor:
        return self._embed(self.data.images)

    def _embed_training_rows(self, rows: Tensor) -> Tensor:
        images, rows = self.data.images, rows.cpu()
        if isinstance(images, Tensor):
            return self._embed(images[rows])
        return self._embed(torch.utils.data.Subset(images, rows.tolist()))

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
        fields = {name: getattr(test, name) for name in ("map_at_r", "r_precision", "nmi", "ami")}
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
        found = self._scores(self._embed(self.data.validation_images), labels, ks, clustering=False)
        recalls = {f"recall_at_{k}": value for k, value in found.recall_at_k.items()}
        return recalls | {"map_at_r": found.map_at_r, "r_precision": found.r_precision}

    def train(self) -> None:
        """Train to the end, from wherever the trainer stands."""
        self.trainer.train(self.config.training.epochs)

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
        fields: dict[str, Any] = {"maw": done.maw, "sdaw": done.sdaw}
        seconds = done.seconds_train + done.seconds_embed
        if update is not None:
            values = update.as_dict()
            fields = {name: values[name] for name in _SAME}
            if update.score_auroc is not None:  # finer than that of the weights
                fields["detection_auroc"] = update.score_auroc
            if update.noise_interval is not None:
                fields["noise_rate_low"], fields["noise_rate_high"] = update.noise_interval
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
        """Other random views each epoch."""
        if hasattr(self.views, "set_epoch"):
            self.views.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, sample_index: int) -> tuple[Tensor, int]:
        return self.views[sample_index], int(self.codes[sample_index])


def _rows(inputs: Any, rows: slice) -> Inputs:
    """A run of rows of a tensor, or of a data set."""
    if isinstance(inputs, Tensor):
        return inputs[rows]
    return torch.utils.data.Subset(inputs, range(rows.start, rows.stop))
