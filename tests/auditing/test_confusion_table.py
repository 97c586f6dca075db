"""The table of confused classes against counting by hand and scipy's own exact interval."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from bspml.auditing.confusion_table import confusion_table

CLOSE = 1e-12  # two ways to the same quantile of the beta distribution


@pytest.fixture
def confused(audited):
    """Flag the first `count` samples of each class of a small audit, suggesting these labels."""

    def make(flags, labels="xyz"):
        report = audited(labels)
        weights, suggested = np.ones(24), report.labels.copy()
        for row, label in flags.items():
            weights[row], suggested[row] = 0.0, label
        return replace(report, weights=weights, suggested_labels=suggested)

    return make


def test_flagged_labels_are_counted_by_label_and_suggestion(confused):
    report = confused({0: "y", 1: "y", 2: "z", 8: "x", 9: "y"})  # 9: flagged, fits nothing better
    table = confusion_table(report)
    expected = Counter(
        (a, b)
        for a, b, flagged in zip(
            report.labels, report.suggested_labels, report.flagged, strict=True
        )
        if flagged and a != b
    )
    pairs = zip(table["label"], table["suggested_label"], strict=True)
    assert [*table.columns] == ["label", "suggested_label", "count", "share", "low", "high"]
    assert dict(zip(pairs, table["count"], strict=True)) == dict(expected)
    assert table.iloc[0, :3].tolist() == ["x", "y", 2]
    assert table["share"].tolist() == pytest.approx([2 / 8, 1 / 8, 1 / 8])


def test_what_is_not_flagged_is_not_confused(confused):
    report = confused({})
    suggested = np.roll(report.labels, 8)
    assert len(confusion_table(replace(report, suggested_labels=suggested))) == 0


@pytest.mark.parametrize("count", [1, 3, 8])
def test_the_interval_is_the_exact_one_of_the_share_of_the_class(confused, count):
    table = confusion_table(confused(dict.fromkeys(range(count), "y")))
    exact = binomtest(count, 8).proportion_ci(0.95, method="exact")
    assert table[["low", "high"]].values.tolist() == [
        pytest.approx([exact.low, exact.high], abs=CLOSE)
    ]


def test_names_of_classes_are_kept_whatever_they_are(hostile_report):
    given, suggested = hostile_report.labels, hostile_report.labels.copy()
    suggested[[0, 13]] = given[[13, 0]]
    weights = np.where(given != suggested, 0.0, 1.0)
    changed = replace(hostile_report, weights=weights, suggested_labels=suggested)
    table = confusion_table(changed)
    swapped = set(hostile_report.labels[[0, 13]])
    assert len(table) == 2
    assert set(table["label"]) == set(table["suggested_label"]) == swapped


def test_whole_numbers_stay_numbers(audited):
    report = audited([5, 7, 9])
    suggested, weights = report.labels.copy(), np.ones(24)
    suggested[0], weights[0] = 9, 0.0
    table = confusion_table(replace(report, suggested_labels=suggested, weights=weights))
    assert table.iloc[0, :3].tolist() == [5, 9, 1]
    assert table["label"].dtype.kind == "i"


def test_dropped_samples_count_in_no_share(confused):
    """As in the table of classes: x has 8 samples, of which a person dropped one, and kept one."""
    report = confused({0: "y", 1: "y", 2: "z"})
    decided = np.full(24, "", "<U5")
    decided[2], decided[3] = "wrong", "right"
    table = confusion_table(replace(report, decided=decided))
    assert table["share"].tolist() == pytest.approx([2 / 7])
    exact = binomtest(2, 7).proportion_ci(0.95, method="exact")
    assert table[["low", "high"]].values[0] == pytest.approx([exact.low, exact.high], abs=CLOSE)
