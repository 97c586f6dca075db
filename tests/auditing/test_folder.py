"""An audit's folder: written as a whole, never over a stranger's files, refused if interrupted."""

import inspect
import json
from pathlib import Path

import pandas as pd
import pytest

from bspml.auditing import AuditReport, folder
from bspml.cli import main
from bspml.data.labels.decisions import Decision, apply_decisions, write_corrected
from bspml.errors import InputError, RunError

pytestmark = pytest.mark.usefixtures("undrawn")


class Killed(BaseException):
    """What no code of ours catches."""


FILES = 10
# Two steps each: the files are written aside and the mark is taken; then they are moved, and it is
# set.
TAKEN = 2 * FILES + 1


@pytest.mark.parametrize("moment", [0, TAKEN - 2, TAKEN, *(TAKEN + n for n in (1, 5, 8, 9, 10))])
def test_an_audit_killed_while_it_writes_leaves_the_old_one_or_the_new_one(
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
        patch.setattr("bspml.files.atomic._remove", lambda path: None)
        with pytest.raises(Killed):
            second.save(tmp_path)
    there = first if moment <= TAKEN else second
    assert main(["report", str(tmp_path)]) == 0
    assert AuditReport.load(tmp_path).labels.tolist() == there.labels.tolist()
    assert set(pd.read_csv(tmp_path / "audit.csv")["label"]) == set(there.labels.tolist())
    second.save(tmp_path)
    assert AuditReport.load(tmp_path).labels.tolist() == second.labels.tolist()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("place", [".0123456789abcdef.tmp", "../elsewhere", 3, None])
def test_what_a_killed_process_left_and_somebody_removed_is_refused(two, tmp_path, place):
    two[0].save(tmp_path / "a")
    mark = json.loads((tmp_path / "a" / "audit.json").read_text())
    moving = {**mark, "state": "writing", "from": place, "files": ["audit.npz"]}
    (tmp_path / "a" / "audit.json").write_text(json.dumps(moving))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "audit.npz").touch()
    with pytest.raises(RunError, match="the audit in it was interrupted"):
        AuditReport.load(tmp_path / "a")
    assert main(["report", str(tmp_path / "a")]) == 2
    assert (tmp_path / "elsewhere" / "audit.npz").exists()


def half_moved(first, second, at, monkeypatch):
    """A folder whose second audit was killed after three of its files had moved."""
    first.save(at)
    replace, calls = Path.replace, iter(range(100))

    def killed(path, target):
        if Path(target) == at / path.name and next(calls) == 3:
            raise Killed
        return replace(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr("bspml.files.atomic._remove", lambda path: None)
        with pytest.raises(Killed):
            second.save(at)
    return json.loads((at / "audit.json").read_text())


def test_what_cannot_be_moved_in_stays_for_the_next_reader(two, tmp_path, monkeypatch):
    mark = half_moved(*two, tmp_path, monkeypatch)
    before = sorted(path.name for path in (tmp_path / mark["from"]).iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", lambda path, target: Path("/nowhere/a").rename("b"))
        with pytest.raises(RunError, match="the audit in it was interrupted"):
            AuditReport.load(tmp_path)
    assert sorted(path.name for path in (tmp_path / mark["from"]).iterdir()) == before
    assert AuditReport.load(tmp_path).labels.tolist() == two[1].labels.tolist()


@pytest.mark.parametrize("change", ["outside", "no files", "a link", "a missing file"])
def test_a_mark_moves_nothing_but_whole_audits_inside_its_folder(
    two, tmp_path, monkeypatch, change
):
    at = tmp_path / "a"
    mark = half_moved(*two, at, monkeypatch)
    place = at / mark["from"]
    if change == "outside":
        place.rename(tmp_path / place.name)
        mark["from"] = f"../{place.name}"
    elif change == "no files":
        mark["files"] = []
    elif change == "a link":
        (place / "page.json").rename(tmp_path / "page.json")
        (place / "page.json").symlink_to(tmp_path / "page.json")
    else:
        (place / "page.json").unlink()
        (at / "page.json").unlink()
    (at / "audit.json").write_text(json.dumps(mark))
    before = set(tmp_path.rglob("*"))
    with pytest.raises(RunError, match="the audit in it was interrupted"):
        AuditReport.load(at)
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("moment", range(0, 10, 3))
def test_an_interrupt_waits_until_the_files_have_moved(two, tmp_path, monkeypatch, moment):
    first, second = two
    first.save(tmp_path)
    replace, calls = Path.replace, iter(range(100))

    def interrupted(path, target):
        if Path(target) == tmp_path / path.name and next(calls) == moment:
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        second.save(tmp_path)
    assert AuditReport.load(tmp_path).labels.tolist() == second.labels.tolist()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_an_audit_that_cannot_be_written_leaves_no_folder_that_it_made(two, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder, "atomic_write", full)
    (tmp_path / "there").mkdir()
    for name in ("new", "there"):
        with pytest.raises(RunError, match="No space left"):
            two[0].save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


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


def test_saving_again_replaces_an_audit_but_nothing_else(hostile_report, saved):
    (saved / "decisions.csv").write_text("mine")
    hostile_report.save(saved)
    assert (saved / "decisions.csv").read_text() == "mine"
    other = saved.parent / "run"
    other.mkdir()
    (other / "summary.json").write_text('{"name": "a run"}')
    with pytest.raises(RunError, match=r"summary.json: exists already and is not an audit's"):
        hostile_report.save(other)
    assert (other / "summary.json").read_text() == '{"name": "a run"}'
    assert [path.name for path in other.iterdir()] == ["summary.json"]


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


def test_a_mark_nested_deeply_marks_nothing(tmp_path):
    (tmp_path / "audit.json").write_text("[" * 100_000)
    assert not folder.is_audit_folder(tmp_path)


@pytest.mark.parametrize("place", ["x" * 300, "a\0b", "", "file/below"])
def test_a_folder_that_cannot_be_is_refused(hostile_report, tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"cannot be made|is empty"):
        hostile_report.save(place)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("wrong", "kind"), [(None, "NoneType"), (3, "int")])
def test_what_is_no_path_is_no_folder(wrong, kind):
    unchecked = inspect.unwrap(folder.named_folder)  # its annotation is checked in tests only
    with pytest.raises(InputError, match=f"`folder` must be the path of .*; got {kind}"):
        unchecked(wrong)


@pytest.mark.parametrize("name", ["report.html", "audit.json", "labels-corrected.csv"])
def test_a_link_in_the_folder_is_refused_before_anything_changes(hostile_report, saved, name):
    (saved / "victim").write_bytes((saved / "audit.json").read_bytes())
    (saved / name).unlink(missing_ok=True)
    (saved / name).symlink_to("victim")
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    with pytest.raises(RunError, match=f"{name}: is a symbolic link"):
        hostile_report.save(saved)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


@pytest.mark.parametrize("name", ["report.html", "audit.csv", "page.json"])
def test_a_folder_in_the_way_of_a_file_is_named_before_anything_changes(
    hostile_report, saved, name
):
    (saved / name).unlink()
    (saved / name).mkdir()
    before = (saved / "audit.json").read_bytes()
    with pytest.raises(RunError, match=f"{name}: is in the way"):
        hostile_report.save(saved)
    assert (saved / "audit.json").read_bytes() == before
