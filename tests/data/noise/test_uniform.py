"""Symmetric noise: how many, which, and what they become, in each convention."""

import numpy as np
import pytest
import torch

from bspml import noise
from helpers.draws import balanced


def test_half_of_a_thousand_is_five_hundred_for_any_number_of_classes():
    for classes in (2, 10):
        assert noise.symmetric(balanced(classes, 1000 // classes), 0.5).is_noisy.sum() == 500


def test_small_classes_get_their_share_in_total():
    draw = np.random.default_rng(0)
    sizes = draw.integers(2, 13, 20_000)
    labels = np.repeat(np.arange(len(sizes)), sizes)[:59_551]
    noisy = noise.symmetric(labels, 0.1)
    assert abs(noisy.is_noisy.sum() - 5_955) <= 1
    assert noisy.actual_rate == pytest.approx(0.1, abs=1e-5)


@pytest.mark.parametrize(
    "rate",
    [
        0.1,
        np.float32(0.1),
        np.float16(0.1),
        torch.tensor(0.1),
        torch.tensor(0.1, dtype=torch.bfloat16),
        np.array(0.1, np.float32),
    ],
)
def test_a_tenth_is_a_tenth_in_every_float_type(rate):
    # .1 * 5 = .5, .1 * 15 = 1.5, .1 * 25 = 2.5: halves go to the even number
    for n, expected in ((5, 0), (15, 2), (25, 2), (1000, 100)):
        labels = np.arange(n) % 3
        assert noise.symmetric(labels, rate).is_noisy.sum() == expected


def test_decimal_rates_are_not_bent_by_binary_fractions():
    # .29 * 50 = 14.5, but 14.499999999999998 in float64; .57 * 150 = 85.5, but 85.49999999999999
    assert noise.symmetric(np.arange(150) % 3, 0.57).is_noisy.sum() == 86
    assert noise.symmetric(np.arange(50) % 3, 0.29).is_noisy.sum() == 14


def test_rate_zero_changes_nothing_and_rate_one_everything():
    labels = balanced(5, 8)
    none, all_ = noise.symmetric(labels, 0), noise.symmetric(labels, 1)
    assert np.array_equal(none.labels, labels)
    assert not none.is_noisy.any()
    assert all_.is_noisy.all()
    assert (all_.labels != labels).all()


def test_every_other_class_is_equally_likely():
    noisy = noise.symmetric(balanced(4, 3000), 0.6, seed=1)
    matrix = noisy.transition_matrix()
    # a share of .2 among 3000 has standard deviation .0073
    assert np.abs(matrix - np.full((4, 4), 0.2) - 0.2 * np.eye(4)).max() < 5 * 0.0073


def test_every_sample_is_equally_likely_to_be_noisy():
    hits = sum(
        noise.symmetric(balanced(2, 5), 0.3, seed=s).is_noisy.astype(int) for s in range(900)
    )
    # mean 270, standard deviation 13.7
    assert np.abs(hits - 270).max() < 5 * 13.7


def test_half_of_the_draws_among_two_classes_keep_their_label():
    noisy = noise.symmetric(balanced(2, 2000), 0.5, keep_original=True)
    # 2,000 drawn, each wrong with probability 1/2: standard deviation 22
    assert abs(noisy.is_noisy.sum() - 1000) < 5 * 22.4
    assert noisy.rate == 0.5
    assert noisy.actual_rate == noisy.is_noisy.mean()


def test_with_originals_kept_the_new_label_is_uniform_over_all_classes():
    noisy = noise.symmetric(balanced(4, 3000), 0.6, seed=1, keep_original=True)
    # T = .4 I + .6 / 4: a share of .15 among 3000 has standard deviation .0065
    expected = 0.4 * np.eye(4) + 0.15
    assert np.abs(noisy.transition_matrix() - expected).max() < 5 * 0.0091
    everything = noise.symmetric(balanced(4, 3000), 1.0, keep_original=True)
    assert abs(everything.actual_rate - 0.75) < 5 * 0.004


def test_per_class_and_kept_originals_go_together():
    noisy = noise.symmetric(balanced(10, 100), 0.5, per_class=True, keep_original=True)
    wrong = [noisy.is_noisy[noisy.true_labels == c].sum() for c in range(10)]
    assert max(wrong) <= 50
    assert 400 < sum(wrong) < 490  # of 500 drawn, a tenth keep their label: 450 +- 6.7


def test_the_flag_marks_wrong_labels_only():
    noisy = noise.symmetric(balanced(2, 50), 1.0, keep_original=True)
    assert np.array_equal(noisy.is_noisy, noisy.labels != noisy.true_labels)
    assert 0 < noisy.is_noisy.sum() < 100
