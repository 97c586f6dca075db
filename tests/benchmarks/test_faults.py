"""The fault campaign: a case is its number, damage is damage, and what differs is named."""

import faulthandler
import importlib
import itertools
import os
import time
import zipfile

import numpy as np
import pytest
import torch

from helpers.places import REPOSITORY


@pytest.fixture
def faults(monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY / "benchmarks"))
    return lambda name: importlib.import_module(f"faults.{name}")


def test_damage_follows_from_the_generator_and_is_damage(faults, tmp_path, monkeypatch):
    np.savez(tmp_path / "x.npz", x=np.arange(50), y=np.arange(3))
    clock = itertools.count(1e9, 10.0)  # archives hold the time to two seconds
    monkeypatch.setattr("time.time", lambda: next(clock))
    mutated = faults("mutating").mutated
    contents = [b"a,b\n1,2\n3,4\n", (tmp_path / "x.npz").read_bytes()]
    changed = 0
    for seed in range(100):
        for content in contents:
            once, again = (mutated(content, np.random.default_rng(seed)) for _ in range(2))
            assert once == again
            changed += once != content
    assert changed > 150


def test_runs_are_compared_bit_for_bit_but_for_seconds(faults, tmp_path):
    difference = faults("comparing").difference_of_runs

    def run(name, loss="0.5", seconds=1.0, value=0.0):
        folder = tmp_path / name
        folder.mkdir()
        line = f'{{"loss": {loss}, "seconds": {seconds}, "extra": {{"seconds_solve": {seconds}}}}}'
        (folder / "records.jsonl").write_text(line + "\n")
        (folder / "summary.json").write_text(f'{{"finished": "{seconds}"}}')
        torch.save({"w": torch.tensor([value])}, folder / "checkpoint-m.pt")
        return folder

    first = run("first")
    assert difference(first, run("later", seconds=2.0)) == ""
    assert difference(first, run("other", loss="0.25")) == "records.jsonl differs"
    assert difference(first, run("moved", value=-0.0)) == "checkpoint-m.pt differs at state.w"


def test_what_is_there_in_part_is_named(faults, tmp_path):
    half_written = faults("comparing").half_written
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x", "1")
    assert half_written(tmp_path) == ""
    (tmp_path / "t.csv").write_text("a,b\n1")
    assert half_written(tmp_path) == "t.csv is there in part (AssertionError)"


def aborted():
    faulthandler.disable()  # pytest's would fill the terminal
    os.abort()


def test_a_fork_that_hangs_fails_or_dies_is_told_apart(faults, tmp_path):
    process = faults("process")

    def end(function, seconds=20.0):
        return process.Fork(function, tmp_path).wait(seconds).fault

    assert end(lambda: 2) == ""
    assert end(lambda: 1 // 0) == "traceback"
    assert end(aborted) == "crash"
    assert end(lambda: time.sleep(9) or 0, 0.2) == "hang"


def test_a_hang_is_told_by_processor_time_and_not_by_the_clock(faults):
    process = faults("process")

    def first_hang(used):
        progress = process.Progress(60.0)
        return next((t for t in range(1000) if progress.hangs(float(t), used(t))), None)

    assert first_hang(lambda t: t / 20) is None  # slow, 3 s a minute
    assert first_hang(lambda t: float(t)) == 61  # endless
    assert first_hang(lambda t: min(t, 5.0)) == 64  # until t = 3 it gained more than 2 s
    assert first_hang(lambda t: t / 40) == 61  # looks from time to time whether others live


def test_the_processor_time_of_children_counts(faults, tmp_path):
    process = faults("process")

    def with_child():
        if os.fork() == 0:
            while time.process_time() < 0.15:
                pass
            os._exit(0)
        os.wait()
        return time.sleep(0.2) or 0

    fork, most = process.Fork(with_child, tmp_path), 0.0
    while not fork.has_ended():
        most = max(most, process.used_by_group(fork.pid))
        time.sleep(0.01)
    assert fork.wait().code == 0
    assert most > 0.1
