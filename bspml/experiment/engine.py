"""The engine of every experiment: train each method of a configuration inside one run folder.

Data flow, the same for retrieval, classification and regression:

    configuration -> experiment_of: an Experiment with its data     (bspml.experiment.run)
      Experiment.check         every mistake that shows before training; nothing is made yet
      run_folder               lock, config.yaml
        Experiment.start       one MethodRun per method: network, loss, trainer
        load_states            with resume: checkpoints -> MethodRun.take; records.jsonl is cut to
                               what the checkpoints know
        MethodRun.train        round after round: EpochRecord -> records.jsonl -> checkpoint
                               -> narrator
        Experiment.write_outputs    tables and figures
        summary.json           its presence means the run is complete

What differs between the kinds of experiment is behind two classes: an `Experiment` is a
configuration with its data; a `MethodRun` is one network in training.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Generic, NamedTuple, TypeVar

from bspml.distributed import explained, from_main, is_main
from bspml.distributed.group import check_rank_device
from bspml.errors import CheckpointError, ConfigError, about
from bspml.experiment import resuming
from bspml.files import checkpoints
from bspml.files.checkpoints import State
from bspml.files.run import EpochRecord, RecordLog, RunFolder, write_json
from bspml.observers.by_name import check_observers, make_observer
from bspml.report.tables import Results
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_device
from bspml.trainers.progress import Narrator, Silent


class Workplace(NamedTuple):
    """Where the methods of a run leave what they do.

    Attributes:
        folder: of the run.
        log: its records.
        narrator: told what happens.
    """

    folder: RunFolder
    log: RecordLog
    narrator: Narrator


class ExperimentResult(NamedTuple):
    """What an experiment ends with.

    Attributes:
        results: {method: {column: value}}, the final table.
        folder: the run's folder.
        noise_rate: true share of wrong labels, where known.
    """

    results: Results
    folder: RunFolder
    noise_rate: float | None


class Outputs(NamedTuple):
    """What a trained run says in summary.json.

    Attributes:
        summary: entries of that file, `results` {method: {column: value}} among them.
        versions: of the libraries that computed them.
    """

    summary: Mapping[str, Any]
    versions: Mapping[str, str | None]


Run = TypeVar("Run", bound="MethodRun")


class Experiment(ABC, Generic[Run]):
    """A configuration with its data: what the engine asks of each kind of experiment.

    Args:
        config: the experiment.
        data: what it trains and measures on; has a `fingerprint` of what is learned, a
            `noise_rate`, and maybe a fingerprint of what is `measured`.

    Attributes:
        methods: names of what is trained, in order.
        one_thread_is_faster: whether the steps are shorter than the time two threads wait for each
            other: two trained glyphs four times slower than one.
    """

    methods: list[str]
    one_thread_is_faster: bool

    def __init__(self, config: Any, data: Any) -> None:
        self.config, self.data = config, data

    def check(self, pretrained: bool = True) -> None:
        """Find what cannot work before a folder is made or an hour is spent.

        Args:
            pretrained: read the network's file of weights, too.

        Raises:
            UserError: the mistake, one line.
        """
        resuming.check_ranks_agree(self.config, self.data.fingerprint)
        check_device(self.config.device)
        check_observers(self.config.observers)
        self.check_parts(pretrained)

    @abstractmethod
    def check_parts(self, pretrained: bool) -> None:
        """Build what the configuration asks for, to see that it works with these data.

        Args:
            pretrained: read the network's file of weights, too.

        Raises:
            UserError: the mistake, one line.
        """

    def check_length(self, saved: Mapping[str, Any], folder: RunFolder) -> None:
        """Refuse to go on for another length than a checkpoint's, where that may not change.

        Args:
            saved: configuration of the checkpoint, as plain values.
            folder: of the run.

        Raises:
            ConfigError: the run may not be made that long.
        """

    def opening_lines(self) -> list[str]:
        """Say what the data are, in lines under the one that names the experiment."""
        return []

    @abstractmethod
    def start(self, place: Workplace, resumed: Collection[str]) -> list[Run]:
        """Build every method, ready for its first step.

        Args:
            place: of the run.
            resumed: methods that will take the state of a checkpoint.
        """

    def before_training(self, place: Workplace, runs: Sequence[Run]) -> None:
        """Measure what the training starts from, where there is something to measure.

        Args:
            place: of the run.
            runs: every method, where it will go on.
        """

    @abstractmethod
    def write_outputs(self, place: Workplace, runs: Sequence[Run], figures: bool) -> Outputs:
        """Write what a user looks at, and return what summary.json says of it.

        Args:
            place: of the run, with a checkpoint and records of every method.
            runs: the trained methods.
            figures: False leaves out what only people look at.
        """

    def write_page(self, folder: RunFolder) -> None:
        """Write the page that is made of the finished folder, where there is one."""


class MethodRun(ABC):
    """One method in training inside a run folder; the observer of its trainer.

    Args:
        method: its name in records, tables and the name of its checkpoint.
        experiment: configuration and data.
        place: where records and checkpoints go.

    Attributes:
        trainer: trains the network; has `step`, `steps`, `state_dict` and `load_state_dict`.
        notes: sentences for the user, said before the first step.
    """

    trainer: Any
    notes: Sequence[str] = ()

    def __init__(self, method: str, experiment: Experiment, place: Workplace) -> None:
        self.method, self.config, self.data = method, experiment.config, experiment.data
        self.folder, self.log, self.narrator = place
        names = self.config.observers if is_main() else ()
        pictures = self.data.pictures() if names and hasattr(self.data, "pictures") else None
        where = (self.folder.path, self.config.name, method)
        self.observers = make_observer(names, *where, pictures)
        self.device = check_device(self.config.device)
        check_rank_device(self.device)

    @abstractmethod
    def train(self) -> None:
        """Train to the end, from wherever the trainer stands, telling `on_step` and `on_round`."""

    @abstractmethod
    def position(self) -> str:
        """Say at which round and step the training goes on."""

    @abstractmethod
    def epoch_record(self, done: Any) -> EpochRecord:
        """Turn what the trainer says of a finished round into a line of the records."""

    def take(self, state: State) -> None:
        """Go to where a checkpoint of this method was written.

        Raises:
            CheckpointError: it is no state of such a training; names the file.
            ConfigError: the run was made shorter than that.
        """
        with about(self.folder.checkpoint(self.method), CheckpointError):
            self.trainer.load_state_dict(state["trainer"])
        self.notes = ()  # said before the first step
        then, now = state["config"]["training"]["epochs"], self.config.training.epochs
        if now < then and self.trainer.is_trained(now):
            raise ConfigError(
                f"{self.folder.config}: `training.epochs` is {now}, but {self.method} was trained "
                f"for that long already, of the {then} that the run was begun with. Set it to more "
                "than every method has, put it back, or start a new run."
            )
        looks_anew = resuming.changed(state["config"], self.config, "evaluation.")
        if looks_anew and self.trainer.is_trained(now):
            words = f"`{looks_anew[0]}` changed, but it is trained and nothing is measured anew"
            self.notes = (f"{self.method}: {words}; `bspml evaluate {self.folder.path}` does",)

    def on_step(self, trainer: Any, step: int, steps: int, loss: float) -> None:
        """Draw progress; save inside the round where the configuration asks for it.

        Args:
            trainer: the one that tells.
            step: done in this round.
            steps: of this round.
            loss: the last value known.
        """
        if not is_main():
            return
        self.narrator.step(self.method, step, steps, loss)
        self.observers.on_step(trainer, step, steps, loss)
        every = self.config.training.checkpoint_every
        if every is not None and trainer.steps % every == 0 and step < steps:
            self._save()

    def on_round(self, trainer: Any, done: Any) -> None:
        """Write the record of a round, tell the observers, then write the checkpoint.

        A run killed in between tells them of the round again; after the checkpoint it never would.

        Args:
            trainer: the one that tells.
            done: what it says of the round.
        """
        if not is_main():
            return
        record = self.epoch_record(done)
        self.log.append(record)
        self.observers.on_round(trainer, done)
        self._save()
        self.narrator.record(record)

    def _save(self) -> None:
        records, measured = len(self.log), _measured(self.data)
        trainer = self.trainer.state_dict()
        state = resuming.method_state(self.method, trainer, self.config, records, measured)
        checkpoints.save(self.folder.checkpoint(self.method), state, self.data.fingerprint)


def _measured(data: Any) -> str | None:
    """Return the fingerprint of what is evaluated on, where the data have one."""
    return getattr(data, "measured", None)


def train_experiment(
    experiment: Experiment,
    folder: RunFolder,
    resume: bool = False,
    narrator: Narrator | None = None,
    figures: bool = True,
) -> ExperimentResult:
    """Train every method of an experiment, write everything into its folder.

    In a torch.distributed group all ranks make this call and train together; rank 0 alone opens the
    folder and is heard.  Otherwise only one process at a time trains in a folder.

    A new run that fails by a user's mistake before its first checkpoint leaves nothing behind.

    Args:
        experiment: checked here once more, without its file of weights where a run goes on.
        folder: of a new run (`RunFolder.create`), or of an interrupted one with `resume`.
        resume: go on from the checkpoints in `folder`.
        narrator: told what happens.
        figures: False leaves out what only people look at: figures and page.

    Returns:
        The final table, the folder and the true noise rate.

    Raises:
        ConfigError: settings that cannot work with these data, or, with `resume`, that changed.
        CheckpointError: the data set changed since the checkpoint, or a checkpoint is damaged.
        RunError: a file cannot be written, another process is training this run, or the training
            diverged.
    """
    check_flags(resume=resume, figures=figures)
    experiment.check(pretrained=not resume)
    narrator = narrator if narrator is not None and is_main() else Silent()
    place = Workplace(folder, RecordLog(folder.records), narrator)
    folder_lock = resuming.run_folder(folder, experiment.config, experiment.methods, resume)
    with folder_lock if is_main() else nullcontext(), explained(), warnings.catch_warnings():
        # What `evaluate` says of rows gathered elsewhere; of these a note names the samples.
        warnings.filterwarnings("ignore", r"`\w+`: \d+ of \d+ rows are exact copies")
        runs = _train(experiment, place, resume)
        results = from_main(lambda: _write_results(experiment, place, runs, figures))
    return ExperimentResult(results, folder, experiment.data.noise_rate)


def _train(experiment: Experiment, place: Workplace, resume: bool) -> Sequence[MethodRun]:
    """Train every method, one after the other, inside the lock."""
    folder, log, narrator = place
    config, methods = experiment.config, experiment.methods
    states: dict[str, State] = {}
    if resume:
        data, check = experiment.data, experiment.check_length
        prints = data.fingerprint, check, _measured(data)
        states = from_main(lambda: resuming.load_states(folder, methods, config, *prints))
    runs = experiment.start(place, states)
    for run in runs:
        if run.method in states:
            run.take(states[run.method])
    from_main(lambda: resuming.restore_records(log, folder, methods, states))
    narrator.begin(config, folder)
    for line in experiment.opening_lines():
        narrator.say(line)
    resuming.set_threads(config.threads, experiment.one_thread_is_faster, states, narrator.say)
    experiment.before_training(place, runs)
    for run in runs:
        resumed = [f"{run.method}: resumed at {run.position()}"] if run.method in states else []
        for line in (*resumed, *run.notes):
            narrator.say(line)
        run.train()
        run.observers.close()
    return runs


def _write_results(
    experiment: Experiment, place: Workplace, runs: Sequence[MethodRun], figures: bool
) -> Results:
    """Write tables and figures; the summary last, since it marks the run as complete."""
    outputs = experiment.write_outputs(place, runs, figures)
    # Of the method whose weights stand first: another one judges the labels otherwise.
    shown = next(iter(outputs.summary.get("weights", ())), None)
    own = [record for record in place.log.read() if shown in (None, record.method)]
    rates = [record.noise_rate for record in own if record.noise_rate is not None]
    write_json(
        place.folder.summary,
        {
            "name": experiment.config.name,
            **outputs.summary,
            "true_noise_rate": experiment.data.noise_rate,
            "estimated_noise_rate": rates[-1] if rates else None,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "versions": outputs.versions,
        },
    )
    if figures:
        experiment.write_page(place.folder)
    return outputs.summary["results"]
