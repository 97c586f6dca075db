"""Groups far from all others, worked by hand."""

import numpy as np
import pytest

from bspml.statistics.copies.bursts import _inverse_dimension, _is_class, _isolated, find_bursts
from bspml.statistics.copies.nearest import Nearest


def test_groups_have_each_other_as_nearest():
    places = np.array([[1, 2], [0, 2], [3, 0], [2, 1], [0, 1]])
    assert _isolated(places, 1, np.arange(5)).tolist() == [[0, 1], [2, 3]]  # 4 is nobody's nearest
    assert _isolated(places, 1, np.array([0, 1, 2])).tolist() == [[0, 1]]
    places = np.array([[1, 2], [0, 2], [0, 1], [2, 1]])
    assert _isolated(places, 2, np.arange(4)).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("labels", "sizes", "expected"),
    [
        ([0, 0], [3, 3], True),  # 2 * 3 < 3 * 2 + 2
        ([0, 0], [4, 4], False),
        ([0, 1], [9, 3], True),  # no majority: the smallest class
        ([0, 0, 1], [5, 5, 90], True),
        ([0, 0, 1], [6, 6, 2], False),
        ([0, 1, 2, 3, 4, 5], [6] * 6, False),  # labels disagree more than wrong ones do
        ([0] * 7 + [1] * 5, [22] * 12, False),
        ([0] * 8 + [1] * 4, [22] * 12, True),  # a third of the samples labelled 0
        ([0] * 6 + [1] * 5, [12] * 11, True),
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


def nearest_thirty(x):
    squared = ((x[:, None] - x) ** 2).sum(2)
    np.fill_diagonal(squared, np.inf)
    return Nearest(np.argsort(squared, 1)[:, :30], np.sort(squared, 1)[:, :30])


@pytest.mark.parametrize("frames", [11, 12, 20, 30])
def test_bursts_of_up_to_thirty_frames_are_found_whole(frames):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 5 * frames)  # four classes of five scenes each
    x = np.repeat(rng.standard_normal((20, 16)), frames, 0)
    near = nearest_thirty(x + 0.02 * rng.standard_normal(x.shape))
    found = {tuple(group) for group in find_bursts(near, labels)}
    assert {tuple(range(i, i + frames)) for i in range(0, 20 * frames, frames)} <= found


@pytest.mark.parametrize("size", [12, 20, 30])
def test_classes_that_are_tight_clusters_are_no_bursts(size):
    rng = np.random.default_rng(1)
    true = np.repeat(np.arange(12), size)
    x = 30 * rng.standard_normal((12, 16))[true] + rng.standard_normal((len(true), 16))
    near = nearest_thirty(x)
    given = np.where(rng.random(len(true)) < 0.4, rng.integers(0, 12, len(true)), true)
    for labels in (true, given):
        assert not [group for group in find_bursts(near, labels) if len(group) > 11]
