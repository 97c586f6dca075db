"""A retrieval experiment: its parts, its records, and what its methods think of the labels."""

import dataclasses
import sys

import numpy as np
import pytest
import torch

from bspml.errors import ConfigError, MissingDependencyError
from bspml.experiment.config import load_config
from bspml.experiment.data import load_data
from bspml.experiment.engine import Workplace
from bspml.experiment.retrieval import Retrieval
from bspml.files.run import EpochRecord, RecordLog, RunFolder
from bspml.trainers.curriculum import CurriculumRecord
from bspml.trainers.curriculum.rates import HeldRates
from bspml.trainers.progress import Silent
from bspml.trainers.round_record import RoundRecord

SMALL = ["data.subset=12", "sampler.classes_per_batch=4", "evaluation.ks=[1, 2]"]
ROUND = RoundRecord(
    round=1, epochs=0.5, steps=3, loss=0.25, maw=0.75, sdaw=0.125, curriculum=None, metrics={},
    seconds_train=1.0, seconds_embed=2.0, notes=("sampled all",), lr=0.5,
)  # fmt: skip
UPDATE = CurriculumRecord(
    round=1, phase="weights", maw=0.75, sdaw=0.125, changed=4, age=2.0, age_next=3.0,
    objective_before=-1.0, objective_after=-2.0, stationarity=0.0, status="converged", message="m",
    noise_rate=0.25, noise_interval=(0.125, 0.5), num_untestable=1, detection_auroc=0.5,
    detection_precision=0.625, detection_recall=0.875, false_alarm_rate=0.0625, score_auroc=0.9,
    outlier_auroc=0.8, outlier_recall=0.7, seconds_statistics=4.0, seconds_solve=8.0,
)  # fmt: skip


def experiment_of(*settings):
    config = load_config(None, [*SMALL, *settings])
    return Retrieval(config, load_data(config))


def start(tmp_path, *settings):
    place = Workplace(RunFolder(tmp_path), RecordLog(tmp_path / "records.jsonl"), Silent())
    return experiment_of(*settings).start(place, [])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    methods = "training.methods=[multi-similarity, bspml, prism, clean-only]"
    return {run.method: run for run in start(tmp_path_factory.mktemp("run"), methods)}


def test_the_recall_that_selects_must_be_measured_on_the_held_out_classes():
    """A k beyond their samples selected nothing, and ended a training with patience at once."""
    held = ["data.validation_classes=0.2", "training.patience=1"]
    data = experiment_of(*held).data
    most = len(data.validation_labels) - 1
    Retrieval(load_config(None, [*SMALL, *held, f"evaluation.ks=[{most}]"]), data).check()
    with pytest.raises(ConfigError, match=f"begins with {most + 1}, .* only {most} others"):
        Retrieval(load_config(None, [*SMALL, *held, f"evaluation.ks=[{most + 1}]"]), data).check()


# --- records --------------------------------------------------------------------------------------


def test_a_round_without_weights_is_a_record(runs):
    metrics = {"recall_at_k": {1: 0.5}, "notes": ("collapsed",), "extra": {"validation": {}}}
    done = dataclasses.replace(ROUND, metrics=metrics)
    assert runs["multi-similarity"].epoch_record(done) == EpochRecord(
        "multi-similarity", 0.5, 3, seconds=3.0, loss=0.25, maw=0.75, sdaw=0.125, kept=1.0,
        recall_at_k={1: 0.5}, notes=("sampled all", "collapsed"),
        extra={"lr": 0.5, "validation": {}},
    )  # fmt: skip


def test_a_weight_update_stands_in_the_record_under_its_names_and_whole(runs):
    record = runs["bspml"].epoch_record(dataclasses.replace(ROUND, curriculum=UPDATE))
    assert record == EpochRecord(
        "bspml", 0.5, 3, seconds=15.0, loss=0.25, phase="weights", age=2.0, maw=0.75, sdaw=0.125,
        noise_rate=0.25, noise_rate_low=0.125, noise_rate_high=0.5, kept=1.0, changed=4,
        objective_before=-1.0, objective_after=-2.0, detection_auroc=0.9,
        detection_precision=0.625, detection_recall=0.875, false_alarm_rate=0.0625,
        outlier_auroc=0.8, outlier_recall=0.7, notes=("sampled all",),
        extra={"curriculum": dataclasses.asdict(UPDATE), "lr": 0.5},
    )  # fmt: skip


def test_the_auroc_of_the_weights_stands_where_there_are_no_p_values(runs):
    update = dataclasses.replace(UPDATE, score_auroc=None, noise_interval=None)
    record = runs["bspml"].epoch_record(dataclasses.replace(ROUND, curriculum=update))
    assert record.detection_auroc == 0.5
    assert record.noise_rate_low is record.noise_rate_high is None


def test_a_record_is_a_line_that_reads_back(runs):
    record = runs["bspml"].epoch_record(dataclasses.replace(ROUND, curriculum=UPDATE))
    again = EpochRecord.from_line(record.to_line())
    assert again.extra["curriculum"]["noise_interval"] == [0.125, 0.5]
    assert dataclasses.replace(again, extra={}) == dataclasses.replace(record, extra={})


# --- parts ----------------------------------------------------------------------------------------


def test_embeddings_of_rows_are_those_of_the_whole_set(runs):
    run = runs["multi-similarity"]
    rows = torch.tensor([5, 0, 7])
    torch.testing.assert_close(run._embed_training_rows(rows), run._embed_training_set()[rows])


def test_an_evaluation_gives_fields_of_a_record(runs):
    metrics = runs["multi-similarity"]._evaluate(last=False)
    assert set(metrics["recall_at_k"]) == {1, 2}
    assert metrics["notes"] == ()
    assert np.isnan(metrics["nmi"])  # of the last round only
    assert "extra" not in metrics
    EpochRecord("m", 1, **metrics)


def test_more_neighbours_than_there_are_is_refused():
    with pytest.raises(
        ConfigError, match=r"`evaluation\.ks` asks for the 10000 nearest, but a tes"
    ):
        experiment_of("evaluation.ks=[10000]").check()


def test_a_backend_or_a_hyper_parameter_that_cannot_be_is_found_before_training(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingDependencyError, match="faiss is not installed"):
        experiment_of("evaluation.backend=faiss").check()
    settings = ["training.methods=[fast-ap]", "hyperparameters.fast-ap.num_bins=1e18"]
    with pytest.raises(ConfigError, match=r"`hyperparameters\.fast-ap\.num_bins` must be .* 4096"):
        experiment_of(*settings).check()


def test_the_position_is_said_in_rounds(runs):
    assert runs["prism"].position() == "round 1, step 1"


# --- labels ---------------------------------------------------------------------------------------


def test_methods_that_do_not_judge_or_were_told_say_nothing(runs):
    judging = [method for method, run in runs.items() if run.label_quality() is not None]
    assert judging == ["bspml", "prism"]
    assert runs["clean-only"].trainer.curriculum is not None


def test_the_weights_of_a_curriculum_are_a_copy(runs):
    run = runs["bspml"]
    quality = run.label_quality()
    assert quality.weights.dtype == torch.float64
    quality.weights.zero_()
    assert run.weights.weights.min() == 1
    assert not quality.untestable.any()


def test_the_even_share_of_the_histogram_is_that_of_labels_wrong_at_random(runs):
    """Confused labels fit their sample better than one drawn at random: they are not spread."""
    run = runs["bspml"]
    rule = run.trainer.curriculum._update
    before, rule.rates = rule.rates, HeldRates(0.25, (0.125, 0.5), 0.5, (0.25, 0.75))
    try:
        assert run.label_quality().noise_rate == 0.25
    finally:
        rule.rates = before
