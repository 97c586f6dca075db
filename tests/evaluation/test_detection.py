"""Noise detection by low weight: hand-worked cases, pairwise oracle, messages."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st

from bspml.errors import InputError
from bspml.evaluation.detection import detected, noise_detection


def test_hand_worked_case():
    weights = [0.0, 0.4, 0.5, 0.9, 0.2, 1.0]
    noisy = [True, True, True, False, False, False]
    found = noise_detection(weights, noisy)
    # flagged: 0, .4, .2 (a weight of .5 is kept); 2 of them noisy
    assert (found.num_flagged, found.num_noisy, found.num_samples) == (3, 3, 6)
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(2 / 3)
    assert found.false_alarm_rate == pytest.approx(1 / 3)
    # pairs noisy < clean: 0 below .9 .2 1 (3), .4 below .9 1 (2), .5 below .9 1 (2): 7 of 9
    assert found.auroc == pytest.approx(7 / 9)


@settings(max_examples=40, deadline=None)
@given(
    levels=st.lists(st.integers(0, 4), min_size=2, max_size=30),
    seed=st.integers(0, 2**20),
)
def test_auroc_counts_pairs_with_ties_as_half(levels, seed):
    weights = np.array(levels) / 4
    noisy = np.random.default_rng(seed).random(len(levels)) < 0.5
    found = noise_detection(weights, noisy).auroc
    pairs = [
        0.5 * (weights[i] == weights[j]) + (weights[i] < weights[j])
        for i in np.flatnonzero(noisy)
        for j in np.flatnonzero(~noisy)
    ]
    expected = np.mean(pairs) if pairs else math.nan
    assert found == pytest.approx(expected, nan_ok=True)


def test_tiny_weights_are_still_told_apart():
    assert noise_detection([1e-30, 1e-29], [True, False]).auroc == 1


def test_nothing_flagged_has_no_precision_and_no_recall():
    found = noise_detection([1.0, 1.0, 1.0], [True, False, False])
    assert math.isnan(found.precision)
    assert found.recall == 0
    assert found.false_alarm_rate == 0
    assert found.auroc == 0.5


def test_without_noise_the_false_alarms_are_reported():
    found = noise_detection([0.1, 0.9, 0.8, 0.7], [False] * 4)
    assert found.false_alarm_rate == 0.25
    assert found.precision == 0
    assert math.isnan(found.recall)
    assert math.isnan(found.auroc)


def test_only_noise_has_no_false_alarm_rate():
    assert math.isnan(noise_detection([0.1, 0.9], [True, True]).false_alarm_rate)


def test_ignored_samples_enter_no_figure():
    found = noise_detection(
        [0.1, 0.2, 0.9, 0.1], [True, False, False, False], ignore=[False, False, False, True]
    )
    assert found.num_samples == 3
    assert found.false_alarm_rate == 0.5


def test_tensors_of_any_float_type_and_integer_masks_are_accepted():
    weights = torch.tensor([0.25, 1.0], dtype=torch.bfloat16, requires_grad=True)
    assert noise_detection(weights, torch.tensor([1, 0])).auroc == 1


def test_as_dict_has_none_for_nan():
    assert noise_detection([1.0], [True]).as_dict()["precision"] is None


@pytest.mark.parametrize(
    ("weights", "noisy", "message"),
    [
        ([[0.5], [0.5]], [True, False], r"`sample_weights` must be one number.*\(2, 1\)"),
        ([0.5, 1.5], [True, False], r"lie in \[0, 1\]; got 1.5 at row 1"),
        ([0.5, math.nan], [True, False], r"lie in \[0, 1\]; got nan at row 1"),
        ([0.5, 0.5], [True], r"`is_noisy` must be \(N,\) = \(2,\).*got \(1,\)"),
        ([0.5, 0.5], [2, 0], "`is_noisy` must be True or False"),
        (["a", "b"], [True, False], "`sample_weights` must be one number"),
    ],
)
def test_wrong_input_is_refused(weights, noisy, message):
    with pytest.raises(InputError, match=message):
        noise_detection(weights, noisy)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan])
def test_a_threshold_outside_the_weights_range_is_refused(threshold):
    with pytest.raises(InputError, match="`threshold`"):
        noise_detection([0.5], [True], threshold=threshold)


def test_of_no_samples_every_share_is_unknown():
    found = noise_detection([], [], ignore=[])
    assert (found.num_samples, found.num_noisy, found.num_flagged) == (0, 0, 0)
    assert math.isnan(found.auroc)
    assert math.isnan(found.false_alarm_rate)


def test_where_there_is_nothing_to_tell_apart_a_warning_says_which_figures_are_nan():
    with pytest.warns(
        UserWarning, match="none of the 2 samples noisy, so AUROC and recall are NaN"
    ):
        found = noise_detection([0.1, 0.9], [False, False])
    assert math.isnan(found.auroc)
    assert math.isnan(found.recall)
    with pytest.warns(UserWarning, match="none of the 1 samples clean"):
        noise_detection([0.1, 0.9], [True, False], ignore=[False, True])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        noise_detection([0.1, 0.9], [True, False])
        detected([0.1, 0.9], [False, False])


def test_pandas_objects_of_other_rows_are_refused():
    flags = pd.Series([True, False, False], index=[2, 0, 1])
    weights = pd.Series([0.1, 0.9, 0.8], index=[2, 0, 1])
    assert noise_detection(weights, flags).auroc == 1
    with pytest.raises(InputError, match="indices differ"):
        noise_detection(weights, flags.sort_index())
    with pytest.raises(InputError, match=r"`ignore`.*indices differ"):
        noise_detection(weights, flags, ignore=flags.sort_index())


@pytest.mark.parametrize(
    "odd",
    [
        np.ma.masked_array([1, 0, 1], mask=[0, 1, 0]),
        [[1], [0, 1], [1]],
        torch.tensor([1, 0, 1]).to_sparse(),
        torch.ones(3, device="meta"),
        None,
    ],
    ids=["masked", "ragged", "sparse", "meta", "none"],
)
def test_what_holds_no_dense_numbers_is_refused_by_name(odd):
    good = [1, 0, 1]
    for name in ("sample_weights", "is_noisy", "ignore"):
        if name != "ignore" or odd is not None:
            given = {"sample_weights": good, "is_noisy": good, "ignore": good} | {name: odd}
            with pytest.raises(InputError, match=f"`{name}` (must be|has masked)"):
                noise_detection(**given)
    whole = np.ma.masked_array([1.0, 0.0, 1.0], mask=False)
    assert noise_detection(whole, good).num_samples == 3
