"""The report as table, summary and files; hostile names and labels."""

import contextlib
import csv
import json
import os
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import bspml
from bspml.auditing import AuditReport, folder, pictures
from bspml.cli import main
from bspml.data.labels.decisions import Decision, apply_decisions, write_corrected
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
    assert found["look_wrong"] == report.flagged.sum()
    others = found["others_fit_another_class_better"]
    assert others == (~report.flagged & (report.margins > 0)).sum()
    assert found["look_wrong"] + others == found["suspects"] == report.suspects.sum()
    assert found["exact_duplicates"] == 1
    assert found["noise_rate"] == report.noise_rate


def test_save_and_load_give_the_same_report(report, tmp_path):
    written = report.save(tmp_path / "deep" / "audit")
    assert {path.name for path in written} == {
        "audit.npz", "audit.csv", "audit.parquet", "classes.csv", "duplicates.csv", "summary.json",
        "page.json", "report.html",
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


def test_texts_title_and_pictures_stay_when_a_loaded_audit_is_saved_again(report, tmp_path):
    pixels = np.random.default_rng(0).random((36, 1, 8, 8))
    report.save(tmp_path / "a", pixels, [f"words of {i}" for i in range(36)], "My title")
    back = AuditReport.load(tmp_path / "a")
    back.save(tmp_path / "b")
    assert (tmp_path / "b" / "page.json").read_bytes() == (tmp_path / "a/page.json").read_bytes()
    assert "My title" in (tmp_path / "b" / "report.html").read_text("utf-8")
    assert back.pictures
    back.save(tmp_path / "b", texts=["new"] * 36, title="Another")
    again = AuditReport.load(tmp_path / "b")
    assert (again.texts.tolist(), again.title) == (["new"] * 36, "Another")
    assert again.pictures == back.pictures


def test_linked_pictures_follow_the_page(report, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "_BUDGET", 0)
    (tmp_path / "im" / "im").mkdir(parents=True)
    for i in range(36):
        (tmp_path / "im" / "im" / f"{i}.png").touch()
    report.save(tmp_path / "a", tmp_path / "im")
    AuditReport.load(tmp_path / "a").save(tmp_path / "deep" / "er" / "b")
    first, moved = (
        json.loads((tmp_path / folder / "page.json").read_text())["suspects"][0]["image"]
        for folder in ("a", "deep/er/b")
    )
    assert first.startswith("../im/im/")
    assert moved == f"../../{first}"


class Killed(BaseException):
    """What no code of ours catches."""


def _audited(classes):
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(3), 8, 0) + 0.1 * rng.standard_normal((24, 3))
    return bspml.audit(x, np.repeat(list(classes), 8))


@pytest.fixture(scope="module")
def two():
    """Audits of different data."""
    return _audited("xyz"), _audited("abc")


# Two steps each: 8 files are written aside and the mark is taken; then 8 are moved, and it is set.
@pytest.mark.parametrize("moment", [0, 15, 17, 18, 22, 25, 26, 27])
def test_an_audit_killed_while_it_writes_leaves_the_old_one_or_a_refusal(
    two, tmp_path, monkeypatch, moment
):
    first, second = two
    first.save(tmp_path)
    steps = iter(range(100))

    def step(real):
        def killed(*arguments):
            if next(steps) == moment:
                raise Killed
            return real(*arguments)

        return killed

    with monkeypatch.context() as patch:
        for name in ("atomic_write", "write_json"):
            patch.setattr(folder, name, step(getattr(folder, name)))
        patch.setattr(Path, "replace", step(Path.replace))
        # As when the process is gone: nobody tidies up.
        patch.setattr(folder.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            second.save(tmp_path)
    if moment <= 17:
        assert AuditReport.load(tmp_path).labels.tolist() == first.labels.tolist()
        assert set(pd.read_csv(tmp_path / "audit.csv")["label"]) == set("xyz")
    else:
        with pytest.raises(RunError, match="the audit in it was interrupted"):
            AuditReport.load(tmp_path)
        assert main(["report", str(tmp_path)]) == 2
    second.save(tmp_path)
    assert AuditReport.load(tmp_path).labels.tolist() == second.labels.tolist()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("name", ["audit.npz", "page.json", "summary.json"])
def test_files_of_different_audits_are_no_audit(two, tmp_path, name):
    first, second = two
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    (tmp_path / "b" / name).replace(tmp_path / "a" / name)
    with pytest.raises(RunError, match=r"of different audits|of another audit"):
        AuditReport.load(tmp_path / "a")
    (tmp_path / "a" / name).unlink()
    if name != "summary.json":  # nothing reads it
        with pytest.raises(RunError, match="run it again"):
            AuditReport.load(tmp_path / "a")


def test_the_same_audit_is_the_same_bytes(tmp_path):
    for place in ("a", "b"):
        _audited("xyz").save(tmp_path / place)
    names = (folder.MARK, *folder.FILES)
    plain = [
        name for name in names if not name.endswith((".npz", ".parquet"))
    ]  # which hold the time
    assert len(plain) == 7
    for name in plain:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("noise_rate", "x"), ("noise_rate", None), ("interval", 5), ("interval", ["a", "b"]),
        ("notes", None), ("notes", [3]), ("sentence", None), ("title", 3),
    ],
)  # fmt: skip
def test_a_mark_with_other_values_is_one_line(report, tmp_path, field, value):
    report.save(tmp_path)
    mark = json.loads((tmp_path / "audit.json").read_text())
    (tmp_path / "audit.json").write_text(json.dumps({**mark, field: value}))
    with pytest.raises(RunError, match=r"audit\.json: cannot be read .*Run the audit again"):
        AuditReport.load(tmp_path)


def test_arrays_damaged_anywhere_are_one_line(report, tmp_path):
    report.save(tmp_path)
    whole = (tmp_path / "audit.npz").read_bytes()
    for place in range(60, len(whole) - 10, max(1, len(whole) // 60)):
        damaged = bytearray(whole)
        damaged[place : place + 6] = b"\xff\x00\xff\x13\x37\xff"
        (tmp_path / "audit.npz").write_bytes(bytes(damaged))
        with contextlib.suppress(RunError):  # or a place that nobody reads
            AuditReport.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weights", np.zeros(3), r"`weights` has the shape \(3,\), for 36 samples"),
        ("labels", np.zeros((36, 2)), r"`labels` has the shape"),
        ("margins", np.full(36, "a"), "`margins` holds no numbers"),
        ("own_neighbours", np.full((36, 3), 36), "samples that do not exist"),
        ("classes.looks_like", None, "lacks the column"),
        ("names", None, "names"),
    ],
)
def test_arrays_of_another_make_are_one_line(report, tmp_path, name, value, message):
    report.save(tmp_path)
    with np.load(tmp_path / "audit.npz") as archive:
        arrays = {key: archive[key] for key in archive.files if key != name or value is not None}
    np.savez(tmp_path / "audit.npz", **arrays | ({name: value} if value is not None else {}))
    with pytest.raises(RunError, match=rf"audit\.npz: cannot be read as the arrays .*{message}"):
        AuditReport.load(tmp_path)


def test_corrected_labels_of_somebody_or_of_other_data_are_not_lost(two, tmp_path):
    first, second = two
    (tmp_path / "labels-corrected.csv").write_text("precious")
    with pytest.raises(RunError, match=r"labels-corrected\.csv: exists already and is not an"):
        first.save(tmp_path)
    first.save(tmp_path / "a")
    made = [Decision(2, "wrong", "z", "", ""), Decision(3, "right", "", "", "")]
    corrected = apply_decisions(first.labels, made)
    write_corrected(tmp_path / "a" / "labels-corrected.csv", corrected)
    first.save(tmp_path / "a")  # the same data
    with pytest.raises(
        RunError, match=r"labels-corrected\.csv: holds decisions about other labels"
    ):
        second.save(tmp_path / "a")
    assert AuditReport.load(tmp_path / "a").labels.tolist() == first.labels.tolist()


@pytest.mark.parametrize("place", ["x" * 300, "a\0b", "", "file/below"])
def test_a_folder_that_cannot_be_is_refused(report, tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot be made|is empty"):
        report.save(place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["report.html", "audit.csv", "page.json"])
def test_a_folder_in_the_way_of_a_file_is_named_before_anything_changes(report, tmp_path, name):
    report.save(tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    before = (tmp_path / "audit.json").read_bytes()
    with pytest.raises(RunError, match=f"{name}: is in the way"):
        report.save(tmp_path)
    assert (tmp_path / "audit.json").read_bytes() == before


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
