"""The options of the commands as records."""

import pytest

from bspml.cli.options import AuditOptions, EvaluateOptions, NoiseOptions, TrainOptions, flags_of


@pytest.mark.parametrize(
    ("record", "first"),
    [(AuditOptions, ["x"]), (EvaluateOptions, ["x"]), (NoiseOptions, ["x"]), (TrainOptions, [])],
)
def test_a_record_needs_no_more_than_its_command(record, first):
    assert record(*first).json is False


def test_options_that_stand_for_a_setting_are_settings():
    assert TrainOptions(seed=0, workers=2).settings == ["seed=0", "workers=2"]
    assert TrainOptions(["a.yaml"], quiet=True).settings == []


def test_flags_are_those_given_in_the_order_asked_for():
    options = AuditOptions("x", labels="", fail_above=0.5, seed=0, device="cpu")
    assert flags_of(options, "device", "seed", "labels") == ["--device", "LABELS"]
    assert flags_of(options, "fail_above", "names") == ["--fail-above"]


@pytest.mark.parametrize("hushed", [{"quiet": True}, {"json": True}])
def test_a_result_in_json_comes_without_progress(hushed):
    assert AuditOptions("x", **hushed).hushed
    assert not AuditOptions("x").hushed
