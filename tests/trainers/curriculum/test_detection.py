"""Wrong labels, right ones and outliers told apart, each in figures of its own."""

import math

import pytest
import torch

import bspml
from bspml.errors import InputError
from bspml.trainers.curriculum.detection import Truth

#          right, wrong, outlier, right, outlier, right
WEIGHTS = torch.tensor([0.9, 0.1, 0.2, 0.8, 0.95, 0.4])
NOISY = torch.tensor([0, 1, 1, 0, 1, 0]).bool()
OUTLIER = torch.tensor([0, 0, 1, 0, 1, 0]).bool()


def table(decided=()):
    weights = bspml.SampleWeights([0, 1] * 3)
    weights.update(WEIGHTS)
    weights.fix(list(decided), WEIGHTS[list(decided)])
    return weights


@pytest.mark.parametrize("scores", [None, 1 - WEIGHTS])
def test_what_a_person_decided_is_no_find(scores):
    """Left are a right label of .9 and of .8, a wrong one of .1 and an outlier of .2."""
    found = Truth(NOISY, OUTLIER, 6).figures(table([4, 5]), scores)
    assert (found["detection_precision"], found["detection_recall"]) == (1, 1)
    assert (found["false_alarm_rate"], found["detection_auroc"]) == (0, 1)
    assert (found["outlier_auroc"], found["outlier_recall"]) == (1, 1)
    wrong = Truth(NOISY, None, 6).figures(table([1, 3]), scores)
    # Wrong .2 and .95 against right .9 and .4.
    assert wrong["detection_auroc"] == 0.5 == wrong.get("score_auroc", 0.5)
    assert (wrong["detection_precision"], wrong["detection_recall"]) == (0.5, 0.5)


def test_outliers_count_neither_as_wrong_nor_as_right():
    found = Truth(NOISY, OUTLIER, 6).figures(table(), None)
    # Wrong .1 against right .9, .8, .4, of which .4 is below 0.5, too.
    assert found["detection_auroc"] == 1
    assert (found["detection_precision"], found["detection_recall"]) == (0.5, 1)
    assert found["false_alarm_rate"] == pytest.approx(1 / 3)
    # Outliers .2 and .95 against the same: of six pairs three in order; one of two below 0.5.
    assert (found["outlier_auroc"], found["outlier_recall"]) == (0.5, 0.5)


def test_p_values_order_both_where_they_are_known():
    p = torch.tensor([0.1, 0.9, 0.8, math.nan, 0.7, 0.2])
    found = Truth(NOISY, OUTLIER, 6).figures(table(), p)
    assert (found["score_auroc"], found["outlier_auroc"]) == (1, 1)
    assert found["outlier_recall"] == 0.5  # of the weights, which decide
    assert found["detection_auroc"] == 1
    none = Truth(NOISY, OUTLIER, 6).figures(table(), torch.full((6,), math.nan))
    assert "score_auroc" not in none
    assert none["outlier_auroc"] == 0.5


def test_without_outliers_there_is_no_figure_of_them_and_without_others_no_detection():
    found = Truth(NOISY, None, 6).figures(table(), None)
    assert "outlier_auroc" not in found
    assert found["detection_recall"] == pytest.approx(2 / 3)
    found = Truth(OUTLIER, OUTLIER, 6).figures(table(), None)
    assert math.isnan(found["detection_auroc"])
    assert found["outlier_auroc"] == 3 / 8


def test_masks_of_another_length_are_refused():
    weights = bspml.SampleWeights([0, 0, 1, 1])
    for name in ("is_noisy", "is_outlier"):
        truth = {"is_noisy": torch.zeros(4), "is_outlier": None, name: torch.zeros(3)}
        with pytest.raises(InputError, match=rf"`{name}` must be \(N,\) = \(4,\) like"):
            bspml.SelfPacedCurriculum(weights, **truth)


@pytest.mark.parametrize("value", [0.2, 2, math.nan])
def test_a_mask_of_scores_is_refused(value):
    weights = bspml.SampleWeights([0, 0, 1, 1])
    for name in ("is_noisy", "is_outlier"):
        truth = {"is_noisy": [0, 1, 0, 0], name: [0, 1, value, 0]}
        with pytest.raises(InputError, match=rf"`{name}` must be True or False .* at row 2"):
            bspml.SelfPacedCurriculum(weights, **truth)
    bspml.SelfPacedCurriculum(weights, is_noisy=[0.0, 1.0, 0.0, 0.0], is_outlier=[0, 1, 0, 0])


def test_outliers_without_the_noisy_are_refused_because_nothing_would_read_them():
    weights = bspml.SampleWeights([0, 0, 1, 1])
    with pytest.raises(InputError, match=r"`is_outlier` .* without `is_noisy`"):
        bspml.SelfPacedCurriculum(weights, is_outlier=[True, False, False, False])
