"""Labels to train on: what is known about them follows from where they come from."""

import numpy as np
import pandas as pd
import pytest
import torch

from bspml.data.retrieval import RetrievalSplit
from bspml.errors import ConfigError, DataError
from bspml.experiment.config import load_config
from bspml.experiment.data import load_data
from bspml.experiment.labels import given_labels

LABELS = np.repeat(["a", "b", "c", "d"], 5)
SPLIT = RetrievalSplit("train", LABELS, features=torch.zeros(20, 2))


def given(*settings):
    return given_labels(load_config(None, list(settings)), SPLIT, None, None)


def test_labels_as_they_are_have_no_mistakes_and_no_decisions():
    found = given("noise.kind=none")
    assert found.labels.tolist() == LABELS.tolist()
    assert not found.is_noisy.any()
    assert not found.is_outlier.any()
    assert found.learned.tolist() == LABELS.tolist()


def test_a_decision_right_a_mistake_and_makes_one_and_fixes_its_weight(tmp_path):
    labels = LABELS.copy()
    labels[0], labels[5:10] = "b", "a"  # no label names b's samples but that one
    (tmp_path / "l.txt").write_text("\n".join(labels))
    (tmp_path / "d.csv").write_text(
        "index,decision,new_label\n0,wrong,a\n5,wrong,\n19,wrong,a\n1,unsure,\n"
    )
    found = given(f"noise.labels_file={tmp_path / 'l.txt'}")
    assert np.flatnonzero(found.is_noisy).tolist() == [0, 5, 6, 7, 8, 9]
    assert not found.is_outlier.any()
    found = given(
        f"noise.labels_file={tmp_path / 'l.txt'}", f"noise.decisions_file={tmp_path / 'd.csv'}"
    )
    assert np.flatnonzero(found.is_noisy).tolist() == [5, 6, 7, 8, 9, 19]
    assert found.learned[[20, 25, 21]].tolist() == ["1.0", "0.0", ""]


@pytest.mark.parametrize(
    ("given_to_5", "decided", "outliers"),
    [
        ("a", "5,right,", [5, 6, 7, 8, 9]),
        ("a", "5,wrong,b", []),  # names the class of the other four first
        ("b", "5,wrong,a", [5, 6, 7, 8, 9]),  # and here last
        ("b", "5,wrong,", []),  # dropped, but its label stands
    ],
)
def test_outliers_follow_from_the_labels_after_the_decisions(
    given_to_5, decided, outliers, tmp_path
):
    labels = LABELS.copy()
    labels[5:10] = [given_to_5, "a", "a", "a", "a"]
    (tmp_path / "l.txt").write_text("\n".join(labels))
    (tmp_path / "d.csv").write_text(f"index,decision,new_label\n{decided}\n")
    found = given(
        f"noise.labels_file={tmp_path / 'l.txt'}", f"noise.decisions_file={tmp_path / 'd.csv'}"
    )
    assert np.flatnonzero(found.is_outlier).tolist() == outliers


def test_semantic_noise_goes_by_the_names_of_the_classes():
    labels = np.repeat(["red fox", "arctic fox", "barn owl", "snowy owl"], 5)
    split = RetrievalSplit("train", labels, features=torch.zeros(20, 2))
    config = load_config(None, ["noise.kind=semantic", "noise.rate=0.4", "noise.per_class=true"])
    found = given_labels(config, split, None, None)
    assert found.is_noisy.reshape(4, 5).sum(1).tolist() == [2, 2, 2, 2]
    animal = [[name.split()[1] for name in names] for names in (labels, found.labels)]
    assert animal[0] == animal[1]


def test_features_and_as_many_labels_as_samples_are_needed(tmp_path):
    with pytest.raises(ConfigError, match="it needs features to look with"):
        given("noise.kind=instance-dependent")
    (tmp_path / "l.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match="has 2 labels; the training split of glyphs has 20"):
        given(f"noise.labels_file={tmp_path / 'l.txt'}")


def test_decisions_by_index_alone_beside_ignored_samples_are_asked_what_they_count(tmp_path):
    part = SPLIT.take(np.arange(5, 20))  # as `data.ignore` leaves it
    config = load_config(None, ["noise.kind=none", f"noise.decisions_file={tmp_path / 'd.csv'}"])
    (tmp_path / "d.csv").write_text("index,decision\n0,wrong\n")
    with pytest.raises(DataError, match="be those of all 20 samples or of the 15 that train"):
        given_labels(config, part, None, None)
    (tmp_path / "d.csv").write_text("index,decision,label\n0,wrong,b\n")
    assert given_labels(config, part, None, None).decided.dropped.nonzero()[0].tolist() == [0]


def test_a_table_of_features_is_matched_by_its_ids(tmp_path):
    """A database has numbers for names: the labels come in another order of them."""
    order = np.random.default_rng(0).permutation(40)
    table = pd.DataFrame(np.eye(40), columns=[f"d{i}" for i in range(40)])
    labels = np.repeat([*"abcdefgh"], 5)
    table = table.assign(id=range(1000, 1040), label=labels, split=["train"] * 20 + ["test"] * 20)
    table.to_csv(tmp_path / "features.csv", index=False)
    corrected = table[["id", "label"]].assign(label=["b", *labels[1:]]).iloc[order]
    corrected.to_csv(tmp_path / "labels.csv", index=False)
    data = load_data(
        load_config(
            None,
            [
                "data.name=features",
                f"data.root={tmp_path / 'features.csv'}",
                f"noise.labels_file={tmp_path / 'labels.csv'}",
                "network.name=mlp",
                "sampler.classes_per_batch=4",
                "data.validation_classes=0",
            ],
        )
    )
    names = [str(i) for i in range(1000, 1020)]
    assert [*data.split.names] == names
    given = dict(zip(names, data.labels.astype(str), strict=True))
    assert given == dict(zip(names, ["b", *labels[1:20]], strict=True))


@pytest.mark.parametrize("kind", ["decisions", "corrected", "labels"])
def test_a_file_that_names_the_samples_is_read_by_the_names(tmp_path, kind):
    """A published set has an order of its own, in which an audit of its folder does not come."""
    names = tuple(f"{label}/{i}.jpg" for i, label in enumerate(LABELS))
    split = RetrievalSplit("train", LABELS, features=torch.zeros(20, 2), given_names=names)
    lines = {
        "decisions": [
            "index,label,decision,new_label,name",
            "16,a,wrong,,a/3.jpg",
            "0,d,wrong,b,d/19.jpg",
        ],
        "corrected": ["index,label,weight,decision,name"],
        "labels": ["label,name"],
    }[kind]
    for index, row in enumerate(range(19, -1, -1)):
        label, word = {3: ("a", "wrong"), 19: ("b", "wrong")}.get(row, (LABELS[row], ""))
        weight = 0.0 if row == 3 else 1.0
        line = f"{index},{label},{weight},{word},{names[row]}"
        if kind != "decisions":
            lines.append(line if kind == "corrected" else f"{label},{names[row]}")
    file = tmp_path / "file.csv"
    file.write_text("\n".join(lines) + "\n")
    key = "decisions_file" if kind == "decisions" else "labels_file"
    found = given_labels(
        load_config(None, ["noise.kind=none", f"noise.{key}={file}"]), split, None, None
    )
    assert np.flatnonzero(found.labels != LABELS).tolist() == [19]
    assert found.labels[19] == "b"
    if kind != "labels":
        assert np.flatnonzero(found.decided.decisions == "wrong").tolist() == [3, 19]
        assert np.flatnonzero(found.decided.weights == 0).tolist() == [3]
    lost = file.read_text().replace("a/3.jpg", "x/3.jpg")
    file.write_text(lost)
    found = given_labels(
        load_config(None, ["noise.kind=none", f"noise.{key}={file}"]), split, None, None
    )
    assert any("no sample of these" in n or "not in these data" in n for n in found.notes)
