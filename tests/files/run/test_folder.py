from pathlib import Path

import pytest

from bspml.errors import RunError
from bspml.files.run import RunFolder, read_json, write_json


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


def test_the_folder_may_be_a_link_and_nothing_in_it(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to("disk")
    folder = RunFolder.create(tmp_path / "run")
    folder.refuse_links()
    for path in (folder.weights, folder.figures / "curves.png", folder.figures):
        if path == folder.figures:
            path.rmdir()
        path.symlink_to(tmp_path / "victim")
        with pytest.raises(RunError, match=f"{path.name}: is a symbolic link"):
            folder.refuse_links()
        if path != folder.figures:
            path.unlink()
    with pytest.raises(RunError, match="not empty"):
        RunFolder.create(tmp_path / "run")
    assert not (tmp_path / "victim").exists()


def test_a_folder_in_use_names_resume_and_a_free_name(tmp_path):
    RunFolder.create(tmp_path / "a").config.write_text("{}")
    (tmp_path / "a-2").mkdir()
    with pytest.raises(RunError, match=r"not empty\. .*--resume .*/a, or .* such as name=a-3,"):
        RunFolder.create(tmp_path / "a")


def test_a_folder_that_a_kill_left_before_the_configuration_counts_as_empty(tmp_path):
    folder = RunFolder.create(tmp_path / "a")
    (folder.path / ".lock").touch()
    (folder.path / ".0123456789abcdef.tmp").write_bytes(b"half")
    assert RunFolder.create(tmp_path / "a") == folder
    (folder.figures / "mine.png").touch()
    with pytest.raises(RunError, match="not empty"):
        RunFolder.create(tmp_path / "a")


@pytest.mark.parametrize("made", [True, False])
def test_a_discarded_run_leaves_nothing_it_wrote_and_everything_else(tmp_path, made):
    path = tmp_path / "a"
    if not made:
        path.mkdir()
    folder = RunFolder.create(path)
    folder.config.write_text("{}")
    folder.records.write_text("")
    folder.discard()
    assert path.exists() is not made
    if not made:
        assert not list(path.iterdir())
    folder = RunFolder.create(path)
    (path / "mine.txt").touch()
    folder.discard()
    assert [p.name for p in path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("name", ["a" * 300, "a\0b"])
def test_an_impossible_name_is_a_run_error(tmp_path, name):
    with pytest.raises(RunError, match="cannot be made"):
        RunFolder.create(tmp_path / name)
    with pytest.raises(RunError, match=r"cannot be read|no such run folder"):
        RunFolder.open(tmp_path / name)


def test_a_folder_without_permission_is_a_run_error(tmp_path, monkeypatch):
    def denied(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", denied)  # the tests may run as root, who is never denied
    with pytest.raises(RunError, match=r"cannot be read \(Permission denied\)"):
        RunFolder.open(tmp_path)


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "a").touch()
    for path in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(RunError, match="a file is in the way"):
            RunFolder.create(path)


def test_opening_wants_a_run_and_names_those_nearby(tmp_path):
    with pytest.raises(RunError, match="no such run folder"):
        RunFolder.open(tmp_path / "a")
    (tmp_path / "a.npz").touch()
    with pytest.raises(RunError, match=r"a\.npz: is a file; name the folder of a run"):
        RunFolder.open(tmp_path / "a.npz")
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
    folder.remove_leftovers()
    assert not any(folder.figures.iterdir())
    assert sorted(p.name for p in folder.path.iterdir()) == [".mine.tmp", "config.yaml", "figures"]


@pytest.mark.parametrize("content", ["[" * 100_000, "[" * 200 + "]" * 200, '{"a":' * 100_000])
def test_json_is_never_nested_deeply(tmp_path, content):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(RunError, match=r"a\.json: is not JSON \(it is nested too deeply\)"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("[" * 50 + "]" * 50)
    assert read_json(tmp_path / "a.json")


def test_the_summary_marks_the_end_of_a_run(tmp_path):
    folder = RunFolder.create(tmp_path / "a")
    write_json(folder.summary, {"bspml": {"NMI": float("nan"), "recall": 0.5}})
    assert folder.finished
    assert read_json(folder.summary) == {"bspml": {"NMI": None, "recall": 0.5}}


def test_a_summary_that_is_no_json_is_a_run_error(tmp_path):
    (tmp_path / "s.json").write_bytes(b"\xff{")
    with pytest.raises(RunError, match="is not JSON"):
        read_json(tmp_path / "s.json")
    with pytest.raises(RunError, match="no such file; expected a JSON file"):
        read_json(tmp_path / "none.json")
