"""What the kinds of noise share: which samples are drawn, and how their labels are replaced."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from bspml.data.noise.task import NoiseTask
from bspml.errors import InputError

LABELS = ["b"] * 6 + ["a"] * 3 + ["c"]


def test_labels_become_codes_of_sorted_classes_and_the_rate_a_decimal():
    task = NoiseTask.of(LABELS, np.float32(0.1), 0)
    assert task.classes.tolist() == ["a", "b", "c"]
    assert task.codes.tolist() == [1] * 6 + [0] * 3 + [2]
    assert task.exact_rate == Fraction(1, 10)
    assert task.members(0).tolist() == [6, 7, 8]
    assert task.num_classes == 3


@pytest.mark.parametrize(("rate", "count"), [(0, 0), (0.25, 2), (0.35, 4), (0.45, 4), (1, 10)])
def test_so_many_rows_are_drawn_each_once_halves_to_the_even_number(rate, count):
    rows = NoiseTask.of(LABELS, rate, 3).draw_rows()
    assert len(rows) == count
    assert (np.diff(rows) > 0).all()


def test_so_many_of_each_class_are_drawn():
    task = NoiseTask.of(LABELS, 0.5, 3)
    assert np.bincount(task.codes[task.draw_rows(per_class=True)], minlength=3).tolist() == [
        2,
        3,
        0,
    ]
    assert np.isin(task.draw_members(1, 0.5, exact=True), task.members(1)).all()
    with pytest.raises(InputError, match="`per_class` fixes the number"):
        task.draw_rows(per_class=True, exact=False)


def test_by_chance_the_count_varies_around_the_rate():
    tasks = [NoiseTask.of(LABELS, 0.3, seed) for seed in range(400)]
    counts = [len(task.draw_rows(exact=False)) for task in tasks]
    assert min(counts) < 3 < max(counts)
    # 400 sums of 10 draws: the mean has a deviation of sqrt(10 * .3 * .7 / 400) = 0.07.
    assert abs(np.mean(counts) - 3) < 0.36
    members = [len(task.draw_members(1, 0.5, exact=False)) for task in tasks]
    assert abs(np.mean(members) - 3) < 0.36


@pytest.mark.parametrize("make", [np.array, lambda labels: torch.tensor(labels, dtype=torch.int16)])
def test_replaced_labels_keep_their_kind_and_the_truth_is_a_copy(make):
    labels = make([7, 7, -3, -3])
    noisy = NoiseTask.of(labels, 0.25, 0).with_labels(np.array([1]), np.array([0]))
    assert noisy.labels.tolist() == [7, -3, -3, -3]
    assert noisy.labels.dtype == labels.dtype
    assert noisy.is_noisy.tolist() == [False, True, False, False]
    labels[0] = 1
    assert noisy.true_labels.tolist() == [7, 7, -3, -3]


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_samples_of_a_class_that_no_label_names_any_more_are_outliers(make):
    task = NoiseTask.of(make([7, 7, -3, -3, 2]), 0.6, 0)
    # Both of class -3 go, and one of the two of class 7.
    noisy = task.with_labels(np.array([1, 2, 3]), np.array([1, 1, 2]))
    assert noisy.labels.tolist() == [7, 2, 2, 7, 2]
    assert noisy.is_outlier.tolist() == [False, False, True, True, False]


def test_what_no_task_can_be_made_of_is_refused():
    with pytest.raises(InputError, match="at least 2 classes"):
        NoiseTask.of(["a", "a"], 0.1, 0)
    with pytest.raises(InputError, match="`rate` must be in"):
        NoiseTask.of(LABELS, 1.1, 0)
    with pytest.raises(InputError, match="one row per label, 10; got 2"):
        NoiseTask.of(LABELS, 0.1, 0).check_rows([[1.0], [2.0]])
