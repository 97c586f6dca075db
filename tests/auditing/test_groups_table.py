"""Copies as one sample: groups by hand, and laws of the audit on copied rows."""

import functools

import numpy as np
import pandas as pd
import pytest

import bspml
from bspml.auditing.groups_table import groups_table
from bspml.statistics.copies.distinct import Distinct


def gaussian_case(seed=0, classes=20, each=10, dims=32, rate=0.2):
    """Classes far apart, and a share of labels redrawn among the others."""
    rng = np.random.default_rng(seed)
    true = np.repeat(np.arange(classes), each)
    x = 3 * rng.standard_normal((classes, dims))[true] + rng.standard_normal((len(true), dims))
    given = true.copy()
    wrong = rng.choice(len(true), round(rate * len(true)), replace=False)
    given[wrong] = (true[wrong] + rng.integers(1, classes, len(wrong))) % classes
    return x, true, given, rng


@functools.cache
def audit_of_case(seed):
    x, _, given, _ = gaussian_case(seed)
    return bspml.audit(x, given)


def test_groups_by_hand():
    kinds = ["exact", "near", "exact"]
    pairs = pd.DataFrame({"kind": kinds, "first": [0, 0, 4], "second": [2, 3, 5]})
    codes = np.array([0, 1, 0, 1, 2, 2, 2])
    once = Distinct.of(pairs, codes)
    assert once.group.tolist() == [0, 1, 0, 0, 2, 2, 3]
    assert once.first.tolist() == [0, 1, 3, 4, 6]
    assert once.place.tolist() == [0, 1, 0, 2, 3, 3, 4]
    assert once.num_labels.tolist() == [2, 1, 2, 1, 1]
    assert once.wrong_share == pytest.approx([1 / 3, 0, 2 / 3, 0, 0])
    assert once.proven_wrong == 0  # sample 3 is a near copy, which proves nothing
    assert Distinct.of(pairs, np.array([0, 1, 2, 1, 2, 5, 2])).proven_wrong == 2
    table = groups_table(pairs, codes, np.array(["a", "b", "c"]))
    assert table["kind"].tolist() == ["near", "exact"]
    assert table["samples"].tolist() == [3, 2]
    assert table["labels"].tolist() == [2, 1]
    assert table["most_frequent"].tolist() == ["a", "c"]
    assert table["rows"].tolist() == ["0 2 3", "4 5"]
    assert not table["placeholder"].any()


def test_no_copies_no_groups():
    nothing = pd.DataFrame({"kind": [], "first": [], "second": []})
    once = Distinct.of(nothing, np.array([1, 0, 1]))
    assert once.first.tolist() == [0, 1, 2]
    assert len(groups_table(nothing, np.array([1, 0, 1]), np.array([5, 6]))) == 0


@pytest.mark.parametrize(
    ("share", "scatter"),
    [
        (0.2, 0.05),
        (1.0, 0.0),
        pytest.param(0.2, 0.0, marks=pytest.mark.slow),
        pytest.param(1.0, 0.05, marks=pytest.mark.slow),
    ],
)
def test_copied_rows_move_neither_the_rate_nor_what_is_found(scatter, share):
    for seed in range(3):
        x, true, given, rng = gaussian_case(seed)
        again = rng.choice(len(x), round(share * len(x)), replace=False)
        twins = x[again] + scatter * rng.standard_normal((len(again), x.shape[1]))
        once = audit_of_case(seed)
        report = bspml.audit(np.concatenate([x, twins]), np.concatenate([given, given[again]]))
        wrong = given != true
        assert report.total_rate == pytest.approx(once.total_rate, abs=0.03)
        assert report.noise_rate == pytest.approx(once.noise_rate, abs=0.03)
        assert report.lower_bound <= wrong.mean() <= report.upper_bound
        assert report.flagged[: len(x)][wrong].sum() >= once.flagged[wrong].sum() - 1
        assert (report.flagged[len(x) :] == report.flagged[again]).mean() > 0.99
        assert any("the first alone counts" in note for note in report.notes)


def test_a_placeholder_is_one_finding_and_accuses_no_other():
    for seed in range(3):
        x, true, _, _ = gaussian_case(seed, rate=0)
        x[::10] = x[0]
        report = bspml.audit(x, true)
        wrong = np.zeros(200, bool)
        wrong[10::10] = True
        assert report.total_rate == pytest.approx(0.095, abs=0.02)
        assert report.noise_rate == pytest.approx(0.095, abs=0.02)
        assert report.lower_bound <= 0.095 <= report.upper_bound
        group = report.groups.iloc[0]
        assert (group["samples"], group["labels"], group["placeholder"]) == (20, 20, True)
        assert (report.flagged & ~wrong).sum() <= 2
        assert (report.flagged & wrong).sum() == 19
        assert any("1 picture found under three labels" in note for note in report.notes)


def test_a_placeholder_beside_wrong_labels_leaves_the_rest_as_it_was():
    x, true, given, _ = gaussian_case(4)
    x[::10] = x[0]
    report = bspml.audit(x, given)
    wrong = given != true
    wrong[10::10] = True
    assert report.total_rate == pytest.approx(wrong.mean(), abs=0.03)
    assert (report.flagged & ~wrong).sum() <= 3


def test_a_picture_under_two_labels_vouches_for_neither():
    x, true, _, _ = gaussian_case(5, rate=0)
    x = np.concatenate([x, x[:1]])
    report = bspml.audit(x, [*true, 7])
    assert report.flagged[200]
    assert not report.flagged[0]
    assert report.suggested_labels[200] == 0


@pytest.mark.parametrize("scatter", [0.0, 0.05])
def test_of_a_picture_under_two_labels_one_is_wrong_whatever_the_rest_is_like(scatter):
    x, true, _, rng = gaussian_case(7, each=20, rate=0)
    rows = rng.permutation(400)[:80]
    twins = x[rows] + scatter * rng.standard_normal((80, 32))
    wrong = (true[rows] + rng.integers(1, 20, 80)) % 20
    report = bspml.audit(np.concatenate([x, twins]), np.concatenate([true, wrong]))
    assert report.flagged[400:].all()
    assert not report.flagged[:400].any()
    assert (report.other_labels[400:] == true[rows]).all()
    chances = report.wrong_probability
    assert (chances[rows] + chances[400:] >= 1 - 1e-9).all()
    assert report.total_rate == pytest.approx(80 / 480, abs=0.002)
    assert report.total_interval[0] >= (80 - 2) / 480
    assert any("80 labels at least are wrong" in note for note in report.notes) == (not scatter)


def test_whole_classes_copied_under_the_next_prove_as_many_wrong_labels():
    x, true, _, _ = gaussian_case(8, rate=0)
    report = bspml.audit(np.concatenate([x, x[:40]]), np.concatenate([true, (true[:40] + 1) % 20]))
    assert report.lower_bound == report.total_interval[0] == 40 / 240
    assert 40 / 240 <= report.total_rate < 0.2


@pytest.mark.parametrize("times", [2, 5])
def test_the_rate_is_one_of_labels_also_where_copies_disagree(times):
    x, true, _, rng = gaussian_case(6, rate=0)
    x, true = np.repeat(x, times, 0), np.repeat(true, times)
    wrong = rng.random(len(x)) < 0.1
    given = np.where(wrong, (true + rng.integers(1, 20, len(x))) % 20, true)
    report = bspml.audit(x, given)
    assert report.total_rate == pytest.approx(wrong.mean(), abs=0.04)
    assert report.total_interval[0] <= wrong.mean() <= report.total_interval[1]


def test_too_few_distinct_samples_to_judge_by_are_no_answer():
    labels = np.repeat(np.arange(6), 40)
    x = np.eye(6)[labels]
    labels[::15] = (labels[::15] + 1) % 6
    report = bspml.audit(x, labels)
    assert not report.flagged.any()
    assert report.total_interval == report.interval == (16 / 240, 1.0)
    assert report.lower_bound == report.total_rate == 16 / 240
    assert "No label could be judged" in report.sentence
    assert report.sentence.endswith(
        "But 16 labels of 240 at least are wrong, as exact copies under several labels prove."
    )
    assert any(note.startswith("16 labels at least are wrong") for note in report.notes)


def test_features_that_cannot_judge_do_not_hide_what_exact_copies_prove():
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(120, 8)), rng.integers(0, 6, 120)
    x[60:63], labels[60:63] = x[0], labels[0]
    assert "wrong" not in bspml.audit(x, labels).sentence
    labels[60] = (labels[0] + 1) % 6
    report = bspml.audit(x, labels)
    assert "permuted labels would fit as well" in report.sentence
    assert "1 label of 120 at least is wrong" in report.sentence
    assert report.lower_bound == 1 / 120
    assert report.duplicates["different_label"].any()
    # Where all lie in one place, being equal proves nothing.
    for same in (np.ones((120, 8)), np.ones((120, 8)) + 1e-9 * x):
        report = bspml.audit(same, labels)
        assert (report.lower_bound, report.total_rate) == (0.0, 0.0)
        assert "at least" not in report.sentence
