"""Observers: what each tracker has after a round, read back as its users would."""

import contextlib
import importlib
import json
import math
import os
import struct
import sys

import numpy as np
import pytest
import torch

import bspml
from bspml.errors import InputError, MissingDependencyError, RunError, import_optional
from bspml.observers import JSONLines, RoundWriter, Several, TensorBoard
from bspml.observers.scalars import scalars_of
from bspml.trainers import CurriculumRecord, RoundRecord


class Trainer:
    """What an observer asks of the trainer that tells it."""

    def __init__(self, steps, weights=None):
        self.steps = steps
        self.curriculum = None if weights is None else type("C", (), {"weights": weights})()


def a_round(steps=10, metrics=None, curriculum=None, loss=0.25):
    return RoundRecord(1, 0.5, steps, loss, 1.0, 0.0, curriculum, metrics or {}, 2.0, 1.0)


def weights_of(values):
    weights = bspml.SampleWeights([str(i % 3) for i in range(len(values))])
    weights.update(torch.tensor(values))
    return weights


def test_numbers_come_from_every_level_of_a_record_and_nothing_else_does():
    metrics = {
        "recall_at_k": {1: 0.5, 4: 0.75},
        "map_at_r": math.nan,
        "notes": ("a word",),
        "extra": {"validation": {"map_at_r": 0.5}},
    }
    labels = torch.arange(4).repeat_interleave(5)
    weights = bspml.SampleWeights(labels)
    curriculum = bspml.SelfPacedCurriculum(weights).update(
        torch.eye(4)[labels] + torch.rand(20, 4) / 9
    )
    assert isinstance(curriculum, CurriculumRecord)
    found = scalars_of(a_round(metrics=metrics, curriculum=curriculum))
    assert found["training/loss"] == 0.25
    assert found["training/steps"] == 10
    assert found["metrics/recall_at_1"] == 0.5
    assert found["metrics/recall_at_4"] == 0.75
    assert found["metrics/validation/map_at_r"] == 0.5
    assert found["curriculum/maw"] == weights.maw()
    low, high = curriculum.noise_interval
    assert found["curriculum/noise_interval_low"] == low
    assert found["curriculum/noise_interval_high"] == high
    assert all(type(v) is float and math.isfinite(v) for v in found.values())
    assert "metrics/map_at_r" not in found
    assert not any("notes" in name for name in found)


def test_json_lines_keep_each_step_once_when_a_run_goes_on(tmp_path):
    file, weights = tmp_path / "made" / "rounds.jsonl", weights_of([0.0, 1.0, 1.0])
    first = JSONLines(file)
    for steps in (10, 20, 30):
        first.on_round(Trainer(steps, weights), a_round(steps))
    again = JSONLines(file)
    again.on_round(Trainer(20), a_round(20, loss=0.5))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["step"], line["training/loss"]) for line in lines] == [(10, 0.25), (20, 0.5)]
    assert lines[0]["weights"] == [1] + 18 * [0] + [2]
    assert "weights" not in lines[1]


@pytest.mark.parametrize(
    "text",
    [
        *("not json\n", "[1]\n", '{"loss": 1}\n', "[" * 100_000, '{"step": 1e400}\n'),
        *('{"step": 1, "my_loss": 0.5}\n{"step": 20, "my_loss": 0.25}\n', '{"step": 20}\n'),
    ],
)
def test_a_file_of_something_else_is_not_replaced(tmp_path, text):
    file = tmp_path / "notes.txt"
    file.write_text(text)
    with pytest.raises(RunError, match="expected lines of JSON with a `step` each"):
        JSONLines(file).on_round(Trainer(10), a_round())
    assert file.read_text() == text


@pytest.mark.parametrize("shape", [(8, 8), (8, 8, 3), (1, 8, 8), (3, 8, 8)])
def test_the_lowest_weights_are_drawn_from_images_of_every_layout(tmp_path, shape):
    images = torch.rand(6, *shape)
    observer = JSONLines(tmp_path / "rounds.jsonl", images if shape[-1] == 8 else images.numpy())
    observer.on_round(Trainer(10, weights_of([1.0, 0, 1, 1, 0.5, 1])), a_round())
    assert (tmp_path / "rounds-lowest_weights-10.png").read_bytes()[:4] == b"\x89PNG"


def test_a_data_set_of_images_and_labels_gives_the_pictures(tmp_path):
    pairs = torch.utils.data.TensorDataset(torch.rand(3, 1, 8, 8), torch.arange(3))
    observer = JSONLines(tmp_path / "rounds.jsonl", pairs)
    observer.on_round(Trainer(10, weights_of([1.0, 0, 1])), a_round())
    assert len(list(tmp_path.glob("*.png"))) == 1


def test_several_observers_are_told_the_same():
    told = []

    class Ear(RoundWriter):
        def write(self, step, scalars, weights):
            told.append((step, scalars["training/loss"], weights is None))

        def write_figure(self, step, name, figure):
            raise AssertionError

        def close(self):
            told.append("closed")

    both = Several([Ear(), Ear()])
    both.on_step(Trainer(1), 1, 2, 0.5)
    both.on_round(Trainer(10), a_round())
    both.close()
    assert told == [(10, 0.25, True), (10, 0.25, True), "closed", "closed"]


@pytest.mark.parametrize("event", ["on_step", "on_round", "close"])
@pytest.mark.parametrize("first", [True, False])
def test_all_observers_are_told_where_one_of_them_fails(event, first):
    told = []

    class Ear(RoundWriter):
        def hear(self, *_):
            told.append(event)

    class Gone(RoundWriter):
        def fail(self, *_):
            raise ConnectionError("no server")

    setattr(Ear, event, Ear.hear)
    setattr(Gone, event, Gone.fail)
    args = {"on_step": (Trainer(1), 1, 2, 0.5), "on_round": (Trainer(10), a_round()), "close": ()}
    several = Several([Gone(), Ear(), Ear()] if first else [Ear(), Ear(), Gone()])
    with pytest.raises(RunError, match=rf"^Gone failed in `{event}` \(no server\)\. Put"):
        getattr(several, event)(*args[event])
    assert told == [event] * 2


def test_a_run_tells_its_observers_of_every_round(tmp_path, monkeypatch):
    from bspml.experiment.config import load_config
    from bspml.experiment.run import run_experiment
    from bspml.files.run import RunFolder

    settings = ["data.subset=8", "training.epochs=2", "training.methods=[auto:contrastive]"]
    settings += ["curriculum.warmup_epochs=1", "sampler.classes_per_batch=4"]
    settings += ["evaluation.clustering=false", "observers=[json-lines]"]
    folder = RunFolder.create(tmp_path / "run")
    run_experiment(load_config(None, settings), folder, figures=False)
    lines = (folder.path / "observed-auto-contrastive.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in folder.records.read_text().splitlines()]
    rounds = [record for record in records if record["steps"]]  # not before the first step
    assert len(lines) == len(rounds)
    assert len(rounds) >= 3
    last, record = json.loads(lines[-1]), rounds[-1]
    assert last["metrics/map_at_r"] == record["map_at_r"]
    assert last["step"] == record["steps"]
    assert sum(last["weights"]) == 8 * 16
    assert len(list(folder.path.glob("observed-*.png"))) == len(lines)


def test_names_that_no_observer_has_are_refused():
    from bspml.errors import ConfigError
    from bspml.experiment.config import load_config

    with pytest.raises(ConfigError, match="tensorboard, wandb, mlflow, json-lines"):
        load_config(None, ["observers=[tensorbord]"])


@pytest.mark.integrations
def test_tensorboard_files_hold_scalars_weights_and_pictures(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from bspml.observers import TensorBoard

    images, weights = torch.rand(3, 8, 8), weights_of([0.0, 1.0, 1.0])
    first = TensorBoard(tmp_path, images)
    for steps in (10, 20, 30):
        first.on_round(Trainer(steps, weights), a_round(steps))
    first.close()
    again = TensorBoard(tmp_path, images)
    again.on_round(Trainer(20, weights), a_round(20, loss=0.5))
    again.close()
    events = accumulator.EventAccumulator(str(tmp_path), size_guidance={"histograms": 0}).Reload()
    losses = [(e.step, e.value) for e in events.Scalars("training/loss")]
    assert losses == [(10, 0.25), (20, 0.5)]
    assert events.Histograms("weights")[0].histogram_value.num == 3
    assert events.Images("lowest_weights")[0].height > 100


@pytest.mark.integrations
def test_mlflow_has_the_metrics_and_artifacts_of_a_local_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # else a database and all of mlflow
    mlflow = pytest.importorskip("mlflow")
    from bspml.observers import MLflow

    uri = (tmp_path / "mlruns").as_uri()
    observer = MLflow("birds", "first", uri, images=torch.rand(3, 8, 8))
    for steps in (10, 20):
        observer.on_round(Trainer(steps, weights_of([0.0, 1.0, 1.0])), a_round(steps))
    observer.close()
    client = mlflow.MlflowClient(uri)
    history = client.get_metric_history(observer.run_id, "training/loss")
    assert [(m.step, m.value) for m in history] == [(10, 0.25), (20, 0.25)]
    assert client.get_run(observer.run_id).info.status == "FINISHED"
    found = {a.path for a in client.list_artifacts(observer.run_id, "weights")}
    assert found == {"weights/10.json", "weights/20.json"}
    assert client.list_artifacts(observer.run_id, "lowest_weights")


def records_of(file):
    """Return the records of a file that W&B wrote offline: a log of LevelDB, 32 KiB a block."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole = file.read_bytes(), 7, b""  # 7: the file's own header
    found = []
    while place + 7 <= len(data):
        room = 32768 - place % 32768
        if room < 7:
            place += room
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # all of a record, or its last piece
            found.append(Record.FromString(whole))
            whole = b""
    return found


@pytest.mark.integrations
def test_an_offline_run_of_wandb_holds_scalars_weights_and_pictures(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    from bspml.observers import WandB

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    images, weights = torch.rand(3, 8, 8), weights_of([0.0, 1.0, 1.0])
    others = tmp_path / "others"
    others.mkdir()
    users = wandb.init(project="birds", dir=str(others))
    observer = WandB(images=images, project="birds", name="first", dir=str(tmp_path))
    second = WandB(project="birds", name="second", dir=str(others))  # beside it
    assert len({users.id, observer.run.id, second.run.id}) == 3
    second.close()
    joined = WandB()  # the run that is open
    assert joined.run is users
    for steps in (10, 20):
        observer.on_round(Trainer(steps, weights), a_round(steps, loss=steps / 40))
    joined.close()  # leaves it open
    users.log({"mine": 1.0})
    users.finish()
    observer.write(30, {"training/loss": 0.125}, None)
    observer.close()
    wandb.teardown()  # its process writes the last lines a little later
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    rounds = [
        {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in rows}
        for rows in (r.history.item for r in records_of(file) if r.HasField("history"))
    ]
    assert [(r["_step"], r["training/loss"]) for r in rounds] == [
        (10, 0.25),
        (20, 0.5),
        (30, 0.125),
    ]
    assert rounds[0]["weights/values"] == [1] + 18 * [0] + [2]
    assert (rounds[0]["weights/bins"][0], rounds[0]["weights/bins"][-1]) == (0, 1)
    assert not any(name.startswith("weights") for name in rounds[2])
    for kept in rounds[:2]:
        picture = file.parent / "files" / kept["lowest_weights/path"]
        assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.integrations
def test_wandb_without_a_login_is_told_in_a_sentence(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from bspml.observers import WandB

    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))  # else a login of the developer's
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(RunError, match=r"opens no run: .*WANDB_MODE=offline"):
        WandB(project="birds", mode="online", dir=str(tmp_path))


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_told_before_training(name, monkeypatch):
    import sys

    from bspml.errors import MissingDependencyError
    from bspml.observers.by_name import check_observers

    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'bspml\[{name}\]'"):
        check_observers([name])


def test_pictures_that_do_not_fit_are_told_in_a_sentence(tmp_path):
    trainer = Trainer(10, weights_of([1.0, 0, 1]))
    for images in (torch.rand(2, 8, 8), [torch.rand(8, 8), torch.rand(9, 9), torch.rand(8, 8)]):
        with pytest.raises(InputError, match="a picture for each of 3 samples, all of one size"):
            JSONLines(tmp_path / "rounds.jsonl", images).on_round(trainer, a_round())


def test_a_pipe_is_no_file_of_lines(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(RunError, match="pipe or a device"):
        JSONLines(tmp_path / "pipe").on_round(Trainer(10), a_round())


@pytest.mark.integrations
def test_places_that_trackers_cannot_write_to_are_told_in_a_sentence(tmp_path):
    pytest.importorskip("mlflow")
    from bspml.observers import MLflow, TensorBoard

    with pytest.raises(RunError, match="MLflow keeps no run at nowhere:"):
        MLflow("birds", tracking_uri="nowhere://x")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be a folder of TensorBoard"):
        TensorBoard(tmp_path / "file").on_round(Trainer(10), a_round())


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyError("run")])
def test_a_tracker_that_fails_within_a_training_is_told_in_a_sentence(fault):
    class Tracker(RoundWriter):
        def write(self, step, scalars, weights):
            raise fault

    with pytest.raises(RunError, match=r"^Tracker did not take a round \(.*\)\. .* train on"):
        Tracker().on_round(Trainer(10), a_round())


def test_a_file_name_that_no_system_takes_is_told_in_a_sentence(tmp_path):
    for name in ("x" * 300, "a\0b"):
        with pytest.raises(RunError, match="did not take a round"):
            JSONLines(tmp_path / name).on_round(Trainer(10), a_round())


def test_what_json_does_not_know_becomes_null(tmp_path):
    observer = JSONLines(tmp_path / "rounds.jsonl")
    observer.write(1, {"a": math.nan, "b": -math.inf, "c": np.float32(0.5)}, None)

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    (line,) = (tmp_path / "rounds.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=refuse) == {"step": 1, "a": None, "b": None, "c": 0.5}


@pytest.mark.parametrize("weights", [[0.5, math.nan], [0.5, 1.5], [-math.inf, 0.0]])
def test_weights_that_are_none_are_refused_by_every_tracker(tmp_path, weights):
    observers = [JSONLines(tmp_path / "rounds.jsonl")]
    with contextlib.suppress(MissingDependencyError):
        observers.append(TensorBoard(tmp_path / "events"))
    for observer in observers:
        with pytest.raises(InputError, match=r"`weights` must be in \[0, 1\]; rows"):
            observer.write(1, {}, np.array(weights))
    assert not (tmp_path / "rounds.jsonl").exists()


def test_a_folder_called_like_a_tracker_is_not_taken_for_it(tmp_path, monkeypatch):
    """W&B leaves a folder `wandb` behind, which imports as a package without anything in it."""
    (tmp_path / "some_tracker").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependencyError, match="pip install some-tracker"):
        import_optional("some_tracker", "pip install some-tracker")
    (tmp_path / "some_tracker" / "__init__.py").write_text("here = True")
    sys.modules.pop("some_tracker", None)
    importlib.invalidate_caches()
    assert import_optional("some_tracker", "").here
    sys.modules.pop("some_tracker")
