"""The comparison of label_errors.py: what is kept, what is measured, what counts as behind."""

from __future__ import annotations

import importlib
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.places import REPOSITORY


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    names = ("competitors", "label_errors", "label_error_tables", "local_data")
    return SimpleNamespace(**{name: importlib.import_module(name) for name in names})


def small(modules):
    """Six classes in two groups, three of them each; two people gave the labels."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 10)
    features = 3 * np.eye(6)[labels] + rng.normal(0, 0.5, (60, 6))
    human = labels.copy()
    human[::10] = (human[::10] + 1) % 6
    groups = np.array(["b", "b", "b", "a", "a", "a"])
    return modules.local_data.DataSet(features.astype(np.float32), labels, groups, {"worse": human})


def test_precision_shares_ties_by_hand(modules):
    wrong = np.array([True, False, True, False, True, False])
    scores = np.array([9.0, 5, 5, 5, 1, 0])
    # Three are wrong: the first, then two places for the three tied, of which one is wrong.
    expected = (1 + 2 / 3) / 3
    assert modules.label_error_tables.precision_at(wrong, scores) == pytest.approx(expected)


def test_copies_carry_labels_and_truth_of_their_originals(modules):
    data = small(modules)
    near = np.array([[(c + 1) % 6] for c in range(6)])
    plain = modules.label_errors.draw(data, "similar-1 0.3", 3, near)
    copied = modules.label_errors.draw(data, "similar-1 0.3 copied", 3, near)
    assert len(copied.labels) == 72
    assert copied.labels[:60].tolist() == plain.labels.tolist()
    known = {row.tobytes(): (y, w) for row, y, w in zip(*plain.__dict__.values(), strict=True)}
    for row, y, w in zip(copied.features, copied.labels, copied.wrong, strict=True):
        assert known[row.tobytes()] == (y, w)
    assert plain.wrong.sum() == 18


def test_first_groups_are_numbered_anew(modules):
    data = modules.label_errors.first_groups(small(modules), 1)
    assert data.groups.tolist() == ["a", "a", "a"]
    assert np.unique(data.labels).tolist() == [0, 1, 2]
    assert len(data.features) == len(data.human["worse"]) == 30


@pytest.mark.parametrize(
    ("lead", "behind"),
    [((0.02, 0.02, 0.02), True), ((0.004,) * 3, False), ((0.2, -0.19, 0.2), False)],
)
def test_behind_is_more_than_tolerated_and_two_errors(modules, monkeypatch, lead, behind):
    tables = modules.label_error_tables
    row = tables.Row("d", "n", [np.zeros(1)] * 3, [{}] * 3)
    others = dict.fromkeys(tables.OTHERS, np.zeros(3)) | {"vote": np.full(3, 0.5) + lead}
    values = dict.fromkeys(tables.OURS, np.full(3, 0.5)) | others
    monkeypatch.setattr(tables.Row, "values", lambda self, measure: values)
    verdict = row.verdict("AUROC")
    assert (verdict["best"], verdict["behind"]) == ("vote", behind)
    assert verdict["error"] == pytest.approx(np.std(lead, ddof=1) / 3**0.5)


@pytest.mark.slow
def test_theirs_are_kept_while_ours_are_judged_anew(modules, monkeypatch, tmp_path, capsys):
    pytest.importorskip("cleanlab")
    monkeypatch.setattr(modules.label_errors, "load", lambda *_: small(modules))

    def run(*more):
        places = [f"--{name}={tmp_path}" for name in ("root", "cache", "store")]
        words = ["--only", "d", "--seeds", "2", "--noise", "random 0", "random 0.3", "worse"]
        monkeypatch.setattr(sys, "argv", ["label_errors.py", *places, *words, *more])
        modules.label_errors.main()
        return capsys.readouterr().out

    run("--part", "competitors")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["competitors"]
    theirs = {path: path.stat().st_mtime_ns for path in (tmp_path / "competitors").iterdir()}
    assert len(theirs) == 4
    printed = run("--version", "new")
    assert {path: path.stat().st_mtime_ns for path in theirs} == theirs
    assert len(list((tmp_path / "new").iterdir())) == 4
    lines = (tmp_path / "verdicts-new.jsonl").read_text().splitlines()
    verdicts = [json.loads(line) for line in lines]
    assert [(v["measure"], v["noise"]) for v in verdicts] == [
        (measure, noise)
        for measure in ("AUROC", "average precision", "precision")
        for noise in ("random 0.3", "worse")
    ]
    assert all(np.isfinite(v["error"]) for v in verdicts)
    assert "| d | random 0.3 | " in printed
    assert "| d | random 0 | " in printed.split("on clean labels")[1].split("Estimates")[0]
    assert "behind in" in printed
    assert run("--version", "new") == printed
