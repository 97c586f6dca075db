"""The command line: exit codes, one-line errors, and the small commands end to end."""

import errno
import io
import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import bspml
from bspml import noise
from bspml.cli import main
from bspml.files.tables import read_labels
from helpers.commands import run


def test_help_and_version_never_import_torch():
    code = (
        "import sys; from bspml.cli import main\n"
        "assert main(['--help']) == 0 and main(['train', '--help']) == 0\n"
        "assert main(['--version']) == 0 and 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"bspml {bspml.__version__}" in done.stdout


def test_python_m_bspml_is_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "bspml", "trian"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("bspml: No such command")
    assert done.stderr.count("\n") == 1


def test_the_figures_of_a_notebook_are_not_asked_for(tmp_path):
    """`!bspml` hands the notebook's MPLBACKEND over, which matplotlib need not know here."""
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(3), 8, 0) + 0.1 * rng.standard_normal((24, 3))
    np.savez(tmp_path / "x.npz", embeddings=x, labels=np.repeat(list("abc"), 8))
    done = subprocess.run(
        [sys.executable, "-m", "bspml", "audit", "x.npz", "-q"],
        env={**os.environ, "MPLBACKEND": "of_a_notebook"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x-audit" / "report.html").is_file()


_WRITING = (["noise", "y.csv"], ["embed", "run"], ["train"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["trian"], "No such command"),
        (["train", "loss.marign=1"], "unknown key `loss.marign`"),
        (["train", "optimizer.lr=fast"], "`optimizer.lr`"),
        (["train", "nowhere.yaml"], "nowhere.yaml"),
        (["train", "a.yaml", "b.yaml"], "one configuration file at most"),
        (["train", "--resume", "nowhere"], "nowhere: no such run folder"),
        (["train", "--resume", "nowhere", "seed=1"], "--resume goes on with the run's own"),
        (["train", "device=cuda:999"], "`device`: cuda:999 is not available"),
        (["evaluate", "e.npy", "y.csv", "--device", "nope"], "`device` must be auto, cpu"),
        (["evaluate", "e.npy", "y.csv", "--device", "meta"], "`device`: meta is not available"),
        (["evaluate", "nowhere.npy", "y.csv"], "nowhere.npy: no such file"),
        (["evaluate", "e.npy"], "LABELS is missing"),
        (["evaluate", ".", "y.csv", "--gallery", "e.npy"], "with LABELS and --gallery. Leave"),
        (["noise", "z.csv"], "z.csv: no such file"),
        (["noise", "y.csv", "-o", "pipe"], "pipe: is a pipe or a device; nothing was written"),
        (["noise", "z" * 300 + ".csv"], "cannot be read (File name too long)"),
        (["embed", "nowhere"], "nowhere: no such run folder"),
        *(([*command, "-o", ""], "it is empty; name one") for command in _WRITING),
    ],
)
def test_the_users_mistake_is_one_line_on_stderr_and_exit_2(
    capsys, points, monkeypatch, argv, message
):
    monkeypatch.chdir(points)
    os.mkfifo("pipe")
    before = sorted(points.iterdir())
    code, out, err = run(capsys, *argv)
    assert code == 2
    assert message in err
    assert out == ""
    assert err.startswith("bspml: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert sorted(points.iterdir()) == before  # nothing half-written


def test_without_a_command_the_help_is_shown_as_it_is(capsys):
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert err.startswith("Usage: ")
    assert "\n  train " in err


def test_a_warning_is_one_line_without_the_place_in_our_code(capsys, points):
    np.save(points / "e.npy", np.r_[np.zeros((1, 3)), np.load(points / "e.npy")[1:]])
    code, _, err = run(capsys, "evaluate", points / "e.npy", points / "y.csv", "--ks", "1")
    assert code == 0
    assert err.startswith("bspml: warning: ")
    assert err.count("\n") == 1
    assert ".py" not in err


_BROKEN_OUTPUT = """
import errno, sys
from bspml.cli import main
from bspml.cli.terminal import labels_in_words
from bspml.experiment.config import config_from_mapping

class Broken:
    def write(self, text): pass
    def flush(self): raise OSError(int(sys.argv[1]), "no good")

sys.stdout = Broken()
sys.exit(main([sys.argv[2]]))
"""


@pytest.mark.parametrize("option", ["--version", "--help"])
@pytest.mark.parametrize(
    ("number", "code", "message"),
    [(errno.EPIPE, 0, ""), (errno.ENOSPC, 2, "bspml: the output cannot be written (no good)\n")],
)
def test_output_that_ends_early_is_no_fault_of_ours(option, number, code, message):
    done = subprocess.run(
        [sys.executable, "-c", _BROKEN_OUTPUT, str(number), option],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, message)


def test_names_that_the_terminal_cannot_show_are_escaped(points, monkeypatch):
    monkeypatch.chdir(points)
    out, err = io.BytesIO(), io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, "ascii"))
    monkeypatch.setattr("sys.stderr", io.TextIOWrapper(err, "ascii"))
    assert main(["noise", "y.csv", "-o", "ñ.csv"]) == 0
    assert err.getvalue() == b""
    assert out.getvalue().startswith(b"\\xf1.csv: 9 of 30 labels changed")


def test_a_fault_of_ours_shows_its_traceback_and_exits_1(capsys, monkeypatch, points):
    def broken(*_args, **_options):
        raise RuntimeError("a wheel came off")

    monkeypatch.setattr("bspml.cli.evaluate.run_evaluate", broken)
    code, _, err = run(capsys, "evaluate", points / "e.npy", points / "y.csv")
    assert code == 1
    assert "a wheel came off" in err
    assert "please report" in err


@pytest.mark.parametrize("kind", ["symmetric", "pair-flip", "small-cluster", "open-set"])
def test_noise_writes_labels_the_truth_and_the_flags(capsys, points, kind):
    target = points / "noisy.csv"
    code, out, _ = run(
        capsys, "noise", points / "y.csv", "--kind", kind, "--rate", "0.3", "-o", target, "--json"
    )
    rows = [line.split(",") for line in target.read_text().splitlines()[1:]]
    assert code == 0
    assert json.loads(out)["samples"] == 30
    truth = read_labels(points / "y.csv").tolist()
    assert [r[2] for r in rows] == truth
    if kind == "symmetric":
        assert sum(r[1] != r[2] for r in rows) == 9 == sum(int(r[3]) for r in rows)
    assert read_labels(target).tolist() == [r[1] for r in rows]


def test_noise_keeps_what_stands_beside_the_labels(capsys, tmp_path):
    file, target = tmp_path / "y.csv", tmp_path / "noisy.csv"
    lines = [f"{i},{'ab'[i % 2]},photo {i},{i}.50" for i in range(9, -1, -1)]
    file.write_text("\n".join(["index,class,name,age", *lines]))
    assert run(capsys, "noise", file, "--rate", "0.2", "-o", target)[0] == 0
    table = pd.read_csv(target, dtype=str)
    assert table.columns.tolist() == ["index", "label", "true_label", "is_noisy", "name", "age"]
    assert table.name.tolist() == [f"photo {i}" for i in range(10)]
    assert table.age.tolist() == [f"{i}.50" for i in range(10)]
    assert table.true_label.tolist() == list("ab" * 5)
    assert (table.is_noisy == "1").sum() == 2


def test_noise_in_corrected_labels_takes_no_decision_along(capsys, tmp_path):
    file, target = tmp_path / "labels-corrected.csv", tmp_path / "noisy.csv"
    lines = [f"{i},{'ab'[i % 2]},1.0,right,{i}.jpg,a" for i in range(10)]
    file.write_text("\n".join(["index,label,weight,decision,name,given_label", *lines]))
    assert run(capsys, "noise", file, "--rate", "0.2", "-o", target)[0] == 0
    header = target.read_text().splitlines()[0]
    assert header == "index,label,true_label,is_noisy,name"
    file.write_text(file.read_text().replace("3,b,1.0,right", "3,b,0.0,"))  # flagged, not decided
    assert run(capsys, "noise", file, "--rate", "0.2", "-o", target)[0] == 0
    file.write_text(file.read_text().replace("3,b,0.0,", "3,b,0.0,wrong"))
    code, _, err = run(capsys, "noise", file, "--rate", "0.2", "-o", tmp_path / "again.csv")
    assert code == 2
    assert "1 label was decided to be wrong, and no right one is known" in err


@pytest.mark.parametrize("kind", [".csv", ".npz", ".parquet"])
def test_noise_refuses_labels_that_have_noise_in_them_already(capsys, points, kind):
    noisy, target = points / f"noisy{kind}", points / "twice.csv"
    first = points / "first.csv" if kind == ".parquet" else noisy
    assert run(capsys, "noise", points / "y.csv", "--rate", "0.3", "-o", first)[0] == 0
    if kind == ".parquet":
        pd.read_csv(first).to_parquet(noisy)
    code, _, err = run(capsys, "noise", noisy, "--rate", "0.3", "-o", target)
    assert code == 2
    assert f"noisy{kind}: has the column `true_label`" in err
    assert "remove true_label and is_noisy." in err
    assert not target.exists()


def test_noise_takes_the_conventions_of_the_papers(capsys, points):
    file, target = points / "y.csv", points / "noisy.npz"
    options = ["--keep-original", "--by-chance", "--rate", "0.5", "-o", target]
    assert run(capsys, "noise", file, *options)[0] == 0
    saved = noise.load(target)
    given = read_labels(file)
    expected = noise.symmetric(given, 0.5, keep_original=True, exact=False)
    assert saved.labels.tolist() == expected.labels.tolist()
    assert read_labels(target).tolist() == expected.labels.tolist()
    code, _, err = run(capsys, "noise", file, "--kind", "open-set", "--by-chance")
    assert code == 2
    assert "--by-chance goes with symmetric and pair-flip; got --kind open-set" in err
    code, _, err = run(capsys, "noise", file, "--per-class", "--by-chance")
    assert code == 2
    assert "--per-class fixes the counts that --by-chance leaves open; give one." in err


def test_noise_by_the_names_of_classes(capsys, tmp_path):
    names = ["red fox", "arctic fox", "barn owl", "snowy owl"]
    (tmp_path / "y.txt").write_text("\n".join(names * 5))
    options = ["--kind", "semantic", "--per-class", "--rate", "0.4", "-o", tmp_path / "noisy.csv"]
    assert run(capsys, "noise", tmp_path / "y.txt", *options)[0] == 0
    rows = [line.split(",") for line in (tmp_path / "noisy.csv").read_text().splitlines()[1:]]
    assert sum(int(row[3]) for row in rows) == 8
    assert all(row[1].split()[1] == row[2].split()[1] for row in rows)


def test_noise_refuses_an_unknown_kind_or_rate(capsys, points):
    assert run(capsys, "noise", points / "y.csv", "--kind", "loud")[0] == 2
    code, _, err = run(capsys, "noise", points / "y.csv", "--rate", "1.5")
    assert (code, "`rate`" in err) == (2, True)
