"""The report as table, verdicts and summary; hostile names and labels."""

import json

import numpy as np
import pytest


def test_table_has_every_sample_by_suspicion(hostile_report):
    table = hostile_report.table()
    assert list(table.columns) == [
        "index", "name", "label", "suggested_label", "suggestion_probability", "wrong_probability",
        "margin", "p_value", "q_value", "weight", "testable", "outlier_p", "verdict",
        "own_neighbours", "other_label", "other_neighbours",
    ]  # fmt: skip
    assert sorted(table["index"]) == list(range(36))
    assert (np.diff(table["wrong_probability"]) <= 0).all()
    assert set(table["index"][:2]) == {0, 13}
    for row in table.to_dict("records"):
        i = row["index"]
        assert row["name"] == hostile_report.names[i]
        assert row["label"] == hostile_report.labels[i]
        assert row["own_neighbours"] == " ".join(map(str, hostile_report.own_neighbours[i]))


def test_verdicts_in_their_order(hostile_report):
    table = hostile_report.table().set_index("index")
    assert table["verdict"][0] in ("looks wrong, fits another class", "fits another class better")
    assert table["verdict"][5] == "fits"


def test_summary_counts_what_the_parts_hold(hostile_report):
    found = hostile_report.summary()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["samples"] == 36
    assert found["classes"] == 3
    assert found["look_wrong"] == hostile_report.flagged.sum()
    others = found["others_to_look_at"]
    doubtful = hostile_report.wrong_probability > 0.2
    assert others == (~hostile_report.flagged & doubtful).sum()
    chosen = hostile_report.wrong_probability[hostile_report.flagged]
    assert found["expected_wrong_among_them"] == pytest.approx(chosen.sum())
    assert found["look_wrong"] + others == found["suspects"] == hostile_report.suspects.sum()
    assert found["exact_duplicates"] == 1
    assert found["noise_rate"] == hostile_report.noise_rate
