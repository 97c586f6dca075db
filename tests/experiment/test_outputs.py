"""What a run leaves: a table of weights of each method that judges labels, and its epochs."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from bspml import methods
from bspml.errors import ConfigError
from bspml.experiment.build import make_method, make_weights
from bspml.experiment.config import load_config
from bspml.experiment.data import load_data
from bspml.experiment.resuming import load_method
from bspml.experiment.run import run_experiment
from bspml.files.run import UNTRAINED, RecordLog, RunFolder, read_json, read_weights
from bspml.report.page import render_page
from bspml.report.run_page import run_page

METHODS = ("multi-similarity", "superloss:margin", "gr:margin", "prism", "spms", "clean-only")
SMALL = [
    "data.subset=24",
    "training.epochs=2",
    "sampler.classes_per_batch=8",
    "evaluation.ks=[1, 2]",
    "evaluation.clustering=false",
    "data.validation_classes=0.25",
    f"training.methods=[{', '.join(METHODS)}]",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    config = load_config(None, SMALL)
    data = load_data(config)
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "small")
    return config, data, run_experiment(config, folder, figures=False, data=data)


def cells(path, column):
    with path.open(newline="") as file:
        return [row.get(column) for row in csv.DictReader(file)]


def test_the_first_method_that_weighs_has_weights_csv_and_the_others_files_of_their_own(finished):
    _, _, result = finished
    tables = {
        "superloss:margin": "weights.csv",
        "prism": "weights-prism.csv",
        "spms": "weights-spms.csv",
    }
    assert read_json(result.folder.summary)["weights"] == tables
    assert {p.name for p in result.folder.path.glob("weights*")} == set(tables.values())


@pytest.mark.usefixtures("undrawn")
def test_bspml_comes_first_wherever_it_stands(tmp_path):
    settings = [*SMALL[:5], "curriculum.warmup_epochs=1", "training.methods=[prism, bspml]"]
    result = run_experiment(
        load_config(None, settings), RunFolder.create(tmp_path / "run"), figures=False
    )
    tables = read_json(result.folder.summary)["weights"]
    assert tables == {"bspml": "weights.csv", "prism": "weights-prism.csv"}
    assert "Weights of" in render_page(run_page(result.folder))


def test_the_table_of_prism_says_what_was_kept_the_last_time(finished):
    _, data, result = finished
    table = read_weights(result.folder.weights_of("prism"))
    state = load_method(result.folder, "prism")["trainer"]["loss_funcs"]["metric_loss"]
    np.testing.assert_array_equal(table.weights, state["kept"].nan_to_num(nan=1.0).numpy())
    assert 0 < table.weights.mean() < 1
    dropped = [("suspect",) if w == 0 else () for w in table.weights]
    assert list(table.flags) == dropped
    assert list(table.labels) == list(data.labels)


def test_the_table_of_superloss_holds_sigma_and_weights_up_to_one(finished):
    config, data, result = finished
    folder = result.folder
    weights = make_weights("superloss:margin", data)
    parts = make_method("superloss:margin", config, data, weights)
    state = load_method(folder, "superloss:margin")["trainer"]["loss_funcs"]["metric_loss"]
    parts.loss.load_state_dict(state)
    sigma = parts.loss.reducer.sample_confidences()
    written = [float(s) if s else float("nan") for s in cells(folder.weights, "sigma")]
    np.testing.assert_allclose(written, sigma.numpy(), rtol=1e-5)
    expected = [min(s, 1.0) if s == s else 1.0 for s in sigma.tolist()]
    np.testing.assert_allclose(read_weights(folder.weights).weights, expected, rtol=1e-6)
    assert set(cells(folder.weights_of("prism"), "sigma")) == {None}


def test_the_emphasis_of_gradient_rescaling_is_no_judgement(finished):
    config, data, result = finished
    assert "gr:margin" not in read_json(result.folder.summary)["weights"]
    weights = make_weights("gr:margin", data)
    assert methods.sample_confidences(make_method("gr:margin", config, data, weights)) is None


def test_what_a_person_decided_stands_in_the_table_of_a_filter(tmp_path):
    decisions = tmp_path / "decisions.csv"
    decisions.write_text("index,decision,new_label\n0,wrong,\n1,right,\n")
    settings = [*SMALL[:5], f"noise.decisions_file={decisions}", "training.methods=[prism]"]
    config = load_config(None, settings)
    data = load_data(config)
    result = run_experiment(config, RunFolder.create(tmp_path / "run"), figures=False)
    table = read_weights(result.folder.weights)
    assert table.flags[0] == ("decided",)
    assert table.weights[:2].tolist() == data.decided.weights[:2].tolist()


# --- validation classes ---------------------------------------------------------------------------


def test_every_evaluated_round_records_the_validation_classes(finished):
    _, _, result = finished
    records = RecordLog(result.folder.records).read()
    assert {record.method for record in records} == {*METHODS, UNTRAINED}
    for record in records:
        assert set(record.extra["validation"]) == {
            "recall_at_1", "recall_at_2", "map_at_r", "r_precision",
        }  # fmt: skip


def test_last_best_and_selected_epoch_stand_apart_in_table_and_summary(finished):
    _, _, result = finished
    records = RecordLog(result.folder.records).read()
    chosen = read_json(result.folder.summary)["epochs"]
    for method in METHODS:
        own = [record for record in records if record.method == method]
        test = [record.recall_at_k[1] for record in own]
        held = [record.extra["validation"]["recall_at_1"] for record in own]
        row = result.results[method]
        assert row["last epoch: Recall@1 %"] == pytest.approx(100 * test[-1])
        oracle = "best epoch, chosen on the test classes (an oracle): Recall@1 %"
        assert row[oracle] == pytest.approx(100 * max(test))
        floor = own[0].extra["validation"]["map_at_r"]
        held = [
            h * (r.extra["validation"]["map_at_r"] >= floor) for h, r in zip(held, own, strict=True)
        ]
        selected = test[held.index(max(held))]
        assert row["Recall@1 %"] == pytest.approx(100 * selected)
        assert row["epoch selected on validation classes: Recall@1 %"] == pytest.approx(
            100 * selected
        )
        assert chosen[method]["selected"]["validation"] == pytest.approx(max(held))
        assert chosen[method]["last"]["epoch"] == own[-1].epoch
        assert chosen[method]["best"]["value"] == pytest.approx(max(test))
    page = render_page(run_page(result.folder))
    assert "prism, epoch selected on validation classes" in page


def test_the_selected_epoch_has_its_nmi(tmp_path):
    settings = [*SMALL[:4], "data.validation_classes=0.25", "training.methods=[multi-similarity]"]
    config = load_config(None, settings)
    result = run_experiment(config, RunFolder.create(tmp_path / "run"), figures=False)
    epoch = read_json(result.folder.summary)["epochs"]["multi-similarity"]["selected"]["epoch"]
    records = RecordLog(result.folder.records).read()
    assert all(0 < record.nmi < 1 for record in records)
    own = {r.epoch: r.nmi for r in records if r.method == "multi-similarity"}
    assert result.results["multi-similarity"]["NMI"] == pytest.approx(own[epoch])
    assert 0 < result.results[UNTRAINED]["NMI"] < 1


def test_without_validation_classes_no_epoch_is_selected(tmp_path):
    settings = [*SMALL[:5], "training.methods=[multi-similarity]"]
    result = run_experiment(
        load_config(None, settings), RunFolder.create(tmp_path / "run"), figures=False
    )
    assert not any("validation" in column for column in result.results["multi-similarity"])
    assert set(read_json(result.folder.summary)["epochs"]["multi-similarity"]) == {"last", "best"}


def test_validation_classes_do_not_change_what_their_training_set_learns(tmp_path):
    """The evaluation beside the test draws nothing: the losses are those of a run without it."""
    config = load_config(None, [*SMALL[:6], "training.methods=[multi-similarity]"])
    data = load_data(config)
    one = run_experiment(config, RunFolder.create(tmp_path / "one"), figures=False, data=data)
    blind = replace(data, validation_images=None, validation_labels=None)
    two = run_experiment(config, RunFolder.create(tmp_path / "two"), figures=False, data=blind)
    losses = [[r.loss for r in RecordLog(x.folder.records).read()] for x in (one, two)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["data.validation=true"], "in place of the test"),
        (["data.validation_classes=0.6"], "validation_classes"),
        (["data.validation_classes=-0.1"], "validation_classes"),
    ],
)
def test_validation_classes_are_refused_where_they_cannot_work(settings, says):
    with pytest.raises(ConfigError, match=says):
        load_config(None, ["data.validation_classes=0.2", *settings])
