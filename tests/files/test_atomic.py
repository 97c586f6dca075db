import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bspml.errors import RunError
from bspml.files.atomic import (
    atomic_write,
    changed_in_place,
    make_folder_in,
    out_of_sight,
    remove_leftovers,
)

# Python ignores SIGXFSZ, so the limit shows as OSError(EFBIG), like a full disk's ENOSPC.
_FULL_DISK = """
import resource, sys
from bspml.errors import RunError
from bspml.files.atomic import (
    atomic_write,
    changed_in_place,
    make_folder_in,
    out_of_sight,
    remove_leftovers,
)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    atomic_write(sys.argv[1], b"x" * 5000)
except RunError as err:
    print(err)
"""


def names(folder):
    return sorted(p.name for p in folder.iterdir())


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"ab", b"ab"), ("é", "é".encode()), (lambda f: f.write(b"abc"), b"abc"), (b"", b"")],
)
def test_bytes_text_and_a_writer_reach_the_file(tmp_path, content, expected):
    path = tmp_path / "a.txt"
    assert atomic_write(path, content) == path
    assert path.read_bytes() == expected
    assert names(tmp_path) == ["a.txt"]


def test_a_file_name_that_is_not_unicode_survives_as_text(tmp_path):
    text = os.fsdecode(b"caf\xe9.png")
    atomic_write(tmp_path / "a", text)
    assert (tmp_path / "a").read_bytes().decode("utf-8", "surrogatepass") == text


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    path = tmp_path / "a"
    atomic_write(path, b"old")

    def write(file):
        file.write(b"half")
        raise failure

    with pytest.raises(failure):
        atomic_write(path, write)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_full_disk_names_the_file_and_leaves_the_old_one(tmp_path):
    path = tmp_path / "a"
    atomic_write(path, b"old")
    done = subprocess.run(
        [sys.executable, "-c", _FULL_DISK, str(path)], capture_output=True, text=True, check=True
    )
    assert f"{path}: cannot be written (File too large)" in done.stdout
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


def test_a_disk_error_hidden_by_the_writer_is_named_all_the_same(tmp_path, monkeypatch):
    class FullFile:
        def write(self, data):
            raise OSError(28, "No space left on device")

    def write(file):  # as torch.save does: its C++ writer raises an error of its own
        file._file = FullFile()
        try:
            file.write(b"x")
        except OSError:
            raise RuntimeError("unexpected pos") from None

    with pytest.raises(RunError, match="No space left on device"):
        atomic_write(tmp_path / "a", write)
    assert names(tmp_path) == []


def test_a_missing_folder_is_a_run_error(tmp_path):
    with pytest.raises(RunError, match=r"a: there is no folder .*none to write in; make that"):
        atomic_write(tmp_path / "none" / "a", b"")


def test_the_longest_name_works(tmp_path):
    assert atomic_write(tmp_path / ("n" * 255), b"").exists()


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "far").mkdir()
    victim = tmp_path / "far" / "a"
    victim.write_bytes(b"old")
    links = {"file": victim, "dangling": tmp_path / "far" / "b", "folder": tmp_path / "far"}
    for name, place in links.items():
        (tmp_path / name).symlink_to(place)
    (tmp_path / "hard").hardlink_to(victim)
    refused = r"{}: is a symbolic link, and bspml never writes through one. Remove it, or name what"
    for name in links:
        with pytest.raises(RunError, match=refused.format(name)):
            atomic_write(tmp_path / name, b"new")
        with pytest.raises(RunError, match=refused.format(name)):
            make_folder_in(tmp_path, name)
        for mode in ("a+b", "r+b"):
            with pytest.raises(RunError, match=refused.format(name)):
                changed_in_place(tmp_path / name, mode).__enter__()
    with pytest.raises(RunError, match=r"hard: has another name \(a hard link\), which would"):
        changed_in_place(tmp_path / "hard", "a+b").__enter__()
    assert names(tmp_path / "far") == ["a"]
    atomic_write(tmp_path / "hard", b"new")  # takes the place of one name
    assert victim.read_bytes() == b"old"
    # The folder that the user names may be a link.
    assert atomic_write(tmp_path / "folder" / "c", b"new").read_bytes() == b"new"


def test_a_link_made_in_the_middle_of_a_write_is_replaced(tmp_path):
    (tmp_path / "victim").write_bytes(b"old")

    def attack(file):
        (tmp_path / "a").symlink_to("victim")
        file.write(b"new")

    atomic_write(tmp_path / "a", attack)
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "victim").read_bytes() == b"old"


def test_the_file_is_as_readable_as_any_other(tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert atomic_write(tmp_path / "a", b"").stat().st_mode == plain.stat().st_mode


def test_a_pipe_is_not_replaced(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(RunError, match=f"{path.name}: is a pipe or a device; nothing was"):
            atomic_write(path, b"x")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert names(tmp_path) == ["link", "pipe"]


def test_a_mount_for_reading_only_refuses_the_cleaning_up_too(tmp_path, monkeypatch):
    def refused(*_args, **_keywords):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "open", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(RunError, match=r"n\.csv: cannot be written \(Read-only file system\)"):
        atomic_write(tmp_path / "n.csv", "a")


_KILLED = """
import os, sys
from pathlib import Path
from bspml.files.atomic import (
    atomic_write,
    changed_in_place,
    make_folder_in,
    out_of_sight,
    remove_leftovers,
)
from bspml.files.folders import aside
with aside(Path(sys.argv[1])) as place:
    (place / "part").write_bytes(b"half")
    def half(file):
        file.write(b"half")
        os.kill(os.getpid(), 9)
    atomic_write(Path(sys.argv[1]) / "a.csv", half)
"""


def test_what_a_kill_left_is_removed_and_what_others_are_making_stays(tmp_path):
    (tmp_path / ".mine.tmp").write_bytes(b"kept")
    (tmp_path / ".0123456789abcdef.tmp").symlink_to(".mine.tmp")  # made by nobody
    subprocess.run([sys.executable, "-c", _KILLED, tmp_path], check=False)
    assert len(names(tmp_path)) == 4

    def beside_a_sweep(file):
        file.write(b"whole")
        with out_of_sight(tmp_path, Path.mkdir) as place:
            assert len(names(tmp_path)) == 6
            remove_leftovers(tmp_path)
            assert place.is_dir()

    atomic_write(tmp_path / "a.csv", beside_a_sweep)
    assert names(tmp_path) == [".0123456789abcdef.tmp", ".mine.tmp", "a.csv"]
    assert (tmp_path / "a.csv").read_bytes() == b"whole"
    remove_leftovers(tmp_path / "none")


def test_what_was_swept_before_it_was_held_is_made_again(tmp_path):
    made = []

    def swept_at_once(path):
        path.touch(exist_ok=False)
        made.append(path)
        if len(made) == 1:
            path.unlink()

    with out_of_sight(tmp_path, swept_at_once) as path:
        assert path.exists()
    assert len(made) == 2
    assert names(tmp_path) == []
