"""The report as table, summary and files; hostile names and labels."""

import csv
import json
import os
import sys

import numpy as np
import pandas as pd
import pytest

import bspml
from bspml.auditing import AuditReport
from bspml.errors import DataError, InputError, RunError

NASTY = ["=SUM(A1)", "</script><script>alert(1)</script>", "a,b\n\"c'"]


@pytest.fixture(scope="module")
def report():
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(3), 12, 0) + 0.1 * rng.standard_normal((36, 3))
    labels = np.repeat(NASTY, 12).tolist()
    labels[0], labels[13] = labels[13], labels[0]
    x[20] = x[21]  # an exact copy
    names = [f"../{i}\x00<b>" if i == 3 else f"im/{i}.png" for i in range(36)]
    return bspml.audit(x, labels, names)


def test_table_has_every_sample_by_margin(report):
    table = report.table()
    assert list(table.columns) == [
        "index", "name", "label", "suggested_label", "margin", "p_value", "q_value", "weight",
        "testable", "verdict", "own_neighbours", "other_label", "other_neighbours",
    ]  # fmt: skip
    assert sorted(table["index"]) == list(range(36))
    assert (np.diff(table["margin"]) <= 0).all()
    assert set(table["index"][:2]) == {0, 13}
    for row in table.to_dict("records"):
        i = row["index"]
        assert row["name"] == report.names[i]
        assert row["label"] == report.labels[i]
        assert row["own_neighbours"] == " ".join(map(str, report.own_neighbours[i]))


def test_verdicts_in_their_order(report):
    table = report.table().set_index("index")
    assert table["verdict"][0] in ("looks wrong, fits another class", "fits another class better")
    assert table["verdict"][5] == "fits"


def test_summary_counts_what_the_parts_hold(report):
    found = report.summary()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["samples"] == 36
    assert found["classes"] == 3
    assert found["flagged"] == report.flagged.sum()
    assert found["exact_duplicates"] == 1
    assert found["noise_rate"] == report.noise_rate


def test_save_and_load_give_the_same_report(report, tmp_path):
    written = report.save(tmp_path / "deep" / "audit")
    assert {path.name for path in written} == {
        "audit.npz", "audit.csv", "audit.parquet", "classes.csv", "duplicates.csv", "summary.json",
        "report.html",
    }  # fmt: skip
    back = AuditReport.load(tmp_path / "deep" / "audit")
    pd.testing.assert_frame_equal(back.table(), report.table())
    pd.testing.assert_frame_equal(back.classes, report.classes, check_dtype=False)
    pd.testing.assert_frame_equal(back.duplicates, report.duplicates, check_dtype=False)
    assert back.summary() == report.summary()
    assert not list((tmp_path / "deep" / "audit").glob(".*"))


def test_files_hold_the_table(report, tmp_path):
    report.save(tmp_path)
    parquet = pd.read_parquet(tmp_path / "audit.parquet")
    assert parquet["label"].tolist() == report.table()["label"].tolist()
    assert parquet["margin"].tolist() == report.table()["margin"].tolist()
    with (tmp_path / "audit.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["index"]) for row in rows] == report.order().tolist()
    # What a spreadsheet would run is marked as text.
    assert "'=SUM(A1)" in {row["label"] for row in rows}
    assert all(not row[c].startswith(("=", "+", "@")) for row in rows for c in row)
    assert json.loads((tmp_path / "summary.json").read_text())["samples"] == 36
    with (tmp_path / "classes.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3


def test_saving_again_replaces_an_audit_but_nothing_else(report, tmp_path):
    report.save(tmp_path)
    (tmp_path / "decisions.csv").write_text("mine")
    report.save(tmp_path)
    assert (tmp_path / "decisions.csv").read_text() == "mine"
    other = tmp_path / "run"
    other.mkdir()
    (other / "summary.json").write_text('{"name": "a run"}')
    with pytest.raises(RunError, match=r"summary.json: exists already and is not an audit's"):
        report.save(other)
    assert (other / "summary.json").read_text() == '{"name": "a run"}'
    assert [path.name for path in other.iterdir()] == ["summary.json"]


def test_damaged_and_foreign_folders_are_refused(report, tmp_path):
    with pytest.raises(RunError, match="is not the folder of an audit"):
        AuditReport.load(tmp_path)
    report.save(tmp_path)
    whole = (tmp_path / "audit.npz").read_bytes()
    (tmp_path / "audit.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match=r"audit.npz: cannot be read .*Run the audit again"):
        AuditReport.load(tmp_path)
    with pytest.raises(RunError, match="cannot be made"):
        report.save(tmp_path / "audit.csv" / "below")


def test_page_carries_hostile_words_as_data_only(report, tmp_path):
    report.save(tmp_path)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "<script>alert(1)" not in page
    assert "\\u003cscript\\u003ealert(1)" in page


def test_without_jinja_everything_but_the_page_is_written(report, tmp_path, monkeypatch):
    report.save(tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    written = report.save(tmp_path)
    assert "report.html" not in {path.name for path in written}
    assert not (tmp_path / "report.html").exists()  # an old page would tell another story


@pytest.mark.skipif(os.name != "posix", reason="file names are bytes on POSIX only")
def test_names_that_are_no_unicode_survive(tmp_path):
    x = np.repeat(np.eye(2), 4, 0)
    names = [os.fsdecode(b"\xff%d" % i) for i in range(8)]
    report = bspml.audit(x, list("aaaabbbb"), names)
    report.save(tmp_path)
    assert AuditReport.load(tmp_path).names.tolist() == names
    assert len(pd.read_parquet(tmp_path / "audit.parquet")) == 8


def test_texts_and_images_must_fit_the_samples(report, tmp_path):
    with pytest.raises(InputError, match="`texts` must be one per sample, 36; got 1"):
        report.save(tmp_path, texts=["x"])
    with pytest.raises(InputError, match=r"N = 36; got \(2, 1, 8, 8\)"):
        report.save(tmp_path, images=np.zeros((2, 1, 8, 8)))
    with pytest.raises(DataError, match="no such folder of images"):
        report.save(tmp_path, images=tmp_path / "none")
    with pytest.raises(DataError, match="none of the samples' names is a file"):
        report.save(tmp_path, images=tmp_path)
    assert list(tmp_path.iterdir()) == []  # refused before anything was written
