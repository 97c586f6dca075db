"""What `bspml audit` reads: files, folders of images, runs."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from bspml.cli import main
from bspml.cli.audit_source import read_source
from bspml.cli.options import AuditOptions
from bspml.data.labels.decisions import CorrectedLabels
from bspml.errors import DataError, InputError
from bspml.experiment.config import load_config
from bspml.experiment.data import load_data
from bspml.networks import feature_network
from bspml.networks.feature_cache import extraction
from helpers.commands import run_audit as run
from helpers.photos import save_photos

pytestmark = pytest.mark.usefixtures("undrawn")


def test_every_kind_of_file_gives_the_same_embeddings_and_labels(case):
    x, labels = case
    frame = pd.DataFrame(x, columns=[f"d{i}" for i in range(5)]).assign(label=labels)
    frame.to_csv("data.csv", index=False, float_format="%.9g")
    frame.to_parquet("data.parquet")
    np.savez("data.npz", embeddings=x, labels=labels)
    np.save("x.npy", x)
    np.save("y.npy", labels)
    pd.DataFrame({"label": labels}).to_csv("y.csv")
    sources = [("data.npz", None), ("data.csv", None), ("data.parquet", None)]
    for what, given in [*sources, ("x.npy", "y.npy"), ("x.npy", "y.csv")]:
        source = read_source(AuditOptions(what, labels=given))
        assert (source.embeddings.numpy() == x).all()
        assert source.labels.tolist() == labels.tolist()
        assert (source.names, source.texts, source.caution) == (None, None, "")


@pytest.mark.parametrize(
    ("folders", "is_refused"),
    [
        (("train", "val"), True),  # as the training refuses
        (("Train", "Test"), True),
        (("train", "test", "val"), True),
        (("train", "test", "notes"), True),  # which the training leaves out
        (("bus", "train"), False),
        (("test", "train-2", "val"), False),
    ],
)
def test_splits_are_known_by_their_names(case, capsys, folders, is_refused):
    for name in folders:
        Path("pets", name, "cat").mkdir(parents=True)
        Image.new("L", (8, 8)).save(f"pets/{name}/cat/1.png")
    code, _, err = run(capsys, "pets", "--backbone", "torchvision:none")
    assert code == 2
    assert ("are splits, not classes" in err) == is_refused


def test_splits_are_no_classes(case, capsys):
    for name in ("train/cat", "test/dog"):
        Path("pets", name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(f"pets/{name}/1.png")
    code, _, err = run(capsys, "pets", "--backbone", "efficientnet-lite0")
    assert code == 2
    assert "test and train are splits, not classes" in err
    assert "Name one of them, such as pets/train" in err
    code, _, err = run(capsys, "pets/train", "--backbone", "efficientnet-lite0")
    assert (code, "pets/train: holds one class, 'cat'" in err) == (2, True)
    Path("nested/pets/dog").mkdir(parents=True)
    shutil.copytree("pets/train/cat", "nested/pets/cat")
    shutil.copy("pets/train/cat/1.png", "nested/pets/dog")
    code, _, err = run(capsys, "nested", "--backbone", "efficientnet-lite0")
    assert err.endswith("If cat, dog are the classes, name nested/pets.\n")


def test_a_folder_of_images_is_embedded_by_a_backbone(case, capsys, tmp_path):
    from torchvision import models

    rng = np.random.default_rng(0)
    for colour in ("red", "green"):
        (tmp_path / "pictures" / colour).mkdir(parents=True)
        for i in range(3):
            pixels = rng.integers(0, 60, (16, 16, 3)).astype(np.uint8)
            pixels[..., 0 if colour == "red" else 1] += 180
            Image.fromarray(pixels).save(tmp_path / "pictures" / colour / f"{i}.png")
    torch.save({"x": torch.zeros(1)}, "other.pt")
    torch.save(models.get_model("shufflenet_v2_x0_5").state_dict(), "weights.pt")
    backbone = ["--backbone", "torchvision:shufflenet_v2_x0_5"]
    code, _, err = run(capsys, "pictures", *backbone, "--weights", "other.pt")
    assert code == 2
    assert "does not fit" in err
    code, out, _ = run(capsys, "pictures", *backbone, "--weights", "weights.pt", "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["samples"], found["classes"]) == (6, 2)
    table = pd.read_parquet("pictures-audit/audit.parquet")
    assert set(table["name"]) == {f"{c}/{i}.png" for c in ("red", "green") for i in range(3)}
    Image.new("L", (8, 8)).save("pictures/loose.png")
    code, _, err = run(capsys, "pictures", *backbone, "--weights", "weights.pt")
    assert code == 2
    assert "1 image lies in no sub-folder" in err


def test_features_are_those_before_the_last_layer(case, tmp_path):
    from torchvision import models

    torch.manual_seed(0)
    model = models.get_model("shufflenet_v2_x0_5").eval()
    torch.save(model.state_dict(), "w.pt")
    network = feature_network("torchvision:shufflenet_v2_x0_5", "w.pt")
    with torch.no_grad():
        features = network(torch.rand(2, 3, 64, 64))
        assert features.shape == (2, 1024)


def test_a_run_is_audited_with_its_network_and_a_caution(case, capsys, monkeypatch):
    x, labels = case
    Path("run").mkdir()
    Path("run/config.yaml").touch()
    images = torch.from_numpy(x).reshape(60, 1, 1, 5).clamp(0, 1)
    run_ = SimpleNamespace(config=None, embed=lambda pixels: pixels.flatten(1))
    monkeypatch.setattr("bspml.experiment.load.load", lambda path: run_)
    data = SimpleNamespace(images=images, labels=labels, names=None, split=None, decided=None)
    monkeypatch.setattr("bspml.experiment.data.load_data", lambda config, to_train: data)
    monkeypatch.setattr("bspml.experiment.embed.changes", lambda run, data: "")
    code, out, _ = run(capsys, "run")
    assert code == 0
    assert "note: This network was trained on these labels, so it is no honest judge" in out
    summary = json.loads(Path("run-audit/summary.json").read_text())
    assert "no honest judge" in summary["notes"][0]
    assert "data:image/png" in Path("run-audit/report.html").read_text("utf-8")
    code, _, err = run(capsys, "run", "labels.npy")
    assert code == 2
    assert "run is a run folder: it does not go with LABELS" in err
    # What a person decided before the training is decided in its audit, too.
    rows, new, words = [3, 7, 9], labels.copy(), np.full(60, "", dtype="<U6")
    new[9], words[rows] = labels[0] if labels[0] != labels[9] else labels[-1], "wrong"
    lines = [f"{i},wrong,{labels[i]},{new[9] if i == 9 else ''},n{i}" for i in rows]
    Path("d.csv").write_text("\n".join(["index,decision,label,new_label,name", *lines]))
    run_.config = SimpleNamespace(noise=SimpleNamespace(decisions_file="d.csv", labels_file=None))
    data.names, data.labels = [f"n{i}" for i in range(60)], new
    data.decided = CorrectedLabels(new, np.ones(60), words, given=labels)
    assert run(capsys, "run", "-o", "decided")[0] == 0
    assert json.loads(Path("decided/summary.json").read_text())["decided"] == 3
    table = pd.read_csv("decided/labels-corrected.csv")
    assert table.weight[rows].tolist() == [0, 0, 1]
    assert table.label[9] == new[9]
    assert table.given_label.tolist() == labels.tolist()
    Path("d.csv").write_text(f"index,decision,label\n3,wrong,{labels[3]}")
    code, _, err = run(capsys, "run", "-o", "open")
    assert code == 0
    assert "note: what was decided before the training counts as open: d.csv: earlier deci" in err
    assert json.loads(Path("open/summary.json").read_text())["decided"] == 0


def test_texts_come_with_the_names(case, tmp_path):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    frame = pd.DataFrame({"path": [f"{i}.png" for i in range(60)], "text": "hello"})
    frame.to_csv("names.csv", index=False)
    source = read_source(AuditOptions("data.npz", names="names.csv"))
    assert source.names[3] == "3.png"
    assert source.texts[3] == "hello"
    inside = [f"photos/{i}.png" for i in range(60)]
    np.savez("named.npz", embeddings=x, labels=labels, names=inside)
    assert read_source(AuditOptions("named.npz", names="names.csv")).names[3] == "3.png"
    frame[["text"]].to_csv("texts.csv", index=False)  # the names stay those beside the data
    source = read_source(AuditOptions("named.npz", names="texts.csv"))
    assert (source.names[3], source.texts[3]) == ("photos/3.png", "hello")
    frame[::-1].to_csv("turned.csv", index=False)
    with pytest.raises(DataError, match=r"calls sample 0 '59\.png', which is 'photos/0\.png' b"):
        read_source(AuditOptions("named.npz", names="turned.csv"))
    # Photos that are called alike in every class are told by its folder.
    inside = [f"photos/{'ab'[i // 30]}/{i % 30}.png" for i in range(60)]
    np.savez("alike.npz", embeddings=x, labels=labels, names=inside)
    frame.assign(path=[name[7:] for name in inside]).to_csv("names.csv", index=False)
    assert read_source(AuditOptions("alike.npz", names="names.csv")).names[30] == "b/0.png"
    frame.assign(path=[name[7:] for name in inside[30:] + inside[:30]]).to_csv("other.csv")
    with pytest.raises(DataError, match=r"calls sample 0 'b/0\.png', which is 'photos/a/0\.png' b"):
        read_source(AuditOptions("alike.npz", names="other.csv"))
    np.save("x.npy", x)
    frame.assign(label=labels).to_csv("labelled.csv", index=False)
    source = read_source(AuditOptions("x.npy", labels="labelled.csv"))
    assert (source.names[3], source.texts[3]) == ("3.png", "hello")
    # They are those of the row that the label is taken from.
    beside = pd.DataFrame({"name": inside, "label": labels, "text": [f"t{i}" for i in range(60)]})
    beside[::-1].to_csv("mixed.csv", index=False)
    source = read_source(AuditOptions("alike.npz", labels="mixed.csv"))
    assert (source.labels.tolist(), source.texts[3]) == (labels.tolist(), "t3")
    Path("labels.txt").write_text("\n".join(map(str, labels)))
    assert read_source(AuditOptions("x.npy", labels="labels.txt")).names is None
    with pytest.raises(InputError, match="is a folder of images: say what shall embed"):
        read_source(AuditOptions(str(tmp_path)))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_names_follow_their_index_column(case, suffix):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    frame = pd.DataFrame({"index": range(60), "name": [f"n{i}" for i in range(60)]})
    getattr(frame[::-1], f"to_{suffix}")(f"names.{suffix}", index=False)
    assert read_source(AuditOptions("data.npz", names=f"names.{suffix}")).names[3] == "n3"


def test_a_name_may_hold_any_line_mark_but_the_line_feed(case):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    names = ["a\u2028b", "c\x0cd", *(f"n{i}" for i in range(58))]
    Path("names.txt").write_text("\n".join(names), "utf-8")
    assert list(read_source(AuditOptions("data.npz", names="names.txt")).names) == names


class Counting(torch.nn.Module):
    """Means of parts of the picture; counts the pictures that it saw."""

    def __init__(self):
        super().__init__()
        self.pool, self.seen = torch.nn.AdaptiveAvgPool2d(3), 0

    def forward(self, images):
        self.seen += len(images)
        return self.pool(images).flatten(1)


def test_audit_training_and_embed_show_a_picture_alike_and_embed_it_once(
    case, capsys, tmp_path, monkeypatch
):
    net, photos = Counting(), save_photos(tmp_path / "photos", 4, 4, (60, 30), "c{}/{}.png")
    monkeypatch.setattr(extraction, "feature_network", lambda backbone, weights=None: net)
    monkeypatch.setenv("BSPML_CACHE", str(tmp_path / "cache"))
    settings = [
        "data.name=folder", f"data.root={photos}", "data.features=efficientnet-lite0",
        "network.name=mlp", "network.embedding_size=4", "training.epochs=1",
        "training.methods=[multi-similarity]", "evaluation.ks=[1]", "evaluation.clustering=false",
    ]  # fmt: skip
    audited = read_source(AuditOptions(str(photos), backbone="efficientnet-lite0"))
    assert net.seen == 16
    assert "embedding 16 images with efficientnet-lite0" in capsys.readouterr().err
    assert main(["train", *settings, "--output", "run", "--quiet"]) == 0
    for what in ("test", str(photos), str(photos / "c1")):
        assert main(["embed", "run", what, "--method", "multi-similarity", "-o", "e.npz"]) == 0
    again = read_source(AuditOptions(str(photos), backbone="efficientnet-lite0"))
    assert net.seen == 16
    assert torch.equal(again.embeddings, audited.embeddings)
    # The evaluation view, by hand: shorter side to 256, centre of 224.
    data = load_data(load_config(None, settings))
    torch.testing.assert_close(torch.cat([data.images, data.test_images]), audited.embeddings)
    with Image.open(photos / "c0" / "0.png") as image:
        view = image.resize((256, 512), Image.Resampling.BILINEAR).crop((16, 144, 240, 368))
    by_hand = net(torch.from_numpy(np.array(view)).permute(2, 0, 1)[None] / 255)[0]
    found = audited.embeddings[audited.names.index("c0/0.png")]
    torch.testing.assert_close(found, by_hand, atol=2e-3, rtol=0)


@pytest.mark.parametrize("name", ["photos", "photos/../photos"])
def test_the_files_of_an_audit_are_not_put_among_the_photos(capsys, tmp_path, monkeypatch, name):
    photos = save_photos(tmp_path / "photos", 3, 4, (40, 40), "c{}/{}.png")
    monkeypatch.setattr(extraction, "feature_network", lambda backbone, weights=None: Counting())
    monkeypatch.setenv("BSPML_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    before = sorted(photos.rglob("*"))
    assert main(["audit", "photos", "--backbone", "efficientnet-lite0", "-o", name]) == 2
    assert f"--output {name} is the folder of the photos; name one" in capsys.readouterr().err
    assert sorted(photos.rglob("*")) == before
