"""What an error becomes; most of it is tested where the errors are made."""

import ctypes
import gc
import io
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from bspml.cli import main
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


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_an_interrupt_that_a_library_makes_an_error_of_is_an_interrupt(capsys):

    def in_c():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("Invalid bounding box") from None

    with pytest.raises(ValueError, match="bounding box") as caught, interrupts_kept():
        in_c()
    assert exit_code(caught.value) == 130
    assert capsys.readouterr().err == "bspml: interrupted\n"
    with pytest.raises(ValueError, match="of ours") as caught, interrupts_kept():
        raise ValueError("of ours")
    assert exit_code(caught.value) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class HalfMade:
    def __init__(self):
        signal.raise_signal(signal.SIGINT)
        self.held = 1

    def __del__(self):
        self.held += 1


class Faulty:
    def __del__(self):
        self.held += 1


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_what_an_interrupt_left_half_made_goes_without_a_word(monkeypatch):
    said = []
    monkeypatch.setattr("sys.unraisablehook", said.append)
    former = sys.unraisablehook
    for _ in range(2):  # the second call finds the hook of before, not that of the first
        with pytest.raises(KeyboardInterrupt), interrupts_kept():
            HalfMade()
        assert sys.unraisablehook is former
    gc.collect()
    assert said == []


@pytest.mark.usefixtures("ctrl_c_is_heard")
def test_an_interrupt_hides_no_fault_of_whole_objects(monkeypatch):
    said = []
    monkeypatch.setattr("sys.unraisablehook", lambda ignored: said.append(ignored.exc_type))

    def both():
        whole = Faulty()
        return whole, HalfMade()

    with pytest.raises(KeyboardInterrupt), interrupts_kept():
        both()
    assert said == [AttributeError]
    Faulty()
    gc.collect()
    assert said == [AttributeError] * 2


def test_an_interrupt_before_the_command_begins_is_one_line(monkeypatch, capsys):
    class Interrupted(io.TextIOWrapper):
        def reconfigure(self, **options):
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdout", Interrupted(io.BytesIO()))
    assert main(["--version"]) == 130
    assert capsys.readouterr().err == "bspml: interrupted\n"


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
