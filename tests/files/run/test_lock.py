import os
import subprocess
import sys
import time

import pytest

from bspml.errors import RunError
from bspml.files.run import RunFolder

pytest.importorskip("fcntl")

_HOLD = """
import os, sys, time
from bspml.files.run import RunFolder
folder = RunFolder(__import__("pathlib").Path(sys.argv[1]))
with folder.locked():
    if os.fork() == 0:  # a worker that outlives its parent
        time.sleep(60)
        os._exit(0)
    print("held", flush=True)
    time.sleep(60)
"""


def refused(folder):
    try:
        with folder.locked():
            return False
    except RunError:
        return True


def test_a_second_holder_is_refused_and_the_lock_goes_with_the_block(tmp_path):
    folder = RunFolder.create(tmp_path / "a")
    with folder.locked():
        with pytest.raises(RunError, match="a: another process is training this run"):
            folder.locked().__enter__()
        assert folder.lock.exists()
    with folder.locked():
        pass
    assert not folder.lock.exists()


def test_a_killed_process_lets_go_although_its_worker_lives_on(tmp_path):
    folder = RunFolder.create(tmp_path / "a")
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder.path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout.readline() == "held\n"
        assert refused(folder)
        process.kill()
        process.wait()
        time.sleep(0.05)
        assert not refused(folder)
    finally:
        os.killpg(process.pid, 9)
        process.stdout.close()


def test_no_lock_is_taken_through_a_link(tmp_path):
    (tmp_path / ".lock").symlink_to(tmp_path / "victim")
    with pytest.raises(RunError, match=r"\.lock: is a symbolic link"):
        RunFolder(tmp_path).locked().__enter__()
    assert not (tmp_path / "victim").exists()


def test_a_folder_that_cannot_be_written_is_a_run_error(tmp_path):
    with pytest.raises(RunError, match=r"\.lock: cannot be written"):
        RunFolder(tmp_path / "none").locked().__enter__()
