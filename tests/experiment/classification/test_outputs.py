"""The tables that a classification or a regression leaves."""

import csv

import numpy as np
import pytest
import torch

from bspml.experiment.classification.data import TaskData
from bspml.experiment.classification.losses import SampleLoss
from bspml.experiment.classification.outputs import final_results, write_samples
from bspml.experiment.config import load_experiment
from bspml.experiment.config.sample_loss import SampleLossConfig
from bspml.files.run import EpochRecord, RunFolder, read_weights


def data_of(targets, true_targets, classes=()):
    targets, true_targets = torch.tensor(targets), torch.tensor(true_targets)
    images = torch.zeros(len(targets), 1, 2, 2, dtype=torch.uint8)
    return TaskData(
        images=images,
        targets=targets,
        true_targets=true_targets,
        is_noisy=targets != true_targets,
        classes=classes,
        test_images=images,
        test_targets=true_targets,
        held_out="test",
        fingerprint="",
    )


def rows_of(folder):
    with (folder.path / "predictions.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_a_sample_of_low_trust_is_a_suspect_beside_its_prediction(folder):
    data = data_of([0, 1, 1], [0, 1, 0], ("cat", "dog"))
    outputs = torch.tensor([[4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    loss = SampleLoss(SampleLossConfig(name="superloss", tau=0.5), 2)
    write_samples(folder, data, loss, outputs)
    table, rows = read_weights(folder.weights), rows_of(folder)
    assert table.flags == ((), (), ("suspect",))
    assert table.labels.tolist() == ["cat", "dog", "dog"]
    assert table.true_labels.tolist() == ["cat", "dog", "cat"]
    assert table.is_noisy.tolist() == [False, False, True]
    assert [row["predicted"] for row in rows] == ["cat", "dog", "cat"]
    p = outputs.softmax(1)[torch.arange(3), data.targets]
    for name, expected in (("probability", p), ("loss", -p.log())):
        written = [float(row[name]) for row in rows]
        np.testing.assert_allclose(written, expected.numpy(), rtol=1e-5)
    weights = np.array([float(row["weight"]) for row in rows])  # above 1 for small losses
    assert (weights[:2] > 1).all()
    np.testing.assert_allclose(table.weights, np.minimum(weights, 1), rtol=1e-5)


def test_classes_that_are_numbers_are_written_as_numbers(folder):
    data = data_of([1, 0], [1, 1], ("7", "9"))
    write_samples(folder, data, SampleLoss(SampleLossConfig(name="ce"), 2), torch.eye(2))
    assert read_weights(folder.weights).labels.tolist() == [9, 7]
    assert [row["label"] for row in rows_of(folder)] == ["9", "7"]


def test_a_regression_has_numbers_and_no_probability(folder):
    data = data_of([0.5, 2.0], [0.5, 1.0])
    loss = SampleLoss(SampleLossConfig(name="mse"), 1)
    write_samples(folder, data, loss, torch.tensor([1.5, 2.0]))
    first, second = rows_of(folder)
    assert "probability" not in first
    assert (first["label"], first["predicted"], first["loss"]) == ("0.5", "1.5", "1")
    assert (second["true_label"], second["loss"]) == ("1", "0")
    assert read_weights(folder.weights).flags == ((), ())  # mse doubts nobody


def test_the_final_table_has_the_last_detection_and_all_seconds():
    keys = ("held_out", "clean", "noisy", "noisy_true", "given", "true", "hybrid")
    scores = [dict.fromkeys(keys, value) for value in (0.5, 0.25)]
    records = [
        EpochRecord("ce", 1, seconds=1.0, extra={"scores": scores[0]}),
        EpochRecord("ce", 2, seconds=2.0, extra={}),
        EpochRecord("gce", 1, seconds=4.0, detection_auroc=0.7, extra={"scores": scores[0]}),
        EpochRecord(
            "gce", 2, seconds=8.0, detection_auroc=0.9, false_alarm_rate=0.1,
            extra={"scores": scores[1]},
        ),
    ]  # fmt: skip
    config = load_experiment(None, ["task=classification"])
    results = final_results(records, config, data_of([0], [0], ("a", "b")))
    assert results["gce"]["test, best %"] == 50
    assert results["gce"]["test %"] == 25
    assert list(results["gce"])[-3:] == ["AUROC", "false alarms", "seconds"]
    assert [results["gce"][key] for key in ("AUROC", "false alarms", "seconds")] == [0.9, 0.1, 12]
    assert [results["ce"][key] for key in ("AUROC", "false alarms", "seconds")] == [None, None, 3]
    plain = final_results(records[:2], config, data_of([0], [0], ("a", "b")))
    assert "AUROC" not in plain["ce"]
