"""One experiment: the same network trained plainly and with BSPML, and what each left behind.

A run folder holds the resolved configuration, one record per round, a checkpoint per method, the
weights as a table, figures, and at the end a summary; its presence means the run is complete.
Whatever interrupts a run, `resume=True` goes on from the last checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from pytorch_metric_learning.trainers import MetricLossOnly

from bspml import checkpoints
from bspml.build import (
    ExperimentData,
    load_data,
    make_curriculum,
    make_loss,
    make_network,
    make_optimizer,
    make_sampler,
    make_weights,
)
from bspml.checkpoints import State
from bspml.checks import check_device
from bspml.config import Config, dump_config
from bspml.curriculum import FixedCurriculum, SelfPacedCurriculum
from bspml.data.indexed import IndexedDataset, sample_index_getter
from bspml.errors import CheckpointError, ConfigError, UserError
from bspml.evaluation.retrieval import evaluate
from bspml.files import atomic_write
from bspml.networks import embed
from bspml.outputs import CLEAN, PLAIN, WEIGHTED, write_outputs
from bspml.records import EpochRecord, RecordLog, RunFolder
from bspml.report.tables import Results
from bspml.resuming import (
    check_rounds,
    check_unchanged,
    has_checkpoint,
    load_method,
    method_state,
    usable_threads,
)
from bspml.trainers import AlternatingTrainer, RoundRecord
from bspml.weights.state import SampleWeights


@runtime_checkable
class Narrator(Protocol):
    """Shows a person what happens; the command line has one, tests have a silent one."""

    def begin(self, config: Config, folder: RunFolder) -> None:
        """Everything is checked; training starts now."""

    def say(self, line: str) -> None:
        """A line that stays."""

    def step(self, method: str, done: int, steps: int, loss: float) -> None:
        """Progress inside a round."""

    def record(self, record: EpochRecord) -> None:
        """A finished round."""


class Silent:
    """A narrator that says nothing."""

    def begin(self, config: Config, folder: RunFolder) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""

    def step(self, method: str, done: int, steps: int, loss: float) -> None:
        """Nothing."""

    def record(self, record: EpochRecord) -> None:
        """Nothing."""


@dataclass(frozen=True)
class ExperimentResult:
    """What an experiment ends with.

    Attributes:
        results: {method: {column: value}}, the final table.
        folder: the run's folder.
        noise_rate: true share of wrong labels, where known.
    """

    results: Results
    folder: RunFolder
    noise_rate: float | None


def run_experiment(
    config: Config,
    folder: RunFolder,
    resume: bool = False,
    narrator: Narrator | None = None,
    figures: bool = True,
    data: ExperimentData | None = None,
) -> ExperimentResult:
    """Train every method of `config`, write everything into `folder`, return the final table.

    Args:
        config: the experiment.
        folder: of a new run (`RunFolder.create`), or of an interrupted one with `resume`.
        resume: go on from the checkpoints in `folder`.
        narrator: told what happens.
        figures: draw them at the end.
        data: what `load_data(config)` gives, if it is loaded already.

    Only one process at a time trains in a folder.  A new run that fails by a user's mistake before
    its first checkpoint leaves nothing behind.

    Raises:
        ConfigError: settings that cannot work with these data, or, with `resume`, that changed.
        CheckpointError: the data set changed since the checkpoint, or a checkpoint is damaged.
        RunError: a file cannot be written, or another process is training this run.
    """
    narrator = narrator or Silent()
    data = load_data(config) if data is None else data
    check_experiment(config, data, pretrained=not resume)
    with folder.locked():
        if not resume:
            folder.refuse_if_used()
        try:
            if not resume:
                atomic_write(folder.config, dump_config(config))
            log = _train(config, folder, resume, narrator, data)
        except UserError:
            if not resume and not any(has_checkpoint(folder, m) for m in methods_of(config, data)):
                folder.discard()
            raise
        results = write_outputs(config, data, folder, log.read(), figures)
    return ExperimentResult(results, folder, data.noise_rate)


def check_experiment(config: Config, data: ExperimentData, pretrained: bool = True) -> None:
    """Find what cannot work before a folder is made or an hour is spent.

    Builds every part of a method once: network, sampler, optimiser, curriculum.

    Args:
        config: the experiment.
        data: what `load_data(config)` gives.
        pretrained: read the file of weights, too.

    Raises:
        UserError: the mistake, one line.
    """
    methods_of(config, data)
    check_device(config.device)
    most, ks = len(data.test_labels) - 1, config.evaluation.ks
    if max(ks) > most:
        raise ConfigError(
            f"`evaluation.ks` asks for the {max(ks)} nearest, but a test sample has only {most} "
            f"others. Use ks up to {most}."
        )
    make_sampler(config, data.codes)
    make_optimizer(config, make_network(config, data.images.shape[1], pretrained))
    if config.training.weighted:
        make_curriculum(config, make_weights(data), data.is_noisy)


def methods_of(config: Config, data: ExperimentData) -> list[str]:
    """Names of the methods to train, in order."""
    wanted = config.training
    if wanted.reference and data.is_noisy is None:
        raise ConfigError(
            "`training.reference` trains on the clean samples, but which they are is not known; "
            "set it to false"
        )
    pairs = ((PLAIN, wanted.baseline), (WEIGHTED, wanted.weighted), (CLEAN, wanted.reference))
    return [method for method, on in pairs if on]


def _train(
    config: Config, folder: RunFolder, resume: bool, narrator: Narrator, data: ExperimentData
) -> RecordLog:
    """Every method, one after the other, inside the lock."""
    methods, log = methods_of(config, data), RecordLog(folder.records)
    states = _load_states(config, folder, methods, data) if resume else {}
    runs = [
        MethodRun(method, config, data, folder, log, narrator, method not in states)
        for method in methods
    ]
    for run in runs:
        if run.method in states:
            run.take(states[run.method])
    known = max((state["records"] for state in states.values()), default=0)
    # Parsed now, not when the table is made of them hours later.
    kept = log.first(known)
    for method, state in states.items():
        check_rounds(state, kept, folder.checkpoint(method))
    # Records written after the last checkpoint will be written again.
    log.truncate(known)
    narrator.begin(config, folder)
    _choose_threads(config)
    _set_threads(states, narrator)
    for run in runs:
        run.train(run.method in states)
    return log


def _load_states(
    config: Config, folder: RunFolder, methods: list[str], data: ExperimentData
) -> dict[str, State]:
    folder.remove_leftovers()
    states = {}
    for method in methods:
        if has_checkpoint(folder, method):
            states[method] = load_method(folder, method)
            # Before the data: that the noise was changed, say, is clearer than "other data".
            check_unchanged(states[method]["config"], config, folder.config)
            load_method(folder, method, data.fingerprint)
    return states


def _choose_threads(config: Config) -> None:
    # The steps of a small network are shorter than the time two threads wait for each other: two
    # trained glyphs four times slower than one.
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    elif config.network.name == "small-conv":
        torch.set_num_threads(1)


def _set_threads(states: dict[str, State], narrator: Narrator) -> None:
    # Sums on a CPU are split by threads: the same bits need the same number of them.
    for state in states.values():
        saved, threads = state["threads"], usable_threads(state["threads"])
        if threads < saved:
            narrator.say(
                f"{state['method']}: saved with {saved} threads, goes on with the {threads} of "
                "this machine; the last bits may differ"
            )
        torch.set_num_threads(threads)


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
        network = make_network(config, data.images.shape[1], pretrained)
        self.network = network.to(self.device)
        # Plain training has no weights, and the reference knows better than any person.
        weighted = method == WEIGHTED
        weights = make_weights(data) if weighted else SampleWeights(data.codes)
        self.weights = weights.to(self.device)
        self.trainer = self._build_trainer()

    def _build_trainer(self) -> AlternatingTrainer:
        config = self.config
        sampler = make_sampler(config, self.data.codes)
        trainer = MetricLossOnly(
            models={"trunk": self.network, "embedder": torch.nn.Identity()},
            optimizers={"trunk_optimizer": make_optimizer(config, self.network)},
            batch_size=sampler.batch_size,
            loss_funcs={"metric_loss": make_loss(config, self.weights).to(self.device)},
            dataset=IndexedDataset(_Pairs(self.data)),
            data_device=self.device,
            sampler=sampler,
            dataloader_num_workers=config.workers,
            data_and_label_getter=sample_index_getter(self.weights),
        )
        return AlternatingTrainer(
            trainer,
            sampler,
            self._build_curriculum(),
            self._embed_training_set,
            evaluate=self._evaluate,
            evaluate_every=config.evaluation.every,
            embeddings=config.curriculum.embeddings,
            observer=self,
        )

    def _build_curriculum(self) -> SelfPacedCurriculum | FixedCurriculum | None:
        if self.method == PLAIN:
            return None
        if self.method == WEIGHTED:
            return make_curriculum(self.config, self.weights, self.data.is_noisy)
        assert self.data.is_noisy is not None
        self.weights.update(~torch.from_numpy(self.data.is_noisy))
        return FixedCurriculum(self.weights)

    def _embed_training_set(self) -> torch.Tensor:
        size = self.config.evaluation.batch_size
        return embed(self.network, self.data.images, size, self.device)

    def _evaluate(self, last: bool) -> dict[str, Any]:
        settings = self.config.evaluation
        found = evaluate(
            embed(self.network, self.data.test_images, settings.batch_size, self.device),
            self.data.test_labels,
            ks=settings.ks,
            backend=settings.backend,
            clustering=last and settings.clustering,
            seed=self.config.seed,
        )
        return {
            "recall_at_k": found.recall_at_k,
            "map_at_r": found.map_at_r,
            "r_precision": found.r_precision,
            "nmi": found.nmi,
            "ami": found.ami,
            "notes": ("all embeddings point the same way",) if found.collapsed else (),
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
        self.narrator.step(self.method, step, steps, loss)
        every = self.config.training.checkpoint_every
        if every is not None and trainer.steps % every == 0 and step < steps:
            self._save()

    def on_round(self, trainer: AlternatingTrainer, record: RoundRecord) -> None:
        """Write the record, then the checkpoint that knows of it."""
        line = self._epoch_record(record)
        self.log.append(line)
        self._save()
        self.narrator.record(line)

    def _epoch_record(self, record: RoundRecord) -> EpochRecord:
        update = record.curriculum
        fields: dict[str, Any] = {}
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
                "extra": {"curriculum": update.as_dict()},
            }
        weights = self.weights.weights
        metrics = dict(record.metrics)
        notes = (*record.notes, *metrics.pop("notes", ()))
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
            **metrics,
            **fields,
        )


class _Pairs(torch.utils.data.Dataset):
    """(image, code) of the training set in memory."""

    def __init__(self, data: ExperimentData) -> None:
        self.images, self.codes = data.images, data.codes

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, sample_index: int) -> tuple[torch.Tensor, int]:
        return self.images[sample_index], int(self.codes[sample_index])


def _first(*values: float | None) -> float | None:
    return next((v for v in values if v is not None), None)
