"""What a training started from: its row, its record, and the word when the training lost to it."""

import numpy as np
import pytest
import torch

import bspml
from bspml.experiment.config import load_config
from bspml.experiment.data import load_data
from bspml.experiment.run import run_experiment
from bspml.experiment.untrained import worse_than_untrained
from bspml.files.run import UNTRAINED, EpochRecord, RecordLog, RunFolder, read_json
from bspml.report.page import render_page
from bspml.report.run_page import run_page

QUICK = [
    "data.name=features",
    "network.name=mlp",
    "network.embedding_size=8",
    "training.epochs=2",
    "training.methods=[multi-similarity, bspml]",
    "sampler.classes_per_batch=4",
    "evaluation.ks=[1, 2]",
    "evaluation.clustering=false",
]
RUINOUS = "optimizer.lr=3"  # a rate at which a few steps ruin the features


class Lines:
    """A narrator that keeps the records it is told."""

    def __init__(self):
        self.records = []

    def begin(self, config, folder):
        pass

    say = step = lambda self, *_: None

    def record(self, record):
        self.records.append(record)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """20 classes of 10 samples train, as many test: 16 numbers, of which half are of no use."""
    rng = np.random.default_rng(2)
    centres = np.repeat(rng.standard_normal((40, 8)), 10, 0)
    rows = np.hstack([centres, np.zeros((400, 8))]) + 0.45 * rng.standard_normal((400, 16))
    labels = np.repeat([f"c{c:02}" for c in range(40)], 10)
    file = tmp_path_factory.mktemp("features") / "features.npz"
    np.savez(file, embeddings=rows, labels=labels)
    return file


def run(source, path, *settings, **options):
    config = load_config(None, [*QUICK, f"data.root={source}", *settings])
    result = run_experiment(config, RunFolder.create(path), figures=False, **options)
    return config, result, RecordLog(result.folder.records).read()


def test_a_run_says_what_it_started_from_and_keeps_the_network_that_held_out_classes_say(
    source, tmp_path
):
    narrator = Lines()
    config, result, records = run(source, tmp_path / "run", narrator=narrator)
    data = load_data(config)
    # The features of the test as they are, from the first record to the first row.
    expected = bspml.evaluate(data.test_images, data.test_labels, ks=[1, 2], clustering=False)
    first = records[0]
    assert (first.method, first.epoch, first.steps, first.loss) == (UNTRAINED, 0, 0, None)
    assert first.recall_at_k == pytest.approx(expected.recall_at_k)
    assert narrator.records[0].map_at_r == pytest.approx(expected.map_at_r)
    assert list(result.results) == [UNTRAINED, "multi-similarity", "bspml"]
    assert result.results[UNTRAINED]["Recall@1 %"] == pytest.approx(100 * expected.recall_at_k[1])
    assert result.results[UNTRAINED]["MAP@R"] == pytest.approx(expected.map_at_r)
    # A fifth of the 20 classes is held out though nobody asked; they select.
    assert len(np.unique(data.validation_labels)) == 4
    for method in ("multi-similarity", "bspml"):
        own = [record for record in records if record.method == method]
        assert [record.epoch for record in own][:1] == [0]
        chosen = read_json(result.folder.summary)["epochs"][method]["selected"]
        held = {r.epoch: r.extra["validation"] for r in own}
        candidates = [e for e in held if held[e]["map_at_r"] >= held[0]["map_at_r"]]
        assert chosen["epoch"] == max(candidates, key=lambda e: held[e]["recall_at_1"])
        # What opens is the network of that epoch.
        kept = bspml.load(result.folder.path, method)
        again = bspml.evaluate(kept.embed(data.test_images), data.test_labels, ks=[1])
        assert chosen["value"] == pytest.approx(again.recall_at_k[1])
        assert result.results[method]["MAP@R"] == pytest.approx(again.map_at_r)


def test_a_ruinous_training_ends_with_what_it_started_from(source, tmp_path):
    _, result, records = run(source, tmp_path / "run", RUINOUS, "training.methods=[bspml]")
    row = result.results["bspml"]
    assert row["MAP@R"] == records[1].map_at_r
    assert row["last epoch: MAP@R"] < row["MAP@R"]
    assert row["epoch selected on validation classes: MAP@R"] == row["MAP@R"]
    network = bspml.load(result.folder.path).model.layers[-1]
    torch.testing.assert_close(network.weight @ network.weight.T, torch.eye(8))


def test_without_a_selection_the_loss_by_training_is_said_in_record_and_page(source, tmp_path):
    settings = [RUINOUS, "data.validation_classes=0", "training.methods=[multi-similarity]"]
    _, result, records = run(source, tmp_path / "run", *settings)
    words = records[-1].extra["worse_than_untrained"]
    assert words in records[-1].notes
    assert words.startswith("worse than untrained: Recall@1 ")
    assert "data.validation_classes=0.2" in words
    assert "optimizer.lr=0.3" in words
    assert all("worse_than_untrained" not in record.extra for record in records[:-1])
    page = run_page(result.folder)
    assert page.warnings == (f"multi-similarity: {words}",)
    assert words in render_page(page)
    facts = dict(page.facts)
    assert facts["Recall@1, untrained"].startswith(f"{100 * records[0].recall_at_k[1]:.1f} %")
    assert facts["MAP@R, untrained"] == f"{records[0].map_at_r:.3f}"


def test_a_resumed_run_keeps_the_row_and_selects_as_an_uninterrupted_one(source, tmp_path):
    _, whole, records = run(source, tmp_path / "whole", "training.methods=[bspml]")
    config, _, short = run(
        source, tmp_path / "cut", "training.methods=[bspml]", "training.epochs=1"
    )
    config = load_config(None, [
        *QUICK, f"data.root={source}", "training.methods=[bspml]",
    ])  # fmt: skip
    folder = RunFolder.open(tmp_path / "cut")
    folder.config.write_text(whole.folder.config.read_text())
    result = run_experiment(config, folder, resume=True, figures=False)
    went_on = RecordLog(folder.records).read()
    key = [(r.method, r.epoch, r.map_at_r, r.extra.get("validation")) for r in went_on]
    assert key == [(r.method, r.epoch, r.map_at_r, r.extra.get("validation")) for r in records]
    assert result.results["bspml"]["MAP@R"] == whole.results["bspml"]["MAP@R"]
    assert key[: len(short)] == [
        (r.method, r.epoch, r.map_at_r, r.extra.get("validation")) for r in short
    ]


@pytest.mark.parametrize(
    ("after", "says"),
    [
        ((0.5, 0.4), None),
        ((0.6, 0.5), None),
        ((0.49, 0.4), "Recall@1 49.0 % after 50.0 % (MAP@R is not). Try"),
        ((0.6, 0.39), "worse than untrained: MAP@R 39.0 % after 40.0 % (Recall@1 is not). Try"),
        ((0.4, None), "worse than untrained: Recall@1 40.0 % after 50.0 %. Try"),
        ((None, None), None),
    ],
)
def test_either_metric_may_lose_by_training(after, says):
    config = load_config(None, [])
    untrained = EpochRecord(UNTRAINED, 0, recall_at_k={1: 0.5}, map_at_r=0.4)
    record = EpochRecord("m", 1, recall_at_k={1: after[0]}, map_at_r=after[1])
    words = worse_than_untrained(config, record, untrained)
    assert (words is None) if says is None else (says in words)


def test_a_random_head_is_said_to_be_one():
    settings = ["data.name=features", "data.root=x.npz", "network.name=mlp", "network.head=random"]
    losing = EpochRecord("m", 1, recall_at_k={1: 0.1})
    words = worse_than_untrained(
        load_config(None, settings), losing, EpochRecord(UNTRAINED, 0, recall_at_k={1: 0.5})
    )
    assert "network.head=principal" in words
    assert "data.validation_classes" not in words  # a fifth is held out already


@pytest.mark.parametrize("epoch", [0, 1])
def test_what_was_lost_before_the_first_step_no_shorter_training_brings_back(epoch):
    settings = ["data.name=features", "data.root=x.npz", "network.name=mlp"]
    config = load_config(None, [*settings, "network.embedding_size=4"])
    losing = EpochRecord("m", epoch, recall_at_k={1: 0.1})
    words = worse_than_untrained(config, losing, EpochRecord(UNTRAINED, 0, recall_at_k={1: 0.5}))
    assert ("optimizer.lr" in words) == ("training.epochs" in words) == (epoch == 1)
    assert ("network.embedding_size" in words) == (epoch == 0)
