"""Pair flips, mappings and transition matrices."""

import numpy as np
import pytest

from bspml import noise
from bspml.errors import InputError
from helpers.draws import balanced


def test_pair_flip_goes_to_the_next_class_and_the_last_to_the_first():
    noisy = noise.pair_flip(list("aabbcc"), 1.0)
    assert noisy.labels.tolist() == list("bbccaa")


def test_a_mapping_confuses_only_the_classes_it_names():
    noisy = noise.asymmetric(balanced(3, 10), 0.35, {0: 2, 2: 1}, seed=1)
    # .35 * 10 = 3.5, to the even 4
    expected = np.array([[0.6, 0, 0.4], [0, 1, 0], [0, 0.4, 0.6]])
    assert np.allclose(noisy.transition_matrix(), expected)


def test_a_transition_matrix_is_followed_and_can_be_given_a_rate():
    matrix = np.array([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.1, 0.1, 0.8]])
    noisy = noise.asymmetric(balanced(3, 1000), transition=matrix, seed=1)
    found = noisy.transition_matrix()
    assert np.allclose(np.diag(found), [0.7, 1.0, 0.8])
    assert found[0, 1] == pytest.approx(0.3)
    assert abs(found[2, 0] - 0.1) < 5 * 0.007  # 100 of 200 draws, standard deviation .007 of 1000
    assert noisy.rate == pytest.approx(500 / 3000)
    fixed = noise.asymmetric(balanced(3, 1000), 0.5, transition=matrix, seed=1)
    assert np.allclose(np.diag(fixed.transition_matrix()), [0.5, 1.0, 0.5])


def test_by_chance_a_transition_matrix_is_the_distribution_of_each_label():
    matrix = np.array([[0.7, 0.2, 0.1], [0.0, 1.0, 0.0], [0.1, 0.4, 0.5]])
    found = noise.asymmetric(
        balanced(3, 4000), transition=matrix, seed=1, exact=False
    ).transition_matrix()
    # shares among 4000 have a standard deviation of at most .0079
    assert np.abs(found - matrix).max() < 5 * 0.0079
    assert found[1].tolist() == [0, 1, 0]


def test_a_mapping_of_no_class_is_refused():
    with pytest.raises(InputError, match="`mapping` must name at least one class"):
        noise.asymmetric(["a", "b"], 0.5, mapping={})
