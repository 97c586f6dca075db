"""A classification or regression experiment: the plain loss, the robust one, and what they left.

A run folder holds the resolved configuration, one record per epoch and method, a checkpoint per
method, weights.csv, predictions.csv, and at the end a summary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import nn

from bspml.errors import ConfigError
from bspml.evaluation.detection import detected
from bspml.experiment.classification.data import TaskData
from bspml.experiment.classification.losses import SampleLoss
from bspml.experiment.classification.networks import make_network
from bspml.experiment.classification.outputs import LIBRARIES, final_results, write_samples
from bspml.experiment.classification.scoring import predict, score
from bspml.experiment.classification.training import Epoch, Trainer
from bspml.experiment.config import ClassificationConfig
from bspml.experiment.config.sample_loss import SampleLossConfig
from bspml.experiment.engine import Experiment, MethodRun, Outputs, Workplace
from bspml.experiment.resuming import check_length
from bspml.files.run import SUSPECT_BELOW, EpochRecord, RunFolder
from bspml.files.versions import versions_of
from bspml.shapes import Tensor
from bspml.tensors.checks import check_device

_RELABELLED = "-relabelled"


def losses_of(config: ClassificationConfig) -> dict[str, SampleLossConfig]:
    """Return {method: its loss}: the plain loss, the experiment's, and that on corrected labels."""
    losses = {config.plain_loss.name: config.plain_loss} if config.has_baseline else {}
    losses[config.loss.name] = config.loss
    if config.training.relabel:
        losses[config.loss.name + _RELABELLED] = config.loss
    return losses


class Classification(Experiment["ClassificationRun"]):
    """Train the plain loss, the experiment's, and where asked for that on corrected labels.

    Args:
        config: the experiment.
        data: what `bspml.experiment.classification.data.load_data(config)` gives.
    """

    config: ClassificationConfig
    data: TaskData

    def __init__(self, config: ClassificationConfig, data: TaskData) -> None:
        super().__init__(config, data)
        self.methods = list(losses_of(config))
        self.one_thread_is_faster = config.network.name in ("mlp", "small-conv")

    @cached_property
    def images(self) -> Tensor:
        """Training images on the device, once for all methods."""
        return self.data.images.to(check_device(self.config.device))

    def make_network(self) -> nn.Module:
        """Build the network, fitted to the images, before its first step."""
        data = self.data
        shape, statistics = data.image_shape, data.channel_statistics()
        return make_network(self.config, shape, data.num_outputs, *statistics)

    def check_parts(self, pretrained: bool) -> None:
        """Show two images to the network; no network here starts from a file of weights."""
        network = self.make_network()
        sample = self.data.images[:2].float() / 255
        try:
            with torch.no_grad():
                network.eval()(sample)
        except (RuntimeError, ValueError) as err:
            raise ConfigError(
                f"`network.name` {self.config.network.name} does not take the images of "
                f"{self.config.data.name} {self.data.image_shape} "
                f"({' '.join(str(err).split())[:120]}); use another network."
            ) from None

    def check_length(self, saved: Mapping[str, Any], folder: RunFolder) -> None:
        """Most runs may go on for longer; not where the length decides what was learnt so far.

        Args:
            saved: configuration of the checkpoint, as plain values.
            folder: of the run.

        Raises:
            ConfigError: the run may not be made that long.
        """
        corrected = "the labels were corrected by a network of that many"
        check_length(saved, self.config, folder.config, corrected * self.config.training.relabel)

    def start(self, place: Workplace, resumed: Collection[str]) -> list[ClassificationRun]:
        """Build every method; the one on corrected labels learns from the one before.

        Args:
            place: of the run.
            resumed: methods that will take the state of a checkpoint.
        """
        runs: list[ClassificationRun] = []
        for method, loss in losses_of(self.config).items():
            teacher = runs[-1] if method.endswith(_RELABELLED) else None
            runs.append(ClassificationRun(method, self, place, loss, teacher))
        return runs

    def write_outputs(
        self, place: Workplace, runs: Sequence[ClassificationRun], figures: bool
    ) -> Outputs:
        """Write what the network of the experiment's loss makes of every training sample.

        Args:
            place: of the run, with its records.
            runs: the trained methods.
            figures: there are none.
        """
        run = next(run for run in runs if run.method == self.config.loss.name)
        outputs = run.predict(self.data.images)
        write_samples(place.folder, self.data, run.trainer.loss.cpu(), outputs)
        summary = {
            "task": self.config.task,
            "held_out": self.data.held_out,
            "results": final_results(place.log.read(), self.config, self.data),
            "samples": len(self.data.images),
        }
        return Outputs(summary, versions_of(LIBRARIES))


class ClassificationRun(MethodRun):
    """One method of a classification or regression in training.

    Args:
        method: its name.
        experiment: configuration and data.
        place: of the run.
        loss: what it minimises.
        teacher: whose predictions it trains on, in the place of the labels as given.
    """

    data: TaskData
    trainer: Trainer

    def __init__(
        self,
        method: str,
        experiment: Classification,
        place: Workplace,
        loss: SampleLossConfig,
        teacher: ClassificationRun | None,
    ) -> None:
        super().__init__(method, experiment, place)
        data, self.teacher = self.data, teacher
        network = experiment.make_network().to(self.device)
        sample_loss = SampleLoss(loss, data.num_outputs)
        if loss.name == "truncated-gce" and loss.truncate_after >= self.config.training.epochs:
            self.notes = (
                f"truncated-gce is gce for `loss.truncate_after` epochs, {loss.truncate_after}: "
                f"with {self.config.training.epochs} nothing is truncated.",
            )
        self.trainer = Trainer(self.config, network, sample_loss, experiment.images, data.targets)

    def train(self) -> None:
        """Train to the end, from wherever the trainer stands."""
        trainer = self.trainer
        if self.teacher is not None:  # trained by now
            outputs = self.teacher.predict(self.data.images)
            trainer.targets = outputs.argmax(1).to(trainer.targets)
        while not trainer.is_trained(self.config.training.epochs):
            self.on_round(trainer, trainer.train_epoch(partial(self.on_step, trainer)))

    def position(self) -> str:
        """Say at which epoch and step the training goes on."""
        return f"epoch {self.trainer.epoch + 1}, step {self.trainer.step + 1}"

    def predict(self, images: Tensor) -> Tensor:
        """Return (N, C) or (N,) outputs of (N, channels, H, W) images, on the CPU."""
        size = self.config.evaluation.batch_size
        return predict(self.trainer.network, images, size, self.device)

    def epoch_record(self, done: Epoch) -> EpochRecord:
        """Turn an epoch into a line of the records, measured where its turn has come."""
        last = done.epoch == self.config.training.epochs
        measured = last or done.epoch % self.config.evaluation.every == 0
        return EpochRecord(
            method=self.method,
            epoch=done.epoch,
            steps=done.steps,
            seconds=done.seconds,
            loss=done.loss,
            **(self._measure() if measured else {}),
        )

    def _measure(self) -> dict[str, Any]:
        """Scores, and how well a low trust finds the wrong targets."""
        data, truncation = self.data, self.config.evaluation.truncation
        outputs, test_outputs = self.predict(data.images), self.predict(data.test_images)
        scores = score(outputs, test_outputs, data, truncation)
        fields: dict[str, Any] = {"extra": {"held_out": data.held_out, "scores": scores}}
        loss = self.trainer.loss
        trust = loss.weights(outputs.to(self.device), data.targets.to(self.device))[1].cpu()
        if not bool((trust == trust[0]).all()):  # a loss that doubts nobody detects nothing
            detection = detected(trust, data.is_noisy).as_dict()
            fields |= {
                "kept": float((trust >= SUSPECT_BELOW).float().mean()),
                "detection_auroc": detection["auroc"],
                "detection_precision": detection["precision"],
                "detection_recall": detection["recall"],
                "false_alarm_rate": detection["false_alarm_rate"],
            }
        return fields
