"""One method of an experiment: its network trained inside the run folder, observed and recorded."""

from __future__ import annotations

from typing import Any

import torch

from bspml.data.indexed import IndexedDataset, sample_index_getter
from bspml.distributed import computed_by_rows, from_main, is_main
from bspml.distributed.group import check_rank_device
from bspml.errors import CheckpointError
from bspml.evaluation.retrieval import evaluate
from bspml.experiment.build import (
    make_curriculum,
    make_method,
    make_network,
    make_optimizer,
    make_sampler,
    make_weights,
)
from bspml.experiment.config import Config
from bspml.experiment.data import ExperimentData, Inputs
from bspml.experiment.resuming import method_state
from bspml.files import checkpoints
from bspml.files.checkpoints import State
from bspml.files.run import EpochRecord, RecordLog, RunFolder
from bspml.networks import embed
from bspml.tensors.checks import check_device
from bspml.trainers.alternating import AlternatingTrainer, RoundRecord
from bspml.trainers.narration import Narrator
from bspml.trainers.step import StepTrainer


class MethodRun:
    """One method's training inside a run folder; the observer of its trainer."""

    def __init__(
        self,
        method: str,
        config: Config,
        data: ExperimentData,
        folder: RunFolder,
        log: RecordLog,
        narrator: Narrator,
        pretrained: bool = True,
    ) -> None:
        self.method, self.config, self.data = method, config, data
        self.folder, self.log, self.narrator = folder, log, narrator
        self.device = check_device(config.device)
        check_rank_device(self.device)
        network = make_network(config, data.width, pretrained)
        self.network = network.to(self.device)
        self.weights = make_weights(method, data).to(self.device)
        self.parts = make_method(method, config, data, self.weights)
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

    def _embed(self, inputs: Any) -> torch.Tensor:
        size, workers = self.config.evaluation.batch_size, self.config.workers

        def compute(rows: slice) -> torch.Tensor:
            part = _rows(inputs, rows)
            return embed(self.network, part, size, self.device, workers, output_device=home)

        # On a CUDA device statistics and evaluation go on where the network computed; other
        # accelerators lack the float64 that these sum in.
        home = self.device if self.device.type == "cuda" else torch.device("cpu")
        return computed_by_rows(len(inputs), compute, size, home)

    def _embed_training_set(self) -> torch.Tensor:
        return self._embed(self.data.images)

    def _validate(self) -> dict[str, float]:
        """What selects the epoch: {metric: value} on the held-out classes; {} without them."""
        settings, data = self.config.evaluation, self.data
        if data.validation_images is None:
            return {}
        assert data.validation_labels is not None
        most = len(data.validation_labels) - 1
        held_out = self._embed(data.validation_images)
        found = from_main(
            lambda: evaluate(
                held_out,
                data.validation_labels,
                ks=[k for k in settings.ks if k <= most] or [1],
                backend=settings.backend,
                clustering=False,
            )
        )
        recalls = {f"recall_at_{k}": value for k, value in found.recall_at_k.items()}
        return recalls | {"map_at_r": found.map_at_r, "r_precision": found.r_precision}

    def _embed_training_rows(self, rows: torch.Tensor) -> torch.Tensor:
        images, rows = self.data.images, rows.cpu()
        if isinstance(images, torch.Tensor):
            return self._embed(images[rows])
        return self._embed(torch.utils.data.Subset(images, rows.tolist()))

    def _evaluate(self, last: bool) -> dict[str, Any]:
        settings, data = self.config.evaluation, self.data
        gallery = None if data.gallery_images is None else self._embed(data.gallery_images)
        queries = self._embed(data.test_images)
        found = from_main(
            lambda: evaluate(
                queries,
                data.test_labels,
                ks=settings.ks,
                gallery=gallery,
                gallery_labels=data.gallery_labels,
                backend=settings.backend,
                clustering=last and settings.clustering,
                seed=self.config.seed,
            )
        )
        return {
            "recall_at_k": found.recall_at_k,
            "map_at_r": found.map_at_r,
            "r_precision": found.r_precision,
            "nmi": found.nmi,
            "ami": found.ami,
            "notes": ("all embeddings point the same way",) if found.collapsed else (),
            "validation": self._validate(),
        }

    # -- run and resume ----------------------------------------------------------------------

    def take(self, state: State) -> None:
        """Go to where a checkpoint of this method was written."""
        try:
            self.trainer.load_state_dict(state["trainer"])
        except CheckpointError as err:
            raise CheckpointError(f"{self.folder.checkpoint(self.method)}: {err}") from None

    def train(self, resumed: bool) -> None:
        """Train to the end, from wherever this run stands."""
        if resumed:
            self.narrator.say(
                f"{self.method}: resumed at round {self.trainer.round + 1}, step "
                f"{self.trainer.step + 1}"
            )
        else:
            for note in self.parts.notes:
                self.narrator.say(note)
        self.trainer.train(self.config.training.epochs)

    def _save(self) -> None:
        state = method_state(
            self.method,
            self.trainer.state_dict(),
            self.config,
            len(self.log),
            torch.get_num_threads(),
        )
        checkpoints.save(self.folder.checkpoint(self.method), state, self.data.fingerprint)

    # -- observer of the trainer -------------------------------------------------------------

    def on_step(self, trainer: AlternatingTrainer, step: int, steps: int, loss: float) -> None:
        """Draw progress; save inside the round where the configuration asks for it."""
        if not is_main():
            return
        self.narrator.step(self.method, step, steps, loss)
        every = self.config.training.checkpoint_every
        if every is not None and trainer.steps % every == 0 and step < steps:
            self._save()

    def on_round(self, trainer: AlternatingTrainer, record: RoundRecord) -> None:
        """Write the record, then the checkpoint that knows of it."""
        if not is_main():
            return
        line = self._epoch_record(record)
        self.log.append(line)
        self._save()
        self.narrator.record(line)

    def _epoch_record(self, record: RoundRecord) -> EpochRecord:
        update = record.curriculum
        fields: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        if update is not None:
            low, high = update.noise_interval or (None, None)
            fields = {
                "phase": update.phase,
                "age": update.age,
                "noise_rate": update.noise_rate,
                "noise_rate_low": low,
                "noise_rate_high": high,
                "changed": update.changed,
                "objective_before": update.objective_before,
                "objective_after": update.objective_after,
                "detection_auroc": _first(update.score_auroc, update.detection_auroc),
                "detection_precision": update.detection_precision,
                "detection_recall": update.detection_recall,
                "false_alarm_rate": update.false_alarm_rate,
                "outlier_auroc": update.outlier_auroc,
                "outlier_recall": update.outlier_recall,
            }
            extra["curriculum"] = update.as_dict()
        weights = self.weights.weights
        metrics = dict(record.metrics)
        notes = (*record.notes, *metrics.pop("notes", ()))
        validation = metrics.pop("validation", None)
        if validation:
            extra["validation"] = validation  # where `select_epochs` looks
        seconds = record.seconds_train + record.seconds_embed
        if update is not None:
            seconds += update.seconds_statistics + update.seconds_solve
        return EpochRecord(
            method=self.method,
            epoch=record.epochs,
            steps=record.steps,
            seconds=seconds,
            loss=record.loss,
            maw=record.maw,
            sdaw=record.sdaw,
            kept=float((weights >= 0.5).float().mean()),
            notes=notes,
            extra=extra,
            **metrics,
            **fields,
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

    def __getitem__(self, sample_index: int) -> tuple[torch.Tensor, int]:
        return self.views[sample_index], int(self.codes[sample_index])


def _rows(inputs: Any, rows: slice) -> Inputs:
    """A run of rows of a tensor, or of a data set."""
    if isinstance(inputs, torch.Tensor):
        return inputs[rows]
    return torch.utils.data.Subset(inputs, range(rows.start, rows.stop))


def _first(*values: float | None) -> float | None:
    return next((v for v in values if v is not None), None)
