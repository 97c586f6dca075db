"""The speed benchmark's bookkeeping: turns, ratios, the table.  No timing is judged here."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from helpers.places import REPOSITORY

BENCHMARKS = REPOSITORY / "benchmarks"


@pytest.fixture
def speed(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    names = ("app", "measuring", "device", "steps", "epoch", "epoch_profile", "weights", "features")
    return SimpleNamespace(**{name: importlib.import_module(f"speed.{name}") for name in names})


def test_calls_take_turns_and_the_warm_up_is_not_counted(speed):
    order = []
    calls = {"ours": lambda: order.append("o"), "reference": lambda: order.append("r")}
    seconds = speed.measuring.alternate(calls, repeats=3, warm_up=1)
    assert "".join(order) == "or" * 4
    assert [len(s) for s in seconds.values()] == [3, 3]


def test_the_ratio_is_the_median_of_the_turns(speed):
    seconds = {"ours": [1.0, 2.0, 9.0], "reference": [2.0, 2.0, 3.0]}
    line = speed.measuring.row("x", "<= 1", seconds, 1.0)
    assert (line["ratio"], line["ours_s"], line["reference_s"]) == (1.0, 2.0, 2.0)
    assert line["met"]
    assert not speed.measuring.row("x", "<= .9", seconds, 0.9)["met"]
    assert speed.measuring.row("x", "", seconds, None)["met"] is None


def test_a_line_of_the_table_shows_what_there_is_and_why_not(speed):
    seconds = {"ours": [0.002], "reference": [4.0]}
    line = speed.measuring.row("x", "<= 1", seconds, 1.0, 1234.0)
    assert speed.app.table_line(line) == "| x | <= 1 | 2 ms | 4 s | 0.0005 | 1,234 | yes |"
    without = speed.app.without("gpu", "no CUDA device")
    assert speed.app.table_line(without) == "| gpu |  |  |  |  |  | no CUDA device |"
    table = speed.app.render({"machine": {"cores": 2}, "quick": False, "rows": [line, without]})
    assert table.startswith("cores 2\n\n| what | bar |")
    line["details"]["reference_words"] = "over 4 s, then 0.5 above"
    assert "| over 4 s, then 0.5 above |" in speed.app.table_line(line)


def test_small_sizes_are_not_judged(speed):
    line = speed.measuring.row("x", "<= 1", {"ours": [3.0], "reference": [1.0]}, 1.0)
    assert "NO" in speed.app.table_line(line)
    assert "NO" not in speed.app.table_line(speed.app.without_verdict(line))


@pytest.mark.parametrize(
    ("ours", "seconds", "reached", "met"),
    [
        (0.01, 10.0, False, True),  # a thousand times ours and not there yet
        (0.01, 5.0, True, False),  # arrived too early
        (0.2, 120.0, False, None),  # the clock's own end: open
        (0.4, 120.0, False, False),  # too slow, whatever the factor
    ],
)
def test_a_solve_is_judged_only_where_the_clock_left_time(speed, ours, seconds, reached, met):
    printed = {"seconds": seconds, "reached": reached, "gap": 0.5}
    coordinate = {"seconds": ours, "stationarity_scaled": 1e-12}
    assert speed.weights.verdict(coordinate, printed) is met


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_without_a_gpu_its_rows_say_so(speed):
    (line,) = speed.device.measure_device(quick=True)
    assert line["details"]["reason"] == "no CUDA device"


def test_ours_and_the_reference_are_the_same_loss_where_weights_are_one(speed):
    emb, labels = speed.steps.make_batch(16, 8)
    steps = speed.steps.miner_steps(emb, labels)
    grads = {}
    for name, step in steps.items():
        emb.grad = None
        step()
        grads[name] = emb.grad.clone()
    torch.testing.assert_close(grads["ours"], grads["plain_loop"])
    assert not torch.equal(grads["ours"], grads["reference"])  # weights of 0 among them


def test_a_part_inside_another_takes_its_seconds_from_it(speed, monkeypatch):
    now = iter([0.0, 1.0, 3.0, 6.0, 10.0])
    monkeypatch.setattr(speed.epoch_profile.time, "perf_counter", lambda: next(now))
    clock = speed.epoch_profile.Clock()
    inner = clock.around("loss", lambda: None)
    clock.around("rest", inner)()
    assert (clock.seconds["loss"], clock.seconds["rest"]) == (3.0, 2.0 + 4.0)


def test_a_round_is_measured_whole_and_for_the_steps_of_a_plain_epoch(speed):
    epoch, case = speed.epoch.Epoch, speed.epoch.cases_on("cpu", True)[0]
    rounds = [epoch(1.0, 1.25, 0.8, 0.25, 0.125), epoch(3.0, 4.0, 0.75, 0.5, 0.25)]
    plain = [epoch(2.0, 2.0, 1.0, 0.0, 0.0)] * 2
    found = {"plain": plain, "fresh": rounds[:1] * 2, "collected": rounds}
    first = {kind: epochs[0] for kind, epochs in found.items()}
    whole, per_step = speed.epoch.lines(case, "collected", found, first, 7.0)
    assert "30% wrong labels, collected embeddings: a round against an epoch" in whole["row"]
    assert per_step["row"].endswith("collected embeddings: per step")
    assert (whole["ratio"], whole["met"]) == (1.0, None)  # the median of .5 and 1.5
    assert (per_step["ratio"], per_step["met"]) == (1.3125, None)
    assert whole["details"]["per_step_ratio"] == per_step["ratio"]
    assert (whole["details"]["kept"], whole["details"]["embeddings_s"]) == (0.775, 0.375)
    mean = epoch.mean(rounds)
    assert mean == epoch(2.0, 2.625, 0.775, 0.375, 0.1875)
    rested = {"plain": plain[:1], "collected": [mean]}
    whole, per_step = speed.epoch.lines(case, "collected", rested, first, 7.0, at_rest=True)
    assert whole["row"].endswith(
        "collected embeddings, at rest (every 16): a round against an epoch"
    )
    assert (whole["ratio"], whole["met"]) == (1.0, True)
    assert (per_step["ratio"], per_step["met"]) == (1.3125, False)


def test_at_rest_one_round_of_k_is_judged(speed, monkeypatch):
    case, judged = speed.epoch.cases_on("cpu", True)[0], []
    every, an_epoch = speed.epoch.EVERY["fresh"], speed.epoch.an_epoch

    def noted(trainer):
        found = an_epoch(trainer)
        if trainer.curriculum is not None:
            judged.append(found.statistics > 0)
        return found

    monkeypatch.setattr(speed.epoch, "an_epoch", noted)
    found = speed.epoch.at_rest("fresh", speed.epoch.make("plain", case), replace(case, cycles=2))
    assert judged == [True, *[False] * (every - 1), True, *[False] * (every - 1), True]
    assert len(found["fresh"]) == len(found["plain"]) == 2


def test_clean_labels_leave_hardly_a_row_out_and_without_any_both_readings_agree(speed):
    noisy, clean = speed.epoch.cases_on("cpu", True)[:2]
    for case, whole in ((noisy, False), (clean, True)):
        trainer = speed.epoch.make("fresh", case)
        found = speed.epoch.an_epoch(trainer)
        assert (found.seconds == found.per_epoch) == whole
        assert (found.kept >= 0.99) == whole
        assert 0 < found.embeddings + found.statistics < found.seconds


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_network_is_measured_with_wrong_and_with_clean_labels(speed, device):
    for quick in (False, True):
        cases = speed.epoch.cases_on(device, quick)
        assert [case.noise for case in cases] == [0.3, 0.0] * (len(cases) // 2)
        assert {case.device for case in cases} == {device}
        assert all(16 < case.classes <= 256 for case in cases)


@pytest.mark.slow
def test_the_command_runs_a_row_in_a_process_of_its_own(tmp_path):
    command = [sys.executable, str(BENCHMARKS / "speed"), "--quick", "--rows", "gpu"]
    files = ["--out", str(tmp_path / "s.json"), "--markdown", str(tmp_path / "s.md")]
    here = {**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)}
    subprocess.run([*command, "--threads", "1", *files], check=True, capture_output=True, env=here)
    result = json.loads((tmp_path / "s.json").read_text())
    assert result["quick"]
    assert result["machine"]["threads"] == 1
    assert "steps on the device" in result["rows"][0]["row"] or torch.cuda.is_available()
    assert "| what | bar |" in (tmp_path / "s.md").read_text()


def test_features_of_a_folder_are_counted_without_their_first_photos(speed, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(
        speed.features, "cached_features", lambda split, *_, **__: asked.append(len(split))
    )
    line = speed.features.measure_folder(speed.features.make_pictures(tmp_path, 11), "pictures")
    assert asked == [2, 11]
    assert line["row"].startswith("features of 11 pictures, efficientnet-lite0")
    assert "photos/s; a 1,000 take" in speed.app.table_line(line)
