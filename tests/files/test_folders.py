"""Folders that are complete or not there, and files that change together."""

import errno
import os
import sys

import pytest

from bspml.errors import RunError
from bspml.files.folders import aside, cache_dir, check_new_folder, new_folder, write_files


def test_what_is_aside_is_gone_at_the_end_whatever_happened(tmp_path):
    with pytest.raises(KeyboardInterrupt), aside(tmp_path) as place:  # noqa: PT012
        (place / "half").write_text("x")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_files_replace_those_of_their_names_and_links_are_not_followed(tmp_path):
    (tmp_path / "precious").write_text("mine")
    folder = tmp_path / "to"
    folder.mkdir()
    (folder / "a").symlink_to(tmp_path / "precious")
    with pytest.raises(RunError, match="a: is a symbolic link"):
        write_files(folder, {"b": b"2", "a": "1"})
    assert not (folder / "b").exists()
    (folder / "a").unlink()
    (tmp_path / "to-tool").symlink_to(folder)
    with pytest.raises(RunError, match="to-tool: is a symbolic link"):
        write_files(tmp_path / "to-tool", {"b": b"2"})
    (folder / "other").write_text("stays")
    assert [path.name for path in write_files(folder, {"a": "1", "b": b"2"})] == ["a", "b"]
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "a": "1",
        "b": "2",
        "other": "stays",
    }
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_full_disk_replaces_no_file(tmp_path):
    write_files(tmp_path, {"a": "old", "b": "old"})

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(RunError, match=rf"^{tmp_path}/b: cannot be written \(No space left"):
        write_files(tmp_path, {"a": "new", "b": full})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert (tmp_path / "a").read_text() == "old"


def test_a_new_folder_appears_at_once_or_not_at_all(tmp_path):
    new = tmp_path / "new"
    with new_folder(new) as place:
        (place / "a").write_text("1")
        assert not new.exists()
    assert (new / "a").read_text() == "1"
    empty = tmp_path / "empty"
    empty.mkdir()
    with new_folder(empty) as place:
        (place / "b").write_text("2")
    assert (empty / "b").read_text() == "2"
    with pytest.raises(RunError, match="nothing is left of it"), new_folder(tmp_path / "c"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "new"]


def test_what_killed_processes_left_goes_first(tmp_path):
    for folder in (tmp_path, tmp_path / "files"):
        (folder / ".0123456789abcdef.tmp" / "some").mkdir(parents=True)
    write_files(tmp_path / "files", {"a": b"1"})
    assert [path.name for path in (tmp_path / "files").iterdir()] == ["a"]
    with new_folder(tmp_path / "new"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["files", "new"]


def test_what_came_in_the_meantime_is_not_written_over(tmp_path):
    new = tmp_path / "new"
    with pytest.raises(RunError, match="cannot be made"), new_folder(new) as place:  # noqa: PT012
        (place / "a").write_text("ours")
        new.mkdir()
        (new / "a").write_text("theirs")
    assert (new / "a").read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [new]


def test_places_that_cannot_become_a_new_folder_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/.hidden").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "dangling").symlink_to("nowhere")
    cases = {
        "file": "exists already and is no folder",
        "full": "holds something already, and nothing is written over",
        "link": "exists already and is no folder",
        "dangling": "exists already and is no folder",
        "none/new": "no folder .*none to make it in",
        "": "holds something already",
        "a\0b": "cannot be made",
        "x" * 300: "cannot be made .*too long",
    }
    for name, message in cases.items():
        with pytest.raises(RunError, match=message):
            check_new_folder(tmp_path / name if name else tmp_path, "--copy-to")
    check_new_folder(tmp_path / "empty", "--copy-to")
    check_new_folder(tmp_path / "new", "--copy-to")
    assert not os.path.lexists("new")


def test_the_cache_folder_is_root_then_bspml_cache_then_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("BSPML_CACHE", raising=False)
    assert cache_dir() == tmp_path / "xdg" / "bspml"
    monkeypatch.setenv("BSPML_CACHE", str(tmp_path / "ours"))
    assert cache_dir() == tmp_path / "ours"
    assert cache_dir(tmp_path / "root") == tmp_path / "root"
    monkeypatch.delenv("BSPML_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "platform", "linux")
    assert cache_dir() == tmp_path / "home" / ".cache" / "bspml"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_dir() == tmp_path / "home" / "Library" / "Caches" / "bspml"
