"""Whole runs in small: what they leave, that they go on bit for bit, and what they refuse."""

import csv
import json

import numpy as np
import pytest
import torch

from bspml.errors import CheckpointError, ConfigError, RunError
from bspml.experiment.classification.data import load_data
from bspml.experiment.classification.experiment import losses_of
from bspml.experiment.classification.losses import SampleLoss
from bspml.experiment.classification.networks import make_network
from bspml.experiment.classification.training import Trainer
from bspml.experiment.config import load_experiment
from bspml.experiment.run import experiment_of, run_experiment
from bspml.files import checkpoints
from bspml.files.run import RecordLog, RunFolder, read_json, read_weights
from bspml.functional import superloss_confidence
from helpers.commands import run
from helpers.comparisons import same
from helpers.runs import copied

SMALL = [
    "task=classification",
    "data.subset=300",
    "network.hidden=32",
    "training.epochs=4",
    "training.checkpoint_every=2",
    "training.relabel=true",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "small"
    return run_experiment(load_experiment(None, SMALL), RunFolder.create(path))


@pytest.fixture(scope="module")
def regression(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "values"
    settings = ["task=regression", *SMALL[1:-1], "loss.base=smooth-l1", "evaluation.every=3"]
    return run_experiment(load_experiment(None, settings), RunFolder.create(path))


class Interrupt:
    """A narrator that stops a run at a step of a method."""

    def __init__(self, method, count):
        self.method, self.left = method, count

    def begin(self, config, folder):
        pass

    def say(self, line):
        pass

    def record(self, record):
        pass

    def step(self, method, done, steps, loss):
        if method == self.method:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt


def without_seconds(path):
    return [{**json.loads(line), "seconds": None} for line in path.read_text().splitlines()]


def test_a_run_leaves_records_samples_checkpoints_and_a_summary(finished):
    folder = finished.folder
    records = RecordLog(folder.records).read()
    names = ["ce", "superloss", "superloss-relabelled"]
    assert list(dict.fromkeys(record.method for record in records)) == names
    assert [record.epoch for record in records] == [1, 2, 3, 4] * 3
    assert all(folder.checkpoint(name).is_file() for name in names)
    table = read_weights(folder.weights)
    assert len(table) == 300
    assert table.labels.dtype.kind == "i"
    assert table.is_noisy.sum() == (table.labels != table.true_labels).sum() > 0
    assert read_json(folder.summary)["task"] == "classification"
    assert finished.noise_rate == table.is_noisy.mean()
    row = finished.results["superloss"]
    assert {"test, best %", "test %", "clean %", "noisy %", "hybrid %", "AUROC"} <= row.keys()
    assert row["test, best %"] >= row["test %"]
    # Cross-entropy doubts no label.
    assert finished.results["ce"]["AUROC"] is None
    assert 0.5 < row["AUROC"] <= 1


def test_the_tables_of_samples_agree_with_each_other_and_with_the_summary(finished):
    table = read_weights(finished.folder.weights)
    with (finished.folder.path / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    predicted = np.array([int(row["predicted"]) for row in rows])
    row = finished.results["superloss"]
    for labels, key in ((table.labels, "train, given %"), (table.true_labels, "train, true %")):
        assert 100 * (predicted == labels).mean() == pytest.approx(row[key])
    sigma = np.array([float(row["weight"]) for row in rows])
    np.testing.assert_allclose(np.minimum(sigma, 1), table.weights, rtol=1e-4)
    state = checkpoints.load(finished.folder.checkpoint("superloss"))["trainer"]["loss"]
    losses = torch.tensor([float(row["loss"]) for row in rows], dtype=torch.float64)
    expected = superloss_confidence(losses, float(state["tau.average"]), 0.25)
    np.testing.assert_allclose(sigma, expected.numpy(), rtol=1e-3)
    loss, p = (np.array([float(row[key]) for row in rows]) for key in ("loss", "probability"))
    np.testing.assert_allclose(np.exp(-loss), p, rtol=1e-3, atol=1e-6)
    flagged = np.array([flags == ("suspect",) for flags in table.flags])
    assert (flagged == (table.weights < 0.5)).all()


def test_the_relabelled_method_is_a_training_from_scratch_on_the_predicted_labels(finished):
    with (finished.folder.path / "predictions.csv").open() as file:
        predicted = torch.tensor([int(row["predicted"]) for row in csv.DictReader(file)])
    config = load_experiment(None, SMALL)
    data = load_data(config)
    network = make_network(config, data.image_shape, 10, *data.channel_statistics())
    trainer = Trainer(config, network, SampleLoss(config.loss, 10), data.images, predicted)
    for _ in range(4):
        trainer.train_epoch()
    saved = checkpoints.load(finished.folder.checkpoint("superloss-relabelled"))
    assert same(trainer.state_dict(), saved["trainer"])


def test_a_regression_leaves_errors(regression):
    records = RecordLog(regression.folder.records).read()
    # Measured after every third epoch, and the last.
    assert ["scores" in record.extra for record in records] == [False, False, True, True] * 2
    assert list(regression.results) == ["smooth-l1", "superloss"]
    row = regression.results["superloss"]
    assert row["test, truncated"] <= min(row["test MAE"], 1)
    assert row["test MAE, best"] <= row["test MAE"]
    table = read_weights(regression.folder.weights)
    assert table.is_noisy.mean() == pytest.approx(0.4, abs=0.08)
    with (regression.folder.path / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    error = np.mean([abs(float(row["predicted"]) - float(row["label"])) for row in rows])
    rate = regression.noise_rate
    mean = rate * row["noisy MAE"] + (1 - rate) * row["clean MAE"]
    assert error == pytest.approx(mean, rel=1e-4)


@pytest.mark.parametrize(
    ("method", "count"), [("ce", 3), ("superloss", 8), ("superloss-relabelled", 13)]
)
@pytest.mark.usefixtures("undrawn")
def test_a_run_that_was_stopped_goes_on_bit_for_bit(finished, tmp_path, method, count):
    config, path = load_experiment(None, SMALL), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(config, RunFolder.create(path), narrator=Interrupt(method, count))
    folder = RunFolder.open(path)
    assert not folder.finished
    again = run_experiment(load_experiment(folder.config), folder, resume=True)
    names = losses_of(config)
    assert len(names) == 3
    for name in names:
        a, b = (checkpoints.load(f.checkpoint(name)) for f in (folder, finished.folder))
        assert same(a["trainer"], b["trainer"])
    assert without_seconds(folder.records) == without_seconds(finished.folder.records)
    for name in ("weights.csv", "predictions.csv"):
        assert (path / name).read_bytes() == (finished.folder.path / name).read_bytes()
    assert {m: {**row, "seconds": 0} for m, row in again.results.items()} == {
        m: {**row, "seconds": 0} for m, row in finished.results.items()
    }


@pytest.mark.usefixtures("undrawn")
def test_a_finished_run_may_be_trained_for_longer(regression, tmp_path):
    folder = copied(regression, tmp_path)
    text = folder.config.read_text()
    folder.config.write_text(text.replace("epochs: 4", "epochs: 5"))
    run_experiment(load_experiment(folder.config), folder, resume=True)
    records = RecordLog(folder.records).read()
    assert {r.method: r.epoch for r in records} == {"smooth-l1": 5, "superloss": 5}
    folder.config.write_text(text.replace("epochs: 4", "epochs: 3"))
    with pytest.raises(ConfigError, match="is 3, but smooth-l1 was trained for that long already"):
        run_experiment(load_experiment(folder.config), folder, resume=True)


@pytest.mark.parametrize(
    ("then", "now", "message"),
    [
        ("lr: 0.001", "lr: 0.1", "`optimizer.lr` is 0.1, but the run was trained with 0.001 so f"),
        ("tau: ema", "tau: mean", "`loss.tau` is mean, but the run was trained with ema so far"),
        ("rate: 0.4", "rate: 0.2", "`noise.rate` is 0.2"),
    ],
)
def test_a_run_does_not_go_on_under_other_settings(finished, tmp_path, then, now, message):
    folder = copied(finished, tmp_path)
    text = folder.config.read_text()
    assert then in text
    folder.config.write_text(text.replace(then, now))
    with pytest.raises(ConfigError, match=message):
        run_experiment(load_experiment(folder.config), folder, resume=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["schedule.name=cosine"], "the cosine schedule stretches over all of them"),
        (["training.relabel=true"], "the labels were corrected by a network of that many"),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_a_run_whose_length_decided_what_it_learnt_cannot_be_stretched(tmp_path, settings, message):
    config = load_experiment(None, [*SMALL[:-1], "loss.name=ce", "training.epochs=1", *settings])
    folder = run_experiment(config, RunFolder.create(tmp_path / "run")).folder
    folder.config.write_text(folder.config.read_text().replace("epochs: 1", "epochs: 2"))
    with pytest.raises(ConfigError, match=message):
        run_experiment(load_experiment(folder.config), folder, resume=True)


def test_a_damaged_checkpoint_is_named(finished, tmp_path):
    folder = copied(finished, tmp_path)
    path = folder.checkpoint("superloss")
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(CheckpointError, match=r"checkpoint-superloss\.pt: is truncated or damaged"):
        run_experiment(load_experiment(folder.config), folder, resume=True)


def test_a_checkpoint_without_a_position_is_refused(finished, tmp_path):
    folder = copied(finished, tmp_path)
    path = folder.checkpoint("ce")
    state, data = checkpoints.load(path), load_data(load_experiment(folder.config))
    checkpoints.save(path, {**state, "trainer": {}}, data.fingerprint)
    with pytest.raises(CheckpointError, match=r"checkpoint-ce\.pt: holds no position"):
        run_experiment(load_experiment(folder.config), folder, resume=True)


def test_a_missing_checkpoint_of_a_finished_method_is_named(finished, tmp_path):
    folder = copied(finished, tmp_path)
    folder.checkpoint("ce").unlink()
    before = folder.records.read_bytes()
    with pytest.raises(CheckpointError, match=r"checkpoint-ce\.pt: is missing, .* 4 rounds of ce"):
        run_experiment(load_experiment(folder.config), folder, resume=True)
    assert folder.records.read_bytes() == before


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.8, 0.9])
def test_a_configuration_that_was_cut_does_not_go_on_with_defaults(regression, tmp_path, share):
    folder = copied(regression, tmp_path)
    lines = folder.config.read_text().splitlines(keepends=True)
    kept = "".join(lines[: int(share * len(lines))]) or "{}"
    folder.config.write_text(kept)
    config = load_experiment(folder.config) if "task" in kept else load_experiment(None, SMALL)
    for method in losses_of(config):  # the configuration alone must tell
        folder.checkpoint(method).unlink(missing_ok=True)
    with pytest.raises(ConfigError, match="is missing, which every run writes"):
        run_experiment(config, folder, resume=True)


def test_the_targets_of_a_regression_are_bare_numbers_in_every_table(regression):
    for name in ("weights.csv", "predictions.csv"):
        with (regression.folder.path / name).open() as file:
            rows = list(csv.DictReader(file))
        wrong = [float(row["label"]) != float(row["true_label"]) for row in rows]
        assert np.mean(wrong) == pytest.approx(regression.noise_rate, abs=0.01)


def test_a_used_folder_is_refused(finished, tmp_path):
    folder = copied(finished, tmp_path)
    with pytest.raises(RunError, match="exists already and is not empty"):
        run_experiment(load_experiment(None, SMALL), folder)


def test_a_training_that_diverges_at_once_leaves_nothing_behind(tmp_path):
    settings = [*SMALL, "loss.name=gr", "optimizer.name=sgd", "optimizer.lr=1e9"]
    settings += ["training.checkpoint_every=null", "training.baseline=false"]
    with pytest.raises(RunError, match="the training diverged"):
        run_experiment(load_experiment(None, settings), RunFolder.create(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_network_that_does_not_take_the_images_is_named_before_anything_is_made():
    config = load_experiment(None, [*SMALL[:2], "network.name=torchvision:alexnet"])
    with pytest.raises(ConfigError, match=r"torchvision:alexnet does not take the images of digi"):
        experiment_of(config, load_data(config)).check()


@pytest.mark.usefixtures("undrawn")
def test_with_validation_the_table_speaks_of_validation(tmp_path):
    config = load_experiment(None, [*SMALL[:-1], "data.validation=true"])
    done = run_experiment(config, RunFolder.create(tmp_path / "run"))
    row = done.results["superloss"]
    assert "validation %" in row
    assert not any(key.startswith("test") for key in row)
    assert row["hybrid %"] is None


# --- command line ---------------------------------------------------------------------------------


def test_the_command_trains_reports_and_resumes(capsys, tmp_path):
    path = tmp_path / "run"
    code, out, err = run(capsys, "train", *SMALL[:-1], "-o", path)
    assert code == 0, err
    assert "hybrid %" in out
    assert "predictions.csv" in out
    assert "classification of digits, 40% symmetric noise planted, seed 0" in err
    assert "test" in err
    assert "noisy" in err
    code, out, err = run(capsys, "train", "--resume", path, "--json")
    assert code == 0, err
    assert json.loads(out)["results"]["superloss"]["test %"] > 10
    code, out, err = run(capsys, "report", path)
    assert code == 0, err
    assert (path / "report.html").is_file()


def test_other_commands_refuse_such_a_run_in_one_sentence(capsys, finished):
    for command in ("evaluate", "embed", "audit"):
        code, out, err = run(capsys, command, finished.folder.path)
        assert (code, out) == (2, "")
        assert "is a classification experiment (its `task`), which has no embeddings" in err
        assert err.count("\n") == 1


@pytest.mark.usefixtures("undrawn")
def test_a_regression_says_errors_on_the_terminal(capsys, tmp_path):
    settings = ["task=regression", *SMALL[1:-1]]
    code, out, err = run(capsys, "train", *settings, "-o", tmp_path / "run")
    assert code == 0, err
    assert "test error" in err
    assert "test, truncated" in out
