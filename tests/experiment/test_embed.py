"""Embeddings of a run: its own splits, new photographs, new features, and what it trained on."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

import bspml
from bspml.cli import main
from bspml.errors import DataError, InputError, RunError
from bspml.experiment.config import load_config
from bspml.experiment.data import load_data
from bspml.experiment.embed import embed_named
from bspml.experiment.run import run_experiment
from bspml.files.run import RunFolder
from bspml.networks.feature_cache import extraction
from helpers.photos import save_photos

QUICK = [
    "training.epochs=1",
    "training.methods=[multi-similarity]",
    "evaluation.ks=[1]",
    "evaluation.clustering=false",
    "network.embedding_size=4",
]


def trained(path, *settings):
    config = load_config(None, [*QUICK, *settings])
    folder = run_experiment(config, RunFolder.create(path), figures=False).folder
    return bspml.load(folder.path, "multi-similarity"), load_data(config)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return save_photos(tmp_path_factory.mktemp("photos"), 4, 4, (20, 28), "c{}/{}.png")


@pytest.fixture(scope="module")
def on_photos(photos, tmp_path_factory):
    settings = ["data.name=folder", f"data.root={photos}", "data.image_size=16"]
    return trained(tmp_path_factory.mktemp("runs") / "photos", *settings)


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    rng = np.random.default_rng(1)
    labels = np.repeat([f"c{c}" for c in range(4)], 4)
    rows = np.repeat(rng.standard_normal((4, 6)), 4, 0) + 0.1 * rng.standard_normal((16, 6))
    file = tmp_path_factory.mktemp("features") / "features.npz"
    np.savez(file, embeddings=rows.astype(np.float32), labels=labels)
    return file


@pytest.fixture(scope="module")
def on_features(features, tmp_path_factory):
    settings = ["data.name=features", f"data.root={features}", "network.name=mlp"]
    return trained(tmp_path_factory.mktemp("runs") / "features", *settings)


def test_new_photographs_are_shown_as_the_test_images_were(photos, on_photos, tmp_path):
    run, data = on_photos
    new = tmp_path / "new"
    for c in ("c2", "c3"):
        shutil.copytree(photos / c, new / c)
    own, copy = embed_named(run, "test"), embed_named(run, str(new))
    assert own.names == copy.names == [f"c{c}/{i}.png" for c in (2, 3) for i in range(4)]
    assert torch.equal(own.embeddings, copy.embeddings)
    assert torch.equal(own.embeddings, run.embed(data.test_images))
    assert (own.trained_on, copy.trained_on) == (False, False)


def test_a_folder_with_photographs_of_the_training_is_known(photos, on_photos):
    run, _ = on_photos
    assert embed_named(run, "train").trained_on
    assert embed_named(run, str(photos)).trained_on
    assert not embed_named(run, str(photos / "c3")).trained_on


def test_copies_of_what_was_trained_on_are_known(
    photos, on_photos, features, on_features, tmp_path
):
    (tmp_path / "new" / "relabelled").mkdir(parents=True)
    shutil.copy(photos / "c2" / "0.png", tmp_path / "new" / "relabelled" / "0.png")
    assert not embed_named(on_photos[0], str(tmp_path / "new")).trained_on  # of the test
    shutil.copy(photos / "c1" / "3.png", tmp_path / "new" / "relabelled" / "1.png")
    assert embed_named(on_photos[0], str(tmp_path / "new")).trained_on
    for rows, told in ((slice(7, None), True), (slice(8, None), False)):  # 8 train
        np.save(tmp_path / "some.npy", 2 * np.load(features)["embeddings"][rows])
        assert embed_named(on_features[0], str(tmp_path / "some.npy")).trained_on == told
    np.savez(tmp_path / "all.npz", **np.load(features))
    assert embed_named(on_features[0], str(tmp_path / "all.npz")).trained_on


def test_what_a_training_left_out_it_was_not_trained_on(tmp_path):
    rng = np.random.default_rng(5)
    rows, labels = rng.standard_normal((48, 6)).astype(np.float32), np.arange(48) // 4
    names = [f"{i}.jpg" for i in range(48)]
    np.savez(tmp_path / "f.npz", embeddings=rows, labels=labels, names=names)
    # By name as text 0, 1, 10, 11, 2 and 3 train; 0 to 3 are the first in the file.
    decisions = tmp_path / "decisions.csv"
    decisions.write_text("index,decision,new_label,name\n16,wrong,0,16.jpg\n")
    own = ["data.name=features", f"data.root={tmp_path / 'f.npz'}", "network.name=mlp"]

    def told(row, *settings, label=None):
        run, _ = trained(tmp_path / f"run{len(list(tmp_path.iterdir()))}", *own, *settings)
        if label is not None:
            label.unlink()
        np.savez(tmp_path / "new.npz", embeddings=rows[[row]])
        return embed_named(run, str(tmp_path / "new.npz")).trained_on

    assert told(0)
    assert told(40)  # of class 10
    assert not told(40, "data.subset=4")
    assert not told(16)  # of the test
    assert told(16, f"noise.decisions_file={decisions}")
    held = load_data(load_config(None, [*QUICK, *own, "data.validation_classes=0.34"]))
    row = int(np.flatnonzero((rows == held.validation_images[0].numpy()).all(1))[0])
    assert not told(row, "data.validation_classes=0.34")
    # Nobody knows any more what the decisions moved: the files' own split counts.
    assert told(0, f"noise.decisions_file={decisions}", label=decisions)


def test_a_folder_for_a_run_on_boxes_is_told_that_it_has_none(photos, tmp_path):
    files = [f"c{c}/{i}.png" for c in range(4) for i in range(4)]
    shutil.copytree(photos, tmp_path / "p")
    lines = [f"{file},{file[:2]},1,1,9,9" for file in files]
    (tmp_path / "p" / "labels.csv").write_text("\n".join(["path,label,x1,y1,x2,y2", *lines]))
    settings = ["data.name=table", f"data.root={tmp_path / 'p'}", "data.image_size=16"]
    for crop in (True, False):
        given = [*settings, f"data.crop_boxes={str(crop).lower()}"]
        run, _ = trained(tmp_path / f"run{crop}", *given)
        found, own = embed_named(run, str(photos)), embed_named(run, "test")
        rows = [found.names.index(name) for name in own.names]
        assert torch.equal(found.embeddings[rows], own.embeddings) is not crop
        assert ("embeddings of whole photographs" in found.changes) is crop


def test_splits_are_no_labels_of_new_photographs(photos, on_photos, tmp_path):
    for split, c in (("Train", "c0"), ("test", "c1"), ("notes", "c2")):
        shutil.copytree(photos / c, tmp_path / split / c)
    with pytest.raises(DataError, match="Train and test are splits, not classes"):
        embed_named(on_photos[0], str(tmp_path))


def test_a_head_on_features_takes_new_features(on_features, features, tmp_path):
    run, _ = on_features
    new = np.random.default_rng(2).standard_normal((3, 6)).astype(np.float32)
    np.save(tmp_path / "new.npy", new)
    found = embed_named(run, str(tmp_path / "new.npy"))
    assert torch.equal(found.embeddings, run.embed(torch.from_numpy(new)))
    assert (found.labels, found.names) == (None, [])  # none to say that others are
    np.savez(tmp_path / "new.npz", embeddings=new, labels=[1, 2, 2], names=["x", "y", "z"])
    found = embed_named(run, str(tmp_path / "new.npz"))
    assert (found.labels.tolist(), found.names) == (["1", "2", "2"], ["x", "y", "z"])
    assert not found.trained_on
    assert embed_named(run, str(features)).trained_on


@pytest.mark.parametrize("kind", ["npz", "csv", "parquet"])
def test_the_splits_of_a_file_of_features_stay_beside_their_embeddings(
    on_features, tmp_path, capsys, kind
):
    rng = np.random.default_rng(3)
    rows, labels = rng.standard_normal((40, 6)).astype(np.float32), [*"ab"] * 20
    splits = rng.permutation(["train", "test"] * 20).tolist()
    new, out = tmp_path / f"new.{kind}", str(tmp_path / "e.npz")
    table = pd.DataFrame(rows, columns=[f"d{i}" for i in range(6)])
    table = table.assign(label=labels, split=splits)
    if kind == "npz":
        np.savez(new, embeddings=rows, labels=labels, split=splits)
    elif kind == "csv":
        table.to_csv(new, index=False)
    else:
        table.to_parquet(new)
    run = str(on_features[0].folder.path)
    assert main(["embed", run, str(new), "--method", "multi-similarity", "-o", out]) == 0
    assert capsys.readouterr().out == f"{out}: embeddings (40, 4), labels, splits\n"
    with np.load(out) as archive:
        assert archive["splits"].tolist() == splits
    # What has no names is given none, which would not be those of a file of labels.
    named = table.assign(name=range(40))[["name", "label", "split"]]
    named.to_csv(tmp_path / "labels.csv", index=False)
    assert main(["evaluate", out, str(tmp_path / "labels.csv"), "--ks", "1"]) == 0
    capsys.readouterr()
    assert main(["evaluate", out, "--ks", "1"]) == 0
    assert "20 rows of test, not the 20 of train" in capsys.readouterr().out


def test_the_queries_and_the_gallery_of_a_run_are_embedded_and_measured_as_by_it(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    rows, labels = rng.standard_normal((48, 6)), np.repeat([f"c{c}" for c in range(8)], 6)
    splits = np.array([*["train"] * 24, *["gallery", "query", "gallery"] * 8])
    names = np.array([f"{i}.jpg" for i in range(48)])
    np.savez("f.npz", embeddings=rows, labels=labels, splits=splits, names=names)
    settings = ["data.name=features", "data.root=f.npz", "network.name=mlp"]
    run, _ = trained(tmp_path / "run", *settings)
    parts = (splits == "query").nonzero()[0], (splits == "gallery").nonzero()[0]
    assert main(["embed", "run", "test", "--method", "multi-similarity", "-o", "e.npz"]) == 0
    assert capsys.readouterr().out == "e.npz: embeddings (24, 4), labels, names, splits\n"
    with np.load("e.npz") as archive:
        assert archive["splits"].tolist() == ["query"] * 8 + ["gallery"] * 16
        assert archive["names"].tolist() == names[np.concatenate(parts)].tolist()
        expected = [run.embed(torch.from_numpy(rows[part]).float()) for part in parts]
        np.testing.assert_array_equal(archive["embeddings"], torch.cat(expected))
    found = []
    for what in (["run", "--method", "multi-similarity"], ["e.npz"]):
        assert main(["evaluate", *what, "--ks", "1,2", "--json"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    same = found[0].keys() & found[1].keys()
    assert {"recall_at_1", "map_at_r", "num_gallery"} <= same
    assert {key: found[0][key] for key in same} == {key: found[1][key] for key in same}


def test_a_run_is_evaluated_with_its_own_draws(tmp_path, capsys):
    rng = np.random.default_rng(4)
    rows, labels = rng.standard_normal((64, 6)), np.repeat([f"c{c}" for c in range(16)], 4)
    np.savez(tmp_path / "f.npz", embeddings=rows, labels=labels)
    settings = ["data.name=features", f"data.root={tmp_path / 'f.npz'}", "network.name=mlp"]
    run, _ = trained(tmp_path / "run", *settings, "seed=9", "evaluation.clustering=true")
    printed = {key: getattr(run.records[-1], key) for key in ("recall_at_1_low", "map_at_r_high")}
    printed |= {"nmi": run.records[-1].nmi}
    found = []
    for seed in ([], ["--seed", "0"]):
        command = ["evaluate", str(tmp_path / "run"), "--method", "multi-similarity", "--json"]
        assert main([*command, *seed]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert {key: found[0][key] for key in printed} == printed
    assert found[1]["map_at_r_high"] != printed["map_at_r_high"]


def test_who_only_embeds_looks_for_no_near_copies(on_features, monkeypatch):
    looked = []
    monkeypatch.setattr("bspml.experiment.data.near_copies", lambda *_: looked.append(1) or ())
    embed_named(on_features[0], "train")
    assert not looked
    load_data(on_features[0].config)
    assert looked


def test_what_the_network_does_not_take_is_refused(on_features, on_photos, photos, tmp_path):
    np.savez(tmp_path / "wide.npz", embeddings=np.ones((3, 7)), labels=[1, 2, 2])
    with pytest.raises(RunError, match=r"wide.npz: .* features \(N, 6\), as .* got \(3, 7\)"):
        embed_named(on_features[0], str(tmp_path / "wide.npz"))
    with pytest.raises(InputError, match=r"must be features \(N, 6\), as this run's were; got"):
        on_features[0].embed(np.ones((3, 7)))
    with pytest.raises(InputError, match=r"must be features \(N, 6\), .* got \(3, 1, 24, 24\)"):
        on_features[0].embed(np.ones((3, 1, 24, 24)))
    for run in (on_features[0], on_photos[0]):
        with pytest.raises(DataError, match=r"nix: no such file .* Name a f.*train or test"):
            embed_named(run, "nix")
    with pytest.raises(RunError, match="takes features, not images; give a file of features"):
        embed_named(on_features[0], str(photos))
    with pytest.raises(RunError, match="takes images, not features; give a folder of images"):
        embed_named(on_photos[0], str(tmp_path / "wide.npz"))
    np.savez(tmp_path / "short.npz", embeddings=np.ones((3, 6)), labels=[1, 2])
    with pytest.raises(DataError, match="expected one entry for each of 3 rows"):
        embed_named(on_features[0], str(tmp_path / "short.npz"))


def test_a_head_on_a_backbone_takes_new_photographs(photos, tmp_path, monkeypatch):
    def backbone(name, weights=None):
        return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten())

    monkeypatch.setattr(extraction, "feature_network", backbone)
    settings = ["data.name=folder", f"data.root={photos}", "data.features=efficientnet-lite0"]
    head = ["data.image_size=16", f"data.cache={tmp_path / 'cache'}", "network.name=mlp"]
    run, data = trained(tmp_path / "run", *settings, *head)
    shutil.copytree(photos / "c2", tmp_path / "new" / "c2")
    found = embed_named(run, str(tmp_path / "new"))
    assert torch.equal(found.embeddings, run.embed(data.test_images[:4]))
    assert (found.labels.tolist(), found.changes) == (["c2"] * 4, "")
    # Other weights of the backbone by now: what the head makes of their features means nothing.
    shutil.rmtree(tmp_path / "cache")
    squared = torch.nn.LPPool2d(2, 8), torch.nn.Flatten()  # as many numbers
    monkeypatch.setattr(extraction, "feature_network", lambda *_: torch.nn.Sequential(*squared))
    found = embed_named(run, str(tmp_path / "new"))
    assert not torch.equal(found.embeddings, run.embed(data.test_images[:4]))
    assert f"{photos}, the data of this run, changed since: " in found.changes
    assert "; if the backbone of `data.features` has other weights by now, " in found.changes


def test_an_audit_of_embeddings_knows_that_they_were_trained(
    on_features, features, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = str(on_features[0].folder.path)
    for what in ("train", "test"):
        options = ["--method", "multi-similarity", "-o", f"{what}.npz"]
        assert main(["embed", run, what, *options]) == 0
    assert "no honest judge" in capsys.readouterr().err
    for what, said in (("train", True), ("test", False)):
        assert main(["audit", f"{what}.npz"]) == 0
        assert ("no honest judge" in capsys.readouterr().out) == said
        summary = json.loads((tmp_path / f"{what}-audit" / "summary.json").read_text())
        assert any("no honest judge" in note for note in summary["notes"]) == said
    with np.load("test.npz", allow_pickle=False) as archive:
        assert sorted(archive.files) == ["embeddings", "labels", "names"]


@pytest.mark.parametrize(
    ("row", "column", "which"),
    [(0, "embeddings", "those it was trained on"), (15, "labels", "those of its evaluation")],
)
def test_a_change_of_the_data_since_the_training_is_said(
    on_features, features, tmp_path, capsys, row, column, which
):
    run, out = str(on_features[0].folder.path), str(tmp_path / "e.npz")
    before, said = features.read_bytes(), f"samples or labels of this run changed since, {which}: "

    def told(number):
        audit = ["audit", run, "-o", str(tmp_path / f"audit{number}")]
        for command in (["evaluate", run], ["embed", run, "test", "-o", out], audit):
            assert main(command) == 0
        printed = capsys.readouterr()
        return printed.out.count(said), printed.err.count(said)

    assert told(0) == (0, 0)
    try:
        arrays = dict(np.load(features))
        arrays[column][row] = "c2" if column == "labels" else 7
        np.savez(features, **arrays)
        assert told(1) == (1, 2)  # with the numbers of the evaluation, on stderr of the others
    finally:
        features.write_bytes(before)


def test_where_the_data_of_a_run_are_gone_nobody_can_tell_what_it_was_trained_on(
    on_features, features, tmp_path
):
    run = on_features[0]
    assert embed_named(run, str(features)).changes == ""
    moved = features.rename(tmp_path / "moved.npz")
    try:
        found = embed_named(run, str(moved))
    finally:
        moved.rename(features)
    assert not found.trained_on
    assert f"{features}, the data of this run, is gone: if these samples " in found.changes


def test_where_the_data_of_a_run_changed_nobody_can_tell_what_it_was_trained_on(
    photos, features, tmp_path
):
    own = shutil.copytree(photos, tmp_path / "photos")
    run, _ = trained(tmp_path / "run", "data.name=folder", f"data.root={own}", "data.image_size=16")
    new = shutil.copytree(own / "c3", tmp_path / "new" / "c3")  # tested; c0 and c1 train
    shutil.copy(own / "c2" / "0.png", own / "c3" / "9.png")
    assert embed_named(run, str(new.parent)).changes == ""
    (own / "c1").rename(tmp_path / "new" / "c1")
    found = embed_named(run, str(new.parent))
    assert not found.trained_on
    assert f"{own}, the data of this run, changed since: if these samples were a" in found.changes
    shutil.copytree(photos / "c0", tmp_path / "new" / "c0")
    found = embed_named(run, str(new.parent))
    assert (found.trained_on, found.changes) == (True, "")
    for folder in own.iterdir():
        folder.rename(tmp_path / folder.name)
    assert f"{own}, the data of this run, cannot be read: " in embed_named(run, str(new)).changes
    file = shutil.copy(features, tmp_path / "features.npz")
    settings = ["data.name=features", f"data.root={file}", "network.name=mlp"]
    run, _ = trained(tmp_path / "rows", *settings)
    arrays = dict(np.load(file))
    np.savez(tmp_path / "part.npz", **{key: rows[:2] for key, rows in arrays.items()})
    np.savez(file, **{key: rows[2:] for key, rows in arrays.items()})
    found = embed_named(run, str(tmp_path / "part.npz"))
    assert (found.trained_on, "changed since" in found.changes) == (False, True)
