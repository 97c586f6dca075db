"""One classification or regression experiment: the plain loss, the robust one, and what they left.

The run folder is that of `bspml.experiment.run`: the resolved configuration, one record per epoch
and method, a checkpoint per method, weights.csv, predictions.csv, and at the end summary.json; its
presence means the run is complete.  Whatever interrupts a run, `resume=True` goes on from the last
checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bspml.errors import CheckpointError, ConfigError
from bspml.evaluation.detection import noise_detection
from bspml.experiment.classification.data import TaskData, load_data
from bspml.experiment.classification.losses import SampleLoss
from bspml.experiment.classification.networks import make_network, one_thread_is_faster
from bspml.experiment.classification.outputs import (
    Results,
    final_results,
    write_samples,
    write_summary,
)
from bspml.experiment.classification.scoring import predict, score
from bspml.experiment.classification.training import Epoch, Trainer
from bspml.experiment.config import ClassificationConfig
from bspml.experiment.config.sample_loss import SampleLossConfig
from bspml.experiment.resuming import (
    check_none_missing,
    check_rounds,
    load_states,
    method_state,
    run_folder,
    set_threads,
)
from bspml.files import checkpoints
from bspml.files.checkpoints import State
from bspml.files.run import EpochRecord, RecordLog, RunFolder
from bspml.shapes import Tensor
from bspml.tensors.checks import check_device
from bspml.trainers.narration import Narrator, Silent

__all__ = ["ClassificationResult", "check_experiment", "load_data", "methods_of", "run_experiment"]

_RELABELLED = "-relabelled"


@dataclass(frozen=True)
class Method:
    """One network to train.

    Attributes:
        name: in records, tables and the name of its checkpoint.
        loss: what it minimises.
        relabelled: whether on the labels that the method of the same loss predicts.
    """

    name: str
    loss: SampleLossConfig
    relabelled: bool = False


@dataclass(frozen=True)
class ClassificationResult:
    """What an experiment ends with.

    Attributes:
        results: {method: {column: value}}, the final table.
        folder: the run's folder.
        noise_rate: true share of wrong targets.
    """

    results: Results
    folder: RunFolder
    noise_rate: float | None


def methods_of(config: ClassificationConfig) -> list[Method]:
    """What to train, in order: the plain loss, the experiment's, and that on corrected labels."""
    methods = [Method(config.plain_loss.name, config.plain_loss)] if config.has_baseline else []
    methods.append(Method(config.loss.name, config.loss))
    if config.training.relabel:
        methods.append(Method(config.loss.name + _RELABELLED, config.loss, relabelled=True))
    return methods


def check_experiment(config: ClassificationConfig, data: TaskData) -> None:
    """Find what cannot work before a folder is made or an hour is spent.

    Raises:
        UserError: the mistake, one line.
    """
    check_device(config.device)
    network = _network(config, data)
    sample = data.images[:2].float() / 255
    try:
        with torch.no_grad():
            network.eval()(sample)
    except (RuntimeError, ValueError) as err:
        raise ConfigError(
            f"`network.name` {config.network.name} does not take the images of {config.data.name} "
            f"{data.image_shape} ({' '.join(str(err).split())[:120]}); use another network."
        ) from None


def run_experiment(
    config: ClassificationConfig,
    folder: RunFolder,
    resume: bool = False,
    narrator: Narrator | None = None,
    data: TaskData | None = None,
) -> ClassificationResult:
    """Train every method of `config`, write everything into `folder`, return the final table.

    Args:
        config: the experiment.
        folder: of a new run (`RunFolder.create`), or of an interrupted one with `resume`.
        resume: go on from the checkpoints in `folder`.
        narrator: told what happens.
        data: what `load_data(config)` gives, if it is loaded already.

    Only one process at a time trains in a folder.  A new run that fails by a user's mistake before
    its first checkpoint leaves nothing behind.

    Raises:
        ConfigError: settings that cannot work with these data, or, with `resume`, that changed.
        CheckpointError: the data changed since the checkpoint, or a checkpoint is damaged.
        RunError: a file cannot be written, another process is training this run, or the training
            diverged.
    """
    narrator = narrator or Silent()
    data = load_data(config) if data is None else data
    check_experiment(config, data)
    names = [method.name for method in methods_of(config)]
    with run_folder(folder, config, names, resume):
        return _run(config, folder, resume, narrator, data)


def _run(
    config: ClassificationConfig,
    folder: RunFolder,
    resume: bool,
    narrator: Narrator,
    data: TaskData,
) -> ClassificationResult:
    """Every method, one after the other, inside the lock."""
    log, states = RecordLog(folder.records), {}
    names = [method.name for method in methods_of(config)]
    if resume:
        length = partial(_check_length, config=config, folder=folder)
        states = load_states(folder, names, config, data.fingerprint, length)
    known = max((state["records"] for state in states.values()), default=0)
    kept = log.first(known)
    for name, state in states.items():
        _check_rounds(state, kept, folder, name)
    check_none_missing(folder, names, states, kept)
    # Records written after the last checkpoint will be written again.
    log.truncate(known)
    narrator.begin(config, folder)
    set_threads(config.threads, one_thread_is_faster(config), states, narrator.say)
    outputs: dict[str, Tensor] = {}
    losses: dict[str, SampleLoss] = {}
    for method in methods_of(config):
        targets = data.targets
        if method.relabelled:
            targets = outputs[config.loss.name].argmax(1)
        run = _MethodRun(method, config, data, targets, folder, log, narrator)
        run.train(states.get(method.name))
        outputs[method.name] = run.predict_training_set()
        losses[method.name] = run.trainer.loss.cpu()
    write_samples(folder, data, losses[config.loss.name], outputs[config.loss.name])
    results = final_results(log.read(), config, data)
    write_summary(folder, config, data, results)
    return ClassificationResult(results, folder, data.noise_rate)


def _check_length(
    saved: Mapping[str, Any], config: ClassificationConfig, folder: RunFolder
) -> None:
    """Most runs may go on for longer; not where the length decides what was learnt so far."""
    then, now = saved["training"]["epochs"], config.training.epochs
    if now < then:
        raise ConfigError(
            f"{folder.config}: `training.epochs` is {now}, but the run was begun with {then}. It "
            "may be made longer, not shorter; put that back, or start a new run."
        )
    why = {
        "the cosine schedule stretches over all of them": config.schedule.name == "cosine",
        "the labels were corrected by a network of that many": config.training.relabel,
    }
    for reason, holds in why.items():
        if holds and then != now:
            raise ConfigError(
                f"{folder.config}: `training.epochs` is {now}, but the run was trained with {then} "
                f"so far, and {reason}. Put that back, or start a new run."
            )


def _check_rounds(state: State, kept: list[EpochRecord], folder: RunFolder, name: str) -> None:
    path = folder.checkpoint(name)
    position = state["trainer"].get("position")
    if not isinstance(position, dict) or type(position.get("round")) is not int:
        raise CheckpointError(
            f"{path}: holds no position of a classification training. Start the run anew."
        )
    check_rounds(state, kept, path)


def _network(config: ClassificationConfig, data: TaskData) -> torch.nn.Module:
    return make_network(config, data.image_shape, data.num_outputs, *data.channel_statistics())


class _MethodRun:
    """One method's training inside a run folder."""

    def __init__(
        self,
        method: Method,
        config: ClassificationConfig,
        data: TaskData,
        targets: Tensor,
        folder: RunFolder,
        log: RecordLog,
        narrator: Narrator,
    ) -> None:
        self.method, self.config, self.data = method, config, data
        self.folder, self.log, self.narrator = folder, log, narrator
        self.device = check_device(config.device)
        network = _network(config, data).to(self.device)
        loss = SampleLoss(method.loss, data.num_outputs)
        self.trainer = Trainer(config, network, loss, data.images, targets)

    def train(self, state: State | None) -> None:
        """Train to the end, from the checkpoint if there is one."""
        trainer = self.trainer
        if state is not None:
            try:
                trainer.load_state_dict(state["trainer"])
            except CheckpointError as err:
                raise CheckpointError(
                    f"{self.folder.checkpoint(self.method.name)}: {err}"
                ) from None
            self.narrator.say(
                f"{self.method.name}: resumed at epoch {trainer.epoch + 1}, step {trainer.step + 1}"
            )
        while trainer.epoch < self.config.training.epochs:
            done = trainer.train_epoch(self._on_step)
            record = self._record(done)
            self.log.append(record)
            self._save()
            self.narrator.record(record)

    def predict_training_set(self) -> Tensor:
        """(N, C) or (N,) outputs, on the CPU."""
        return self._predict(self.data.images)

    def _predict(self, images: Tensor) -> Tensor:
        size = self.config.evaluation.batch_size
        return predict(self.trainer.network, images, size, self.device)

    def _on_step(self, step: int, steps: int, loss: float) -> None:
        self.narrator.step(self.method.name, step, steps, loss)
        every = self.config.training.checkpoint_every
        if every is not None and self.trainer.steps % every == 0 and step < steps:
            self._save()

    def _save(self) -> None:
        state = method_state(
            self.method.name,
            self.trainer.state_dict(),
            self.config,
            len(self.log),
            torch.get_num_threads(),
        )
        path = self.folder.checkpoint(self.method.name)
        checkpoints.save(path, state, self.data.fingerprint)

    def _record(self, done: Epoch) -> EpochRecord:
        fields: dict[str, Any] = {}
        last = done.epoch == self.config.training.epochs
        if last or done.epoch % self.config.evaluation.every == 0:
            fields = self._measure()
        return EpochRecord(
            method=self.method.name,
            epoch=done.epoch,
            steps=done.steps,
            seconds=done.seconds,
            loss=done.loss,
            **fields,
        )

    def _measure(self) -> dict[str, Any]:
        """Scores, and how well a low trust finds the wrong targets."""
        data, truncation = self.data, self.config.evaluation.truncation
        outputs, test_outputs = self.predict_training_set(), self._predict(data.test_images)
        scores = score(outputs, test_outputs, data, truncation)
        fields: dict[str, Any] = {"extra": {"held_out": data.held_out, "scores": scores}}
        loss = self.trainer.loss
        trust = loss.weights(outputs.to(self.device), data.targets.to(self.device))[1].cpu()
        if not bool((trust == trust[0]).all()):  # a loss that doubts nobody detects nothing
            found = noise_detection(trust, data.is_noisy).as_dict()
            fields |= {
                "kept": float((trust >= 0.5).float().mean()),
                "detection_auroc": found["auroc"],
                "detection_precision": found["precision"],
                "detection_recall": found["recall"],
                "false_alarm_rate": found["false_alarm_rate"],
            }
        return fields
