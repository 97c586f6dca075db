"""The main job under torchrun, in small: the result of one process; killed, and gone on with."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bspml.experiment.config import load_config
from bspml.experiment.run import run_experiment
from bspml.files.run import RecordLog, RunFolder, read_json, read_weights

# Plain gradient steps: Adam turns the last bits of a gradient near zero into whole steps, after
# which two runs that both are right part.
SMALL = ["data.subset=16", "training.epochs=1", "training.methods=[bspml]", "device=cpu"]
SMALL += ["curriculum.warmup_epochs=1", "sampler.classes_per_batch=6", "evaluation.ks=[1]"]
SMALL += ["optimizer.name=sgd", "optimizer.lr=0.001", "training.checkpoint_every=1"]
SMALL += ["evaluation.clustering=false"]
LOSS, RECALL, WEIGHT = 1e-3, 0.03, 0.02  # relative; of 1; share of samples

# test_pml_trainer has the numbers and test_failure the death of a rank, without torchrun.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = RunFolder.create(tmp_path_factory.mktemp("alone") / "run")
    return run_experiment(load_config(None, SMALL), folder, figures=False).folder


def under_torchrun(path, *extra):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    job = ["--nproc-per-node", "2", "-m", "bspml", "train", *SMALL, *extra, "-o", str(path)]
    return subprocess.Popen(
        [*launcher, *job],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), "."])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_alike(folder, expected):
    ours, theirs = (RecordLog(f.records).read() for f in (folder, expected))
    assert ours
    assert [(r.epoch, r.steps, r.phase) for r in ours] == [
        (r.epoch, r.steps, r.phase) for r in theirs
    ]
    assert [r.loss is None for r in ours] == [r.steps == 0 for r in ours]
    for a, b in zip(ours, theirs, strict=True):
        assert a.loss == (b.loss and pytest.approx(b.loss, rel=LOSS))
        assert a.recall_at_k[1] == pytest.approx(b.recall_at_k[1], abs=RECALL)
        near = 1e-4 if a.phase == "weights" else 1e-6  # a fit to embeddings; a count of ranks
        assert a.noise_rate == (b.noise_rate and pytest.approx(b.noise_rate, abs=near))
    weights = [read_weights(f.weights).weights for f in (folder, expected)]
    assert (abs(weights[0] - weights[1]) > 1e-3).mean() <= WEIGHT


def test_two_processes_give_the_result_of_one(alone, tmp_path):
    job = under_torchrun(tmp_path / "run")
    out, err = job.communicate(timeout=300)
    assert job.returncode == 0, err[-3000:]
    folder = RunFolder.open(tmp_path / "run")
    assert_alike(folder, alone)
    assert read_json(folder.summary)["results"]["bspml"]["noise rate"] > 0
    assert out.count("run folder:") == 1  # one table
    lines = re.findall(r"bspml +epoch +0\.\d+", err)
    assert len(lines) == len(set(lines)) > 0


def test_a_killed_rank_ends_the_run_and_one_process_goes_on(alone, tmp_path):
    job = under_torchrun(tmp_path / "run")
    checkpoint = tmp_path / "run" / "checkpoint-bspml.pt"
    for _ in range(3000):
        if checkpoint.exists() or job.poll() is not None:
            break
        time.sleep(0.02)
    os.kill(second_rank(job.pid), signal.SIGKILL)
    start = time.monotonic()
    _, err = job.communicate(timeout=60)
    assert time.monotonic() - start < 60
    assert job.returncode != 0
    assert len(re.findall(r"^bspml: rank 1 of 2 is gone", err, flags=re.MULTILINE)) == 1, err
    assert not (tmp_path / "run" / "summary.json").exists()
    folder = RunFolder.open(tmp_path / "run")
    run_experiment(load_config(folder.config), folder, resume=True, figures=False)
    assert_alike(folder, alone)


def second_rank(launcher):
    """Process id of torchrun's child with RANK=1."""
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                environment = (path / "environ").read_bytes().split(b"\0")
            except (OSError, ValueError):
                continue
            if parent == launcher and b"RANK=1" in environment:
                return int(path.name)
    raise AssertionError("no second rank")
