"""Of one picture's labels one at most is right: against all hypotheses, one by one."""

import numpy as np
import pytest

from bspml.statistics.one_right import Judged, one_right


def drawn(seed, n=60):
    """Labels of 20 pictures, judged alone by probabilities that their odds have."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(20 * 9, n, replace=False)
    picture, codes = cells // 9, cells % 9
    odds = rng.normal(0, 3, n)
    wrong = 1 / (1 + np.exp(-odds))
    other = (codes + rng.integers(1, 9, n)) % 9
    return Judged(wrong, other, wrong * rng.uniform(0.2, 1, n)), odds, codes, picture


@pytest.mark.parametrize("seed", range(3))
def test_probabilities_are_those_of_none_or_one_being_right(seed):
    alone, odds, codes, picture = drawn(seed)
    found = one_right(alone, odds, codes, picture)
    for j in range(len(odds)):
        mates = [i for i in np.flatnonzero(picture == picture[j]) if i != j]
        if not mates:
            assert [v[j] for v in found] == [v[j] for v in alone]
            continue
        # Hypotheses: nobody is right, or one of them; weights relative to "nobody".
        weights = {i: np.exp(-odds[i]) for i in (j, *mates)}
        total = 1 + sum(weights.values())
        assert found.wrong[j] == pytest.approx(1 - weights[j] / total, abs=1e-12)
        best = max(mates, key=weights.get)
        beside = weights[best] / total
        elsewhere = alone.other_probability[j] * found.wrong[j] / alone.wrong[j]
        expected = (codes[best], beside) if beside > elsewhere else (alone.other[j], elsewhere)
        assert found.other[j] == expected[0]
        assert found.other_probability[j] == pytest.approx(expected[1], abs=1e-12)
    for one in np.unique(picture):
        assert found.wrong[picture == one].sum() >= (picture == one).sum() - 1 - 1e-12


def test_where_no_label_is_thought_wrong_one_of_the_picture_is_all_the_same():
    alone = Judged(np.zeros(3), np.array([4, 4, 4]), np.zeros(3))
    odds = np.array([-690.0, -700.0, -690.0])  # P(wrong) rounds to 0, and ranks do not
    found = one_right(alone, odds, np.array([0, 1, 2]), np.array([5, 5, 6]))
    assert found.wrong == pytest.approx([1 / (1 + np.exp(-10)), 1 / (1 + np.exp(10)), 0])
    assert found.other.tolist() == [1, 0, 4]


def test_labels_that_cannot_be_judged_stay_so():
    alone = Judged(np.array([np.nan, 0.3]), np.array([-1, 2]), np.array([np.nan, 0.1]))
    odds = np.array([np.nan, np.log(0.3 / 0.7)])
    found = one_right(alone, odds, np.array([0, 1]), np.array([0, 0]))
    assert np.isnan(found.wrong[0])
    assert found.wrong[1] == pytest.approx(0.3)
