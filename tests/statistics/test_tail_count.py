"""The count behind the noise rate: its limits, its corrections, and what it does with little."""

import numpy as np
import pytest

from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.tail_count import (
    FEWEST_LABELS,
    TailCount,
    _dispersion,
    _looks_wrong,
    _true_sizes,
)


def count(tail=30.0, tested=400, leak=0.0, dispersion=1.0, sizes=(20,) * 20, references=1.0):
    return TailCount(tail, tested, leak, dispersion, np.array(sizes), references)


@pytest.mark.parametrize("pi", [0.01, 0.2, 0.5, 0.8])
def test_in_large_classes_exactly_the_wrong_labels_look_wrong(pi):
    assert _looks_wrong(pi, count(sizes=(2000,) * 50)) == pytest.approx(pi, rel=1e-6)


@pytest.mark.parametrize("pi", [0.1, 0.3, 0.6])
def test_in_small_classes_clean_labels_look_wrong_too(pi):
    assert _looks_wrong(pi, count(sizes=(3,) * 50)) > pi


def test_pairs_by_hand():
    # Classes of two, true sizes n = 2, pi = .5, judged samples are references: a clean sample is
    # alone with .5, and met by no stranger with exp(-1).
    calm = np.exp(-1)
    clean_testable, wrong_testable = 1 - 0.5 * calm, 1 - 0.25 * calm
    lonely = 0.5 * (1 - calm)
    expected = (lonely + wrong_testable) / (clean_testable + wrong_testable)
    assert _looks_wrong(0.5, count(sizes=(2,) * 10)) == pytest.approx(expected)


def test_the_rate_solves_its_own_equation():
    few = count(tail=40, sizes=(6,) * 30, tested=180)
    ratio = 40 / (0.25 * 180)
    assert _looks_wrong(few.rate(), few) == pytest.approx(ratio / (1 + ratio / 29), abs=1e-5)
    assert count(tail=0).rate() == 0
    assert count(tail=400).rate() == 1


def test_the_interval_holds_the_rate_and_widens_with_dispersion_and_leak():
    narrow, wide, leaky = (
        count(**more).interval() for more in ({}, {"dispersion": 3}, {"leak": 9})
    )
    assert narrow[0] < count().rate() < narrow[1]
    assert wide[0] < narrow[0]
    assert wide[1] > narrow[1]
    assert leaky[0] < narrow[0]
    assert leaky[1] == narrow[1]


def test_too_few_labels_have_no_interval():
    assert count(tail=1, tested=FEWEST_LABELS - 1).interval() == (0, 1)


def test_what_may_be_a_leak_leaves_the_low_end_at_0():
    assert count(tail=6, leak=6).interval()[0] == 0
    assert count(tail=90, leak=6).interval()[0] > 0


def test_labels_of_one_class_in_the_tail_together_disperse_the_count():
    codes = np.repeat(np.arange(20), 20)
    sizes = np.full(20, 20)
    spread = np.arange(400) % 20 == 0
    together = codes == 3
    assert spread.sum() == together.sum()
    assert _dispersion(codes, together, sizes) > 5 * _dispersion(codes, spread, sizes) > 0


def test_sizes_that_noise_alone_explains_are_taken_as_equal():
    sizes = np.array([18.0, 20, 22])
    assert _true_sizes(sizes, 0.5) == pytest.approx([20, 20, 20])
    assert _true_sizes(sizes, 0.0) == pytest.approx(sizes)
    assert (_true_sizes(np.array([1.0, 1.0]), 0.3) == 1.01).all()


def test_a_count_of_statistics_leaves_out_empty_classes_and_untestable_labels():
    rng = np.random.default_rng(0)
    labels = np.array([*np.repeat(np.arange(8), 10), 8])
    weights = np.ones(81)
    weights[80] = 0
    found = TailCount.of(contrastive_statistics(rng.normal(size=(81, 12)), labels, weights))
    assert found.tested == 80
    assert found.sizes.tolist() == [10] * 8
    assert found.num_classes == 8
    assert found.judged_are_references == 1
    assert 0 <= found.tail <= 80
