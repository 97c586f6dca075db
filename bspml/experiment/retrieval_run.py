"""One method of a retrieval experiment in training: its parts, its records, what it leaves."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bspml.data.indexed import IndexedDataset, sample_index_getter
from bspml.distributed import from_main, is_main
from bspml.evaluation.selection import tie_broken, validation_value
from bspml.experiment import methods
from bspml.experiment.build import (
    is_clean,
    make_curriculum,
    make_method,
    make_network,
    make_optimizer,
    make_sampler,
    make_weights,
)
from bspml.experiment.data import ExperimentData
from bspml.experiment.engine import Experiment, MethodRun, Workplace
from bspml.experiment.measuring import Measuring, rows_of
from bspml.experiment.outputs import LabelQuality
from bspml.experiment.untrained import worse_than_untrained
from bspml.files.checkpoints import State
from bspml.files.run import SUSPECT_BELOW, UNTRAINED, EpochRecord
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


class RetrievalRun(MethodRun):
    """One method of a retrieval experiment in training.

    Args:
        method: its name.
        experiment: configuration and data.
        place: of the run.
        network: that it starts with, on the device; None where a checkpoint is taken next.

    Attributes:
        first: fields of the record of `network`, measured before the first step, or None.
    """

    data: ExperimentData
    first: Mapping[str, Any] | None = None

    def __init__(
        self, method: str, experiment: Experiment, place: Workplace, network: nn.Module | None
    ) -> None:
        super().__init__(method, experiment, place)
        if network is None:
            network = make_network(self.config, self.data.width, pretrained=False)
        self.network = network.to(self.device)
        self.measuring = Measuring(self.config, self.data, self.device)
        self.first_validation: Mapping[str, float] = {}
        self.is_last = False
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
        sampler = make_sampler(config, self.data)
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
        patience = None
        if self.data.validation_images is not None:
            patience = Patience(config.training.patience, self._validation, self.evaluated)
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
            patience=patience,
        )

    def _embed_training_set(self) -> Tensor:
        return self.measuring.embed(self.evaluated, self.data.images)

    def _embed_training_rows(self, rows: Tensor) -> Tensor:
        # These stand beside vectors of the steps, which the average did not compute.
        return self.measuring.embed(self.network, rows_of(self.data.images, rows.cpu()))

    def _evaluate(self, last: bool) -> dict[str, Any]:
        """Measure the test classes and those held out; fields of an `EpochRecord`."""
        self.is_last = last
        return self.measuring.evaluate(self.evaluated, last)

    def _validation(self, metrics: Mapping[str, Any]) -> float:
        """Read from an evaluation what selects a network: as `select_epochs` selects."""
        key = f"recall_at_{self.config.evaluation.ks[0]}"
        found = metrics["extra"]["validation"]
        return tie_broken(validation_value(found, key, self.first_validation), found)

    def take(self, state: State) -> None:
        """Go to where a checkpoint of this method was written.

        Raises:
            CheckpointError: it is no state of such a training; names the file.
            ConfigError: the run was made shorter than that.
        """
        super().take(state)
        records = from_main(self.log.read)
        firsts = [r for r in records if r.method == self.method and r.epoch == 0]
        if firsts:  # of an older run there is none
            self.first_validation = firsts[0].extra.get("validation") or {}

    def train(self) -> None:
        """Train to the end, from wherever the trainer stands.

        The network before the first step has a record, too: it is the first that may be selected.
        """
        if self.trainer.steps == 0 and self.first is not None:
            if is_main():
                self.log.append(EpochRecord(self.method, 0, steps=0, **self.first))
            if self.trainer.patience is not None:
                self.first_validation = self.first["extra"]["validation"]
                self.trainer.patience.look(self.first)
        self.trainer.train(self.config.training.epochs)

    @property
    def kept_epoch(self) -> float | None:
        """Return passes over the data after which the network that is kept was reached, None: the
        last."""
        return None if self.trainer.patience is None else self.trainer.patience.epoch

    def kept_network(self) -> nn.Module:
        """Return what the run leaves for use: the network of the selected epoch, or the last."""
        patience = self.trainer.patience
        if patience is None or patience.kept is None:
            return self.evaluated
        network = copy.deepcopy(self.evaluated)
        network.load_state_dict(patience.kept)
        return network

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
        if self.parts.curriculum_kind is not None:
            update = self.trainer.curriculum.state_dict()["update"]
            p_values, rate = update.get("p_values"), update.get("noise_rate")
            repairs = "second" in update and self.config.curriculum.repair != "none"
            current = self.weights.current_codes.cpu() if repairs else None
            weights = _on_cpu(self.weights.weights)
            return LabelQuality(weights, self.kept_network(), p_values, rate, current=current)
        trust = methods.sample_confidences(self.parts)
        if trust is None:
            return None
        # What is decided stands in the table, whatever the loss made of it.
        words = _on_cpu(self.weights.weights)
        trust = torch.where(self.weights.fixed.cpu(), words, _on_cpu(trust))
        return LabelQuality(trust, self.kept_network(), sigma=methods.sigma(self.parts))

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
        extra = {"lr": done.lr, **({"temporary": True} if done.temporary else {}), **extra}
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
        record = EpochRecord(
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
        return self._compared(record) if self.is_last else record

    def _compared(self, record: EpochRecord) -> EpochRecord:
        """Put into the last record whether the network that is kept lost by its training."""
        log = self.log.read()
        untrained = next((r for r in log if r.method == UNTRAINED), None)
        own = [r for r in log if r.method == self.method]
        kept = next((r for r in own if r.epoch == self.kept_epoch), record)
        words = None if untrained is None else worse_than_untrained(self.config, kept, untrained)
        notes, extra = record.notes, dict(record.extra)
        if kept.epoch == 0:
            words_of_kept = "so the network before its first step is kept"
            notes = (f"no epoch was better on the held-out classes, {words_of_kept}", *notes)
        if words is not None:
            notes, extra = (*notes, words), extra | {"worse_than_untrained": words}
        return dataclasses.replace(record, notes=notes, extra=extra)


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
