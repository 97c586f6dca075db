"""`bspml train` and what evaluates and embeds with its run."""

import json
from pathlib import Path

import numpy as np
import pytest

from bspml.experiment.config.shipped import FOLDER
from bspml.files.tables import read_embeddings, read_labels
from helpers.commands import run

pytestmark = pytest.mark.usefixtures("undrawn")

# A run of seconds.
SMALL = [
    "data.subset=20",
    "training.epochs=2",
    "curriculum.warmup_epochs=1",
    "sampler.classes_per_batch=8",
    "evaluation.ks=[1]",
    "training.methods=[auto:contrastive]",
]


def test_shipped_configs_are_listed_with_a_sentence_and_printed_as_they_are_written(capsys):
    code, out, _ = run(capsys, "configs")
    assert code == 0
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert lines["glyphs"] == "The main job: what `bspml train` does with no argument."
    assert all(line[0].isupper() and line.endswith(".") for line in lines.values())
    _, out, _ = run(capsys, "configs", "classification/digits")
    assert out == (FOLDER / "classification/digits.yaml").read_text(encoding="utf-8")
    code, _, err = run(capsys, "configs", "glyps")
    assert code == 2
    assert "must be one of cars196, " in err


def test_train_embed_evaluate_and_load_work_together(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "train", *SMALL, "--seed", 3, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["run"] == "runs/glyphs"
    assert "recall" not in err.lower()
    code, out, _ = run(capsys, "evaluate", "runs/glyphs", "--ks", "1", "--json")
    assert 100 * json.loads(out)["recall_at_1"] == pytest.approx(
        result["results"]["auto:contrastive"]["Recall@1 %"]
    )
    _, out, _ = run(capsys, "evaluate", "runs/glyphs", "--json")  # the K of the run's own table
    found = {name.rpartition("_")[2] for name in json.loads(out) if name.startswith("recall_at")}
    columns = result["results"]["auto:contrastive"]
    assert found - {"low", "high"} == {
        c[7:-2] for c in columns if c.startswith("Recall@") and c.endswith(" %")
    }
    Path("train").mkdir()
    code, _, err = run(capsys, "embed", "runs/glyphs", "train", "-o", "out.npz")
    assert code == 0
    assert "train is the run's own train split; for the folder write ./train" in err
    code, _, err = run(capsys, "embed", "runs/glyphs", "./train")
    assert (code, "train: holds no image" in err) == (2, True)
    with np.load("out.npz", allow_pickle=False) as archive:
        assert archive["embeddings"].shape == (320, 128)
    assert read_embeddings("out.npz").shape == (320, 128)
    assert len(read_labels("out.npz")) == 320
    code, _, err = run(capsys, "train", *SMALL)
    assert (code, "exists already" in err, "such as name=glyphs-2, or" in err) == (2, True, True)
    code, _, err = run(capsys, "evaluate", "runs/glyphs", "--method", "clean-only")
    assert (code, "it has auto:contrastive" in err) == (2, True)


def test_the_last_line_names_the_files_that_the_run_left(capsys, tmp_path):
    folder = tmp_path / "run"
    settings = [s for s in SMALL if not s.startswith("curriculum")]
    alone = [*settings, "training.epochs=1", "training.methods=[contrastive]"]
    code, out, err = run(capsys, "train", *alone, "--output", folder)
    assert code == 0, err
    named = out.splitlines()[-1].partition("  (")[2].removesuffix(")").split(", ")
    assert "records.jsonl" in named
    assert "weights.csv" not in named  # the loss alone weighs no sample
    assert all((folder / name).exists() for name in named)


def test_embed_takes_a_folder_of_images(capsys, tmp_path, monkeypatch):
    from PIL import Image

    monkeypatch.chdir(tmp_path)
    settings = ["data.subset=8", "training.epochs=1", "sampler.classes_per_batch=8"]
    settings += ["training.methods=[multi-similarity]", "evaluation.clustering=false"]
    assert run(capsys, "train", *settings, "-q")[0] == 0
    rng = np.random.default_rng(0)
    for name in ("cat/1.PNG", "cat/2.jpg", "dog/1.png", ".hidden/1.png", "cat/._2.jpg"):
        path = tmp_path / "pets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = "L" if name.endswith("2.jpg") else "RGB"
        shape = (30, 40) if mode == "L" else (30, 40, 3)
        Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8)).save(path, format="PNG")
    command = ["embed", "runs/glyphs", "pets", "--method", "multi-similarity"]
    code, out, err = run(capsys, *command)
    assert code == 0, err
    with np.load("pets-embeddings.npz") as archive:
        assert archive["names"].tolist() == ["cat/1.PNG", "cat/2.jpg", "dog/1.png"]
        assert archive["labels"].tolist() == ["cat", "cat", "dog"]
    (tmp_path / "pets" / "dog" / "1.png").write_bytes(b"\x89PNG truncated")
    code, out, err = run(capsys, *command, "-o", "again.npz")
    assert (code, out) == (2, "")
    assert "pets/dog/1.png: cannot be read as an image" in err
    assert not (tmp_path / "again.npz").exists()
