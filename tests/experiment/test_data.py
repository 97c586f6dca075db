"""Experiments on other data than glyphs: folders, galleries, features, published noise lists."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import bspml
from bspml.cli import main
from bspml.data.labels.decisions import apply_decisions, read_decisions, write_corrected
from bspml.errors import ConfigError, InputError
from bspml.experiment.config import load_config
from bspml.experiment.data import load_data
from bspml.experiment.run import experiment_of, run_experiment
from bspml.files.run import RecordLog, RunFolder, read_json, read_weights
from helpers.photos import save_photos

QUICK = [
    "training.epochs=3",
    "sampler.classes_per_batch=4",
    "evaluation.ks=[1, 2]",
    "evaluation.clustering=false",
    "network.embedding_size=8",
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """8 classes of 6 little photographs; a class has a hue, a photograph a shade."""
    root = tmp_path_factory.mktemp("photos")
    return save_photos(root, 8, 6, (20, 24), "class {}/{}.jpg")


def folder_settings(root, *more):
    common = ["data.name=folder", f"data.root={root}", "data.image_size=16"]
    planted = ["noise.kind=symmetric", "noise.rate=0.2", "sampler.classes_per_batch=3"]
    return load_config(None, [*QUICK, *common, *planted, *more])


def test_a_folder_of_photographs_trains_with_random_views_and_pictures(photos, tmp_path):
    config = folder_settings(photos, "training.methods=[multi-similarity, bspml]")
    data = load_data(config)
    assert (data.width, len(data.codes), len(data.test_labels)) == (3, 24, 24)
    assert data.images.shape == (24, 3, 16, 16)  # small: decoded once
    data.views.set_epoch(0)
    first = data.views[0]
    assert not torch.equal(first, data.images[0])
    data.views.set_epoch(1)
    assert not torch.equal(first, data.views[0])
    result = run_experiment(config, RunFolder.create(tmp_path / "run"))
    assert data.pictures()[3].shape == (96, 96, 3)
    assert (result.folder.figures / "lowest_weights.png").is_file()
    assert (result.folder.path / "report.html").is_file()
    model = bspml.load(result.folder.path).model
    assert model(torch.rand(2, 3, 16, 16)).shape == (2, 8)


@pytest.mark.usefixtures("undrawn")
def test_suspects_have_the_names_of_their_files(photos, tmp_path):
    config = folder_settings(photos, "training.methods=[bspml-paper]")
    data = load_data(config)
    folder = run_experiment(config, RunFolder.create(tmp_path / "run")).folder
    suspects = read_json(folder.path / "suspects.json")["suspects"]
    low = np.flatnonzero(read_weights(folder.weights).weights < 0.5)
    assert len(low) >= 3
    assert {(s["index"], s["name"]) for s in suspects} == {(int(i), data.names[i]) for i in low}


def test_the_fingerprint_follows_files_and_labels(photos, tmp_path):
    before = load_data(folder_settings(photos)).fingerprint
    assert load_data(folder_settings(photos)).fingerprint == before
    assert load_data(folder_settings(photos, "seed=1")).fingerprint != before  # other wrong labels
    copy = shutil.copytree(photos, tmp_path / "copy")
    assert load_data(folder_settings(copy)).fingerprint == before
    Image.new("RGB", (24, 20)).save(copy / "class 0" / "0.jpg")
    assert load_data(folder_settings(copy)).fingerprint != before


@pytest.mark.parametrize("in_memory", [0, 2**30])
def test_the_fingerprint_follows_the_boxes_that_are_looked_at(
    photos, tmp_path, monkeypatch, in_memory
):
    monkeypatch.setattr("bspml.experiment.data._IN_MEMORY", in_memory)
    root = shutil.copytree(photos, tmp_path / "copy")
    paths = [p.relative_to(root) for p in sorted(root.glob("*/*.jpg"))]
    for k, width in enumerate((9, 8)):  # of one length: the table's size tells nothing
        rows = [f"{p},{p.parent},1,2,{width if i == 40 else 9},11" for i, p in enumerate(paths)]
        (root / f"{k}.csv").write_text("\n".join(["path,label,x1,y1,x2,y2", *rows]))
    for crop, same in ((True, False), (False, True)):
        first, second = (
            load_data(folder_settings(
                root / f"{k}.csv", "data.name=table", f"data.crop_boxes={crop}".lower()
            ))
            for k in range(2)
        )  # fmt: skip
        assert first.fingerprint == second.fingerprint
        assert (first.measured == second.measured) is same  # row 40 is of the test


def test_pixels_that_are_resized_as_they_are_asked_for_train(monkeypatch, tmp_path):
    """Above 1 GiB at the size of the network, as CIFAR's at 48 pixels: there are no files."""
    settings = ["data.name=glyphs", "data.subset=12", "data.channels=3", "data.image_size=24"]
    config = load_config(None, [*QUICK, *settings, "training.methods=[multi-similarity]"])
    known = run_experiment(config, RunFolder.create(tmp_path / "a")).results
    monkeypatch.setattr("bspml.experiment.data._IN_MEMORY", 0)
    assert not isinstance(load_data(config).images, torch.Tensor)
    assert load_data(config).fingerprint == load_data(config).fingerprint
    result = run_experiment(config, RunFolder.create(tmp_path / "b")).results
    for key in ("Recall@1 %", "MAP@R"):
        assert result["multi-similarity"][key] == known["multi-similarity"][key]


def test_boxes_of_pictures_without_any_are_refused():
    config = load_config(None, ["data.subset=12", "data.crop_boxes=true"])
    with pytest.raises(InputError, match="the train split has no boxes"):
        load_data(config)


def test_outliers_are_the_samples_whose_class_no_label_names(photos, tmp_path):
    data = load_data(folder_settings(photos, "noise.kind=open-set", "noise.rate=0.25"))
    assert data.is_outlier.sum() == 6  # one of four classes of six
    assert (data.is_outlier == data.is_noisy).all()
    assert not load_data(folder_settings(photos)).is_outlier.any()
    # Given by a file: the second class became the first; one label of the third is merely wrong.
    known = load_config(None, ["data.subset=3", "noise.kind=none"])
    names, counts = np.unique(load_data(known).true_labels, return_counts=True)
    first = np.repeat([names[0], names[0], names[2]], counts)
    first[-1] = names[0]
    (tmp_path / "l.txt").write_text("\n".join(first))
    told = load_data(load_config(None, ["data.subset=3", f"noise.labels_file={tmp_path}/l.txt"]))
    assert told.is_outlier.sum() == counts[1]
    assert told.is_noisy.sum() == counts[1] + 1
    own = folder_settings(photos, "noise.kind=none", "noise.rate=0", "training.methods=[bspml]")
    assert load_data(own).is_outlier is None


def test_outliers_have_figures_of_their_own(photos, tmp_path):
    config = folder_settings(photos, "noise.kind=open-set", "noise.rate=0.25")
    lines = Lines()
    folder = RunFolder.create(tmp_path / "run")
    result = run_experiment(config, folder, narrator=lines, figures=False)
    assert lines.said[1].startswith("6 samples are of no class that a label names")
    last = RecordLog(folder.records).read()[-1]
    assert 0 <= last.outlier_auroc <= 1
    assert last.detection_auroc is None  # nobody's label is wrong within the classes
    assert result.results[last.method]["outlier AUROC"] == last.outlier_auroc
    outliers = load_data(config).is_outlier
    assert (read_weights(folder.weights).is_outlier == outliers).all()


def test_queries_are_searched_in_the_gallery(photos, tmp_path, capsys):
    sides = {"train": range(6), "query": range(3), "gallery": range(3, 5)}
    for name, rows in sides.items():
        for c in range(4) if name == "train" else range(4, 8):
            (tmp_path / name / f"class {c}").mkdir(parents=True)
            for i in rows:
                shutil.copy(photos / f"class {c}" / f"{i}.jpg", tmp_path / name / f"class {c}")
    config = folder_settings(tmp_path, "training.methods=[multi-similarity]")
    data = load_data(config)
    assert (len(data.test_labels), len(data.gallery_labels)) == (12, 8)
    assert data.most_neighbours == 8
    result = run_experiment(config, RunFolder.create(tmp_path / "run"), figures=False)
    model = bspml.load(result.folder.path, "multi-similarity").model
    with torch.no_grad():
        found = bspml.evaluate(
            model(data.test_images),
            data.test_labels,
            gallery=model(data.gallery_images),
            gallery_labels=data.gallery_labels,
            ks=(1,),
        )
    row = result.results["multi-similarity"]
    assert row["Recall@1 %"] == pytest.approx(100 * found.recall_at_k[1])
    # `bspml evaluate RUN` searches the same gallery, and says how.
    capsys.readouterr()
    command = ["evaluate", str(result.folder.path), "--method", "multi-similarity", "--ks", "1"]
    assert main([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["num_queries"], said["num_gallery"]) == (12, 8)
    assert said["recall_at_1"] == pytest.approx(found.recall_at_k[1])
    libraries = {"torch", "torchvision", "pytorch-metric-learning", "numpy", "scikit-learn"}
    assert said["versions"].keys() == libraries | {"bspml", "faiss"}
    assert read_json(result.folder.summary)["versions"] == said["versions"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "test transform: shorter side resized to 18, centre crop of 16 x 16" in text
    assert "backbone:       small-conv, from scratch, 8 numbers" in text
    assert f"searched by:    {said['backend']}" in text
    assert f"torchvision {said['versions']['torchvision']}" in text


class Lines:
    """A narrator that keeps what it is told to say."""

    def __init__(self):
        self.said = []

    def say(self, line):
        self.said.append(line)

    def begin(self, *_):
        pass

    step = record = begin


@pytest.mark.usefixtures("undrawn")
def test_decisions_of_an_audit_of_the_whole_folder_are_trained_on(photos, tmp_path):
    """24 of 48 photographs train; those of the other classes are decided on, too."""
    rows = [
        "3,class 0,wrong,class 1,class 0/3.jpg",
        "4,class 0,wrong,class 7,class 0/4.jpg",
        "47,class 7,wrong,class 2,class 7/5.jpg",
        "46,class 7,wrong,,class 7/4.jpg",
    ]
    (tmp_path / "d.csv").write_text(
        "index,label,decision,new_label,name\n" + "\n".join(rows) + "\n"
    )
    settings = ["noise.kind=none", "noise.rate=0", "training.methods=[bspml]"]
    config = folder_settings(photos, *settings, f"noise.decisions_file={tmp_path / 'd.csv'}")
    data = load_data(config)
    assert data.names[3] == "class 0/3.jpg"
    assert data.labels[data.names.index("class 0/3.jpg")] == "class 1"
    assert data.labels[data.names.index("class 7/5.jpg")] == "class 2"
    assert "class 0/4.jpg" not in data.names
    assert data.test_labels[data.test_names.index("class 0/4.jpg")] == "class 7"
    assert "class 7/4.jpg" not in data.test_names
    assert data.images.shape[0] == len(data.labels) == 24
    lines = Lines()
    folder = run_experiment(config, RunFolder.create(tmp_path / "run"), narrator=lines).folder
    assert lines.said[0] == (
        "training on 4 of 8 classes (24 samples), 4 held out for the evaluation (23 samples), "
        "whose labels nobody judges"
    )
    # Of the four, those of the classes that train.
    assert lines.said[1] == (
        "decided among the training samples: 0 labels kept as right, 2 relabelled, 0 dropped"
    )
    assert "2 samples change sides" in lines.said[2]
    table = read_weights(folder.weights)
    assert table.names == data.names
    decided = {data.names[i] for i, flags in enumerate(table.flags) if "decided" in flags}
    assert decided == {"class 0/3.jpg", "class 7/5.jpg"}


def test_a_relabelling_to_a_class_that_nobody_has_is_noted(photos, tmp_path):
    known = load_config(None, ["data.subset=5"])
    name = load_data(known).labels[0]
    (tmp_path / "d.csv").write_text(f"index,decision,new_label\n0,wrong,{name}x\n")
    setting = f"noise.decisions_file={tmp_path / 'd.csv'}"
    (note,) = load_data(load_config(None, ["data.subset=5", setting])).notes
    said = f"1 sample gets a class that no given label has: '{name}x' (did you mean"
    assert note.startswith(said)
    own = ["noise.kind=none", "noise.rate=0", "training.methods=[bspml]", setting]
    (tmp_path / "d.csv").write_text("index,decision,new_label,name\n0,wrong,clas 1,class 0/0.jpg\n")
    (note,) = load_data(folder_settings(photos, *own)).notes
    assert "'clas 1' (did you mean 'class 1'?)" in note


def test_fewer_classes_than_a_batch_takes_make_smaller_batches(photos, features, tmp_path):
    config = folder_settings(photos, "sampler.classes_per_batch=32", "noise.rate=0.1")
    lines = Lines()
    run_experiment(config, RunFolder.create(tmp_path / "run"), narrator=lines, figures=False)
    assert "`sampler.classes_per_batch` is 32; there are 4 classes" in lines.said[1]
    known = load_config(None, ["data.subset=5", "sampler.classes_per_batch=6"])
    with pytest.raises(ConfigError, match=r"is 6, .* has 5 classes; set sampler.classes_per_bat"):
        experiment_of(known, load_data(known)).check()


@pytest.fixture
def features(tmp_path):
    rng = np.random.default_rng(1)
    labels = np.repeat([f"c{c}" for c in range(40)], 12)
    rows = np.repeat(rng.standard_normal((40, 16)), 12, 0) + 0.3 * rng.standard_normal((480, 16))
    splits = np.where(np.arange(480) < 240, "train", "test")
    np.savez(tmp_path / "features.npz", embeddings=rows, labels=labels, splits=splits)
    return tmp_path / "features.npz"


@pytest.mark.usefixtures("undrawn")
def test_features_judge_the_labels_before_the_head_sees_one(features, tmp_path):
    settings = [*QUICK, "data.name=features", f"data.root={features}", "network.name=mlp"]
    config = load_config(None, [*settings, "training.methods=[bspml]"])
    assert not config.cross_fitted
    data = load_data(config)
    result = run_experiment(config, RunFolder.create(tmp_path / "run"))
    expected = bspml.SelfPacedCurriculum(bspml.SampleWeights(data.codes)).update(data.features)
    records = RecordLog(result.folder.records).read()
    assert records[-1].noise_rate == expected.held[0]
    assert read_json(result.folder.path / "suspects.json")["pictures"] == {}
    assert bspml.load(result.folder.path).embed(data.features).shape == (len(data.codes), 8)


@pytest.mark.parametrize("kind", ["pair-flip", "small-cluster", "open-set", "instance-dependent"])
def test_every_kind_of_noise_is_planted(features, kind):
    settings = [*QUICK, "data.name=features", f"data.root={features}", "network.name=mlp"]
    data = load_data(load_config(None, [*settings, f"noise.kind={kind}", "noise.rate=0.2"]))
    assert data.noise_rate == pytest.approx(0.2, abs=0.03)
    assert np.array_equal(data.labels != data.true_labels, data.is_noisy) or kind == "small-cluster"


def test_the_truth_about_your_own_data_is_not_known(photos, features, tmp_path):
    own = ["noise.kind=none", "noise.rate=0"]
    as_features = ["data.name=features", f"data.root={features}", "network.name=mlp"]
    for config in (folder_settings(photos, *own), load_config(None, [*QUICK, *as_features])):
        data = load_data(config)
        assert (data.true_labels, data.is_noisy, data.noise_rate) == (None, None, None)
    (tmp_path / "d.csv").write_text("index,label,decision\n0,class 0,wrong\n")
    decided = folder_settings(photos, *own, f"noise.decisions_file={tmp_path / 'd.csv'}")
    assert load_data(decided).is_noisy is None
    planted = load_data(folder_settings(photos))
    assert planted.noise_rate == pytest.approx(5 / 24)
    assert np.array_equal(planted.labels != planted.true_labels, planted.is_noisy)


@pytest.mark.usefixtures("undrawn")
def test_without_the_truth_nothing_is_said_of_it(photos, tmp_path):
    config = folder_settings(photos, "noise.kind=none", "noise.rate=0", "training.methods=[bspml]")
    folder = run_experiment(config, RunFolder.create(tmp_path / "run")).folder
    assert all(record.detection_auroc is None for record in RecordLog(folder.records).read())
    assert read_json(folder.summary)["true_noise_rate"] is None
    table = read_weights(folder.weights)
    assert (table.is_noisy, table.true_labels) == (None, None)
    page = (folder.path / "report.html").read_text("utf-8")
    assert "Truly wrong" not in page
    assert "AUROC" not in page


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("clean-only", "clean-only trains on the samples whose labels are right, and of folder"),
        ("prism", "prism needs the noise rate.*`hyperparameters.prism.noise_rate`"),
        ("spms", "spms needs .*`hyperparameters.spms.target_maw`"),
    ],
)
def test_a_method_that_needs_the_truth_is_refused_by_name(photos, method, said):
    settings = ["noise.kind=none", "noise.rate=0", f"training.methods=[{method}]"]
    config = folder_settings(photos, *settings)
    with pytest.raises(ConfigError, match=said):
        experiment_of(config, load_data(config)).check()


def test_validation_holds_training_classes_out_and_leaves_the_test_alone(features):
    settings = [*QUICK, "data.name=features", f"data.root={features}", "network.name=mlp"]
    data = load_data(load_config(None, [*settings, "data.validation=true"]))
    names = {f"c{c}" for c in range(20)}
    assert set(data.test_labels) < names
    assert set(data.labels) == names - set(data.test_labels)


def test_held_out_classes_are_judged_by_the_labels_that_were_corrected(features, tmp_path):
    settings = [*QUICK, "data.name=features", f"data.root={features}", "network.name=mlp"]
    settings.append("data.validation_classes=0.25")
    before = load_data(load_config(None, settings))
    rows = np.flatnonzero(~np.isin(before.split.origin.labels[:240], before.labels))
    (held, dropped), held_class = rows[:2].tolist(), before.validation_labels[0]
    trained, gone = before.split.rows[[0, 1]].tolist()
    given = before.split.origin.labels
    (tmp_path / "d.csv").write_text(
        "index,label,decision,new_label\n"
        f"{held},{given[held]},wrong,{given[trained]}\n{dropped},{given[dropped]},wrong,\n"
        f"{trained},{given[trained]},wrong,{held_class}\n{gone},{given[gone]},wrong,\n"
    )
    data = load_data(load_config(None, [*settings, f"noise.decisions_file={tmp_path / 'd.csv'}"]))
    # The same classes are held out, and each sample stands on the side of its corrected label.
    assert set(data.validation_labels) == set(before.validation_labels)
    expected = {*before.split.rows.tolist(), held} - {trained}
    assert set(data.split.rows.tolist()) == expected
    assert len(data.validation_labels) == len(before.validation_labels) - 1  # + 1 - moved - dropped
    place = data.split.rows.tolist()
    assert data.labels[place.index(held)] == given[trained]
    assert data.decided.decisions[place.index(gone)] == "wrong"
    assert data.decided.weights[place.index(gone)] == 0
    assert data.decided.fixed.sum() == 2
    assert any("1 sample is left out of the held-out classes" in note for note in data.notes)
    assert int(data.codes.max()) == 14  # codes are of the classes that train


@pytest.mark.parametrize("by", ["decisions_file", "labels_file"])
def test_corrections_reach_the_queries_and_the_gallery(features, tmp_path, by):
    with np.load(features) as archive:
        arrays = dict(archive)
    splits = np.where(np.arange(480) % 3 < 2, "gallery", "query").astype("<U9")
    arrays["splits"] = np.where(arrays["splits"] == "train", "train", splits)
    np.savez(tmp_path / "three.npz", **arrays)
    file, given = tmp_path / f"{by}.csv", arrays["labels"]
    rows = "".join(f"{row},{given[row]},wrong,c39\n" for row in (251, 252))
    file.write_text(f"index,label,decision,new_label\n{rows}")
    if by == "labels_file":
        write_corrected(file, apply_decisions(given, read_decisions(file)))
    settings = [*QUICK, "data.name=features", f"data.root={tmp_path / 'three.npz'}"]
    settings += ["network.name=mlp", f"noise.{by}={file}"]
    data, labels = load_data(load_config(None, settings)), given.copy()
    labels[[251, 252]] = "c39"
    assert data.test_labels.tolist() == labels[arrays["splits"] == "query"].tolist()
    assert data.gallery_labels.tolist() == labels[arrays["splits"] == "gallery"].tolist()


def test_nothing_is_held_out_unasked_of_few_classes_or_of_those_of_the_test(tmp_path):
    file, rows = tmp_path / "f.npz", np.random.default_rng(0).random((48, 4))
    labels = np.repeat([f"c{c}" for c in range(12)], 4)
    settings = [*QUICK, "data.name=features", "network.name=mlp", f"data.root={file}"]
    for splits, says in (
        (["train", "train", "test", "test"] * 12, "classes of the test train, too: none is held"),
        (["train"] * 36 + ["test"] * 12, "fewer than 10 classes train: none is held out"),
    ):
        np.savez(file, embeddings=rows, labels=labels, splits=splits)
        data = load_data(load_config(None, settings))
        assert data.validation_labels is None
        assert any(note.startswith(says) for note in data.notes)
    waiting = load_config(None, [*settings, "training.patience=2"])
    with pytest.raises(ConfigError, match=r"`training\.patience` waits .* none is held out by def"):
        experiment_of(waiting, data).check()


def test_a_file_of_labels_holds_out_by_the_labels_it_gives(tmp_path):
    whole = load_data(load_config(None, ["data.subset=8", "noise.kind=none"]))
    held = np.unique(load_data(
        load_config(None, ["data.subset=8", "noise.kind=none", "data.validation_classes=0.25"])
    ).validation_labels)  # fmt: skip
    labels = whole.labels.astype(object)
    ours, others = (np.flatnonzero(np.isin(labels, held) == side) for side in (True, False))
    names = np.unique(labels[others])
    labels[ours[0]], labels[others[:2]] = names[0], held[0]  # one leaves them, two come
    labels[others[-1]] = names[0]
    (tmp_path / "l.txt").write_text("\n".join(labels))
    settings = ["data.subset=8", f"noise.labels_file={tmp_path / 'l.txt'}"]
    data = load_data(load_config(None, [*settings, "data.validation_classes=0.25"]))
    # Those that came are known to be wrong: they neither train nor judge.
    assert set(data.validation_labels) == set(held)
    assert len(data.validation_labels) == len(ours) - 1
    assert len(data.labels) == len(others) - 2 + 1
    wrong = data.labels != data.true_labels
    np.testing.assert_array_equal(data.is_noisy, wrong)
    outlier = data.is_outlier & np.isin(data.true_labels, held)
    assert (outlier.sum(), data.is_outlier.sum()) == (1, 1)  # its class is not among those trained
    assert any("2 samples are left out of the held-out classes" in note for note in data.notes)
    test = load_data(load_config(None, [*settings, "data.validation=true"]))
    assert len(test.test_labels) == len(ours) - 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["network.name=mlp"], "the network would see images: mlp is the one for features"),
        (["data.name=features"], "the network would see features"),
        (["data.features_weights=w.pth"], "`data.features_weights` is w.pth, but nothing rea"),
        (["data.name=glyfs"], "did you mean `glyphs`"),
        (["network.name=resnet50"], "must be one of small-conv, .*, torchvision:MODEL, timm:MODEL"),
        (["network.pooling=gem"], "small-conv has none to choose"),
        (
            ["noise.kind=open-set", "noise.per_class=true"],
            "`noise.kind` to symmetric, pair-flip or sem",
        ),
        (["noise.kind=instance-dependent"], "needs features to look with"),
        (["data.name=cub"], "`root` must name the folder of CUB"),
        (["data.name=features", "network.name=mlp", "data.layout=csv"], "no option `layout`"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings, said):
    def load():
        return load_data(load_config(None, [*QUICK, *settings]))

    with pytest.raises(ConfigError, match=said):
        load()


@pytest.mark.parametrize(
    "settings", [[], ["data.validation=true"], ["data.validation_classes=0.3"]]
)
def test_a_corrected_class_of_the_other_side_leaves_the_data_as_if_right_from_the_start(
    tmp_path, settings
):
    right = np.repeat([f"c{c:02d}" for c in range(32)], 4)
    given, names = right.copy(), [f"{i:03d}.jpg" for i in range(128)]
    given[3] = "c20"  # of a c00 that trains; c20 is a class of the test
    rows = np.random.default_rng(0).normal(size=(128, 4)).astype(np.float32)
    splits = np.where(np.arange(128) < 64, "train", "test")
    decisions = tmp_path / "d.csv"
    decisions.write_text("index,decision,label,new_label,name\n3,wrong,c20,c00,003.jpg\n")
    loaded = []
    for name, labels, more in (
        ("given", given, [f"noise.decisions_file={decisions}"]),
        ("right", right, []),
    ):
        file = tmp_path / f"{name}.npz"
        np.savez(file, embeddings=rows, labels=labels, names=names, splits=splits)
        always = ["data.name=features", f"data.root={file}", "network.name=mlp"]
        always += ["noise.kind=none", "noise.rate=0"]
        loaded.append(load_data(load_config(None, [*always, *settings, *more])))
    corrected, whole = loaded
    for side in ("labels", "test_labels", "validation_labels"):
        one, other = getattr(corrected, side), getattr(whole, side)
        assert (one is None) == (other is None)
        assert one is None or one.tolist() == other.tolist()
    assert not any("share" in note or "held out" in note for note in corrected.notes)
