"""The main job in small: what a run leaves, that it resumes after kill -9, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import bspml
from bspml.cli import main
from bspml.config import load_config
from bspml.errors import CheckpointError, ConfigError, RunError
from bspml.experiment import run_experiment
from bspml.records import RecordLog, RunFolder, read_json, read_weights

SMALL = [
    "data.subset=24",
    "training.epochs=4",
    "curriculum.warmup_epochs=1",
    "sampler.classes_per_batch=8",
    "evaluation.ks=[1, 2]",
    "training.checkpoint_every=2",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "small"
    config = load_config(None, [*SMALL, "training.reference=true"])
    return run_experiment(config, RunFolder.create(path))


def same(a, b):
    """Equal state, tensors bit for bit."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) or bool(
            (a.isnan() & b.isnan()).any() and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)
        )
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def test_a_run_leaves_records_weights_figures_checkpoints_and_a_summary(finished):
    folder = finished.folder
    records = RecordLog(folder.records).read()
    assert list(dict.fromkeys(r.method for r in records)) == [
        "multi-similarity",
        "bspml",
        "clean-only",
    ]
    table = read_weights(folder.weights)
    assert len(table) == 24 * 16
    assert table.is_noisy.sum() == round(0.3 * 24 * 16)
    assert (table.labels != table.true_labels).sum() == table.is_noisy.sum()
    for name in ("curves.png", "weights.png", "lowest_weights.png"):
        assert (folder.figures / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    page = (folder.path / "report.html").read_text()
    assert "data:image/png;base64," in page
    assert "U+00" in page
    summary = read_json(folder.summary)
    assert summary["true_noise_rate"] == pytest.approx(0.3, abs=1e-3)
    row = finished.results["bspml"]
    retrieval = {"Recall@1 %", "Recall@2 %", "NMI", "AMI", "MAP@R"}
    assert retrieval | {"MAW", "SDAW", "AUROC", "seconds"} <= row.keys()
    assert finished.results["multi-similarity"]["MAW"] == 1.0


def test_every_method_takes_the_same_number_of_steps(finished):
    steps = {}
    for record in RecordLog(finished.folder.records).read():
        steps[record.method] = record.steps
    assert len(set(steps.values())) == 1


def test_reference_run_trains_on_the_clean_samples_alone(finished):
    run = bspml.load(finished.folder.path, "clean-only")
    noisy = torch.from_numpy(read_weights(finished.folder.weights).is_noisy)
    assert torch.equal(run.sample_weights == 0, noisy)


def test_load_gives_the_network_behind_the_recorded_recall(finished):
    run = bspml.load(finished.folder.path)
    from bspml.run import embed_named

    embeddings, labels, names = embed_named(run, "test")
    again = bspml.evaluate(embeddings, labels, ks=[1, 2], clustering=False)
    assert 100 * again.recall_at_k[1] == pytest.approx(finished.results["bspml"]["Recall@1 %"])
    assert not run.model.training
    assert len(names) == len(labels)
    assert run.finished


def start(path, *extra):
    code = "import sys; from bspml.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "train", *SMALL, "-o", str(path), *extra]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def wait_for(condition, process, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def settled(folder):
    """What must not depend on interruptions: all of a run but its clock readings."""
    lines = []
    for record in RecordLog(folder.records).read():
        values = json.loads(record.to_line())
        values.pop("seconds")
        if values["extra"]:
            for key in ("seconds_statistics", "seconds_solve"):
                values["extra"]["curriculum"].pop(key)
        lines.append(values)
    return lines


@pytest.mark.parametrize("method", ["multi-similarity", "bspml"])
def test_a_run_killed_without_warning_resumes_to_the_same_bits(tmp_path, method, finished):
    folder = RunFolder(tmp_path / "killed")
    process = start(folder.path)
    wait_for(folder.checkpoint(method).exists, process)
    process.kill()
    process.communicate()
    assert not folder.finished
    assert main(["train", "--resume", str(folder.path), "--quiet"]) == 0
    whole = finished.folder
    assert settled(folder) == [line for line in settled(whole) if line["method"] != "clean-only"]
    for name in ("multi-similarity", "bspml"):
        one, two = (bspml.checkpoints.load(f.checkpoint(name))["trainer"] for f in (folder, whole))
        for state in (one, two):
            state.pop("generators")  # numpy's and Python's belong to the process
        assert same(one, two)
    assert folder.weights.read_bytes() == whole.weights.read_bytes()


def test_ctrl_c_says_how_to_go_on_and_exits_130(tmp_path):
    folder = RunFolder(tmp_path / "stopped")
    process = start(folder.path)
    wait_for(folder.checkpoint("multi-similarity").exists, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert f"bspml train --resume {folder.path}" in err
    assert "Traceback" not in err


def test_a_full_disk_ends_with_one_sentence_and_nothing_half_written(tmp_path):
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000));"
        "from bspml.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    path = tmp_path / "full"
    done = subprocess.run(
        [sys.executable, "-c", code, "train", *SMALL, "-o", str(path), "--quiet"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert "checkpoint-multi-similarity.pt: cannot be written" in last
    assert not list(path.glob("*.pt"))
    assert not [p for p in path.iterdir() if p.name.startswith(".")]


def test_other_data_than_the_checkpoints_is_refused(finished, tmp_path):
    import shutil

    path = tmp_path / "copy"
    shutil.copytree(finished.folder.path, path)
    text = (path / "config.yaml").read_text().replace("rate: 0.3", "rate: 0.2")
    (path / "config.yaml").write_text(text)
    with pytest.raises(CheckpointError, match="data set"):
        run_experiment(load_config(path / "config.yaml"), RunFolder.open(path), resume=True)


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None])
def test_a_damaged_checkpoint_is_named(finished, tmp_path, damage, capsys):
    import shutil

    path = tmp_path / "copy"
    shutil.copytree(finished.folder.path, path)
    file = path / "checkpoint-bspml.pt"
    file.write_bytes(file.read_bytes()[:5000] if damage is None else damage)
    assert main(["train", "--resume", str(path), "--quiet"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "checkpoint-bspml.pt" in err


def test_an_existing_folder_is_not_written_into(finished):
    with pytest.raises(RunError, match=r"exists already.*--resume"):
        RunFolder.create(finished.folder.path)


def test_a_reference_without_known_truth_or_a_subset_too_large_is_refused(tmp_path):
    with pytest.raises(bspml.errors.DataError, match=r"`data\.subset` is 300.*256 classes"):
        run_experiment(load_config(None, ["data.subset=300"]), RunFolder.create(tmp_path / "a"))
    with pytest.raises(ConfigError, match="all false"):
        load_config(None, ["training.baseline=false", "training.weighted=false"])


def test_labels_of_a_file_are_trained_on(tmp_path):
    data = bspml.data.glyphs.Glyphs("train")
    names = np.array(data.names)[data.labels.numpy()]
    given = names[data.labels.numpy() < 24].copy()
    given[:5] = given[-1]
    file = tmp_path / "labels.txt"
    file.write_text("\n".join(given))
    config = load_config(None, [*SMALL, "training.epochs=2", f"noise.labels_file={file}"])
    result = run_experiment(config, RunFolder.create(tmp_path / "run"), figures=False)
    assert read_weights(result.folder.weights).is_noisy.sum() == 5
    assert Path(result.folder.summary).is_file()
