"""Laws of what a person decided, of every method that trains."""

import numpy as np
import pytest
import torch

import bspml
from bspml import methods
from bspml.experiment.config import load_config
from bspml.experiment.run import run_experiment
from bspml.files.run import RecordLog, RunFolder, read_weights

CLASSES, EACH, WIDTH = 12, 12, 8
WRONG, RIGHT, RELABELLED = (3, 20, 21, 50, 62), (8, 30), (11, 44)
METHODS = [
    *(name for name in methods.names() if name != "clean-only"),  # which takes no decisions
    *("auto:contrastive", "auto:arcface", "auto:supcon", "auto:proxy-anchor", "gr:contrastive"),
    *("superloss:contrastive", "superloss:auto:contrastive", "imae:multi-similarity"),
]
SETTINGS = {
    "prism": ["hyperparameters.prism.noise_rate=0.2"],
    "spms": ["hyperparameters.spms.target_maw=0.7"],
    "bspml-paper": ["hyperparameters.bspml-paper.age=1"],
}


def labelled_features():
    """Features, and labels of which those of the first half, which trains, are wrong in part."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), EACH)
    centres = rng.standard_normal((CLASSES, WIDTH))
    x = (centres[labels] + rng.standard_normal((len(labels), WIDTH))).astype(np.float32)
    for row in (*WRONG, *RELABELLED, 2, 17, 33, 55, 70):
        labels[row] = (labels[row] + 2) % 6
    return x, np.array([f"c{label:02d}" for label in labels])


def trained(folder, method, x, labels, said, *settings):
    """Return the last network, what was recorded but for seconds, and the weights."""
    folder.mkdir(parents=True)
    np.savez(folder / "data.npz", embeddings=x, labels=labels)
    lines = [f"{row},{word},{labels[row]},{new}\n" for row, word, new in said]
    (folder / "said.csv").write_text("index,decision,label,new_label\n" + "".join(lines))
    config = load_config(
        None,
        [
            f"data.root={folder / 'data.npz'}",
            f"noise.decisions_file={folder / 'said.csv'}",
            f"training.methods=[{method}]",
            *("data.name=features", "network.name=mlp", "optimizer.lr=0.01", "training.epochs=3"),
            *("sampler.classes_per_batch=4", "evaluation.ks=[1]", "evaluation.clustering=false"),
            *SETTINGS.get(method, []),
            *settings,
        ],
    )
    run = run_experiment(config, RunFolder.create(folder / "run")).folder
    records = [
        (r.epoch, r.loss, r.maw, r.sdaw, r.noise_rate, r.kept, r.recall_at_k[1], r.map_at_r)
        for r in RecordLog(run.records).read()
    ]
    weights = read_weights(run.weights).weights if run.weights.is_file() else None
    return bspml.load(run.path).model.state_dict(), records, weights


SAID = [
    *((row, "wrong", "") for row in WRONG),
    *((row, "right", "") for row in RIGHT),
    *((row, "wrong", f"c{row // EACH:02d}") for row in RELABELLED),
]


def assert_same(found, expected):
    (network, records, weights), (other, others, their_weights) = found, expected
    for name, value in network.items():
        torch.testing.assert_close(value, other[name], atol=1e-6, rtol=1e-5)
    assert len(records) == len(others)
    for record, another in zip(records, others, strict=True):
        assert record == pytest.approx(another, nan_ok=True, abs=1e-5)
    assert (weights is None) == (their_weights is None)
    if weights is not None:
        assert weights == pytest.approx(their_weights, abs=1e-6)


def trained_whatever_is_wrong(folder, method, *settings):
    """Train twice, with other pictures in the place of those whose label is wrong: the same."""
    x, labels = labelled_features()
    others = x.copy()
    others[list(WRONG)] = np.random.default_rng(9).normal(0, 3, (len(WRONG), WIDTH))
    found = trained(folder / "a", method, x, labels, SAID, *settings)
    assert_same(found, trained(folder / "b", method, others, labels, SAID, *settings))
    return found


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("method", METHODS)
def test_what_is_decided_to_be_wrong_trains_nobody(method, tmp_path):
    """Other pictures in the place of those whose label is wrong change nothing at all."""
    found = trained_whatever_is_wrong(tmp_path, method)
    if found[2] is not None:
        decided = found[2][[*WRONG, *RIGHT, *RELABELLED]]
        assert decided.tolist() == [0.0] * len(WRONG) + [1.0] * 4


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("method", METHODS)
def test_a_new_label_is_as_if_it_had_been_given_and_found_right(method, tmp_path):
    x, labels = labelled_features()
    corrected = labels.copy()
    corrected[list(RELABELLED)] = [f"c{row // EACH:02d}" for row in RELABELLED]
    right = [(row, "wrong" if row in WRONG else "right", "") for row, _, _ in SAID]
    found = trained(tmp_path / "a", method, x, labels, SAID[::-1])
    assert_same(found, trained(tmp_path / "b", method, x, corrected, right))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "settings",
    [
        ["curriculum.warmup=cross-fit", "curriculum.repair=confident"],
        ["curriculum.rule=quadratic"],
        ["curriculum.preset=paper", "curriculum.target_maw=0.8"],
        ["curriculum.search=neighbours"],
    ],
    ids=lambda settings: settings[0],
)
def test_no_rule_of_the_curriculum_looks_at_what_is_decided_to_be_wrong(settings, tmp_path):
    trained_whatever_is_wrong(tmp_path, "bspml", *settings)
