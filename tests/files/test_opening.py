"""Opening a file to read it: what is no regular file is refused, by name and with a reason."""

import os

import pytest

from bspml.errors import ConfigError, DataError, RunError
from bspml.files.opening import FAULTS, is_special, open_regular, reason


def opened(path, **options):
    with open_regular(path, "a list", **options) as file:
        return file.read()


def test_a_file_and_a_link_to_one_are_read(tmp_path):
    (tmp_path / "a").write_bytes(b"\x00x")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert opened(tmp_path / "a") == opened(str(tmp_path / "link")) == b"\x00x"


def test_a_pipe_is_not_opened_which_would_wait_for_ever(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        assert is_special(path)
        message = f"{path.name}: is a pipe or a device, not a list. Name another"
        with pytest.raises(DataError, match=message):
            opened(path)
    assert not any(map(is_special, (tmp_path, tmp_path / "none", "a\0b")))


@pytest.mark.parametrize("name", ["none", "file/below", "a\0b"])
def test_what_is_not_there_is_said_so(tmp_path, name):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="no such file; expected a list"):
        opened(tmp_path / name, error=ConfigError)
    with pytest.raises(DataError, match=r"^`weights`: gone\.$"):
        opened(tmp_path / name, where="`weights`", missing="gone.")


def test_a_folder_and_a_name_too_long_are_refused(tmp_path):
    with pytest.raises(RunError, match=r"is a folder, not a list\. Make it anew"):
        opened(tmp_path, error=RunError, remedy="Make it anew.")
    with pytest.raises(DataError, match=r"cannot be read \(File name too long\)\."):
        opened(tmp_path / ("n" * 300))


@pytest.mark.parametrize("fault", [ValueError("odd\nmore"), OSError("not gzipped"), KeyError("x")])
def test_damage_becomes_one_sentence_and_our_own_errors_pass(tmp_path, fault):
    def raised(error):
        with open_regular(tmp_path / "a", "a list", faults=FAULTS):
            raise error

    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(DataError, match=rf"a: cannot be read as a list \({reason(fault)}\)\. Name"):
        raised(fault)
    with pytest.raises(ConfigError, match=r"^mine$"):
        raised(ConfigError("mine"))
    with pytest.raises(DataError, match="more than fits into memory"):
        raised(MemoryError())
    with pytest.raises(ZeroDivisionError):  # a fault of ours
        raised(ZeroDivisionError())
