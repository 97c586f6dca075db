"""What an error becomes; most of it is tested where the errors are made."""

import ctypes
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from bspml.cli.exit_codes import exit_code, interrupts_kept


def interrupted():
    raise KeyboardInterrupt


def five_seconds():
    for _ in range(1000):  # the interrupt comes between two steps of Python: no sleep is cut short
        time.sleep(0.005)


@pytest.fixture
def ctrl_c_is_heard():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest-xdist ignores it
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_a_ctrl_c_that_a_librarys_callback_swallows_comes_again(capsys):
    callback = ctypes.CFUNCTYPE(None)(interrupted)
    with interrupts_kept():
        callback()  # Python prints what is raised in it, and goes on
        with pytest.raises(KeyboardInterrupt):
            five_seconds()
    assert capsys.readouterr().err == ""


def test_a_file_that_is_gone_or_closed_to_us_is_one_line_wherever_it_shows(capsys):
    for name, reason in (
        ("none/x", "No such file or directory"),
        ("a" * 300, "File name too long"),
    ):
        with pytest.raises(OSError) as caught:
            Path(name).stat()
        assert exit_code(caught.value) == 2
        assert capsys.readouterr().err == (
            f"bspml: {name}: {reason}. Is it there, and may you read and write it?\n"
        )


def test_a_system_without_room_for_temporary_files_is_one_line(capsys, monkeypatch):
    """torch's imports ask for a folder of them."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/none"])
    with pytest.raises(FileNotFoundError) as caught:
        tempfile.gettempdir()
    assert exit_code(caught.value) == 2
    said = capsys.readouterr().err
    assert said.startswith("bspml: the system gives no more (No usable temporary directory found")


@pytest.mark.parametrize("allocate", [torch.empty, np.empty])
def test_too_little_memory_is_one_line(allocate, capsys):
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        allocate(2**50)
    assert exit_code(caught.value) == 2
    said = capsys.readouterr().err
    assert said.startswith("bspml: there is too little memory (")
    assert said.count("\n") == 1
