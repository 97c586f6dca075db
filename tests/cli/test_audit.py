"""`bspml audit` from files to files: sources, exit codes, decisions."""

import csv
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from bspml.cli import main
from bspml.cli.audit_source import Options, feature_network, read_source
from bspml.errors import InputError


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(5), 12, 0) + 0.15 * rng.standard_normal((60, 5))
    labels = np.repeat([f"class {c}" for c in "abcde"], 12)
    for i in range(0, 60, 5):
        labels[i] = f"class {'abcde'[(i // 12 + 1 + i % 4) % 5]}"
    return x.astype(np.float32), labels


def run(capsys, *arguments):
    code = main(["audit", *map(str, arguments)])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_npz_with_labels_and_names_gives_sentence_files_and_0(case, capsys):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels, names=[f"n{i}" for i in range(60)])
    code, out, err = run(capsys, "data.npz")
    assert code == 0
    assert out.startswith("Between ")
    assert "60 samples in 5 classes" in out
    assert "-> class " in out
    assert "data-audit: audit.csv, audit.parquet" in out
    assert "auditing 60 labels" in err
    table = pd.read_parquet("data-audit/audit.parquet")
    assert table["name"][0] == f"n{table['index'][0]}"


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
        source = read_source(what, Options(labels=given))
        assert (source.embeddings.numpy() == x).all()
        assert source.labels.tolist() == labels.tolist()
        assert (source.names, source.texts, source.caution) == (None, None, "")


def test_json_is_the_summary_and_the_only_output(case, capsys):
    x, labels = case
    np.save("x.npy", x)
    np.save("y.npy", labels)
    code, out, err = run(capsys, "x.npy", "y.npy", "--json", "-o", "found")
    assert (code, err) == (0, "")
    found = json.loads(out)
    saved = json.loads(Path("found/summary.json").read_text())
    assert found == saved | {"caution": None, "folder": "found", "decisions": None} | {
        "files": found["files"]
    }
    assert "report.html" in found["files"]


def test_fail_above_exits_3_and_only_then(case, capsys):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    code, out, err = run(capsys, "data.npz", "--fail-above", "0.01", "--quiet")
    assert code == 3
    assert "is above --fail-above 0.01" in err
    assert out.startswith("Between ")
    assert "Most suspicious" not in out
    assert run(capsys, "data.npz", "--fail-above", "1", "--quiet")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.npz"], "none.npz: no such file"),
        (["x.npy"], "LABELS is missing: x.npy holds embeddings only"),
        (["x.npy", "short.npy"], "short.npy: has 3 labels, but x.npy has 60 embeddings"),
        (["x.npy", "y.npy", "--fail-above", "10"], "`--fail-above` must be in"),
        (["x.npy", "y.npy", "--backbone", "efficientnet-lite0"], "does not go with --backbone"),
        (["x.npy", "y.npy", "--weights", "w.pt"], "--weights are the weights of a --backbone"),
        (["x.npy", "y.npy", "--names", "x.npy"], "has no names"),
        (["x.npy", "y.npy", "--names", "names.txt"], "has 2 names; the data has 60"),
        (["x.npy", "y.npy", "--images", "."], "none of the samples' names is a file"),
        (["x.npy", "y.npy", "--apply", "none.csv"], "none.csv: cannot be read"),
        (["x.npy", "y.npy", "--device", "cuda:99"], "cuda:99 is not available"),
        (["x.npy", "same.npy"], "at least two classes"),
        (["data.csv"], "Or give LABELS as a file of their own"),
        (["images"], "say what shall embed them, --backbone"),
        (
            ["images", "--backbone", "resnet"],
            "--backbone must be efficientnet-lite0 or torchvision",
        ),
        (["images", "--backbone", "torchvision:resnet18"], "needs --weights FILE"),
    ],
)
def test_mistakes_exit_2_with_one_line(case, capsys, arguments, message):
    x, labels = case
    np.save("x.npy", x)
    np.save("y.npy", labels)
    np.save("short.npy", labels[:3])
    np.save("same.npy", np.full(60, "a"))
    pd.DataFrame(x).add_prefix("d").to_csv("data.csv", index=False)
    Path("names.txt").write_text("a\nb\n")
    (folder := Path("images/a")).mkdir(parents=True)
    Image.new("L", (8, 8)).save(folder / "1.png")
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.rstrip().count("\n") <= 1  # "auditing ..." may come first
    assert "Traceback" not in err


def test_decisions_make_a_corrected_label_file(case, capsys):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    run(capsys, "data.npz")
    Path("decisions.csv").write_text(
        "index,label,decision,new_label\n"
        f"0,{labels[0]},wrong,class a\n5,{labels[5]},wrong,\n6,{labels[6]},right,\n"
    )
    code, out, _ = run(capsys, "data.npz", "--apply", "decisions.csv")
    assert code == 0
    assert "1 labels confirmed, 2 wrong (1 with a new label)" in out
    with Path("data-audit/labels-corrected.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["index", "label", "weight", "decision"]
    assert [row["index"] for row in rows] == [str(i) for i in range(60)]
    assert rows[0] == {"index": "0", "label": "class a", "weight": "1.0", "decision": "wrong"}
    assert rows[5]["weight"] == "0.0"
    assert rows[6] | {"weight": "1.0", "decision": "right"} == rows[6]
    audited = pd.read_parquet("data-audit/audit.parquet").set_index("index")["weight"]
    assert all(float(rows[i]["weight"]) == audited[i] for i in range(7, 60))
    # The same from the folder of the earlier audit, without auditing again.
    first = (Path("data-audit/labels-corrected.csv")).read_bytes()
    code, _, err = run(capsys, "data-audit", "--apply", "decisions.csv", "--json")
    assert (code, err) == (0, "")
    assert (Path("data-audit/labels-corrected.csv")).read_bytes() == first


def test_decisions_about_other_data_are_refused_before_the_work(case, capsys):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    Path("decisions.csv").write_text("index,decision\n99,right\n")
    code, _, err = run(capsys, "data.npz", "--apply", "decisions.csv")
    assert code == 2
    assert "decisions.csv: line 2: there is no sample 99; the data has 60" in err
    assert not Path("data-audit").exists()


def test_terminal_escapes_in_labels_are_shown_and_not_obeyed(case, capsys):
    x, labels = case
    labels = np.char.add(labels, "\x1b[2J\n")
    np.savez("data.npz", embeddings=x, labels=labels)
    code, out, _ = run(capsys, "data.npz")
    assert code == 0
    assert "\x1b" not in out
    assert "\\x1b[2J\\n" in out


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
    assert "1 images lie in no sub-folder" in err


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
    monkeypatch.setattr("bspml.run.load", lambda path: run_)
    data = SimpleNamespace(images=images, labels=labels)
    monkeypatch.setattr("bspml.build.load_data", lambda config: data)
    code, out, _ = run(capsys, "run")
    assert code == 0
    assert "note: This network was trained on these labels, so it is no honest judge" in out
    summary = json.loads(Path("run-audit/summary.json").read_text())
    assert "no honest judge" in summary["notes"][0]
    assert "data:image/png" in Path("run-audit/report.html").read_text("utf-8")
    code, _, err = run(capsys, "run", "labels.npy")
    assert code == 2
    assert "run is a run folder: it does not go with LABELS" in err


def test_texts_come_with_the_names(case, tmp_path):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    frame = pd.DataFrame({"path": [f"{i}.png" for i in range(60)], "text": "hello"})
    frame.to_csv("names.csv", index=False)
    source = read_source("data.npz", Options(names="names.csv"))
    assert source.names[3] == "3.png"
    assert source.texts[3] == "hello"
    with pytest.raises(InputError, match="is a folder of images: say what shall embed"):
        read_source(str(tmp_path), Options())


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_names_follow_their_index_column(case, suffix):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    frame = pd.DataFrame({"index": range(60), "name": [f"n{i}" for i in range(60)]})
    getattr(frame[::-1], f"to_{suffix}")(f"names.{suffix}", index=False)
    assert read_source("data.npz", Options(names=f"names.{suffix}")).names[3] == "n3"


def test_a_name_may_hold_any_line_mark_but_the_line_feed(case):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    names = ["a\u2028b", "c\x0cd", *(f"n{i}" for i in range(58))]
    Path("names.txt").write_text("\n".join(names), "utf-8")
    assert list(read_source("data.npz", Options(names="names.txt")).names) == names


@pytest.mark.parametrize("name", ["names.csv", "summary.json", "audit.json", "audit.npz"])
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(case, capsys, name):
    x, labels = case
    np.savez("data.npz", embeddings=x, labels=labels)
    arguments = ["data.npz", "--names", name]
    if name != "names.csv":
        assert run(capsys, "data.npz")[0] == 0
        os.chdir("data-audit")
        Path(name).unlink(missing_ok=True)
        Path("decisions.csv").write_text("index,decision\n3,right\n")
        arguments = [".", "--apply", "decisions.csv"]
    os.mkfifo(name)
    code, _, err = run(capsys, *arguments)
    if name == "summary.json":  # nothing reads it
        assert code == 0
    else:
        assert (code, err.count("\n")) == (2, 1)
        assert name in err or "is a folder of images" in err  # no mark of an audit: just a folder
