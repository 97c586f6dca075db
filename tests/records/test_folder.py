import pytest

from bspml.errors import RunError
from bspml.records import RunFolder, read_json, write_json


def test_a_new_folder_has_every_place(tmp_path):
    folder = RunFolder.create(tmp_path / "runs" / "a")
    assert folder.figures.is_dir()
    files = (folder.config, folder.records, folder.weights, folder.summary)
    names = [path.name for path in files]
    assert names == ["config.yaml", "records.jsonl", "weights.csv", "summary.json"]
    assert folder.checkpoint("bspml") != folder.checkpoint("plain")
    assert not folder.finished


def test_an_empty_folder_will_do(tmp_path):
    assert RunFolder.create(tmp_path).path == tmp_path


def test_a_folder_in_use_names_resume_and_a_free_name(tmp_path):
    RunFolder.create(tmp_path / "a")
    (tmp_path / "a-2").mkdir()
    with pytest.raises(RunError, match=r"not empty\. .*--resume .*/a, or .* such as a-3\."):
        RunFolder.create(tmp_path / "a")


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "a").touch()
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(RunError, match="a file is in the way"):
            RunFolder.create(path)


def test_opening_wants_a_run_and_names_those_nearby(tmp_path):
    with pytest.raises(RunError, match="no such run folder"):
        RunFolder.open(tmp_path / "a")
    run = RunFolder.create(tmp_path / "a")
    with pytest.raises(RunError, match=r"not a run folder \(no config.yaml in it\)"):
        RunFolder.open(tmp_path / "a")
    run.config.write_text("{}")
    assert RunFolder.open(tmp_path / "a") == run
    with pytest.raises(RunError, match=r"no such run folder; .* has a"):
        RunFolder.open(tmp_path / "b")


def test_what_a_kill_left_half_written_is_removed_and_nothing_else(tmp_path):
    folder = RunFolder.create(tmp_path / "a")
    folder.config.write_text("{}")
    (folder.path / ".0123456789abcdef.tmp").write_bytes(b"half")
    (folder.figures / ".0123456789abcdef.tmp").write_bytes(b"half")
    (folder.path / ".mine.tmp").write_bytes(b"kept")
    assert folder.remove_leftovers() == 2
    assert sorted(p.name for p in folder.path.iterdir()) == [".mine.tmp", "config.yaml", "figures"]


def test_the_summary_marks_the_end_of_a_run(tmp_path):
    folder = RunFolder.create(tmp_path / "a")
    write_json(folder.summary, {"bspml": {"NMI": float("nan"), "recall": 0.5}})
    assert folder.finished
    assert read_json(folder.summary) == {"bspml": {"NMI": None, "recall": 0.5}}


def test_a_summary_that_is_no_json_is_a_run_error(tmp_path):
    (tmp_path / "s.json").write_bytes(b"\xff{")
    with pytest.raises(RunError, match="is not JSON"):
        read_json(tmp_path / "s.json")
    with pytest.raises(RunError, match="cannot be read"):
        read_json(tmp_path / "none.json")
