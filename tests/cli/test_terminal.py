"""What the commands print of a training."""

import contextlib
import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from bspml.cli import main
from bspml.cli.terminal import ClassifierTerminal, Terminal, labels_in_words, note, put
from bspml.experiment.config import config_from_mapping
from bspml.files.run import EpochRecord, RunFolder


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"kind": "none"}, "labels as they are"),
        ({}, "30% symmetric label noise planted"),
        ({"labels_file": "l.txt"}, "labels of l.txt"),
        ({"list_file": "list.csv"}, "labels of list.csv"),
        (
            {"kind": "none", "decisions_file": "d.csv"},
            "labels as given, with the decisions of d.csv",
        ),
        (
            {"decisions_file": "d.csv"},
            "30% symmetric label noise planted, with the decisions of d.csv",
        ),
    ],
)
def test_the_line_that_opens_a_run_says_where_its_labels_are_from(section, said):
    noise = config_from_mapping({"noise": section}).noise
    assert labels_in_words(noise, "label noise") == said


def test_a_quiet_terminal_says_nothing(capsys):
    Terminal(quiet=True).say("a line")
    Terminal(quiet=False).say("another")
    assert capsys.readouterr() == ("", "another\n")


def test_a_line_of_a_classification_opens_with_its_task(capsys):
    config = SimpleNamespace(
        name="mine", task="classification", seed=3,
        data=SimpleNamespace(name="cifar10"), noise=SimpleNamespace(labels_file=None, kind="none"),
    )  # fmt: skip
    ClassifierTerminal(quiet=False).begin(config, RunFolder(Path("runs/mine")))
    said = "mine: classification of cifar10, labels as they are, seed 3; runs/mine\n"
    assert capsys.readouterr().err == said


def test_the_noise_rate_stands_beside_its_interval_where_it_has_one(capsys):
    record = EpochRecord("bspml", 1.0, phase="weights", maw=1.0, sdaw=0.0, noise_rate=0.25)
    for ends in ({}, {"noise_rate_low": 0.063, "noise_rate_high": 0.35}):
        Terminal(quiet=False).record(dataclasses.replace(record, **ends))
    plain, known = capsys.readouterr().err.splitlines()
    assert "noise 0.250  weights" in plain
    assert "noise 0.250 (0.06–0.35)  weights" in known


def test_output_survives_a_reader_that_went_away(monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    gone = os.fdopen(writing, "w")
    monkeypatch.setattr("sys.stdout", gone)
    put("the result")
    put("more of it")
    with pytest.raises(BrokenPipeError):
        gone.close()


def test_a_note_needs_no_stderr_and_takes_no_stdout(capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    note("nobody reads this")
    for terminal in (Terminal(quiet=False), ClassifierTerminal(quiet=False)):
        terminal.say("nor this")
        terminal.step("bspml", 1, 2, 0.5)
        terminal.close()
    assert main(["trian"]) == 2
    assert main(["data", "check", "glyphs"]) == 0
    assert capsys.readouterr().out.endswith("glyphs is complete.\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_an_exit_code_needs_no_room_for_its_words(monkeypatch):
    for argv in (["trian"], ["noise", "none.csv"], []):
        with Path("/dev/full").open("w", buffering=1) as full:
            monkeypatch.setattr("sys.stderr", full)
            assert main(argv) == 2
            with contextlib.suppress(OSError):
                full.close()
