"""The report as table, verdicts and summary; hostile names and labels."""

import json

import numpy as np
import pandas as pd
import pytest

import bspml
from bspml.errors import InputError
from helpers.draws import clouds

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def chosen_from():
    """An audit of 400 labels, a quarter wrong, and which are."""
    rng = np.random.default_rng(0)
    x, codes = clouds(rng, 20, 20, 16, 0.5)
    wrong = rng.random(400) < 0.25
    given = np.where(wrong, (codes + rng.integers(1, 20, 400)) % 20, codes)
    return bspml.audit(x, given), wrong


def test_table_has_every_sample_by_suspicion(hostile_report):
    table = hostile_report.table()
    assert list(table.columns) == [
        "index", "name", "label", "suggested_label", "suggestion_probability", "wrong_probability",
        "margin", "p_value", "q_value", "weight", "testable", "outlier_score",
        "outlier_p", "verdict", "own_neighbours", "other_label", "other_neighbours",
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


def test_flags_can_be_chosen_by_number_or_precision(chosen_from):
    report, wrong = chosen_from
    probability = report.wrong_probability
    for n in (0, 7, 500):
        chosen = report.select(n=n)
        assert len(chosen.rows) == min(n, 400)
        assert chosen.wrong == pytest.approx(probability[chosen.rows].sum())
        assert chosen.wrong + chosen.right == pytest.approx(len(chosen.rows))
        assert set(chosen.rows) == set(np.argsort(-probability, kind="stable")[: len(chosen.rows)])
    rows = report.select(precision=0.8).rows
    assert probability[rows].mean() >= 0.8
    one_more = np.sort(-probability)[: len(rows) + 1]
    assert -one_more.mean() < 0.8
    assert wrong[rows].mean() == pytest.approx(0.8, abs=0.15)
    assert set(report.select().rows) == set(np.flatnonzero(report.flagged))


def test_chosen_flags_are_one_story_in_every_count(chosen_from, tmp_path):
    report, _ = chosen_from
    again = report.flagging(n=30)
    assert again.flagged.sum() == again.summary()["look_wrong"] == 30
    assert again.summary()["expected_wrong_among_them"] == pytest.approx(report.select(n=30).wrong)
    assert (again.table()["weight"] == 0).sum() == 30
    by_class = again.classes.set_index("label")["share_flagged"]
    for label, share in by_class.items():
        assert share == pytest.approx(again.flagged[again.labels == label].mean())
    again.save(tmp_path)
    loaded = type(again).load(tmp_path)
    assert (loaded.flagged == again.flagged).all()
    assert loaded.total_interval == again.total_interval
    assert loaded.groups.equals(again.groups)
    assert report.flagging(precision=1.0).flagged.sum() <= report.flagged.sum()


def test_a_label_alone_in_its_class_is_flagged_in_the_table_of_classes_too():
    """It cannot be compared, so its class had no share of flagged labels, whoever asked."""
    rng = np.random.default_rng(0)
    x = np.repeat(np.eye(3), 12, 0) + 0.1 * rng.standard_normal((36, 3))
    report = bspml.audit(x, ["alone", *"a" * 11, *"b" * 12, *"c" * 12])
    shares = report.classes.set_index("label")["share_flagged"]
    assert np.isnan(shares["alone"])
    report = report.flagging(n=30)
    assert report.flagged[0]
    assert report.classes.set_index("label")["share_flagged"]["alone"] == 1


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"n": 3, "precision": 0.5}, "`n` or `precision`"),
        ({"n": -1}, "`n` must be"),
        ({"precision": 0.0}, "`precision` must be"),
        ({"precision": 80.0}, "`precision` must be"),
    ],
)
def test_impossible_choices_are_refused(chosen_from, choice, message):
    with pytest.raises(InputError, match=message):
        chosen_from[0].select(**choice)


def test_a_table_joined_to_the_audited_data_gives_every_sample_its_own_verdict(tmp_path):
    x, y = clouds(np.random.default_rng(0), 6, 8, 5, 0.3)
    frame = pd.DataFrame(np.asarray(x), index=np.arange(len(y))[::-1] * 7 + 3)
    labels = pd.Series(np.asarray(y), index=frame.index, name="given")
    for index, report in (
        (np.arange(len(y)), bspml.audit(x, y)),
        (frame.index, bspml.audit(frame, labels)),
        (frame.index, bspml.audit(frame, np.asarray(y))),
    ):
        report.save(tmp_path / str(index[0]))
        for kept in (report, bspml.auditing.AuditReport.load(tmp_path / str(index[0]))):
            joined = pd.DataFrame({"given": np.asarray(y)}, index=index).join(kept.table())
            assert (joined["index"] == np.arange(len(y))).all()
            assert (joined["given"] == joined["label"]).all()
            assert (joined["wrong_probability"].to_numpy() == report.wrong_probability).all()
            assert kept.order().tolist() == kept.table()["index"].tolist()
        written = pd.read_csv(tmp_path / str(index[0]) / "audit.csv").set_index("index")["label"]
        assert (written.sort_index().to_numpy() == y).all()
    with pytest.raises(InputError, match=r"`texts`.* indices differ"):
        report.save(tmp_path / "texts", texts=labels.astype(str).sort_index())


@pytest.mark.parametrize(
    ("index", "kept"),
    [
        (pd.Index(list("dcba")), True),
        (pd.Index([7, 3, 9, 5], dtype=object), True),  # as a join or a column of objects leaves it
        (pd.Index([2**63, 3, 9, 5], dtype="uint64"), True),
        (pd.Index([7, 3, pd.NA, 5], dtype="Int64"), False),
        (pd.Index([7, "3", 9, 5], dtype=object), False),
        (pd.MultiIndex.from_product([list("ab"), list("xy")]), False),
        (None, False),
    ],
)
def test_an_index_of_whole_numbers_or_text_is_kept_in_files_and_others_leave_numbers(
    index, kept, tmp_path
):
    given = pd.DataFrame(np.eye(2)[[0, 1, 0, 1]], index=index)
    report = bspml.audit(given, list("abab"))
    report.save(tmp_path)
    assert set(report.table().index) == set(given.index)
    loaded = bspml.auditing.AuditReport.load(tmp_path).table()
    assert set(loaded.index) == (set(given.index) if kept else {0, 1, 2, 3})
