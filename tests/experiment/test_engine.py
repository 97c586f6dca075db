"""The engine on a kind of experiment that only counts."""

from types import SimpleNamespace

import pytest
import torch
from pydantic import BaseModel

import bspml
from bspml.errors import CheckpointError, ConfigError, InputError, RunError
from bspml.experiment import engine
from bspml.experiment.engine import Experiment, MethodRun, Outputs, train_experiment
from bspml.files import checkpoints
from bspml.files.run import EpochRecord, RecordLog, RunFolder, read_json


class Training(BaseModel):
    epochs: int = 2
    checkpoint_every: int | None = 2


class Evaluation(BaseModel):
    ks: tuple[int, ...] = (1,)


class Config(BaseModel):
    name: str = "counting"
    device: str = "cpu"
    threads: int | None = None
    observers: tuple[str, ...] = ()
    start: int = 0
    training: Training = Training()
    evaluation: Evaluation = Evaluation()


class Counter:
    """A trainer of rounds of three steps; each adds 1."""

    def __init__(self, start):
        self.total, self.round, self.step = start, 0, 0

    @property
    def steps(self):
        return 3 * self.round + self.step

    def is_trained(self, epochs):
        return self.round >= epochs

    def state_dict(self):
        return {"total": self.total, "position": {"round": self.round, "step": self.step}}

    def load_state_dict(self, state):
        if "total" not in state:
            raise CheckpointError("holds no total.")
        self.total, self.round = state["total"], state["position"]["round"]
        self.step = state["position"]["step"]


class CountingRun(MethodRun):
    def __init__(self, method, experiment, place):
        super().__init__(method, experiment, place)
        self.trainer = Counter(self.config.start)
        self.notes = (f"{method} counts",)

    def train(self):
        counter = self.trainer
        while counter.round < self.config.training.epochs:
            while counter.step < 3:
                counter.step, counter.total = counter.step + 1, counter.total + 1
                self.on_step(counter, counter.step, 3, float(counter.total))
            counter.round, counter.step = counter.round + 1, 0
            self.on_round(counter, counter.total)

    def position(self):
        return f"round {self.trainer.round + 1}, step {self.trainer.step + 1}"

    def epoch_record(self, done):
        return EpochRecord(self.method, self.trainer.round, loss=float(done), noise_rate=0.25)


class Counting(Experiment):
    methods = ("one", "two")
    one_thread_is_faster = False

    def check_parts(self, pretrained):
        if self.config.start < 0:
            raise ConfigError(f"`start` must be at least 0; got {self.config.start}.")

    def check_length(self, saved, folder):
        if saved["training"]["epochs"] > self.config.training.epochs:
            raise ConfigError(f"{folder.config}: shorter")

    def start(self, place, resumed):
        return [CountingRun(method, self, place) for method in self.methods]

    def write_outputs(self, place, runs, figures):
        results = {run.method: {"total": float(run.trainer.total)} for run in runs}
        return Outputs({"results": results}, {"counter": "1"})

    def write_page(self, folder):
        assert folder.finished  # the page reads the summary
        (folder.path / "page").touch()


class Listener:
    def __init__(self, stop_at=None):
        self.lines, self.left = [], stop_at

    def begin(self, config, folder):
        self.lines.append(f"begin {config.name}")

    def say(self, line):
        self.lines.append(line)

    def step(self, method, done, steps, loss):
        if self.left is not None:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    def record(self, record):
        self.lines.append(f"{record.method} {record.epoch}")


def counting(**settings):
    return Counting(Config(**settings), SimpleNamespace(fingerprint="f", noise_rate=0.5))


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(tmp_path / "run")


def losses(folder):
    return [(r.method, r.loss) for r in RecordLog(folder.records).read()]


@pytest.mark.parametrize("killed_in", ["observer", "checkpoint"])
def test_observers_are_told_of_a_round_that_a_kill_struck(folder, monkeypatch, killed_in):
    told, kills = [], [True]

    class Observer:
        def __init__(self, names, *where):
            self.method = next(name for name in ("one", "two") if name in map(str, where))

        def on_step(self, *step): ...

        def close(self): ...

        def on_round(self, trainer, done):
            if killed_in == "observer" and done == 6 and kills and kills.pop():
                raise KeyboardInterrupt
            told.append((self.method, done))

    def save(path, *state):
        if killed_in == "checkpoint" and ("one", 6) in told and kills and kills.pop():
            raise KeyboardInterrupt
        saved(path, *state)

    saved = checkpoints.save
    monkeypatch.setattr(engine, "make_observer", Observer)
    monkeypatch.setattr(checkpoints, "save", save)
    with pytest.raises(KeyboardInterrupt):
        train_experiment(counting(), folder)
    train_experiment(counting(), folder, resume=True)
    assert set(told) == {("one", 3), ("one", 6), ("two", 3), ("two", 6)}
    assert told.count(("one", 3)) == 1  # of a round whose checkpoint stands they are told once


def test_every_method_is_trained_recorded_and_summed_up(folder):
    listener = Listener()
    result = train_experiment(counting(), folder, narrator=listener)
    assert result.results == {"one": {"total": 6.0}, "two": {"total": 6.0}}
    assert losses(folder) == [("one", 3), ("one", 6), ("two", 3), ("two", 6)]
    assert listener.lines == [
        "begin counting", "one counts", "one 1", "one 2", "two counts", "two 1", "two 2",
    ]  # fmt: skip
    summary = read_json(folder.summary)
    assert list(summary) == [
        "name", "results", "true_noise_rate", "estimated_noise_rate", "finished", "versions",
    ]  # fmt: skip
    assert (summary["true_noise_rate"], summary["estimated_noise_rate"]) == (0.5, 0.25)
    assert (folder.path / "page").exists()


def test_the_estimate_is_that_of_the_method_whose_weights_stand_first(folder, monkeypatch):
    def record(self, done):
        return EpochRecord(self.method, self.trainer.round, noise_rate=len(self.method) / 10)

    def outputs(self, place, runs, figures):
        return Outputs({"results": {}, "weights": {"seven": "weights.csv", "one": "b.csv"}}, {})

    monkeypatch.setattr(Counting, "methods", ("seven", "one"))
    monkeypatch.setattr(Counting, "write_outputs", outputs)
    monkeypatch.setattr(CountingRun, "epoch_record", record)
    train_experiment(counting(), folder)
    assert read_json(folder.summary)["estimated_noise_rate"] == 0.5


def test_without_figures_there_is_no_page(folder):
    train_experiment(counting(), folder, figures=False)
    assert not (folder.path / "page").exists()


def test_copies_in_the_test_set_are_no_warning_of_a_sampler(folder, recwarn):
    def evaluated():
        rows = torch.eye(3)[[0, 0, 1, 2]]
        return bspml.evaluate(rows, [0, 1, 0, 1], ks=[1], clustering=False).num_copies

    with pytest.warns(UserWarning, match="DistributedSampler"):
        evaluated()
    experiment = counting()
    experiment.write_outputs = lambda *_: Outputs({"results": {"any": {"copies": evaluated()}}}, {})
    assert train_experiment(experiment, folder).results == {"any": {"copies": 1}}
    assert not recwarn.list


@pytest.mark.parametrize("stop_at", range(3, 13))
def test_a_run_interrupted_at_any_step_ends_as_one_that_was_not(folder, tmp_path, stop_at):
    whole = RunFolder.create(tmp_path / "whole")
    train_experiment(counting(), whole)
    with pytest.raises(KeyboardInterrupt):
        train_experiment(counting(), folder, narrator=Listener(stop_at))
    assert not folder.finished
    listener = Listener()
    result = train_experiment(counting(), folder, resume=True, narrator=listener)
    assert result.results == {"one": {"total": 6.0}, "two": {"total": 6.0}}
    assert losses(folder) == losses(whole)
    # Saved after steps 2 and 4, and at the end of each round of three steps.
    position = {3: "round 1, step 3", 4: "round 2, step 1", 5: "round 2, step 2"}.get(stop_at)
    if position:
        assert f"one: resumed at {position}" in listener.lines
    assert "one counts" not in listener.lines


def test_a_trained_run_says_that_another_evaluation_measures_nothing_anew(folder):
    with pytest.raises(KeyboardInterrupt):  # "one" is trained, "two" is at its second step
        train_experiment(counting(), folder, narrator=Listener(8))
    other = Evaluation(ks=(5,))
    train_experiment(counting(evaluation=other), folder, resume=True, narrator=(one := Listener()))
    words = "`evaluation.ks` changed, but it is trained and nothing is measured anew; `bspml"
    says = [f"{name}: {words} evaluate {folder.path}` does" for name in ("one", "two")]
    assert [line for line in one.lines if "anew" in line] == says[:1]
    train_experiment(counting(), folder, resume=True, narrator=(two := Listener()))
    assert [line for line in two.lines if "anew" in line] == says[1:]


def test_a_mistake_before_the_first_checkpoint_leaves_nothing(folder, monkeypatch):
    def mistake(run, trainer, done):
        raise InputError("no.")

    monkeypatch.setattr(CountingRun, "on_round", mistake)
    with pytest.raises(InputError):
        train_experiment(counting(training=Training(checkpoint_every=None)), folder)
    assert not folder.path.exists()


def test_what_cannot_work_is_found_before_the_folder_is_touched(folder):
    with pytest.raises(ConfigError, match="`start` must be at least 0"):
        train_experiment(counting(start=-1), folder)
    assert not folder.config.exists()


def test_a_used_folder_is_refused(folder):
    train_experiment(counting(), folder)
    with pytest.raises(RunError, match="exists already"):
        train_experiment(counting(), folder)


def test_a_run_goes_on_for_longer_where_its_kind_allows_it(folder):
    train_experiment(counting(), folder)
    longer = counting(training=Training(epochs=3))
    folder.config.write_text(folder.config.read_text().replace("epochs: 2", "epochs: 3"))
    result = train_experiment(longer, folder, resume=True)
    assert result.results["two"] == {"total": 9.0}
    with pytest.raises(ConfigError, match="shorter"):
        train_experiment(counting(), folder, resume=True)


def test_a_state_that_its_trainer_refuses_is_named_by_file_and_nothing_is_cut(folder):
    train_experiment(counting(), folder)
    file = folder.checkpoint("two")
    state = checkpoints.load(file)
    checkpoints.save(file, {**state, "trainer": {"position": {"round": 2}}}, "f")
    before = folder.records.read_bytes()
    with pytest.raises(CheckpointError, match=r"checkpoint-two\.pt: holds no total\."):
        train_experiment(counting(), folder, resume=True)
    assert folder.records.read_bytes() == before


def test_an_experiment_of_other_data_does_not_go_on(folder):
    train_experiment(counting(), folder)
    other = counting()
    other.data.fingerprint = "g"
    with pytest.raises(CheckpointError, match="data set changed"):
        train_experiment(other, folder, resume=True)
