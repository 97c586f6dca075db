"""An audit as files and back: hostile names and labels, damage anywhere, the same bytes."""

import contextlib
import csv
import json
import os
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import bspml
from bspml.auditing import AuditReport, files, folder, pictures
from bspml.errors import DataError, InputError, RunError
from bspml.files.arrays import text_objects, unpacked_texts
from bspml.files.tables import read_names


def test_save_and_load_give_the_same_report(hostile_report, tmp_path):
    written = hostile_report.save(tmp_path / "deep" / "audit")
    assert {path.name for path in written} == {
        "audit.npz", "audit.csv", "audit.parquet", "classes.csv", "confusions.csv",
        "duplicates.csv", "groups.csv", "summary.json", "page.json", "report.html",
    }  # fmt: skip
    back = AuditReport.load(tmp_path / "deep" / "audit")
    pd.testing.assert_frame_equal(back.table(), hostile_report.table())
    pd.testing.assert_frame_equal(back.classes, hostile_report.classes, check_dtype=False)
    pd.testing.assert_frame_equal(back.duplicates, hostile_report.duplicates, check_dtype=False)
    assert back.summary() == hostile_report.summary()
    assert not list((tmp_path / "deep" / "audit").glob(".*"))


def test_files_hold_the_table(hostile_report, drawn):
    parquet = pd.read_parquet(drawn / "audit.parquet")
    assert parquet["label"].tolist() == hostile_report.table()["label"].tolist()
    assert parquet["margin"].tolist() == hostile_report.table()["margin"].tolist()
    with (drawn / "audit.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["index"]) for row in rows] == hostile_report.order().tolist()
    # What a spreadsheet would run is marked as text.
    assert "'=SUM(A1)" in {row["label"] for row in rows}
    assert all(not row[c].startswith(("=", "+", "@")) for row in rows for c in row)
    assert json.loads((drawn / "summary.json").read_text())["samples"] == 36
    with (drawn / "classes.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3


@pytest.mark.usefixtures("undrawn")
def test_texts_title_and_pictures_stay_when_a_loaded_audit_is_saved_again(hostile_report, tmp_path):
    pixels = np.random.default_rng(0).random((36, 1, 8, 8))
    hostile_report.save(tmp_path / "a", pixels, [f"words of {i}" for i in range(36)], "My title")
    back = AuditReport.load(tmp_path / "a")
    back.save(tmp_path / "b")
    assert (tmp_path / "b" / "page.json").read_bytes() == (tmp_path / "a/page.json").read_bytes()
    assert "My title" in (tmp_path / "b" / "report.html").read_text("utf-8")
    assert back.pictures
    back.save(tmp_path / "b", texts=["new"] * 36, title="Another")
    again = AuditReport.load(tmp_path / "b")
    assert (again.texts.tolist(), again.title) == (["new"] * 36, "Another")
    assert again.pictures == back.pictures


def test_the_map_stays_when_a_loaded_audit_is_saved_again(hostile_report, drawn):
    back = AuditReport.load(drawn)
    assert (back.embedding_map == hostile_report.embedding_map).all()
    assert back.map_method == "pca"
    assert back.photo_checks is None


@pytest.mark.usefixtures("undrawn")
def test_photos_are_checked_once_and_the_findings_stay(hostile_report, tmp_path, monkeypatch):
    (tmp_path / "photos" / "im").mkdir(parents=True)
    for i in (0, 4, 7):
        (tmp_path / "photos" / "im" / f"{i}.png").touch()
    found = pd.DataFrame({"index": [4, 7], "problem": ["dark", "blurred"], "score": [0.1, 0.2]})
    asked = []
    monkeypatch.setattr(files, "photo_checks", lambda paths: asked.append([*paths]) or found)
    hostile_report.save(tmp_path / "a", tmp_path / "photos")
    with (tmp_path / "a" / "photo_checks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["index"], row["problem"], row["name"]) for row in rows] == [
        ("4", "dark", "im/4.png"), ("7", "blurred", "im/7.png"),
    ]  # fmt: skip
    AuditReport.load(tmp_path / "a").save(tmp_path / "b")
    page = json.loads((tmp_path / "b" / "page.json").read_text())
    assert [(p["index"], p["problems"]) for p in page["photo_checks"]] == [
        (4, ["dark"]), (7, ["blurred"]),
    ]  # fmt: skip
    assert asked == [[0, 4, 7]]


@pytest.mark.usefixtures("undrawn")
def test_without_the_library_the_page_says_how_photos_are_checked(
    hostile_report, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "cleanvision", None)
    (tmp_path / "photos" / "im").mkdir(parents=True)
    (tmp_path / "photos" / "im" / "0.png").touch()
    written = hostile_report.save(tmp_path / "a", tmp_path / "photos")
    assert not any(path.name == "photo_checks.csv" for path in written)
    page = json.loads((tmp_path / "a" / "page.json").read_text())
    notes = [value for name, value in page["facts"] if name == "note"]
    assert sum("pip install 'bspml[photo-checks]'" in note for note in notes) == 1
    hostile_report.save(tmp_path / "b")
    assert "photo-checks" not in (tmp_path / "b" / "page.json").read_text()


@pytest.mark.usefixtures("undrawn")
def test_linked_pictures_follow_the_page(hostile_report, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "_BUDGET", 0)
    (tmp_path / "im" / "im").mkdir(parents=True)
    for i in range(36):
        (tmp_path / "im" / "im" / f"{i}.png").touch()
    hostile_report.save(tmp_path / "a", tmp_path / "im")
    AuditReport.load(tmp_path / "a").save(tmp_path / "deep" / "er" / "b")
    first, moved = (
        json.loads((tmp_path / folder / "page.json").read_text())["suspects"][0]["image"]
        for folder in ("a", "deep/er/b")
    )
    assert first.startswith("../im/im/")
    assert moved == f"../../{first}"


@pytest.mark.usefixtures("undrawn")
def test_one_long_text_does_not_make_the_others_longer(hostile_report, tmp_path):
    n = len(hostile_report)
    texts = ["x" * 100_000, *["short"] * (n - 1)]
    report = replace(hostile_report, names=text_objects(["n" * 200_000, *"n" * (n - 1)]))
    report.save(tmp_path, texts=texts)
    with np.load(tmp_path / "audit.npz") as archive:
        assert sum(archive[name].nbytes for name in archive.files) < 500_000
    again = AuditReport.load(tmp_path)
    assert (again.texts.tolist(), again.names.tolist()) == (texts, report.names.tolist())
    assert read_names(tmp_path / "audit.csv")[0] in report.names.tolist()


@pytest.mark.usefixtures("undrawn")
def test_an_audit_whose_texts_are_arrays_of_fixed_width_is_read(hostile_report, tmp_path):
    hostile_report.save(tmp_path, texts=["t"] * len(hostile_report))
    with np.load(tmp_path / "audit.npz") as archive:
        arrays = unpacked_texts(dict(archive))
    np.savez(tmp_path / "audit.npz", **{n: a.astype(str) if a.dtype == object else a
                                        for n, a in arrays.items()})  # fmt: skip
    again = AuditReport.load(tmp_path)
    assert again.names[5] == hostile_report.names[5]
    assert again.classes["label"].tolist() == hostile_report.classes["label"].tolist()


def test_the_same_audit_is_the_same_bytes(audited, tmp_path):
    for place in ("a", "b"):
        audited("xyz").save(tmp_path / place)
    for name in (folder.MARK, *folder.FILES):
        # Archives hold the time, and there are no photos.
        if not name.endswith((".npz", ".parquet")) and name != "photo_checks.csv":
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("noise_rate", "x"), ("noise_rate", None), ("interval", 5), ("interval", ["a", "b"]),
        ("notes", None), ("notes", [3]), ("sentence", None), ("title", 3),
    ],
)  # fmt: skip
def test_a_mark_with_other_values_is_one_line(saved, field, value):
    mark = json.loads((saved / "audit.json").read_text())
    (saved / "audit.json").write_text(json.dumps({**mark, field: value}))
    with pytest.raises(RunError, match=r"audit\.json: cannot be read .*Run the audit again"):
        AuditReport.load(saved)


def test_arrays_damaged_anywhere_are_one_line(saved):
    whole = (saved / "audit.npz").read_bytes()
    for place in range(60, len(whole) - 10, max(1, len(whole) // 60)):
        damaged = bytearray(whole)
        damaged[place : place + 6] = b"\xff\x00\xff\x13\x37\xff"
        (saved / "audit.npz").write_bytes(bytes(damaged))
        with contextlib.suppress(RunError):  # or a place that nobody reads
            AuditReport.load(saved)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("weights", np.zeros(3), r"`weights` has the shape \(3,\), for 36 samples"),
        ("labels", np.zeros((36, 2)), r"`labels` has the shape"),
        ("margins", np.full(36, "a"), "`margins` holds no numbers"),
        ("weights", np.full(36, np.nan), "`weights` holds NaN"),
        ("p_values", np.full(36, 2.0), "`p_values` holds numbers outside 0 to 1"),
        ("testable", np.ones(36), "`testable` holds something else than true and false"),
        ("labels", np.full(36, 0.5), "`labels` holds neither whole numbers nor text"),
        ("own_neighbours", np.full((36, 3), 36), "samples that do not exist"),
        ("classes.looks_like", None, "lacks the column"),
        ("names", None, "names"),
    ],
)
def test_arrays_of_another_make_are_one_line(saved, name, value, message):
    with np.load(saved / "audit.npz") as archive:
        arrays = {
            k: archive[k] for k in archive.files if not k.startswith(name) or value is not None
        }
    np.savez(saved / "audit.npz", **arrays | ({name: value} if value is not None else {}))
    said = rf"audit\.npz: cannot be read as the arrays of an audit \(.*{message}"
    with pytest.raises(RunError, match=said):
        AuditReport.load(saved)


@pytest.mark.usefixtures("undrawn")
def test_damaged_and_foreign_folders_are_refused(hostile_report, tmp_path):
    with pytest.raises(RunError, match="is not the folder of an audit"):
        AuditReport.load(tmp_path)
    hostile_report.save(tmp_path)
    whole = (tmp_path / "audit.npz").read_bytes()
    (tmp_path / "audit.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match=r"audit.npz: cannot be read .*Run the audit again"):
        AuditReport.load(tmp_path)
    with pytest.raises(RunError, match="cannot be made"):
        hostile_report.save(tmp_path / "audit.csv" / "below")


def test_page_carries_hostile_words_as_data_only(drawn):
    page = (drawn / "report.html").read_text("utf-8")
    assert "<script>alert(1)" not in page
    assert "\\u003cscript\\u003ealert(1)" in page


def test_without_jinja_everything_but_the_page_is_written(hostile_report, saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    written = hostile_report.save(saved)
    assert "report.html" not in {path.name for path in written}
    assert not (saved / "report.html").exists()  # an old page would tell another story


@pytest.mark.skipif(os.name != "posix", reason="file names are bytes on POSIX only")
@pytest.mark.usefixtures("undrawn")
def test_names_that_are_no_unicode_survive(tmp_path):
    x = np.repeat(np.eye(2), 4, 0)
    names = [os.fsdecode(b"\xff%d" % i) for i in range(8)]
    report = bspml.audit(x, list("aaaabbbb"), names)
    report.save(tmp_path)
    assert AuditReport.load(tmp_path).names.tolist() == names
    assert len(pd.read_parquet(tmp_path / "audit.parquet")) == 8


def test_texts_and_images_must_fit_the_samples(hostile_report, tmp_path):
    with pytest.raises(InputError, match="`texts` must be one text per sample, 36; got 1"):
        hostile_report.save(tmp_path, texts=["x"])
    for wrong in (dict.fromkeys(range(36), "x"), {str(i) for i in range(36)}, [None] * 36):
        with pytest.raises(InputError, match="`texts` must be"):
            hostile_report.save(tmp_path, texts=wrong)
    with pytest.raises(InputError, match=r"N = 36; got \(2, 1, 8, 8\)"):
        hostile_report.save(tmp_path, images=np.zeros((2, 1, 8, 8)))
    with pytest.raises(DataError, match="no such folder of images"):
        hostile_report.save(tmp_path, images=tmp_path / "none")
    with pytest.raises(DataError, match="none of the samples' names is a file"):
        hostile_report.save(tmp_path, images=tmp_path)
    assert list(tmp_path.iterdir()) == []  # refused before anything was written
