"""Runs and an audit that version 0.1 wrote still open, report and apply.

`old_runs` was made by the last commit before the modules moved into their rooms: `finished` and
`interrupted` train bspml, bspml-paper and superloss:contrastive on 8 classes of glyphs (stopped in
the second method), `classification` the digits, `audit` the embeddings of `finished`.
"""

import json
import shutil
from pathlib import Path

import pytest
import torch

from bspml.cli import main
from bspml.experiment.config import load_config
from bspml.experiment.data import load_data

OLD = Path(__file__).parent / "old_runs"


@pytest.fixture
def old(tmp_path):
    """A copy of the old runs, which may be written into."""
    shutil.copytree(OLD, tmp_path / "old")
    return tmp_path / "old"


def records(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def check_same_glyphs(folder, checkpoint):
    """The runs hold the identity of their pictures; another matplotlib may draw others."""
    ours = load_data(load_config(folder / "config.yaml")).fingerprint
    saved = torch.load(folder / checkpoint, weights_only=True)["fingerprint"]
    if saved != ours:
        pytest.skip("matplotlib here draws the glyphs otherwise than where the run was made")


@pytest.mark.parametrize("name", ["finished", "classification"])
def test_a_finished_run_is_reported(old, name):
    assert main(["report", str(old / name)]) == 0
    assert "<html" in (old / name / "report.html").read_text("utf-8")


def test_the_networks_of_a_finished_run_embed_and_evaluate(old, tmp_path):
    check_same_glyphs(old / "finished", "checkpoint-bspml.pt")
    assert main(["evaluate", str(old / "finished")]) == 0
    out = tmp_path / "test.npz"
    assert main(["embed", str(old / "finished"), "test", "-o", str(out)]) == 0


def test_an_interrupted_run_of_another_order_of_batches_is_not_gone_on_with(old, capsys):
    folder = old / "interrupted"
    check_same_glyphs(folder, "checkpoint-bspml.pt")
    before = records(folder / "records.jsonl")
    assert main(["train", "--resume", str(folder), "--quiet"]) == 2
    assert "draws its batches in another order" in capsys.readouterr().err
    assert records(folder / "records.jsonl") == before


def test_an_audit_is_reported_and_decisions_on_it_are_applied(old):
    audit = str(old / "audit")
    assert main(["report", audit]) == 0
    assert main(["audit", audit, "--apply", str(OLD / "decisions.csv")]) == 0
    corrected = (old / "audit" / "labels-corrected.csv").read_text("utf-8").splitlines()
    before = (OLD / "labels-corrected.csv").read_text("utf-8").splitlines()
    # Which ended with the name; now the given label stands behind it.
    assert [line.rpartition(",")[0] for line in corrected] == before


def test_a_loss_that_changed_its_meaning_is_not_gone_on_with(old, capsys):
    folder = old / "finished"
    check_same_glyphs(folder, "checkpoint-bspml.pt")
    assert main(["train", "--resume", str(folder), "--quiet"]) != 0
    assert (
        "checkpoint-superloss+contrastive.pt: was begun when contrastive" in capsys.readouterr().err
    )
