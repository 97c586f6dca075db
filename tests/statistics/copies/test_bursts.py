"""Groups far from all others, worked by hand."""

import numpy as np
import pytest

from bspml.statistics.copies.bursts import _inverse_dimension, _is_class, _isolated


def test_groups_have_each_other_as_nearest():
    places = np.array([[1, 2], [0, 2], [3, 0], [2, 1], [0, 1]])
    assert _isolated(places, 1).tolist() == [[0, 1], [2, 3]]  # 4 is nobody's nearest
    assert _isolated(np.array([[1, 2], [0, 2], [0, 1], [2, 1]]), 2).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("labels", "sizes", "expected"),
    [
        ([0, 0], [3, 3], True),  # 2 * 3 < 3 * 2 + 2
        ([0, 0], [4, 4], False),
        ([0, 1], [9, 3], True),  # no majority: the smallest class
        ([0, 0, 1], [5, 5, 90], True),
        ([0, 0, 1], [6, 6, 2], False),
        ([0, 1, 2, 3, 4, 5], [6] * 6, False),  # labels disagree more than wrong ones do
    ],
)
def test_which_groups_are_classes(labels, sizes, expected):
    assert _is_class(np.array([labels]), np.array([sizes])).tolist() == [expected]


def test_dimension_of_a_power_law_with_a_jump():
    # delta_r = r^2: spacings r log((r + 1)^2 / r^2), about 2 each; a jump of e^50 behind r = 19 is
    # the largest and left out.  n = 19 spacings, two largest expected 2 H_19 - 1 = 6.0955.
    ranks = np.arange(1, 31.0)
    squared = np.array([ranks**2, np.where(ranks > 19, ranks**2 * np.exp(50), ranks**2)])
    spacings = np.sort(ranks[10:29] * np.log(squared[0, 11:] / squared[0, 10:-1]))
    plain = spacings[:-2].sum() / (19 - 6.09548)
    estimates = _inverse_dimension(squared, 11)
    assert estimates[0] == pytest.approx(plain, rel=0.02)
    assert estimates[1] == pytest.approx(plain, rel=0.02)
