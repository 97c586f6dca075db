"""What an error becomes; most of it is tested where the errors are made."""

import ctypes
import signal
import time

import pytest

from bspml.cli.exit_codes import interrupts_kept


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
