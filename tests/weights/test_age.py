"""The age schedule, and the search for the age that keeps a wanted share."""

import numpy as np
import pytest

from bspml.errors import InputError
from bspml.weights.age import AgeSchedule, age_for_maw
from bspml.weights.problem import WeightProblem
from bspml.weights.solver import solve_weights


def draw(seed=0, n=400, classes=40):
    rng = np.random.default_rng(seed)
    return rng.random(n) * 2, rng.random(n), rng.integers(0, classes, n)


def test_age_grows_by_its_multiplier_up_to_the_maximum():
    schedule = AgeSchedule(age=1.0, growth=1.5, maximum=3.0)
    ages = [schedule.age]
    for _ in range(4):
        ages.append(schedule.next(ages[-1]))
    assert ages == [1.0, 1.5, 2.25, 3.0, 3.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ((0.0, 1.5, 3.0), "`age` must be in"),
        ((1.0, 0.9, 3.0), "`growth` must be in"),
        ((4.0, 1.5, 3.0), "`maximum` must be at least `age`=4; got 3"),
        ((1.0, 1.5, float("nan")), "`maximum`"),
    ],
)
def test_impossible_schedules_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        AgeSchedule(*settings)


@pytest.mark.parametrize("balance", [0.0, 0.5, 20.0])
@pytest.mark.parametrize("target", [0.0, 0.5, 0.7, 1.0])
def test_the_age_found_gives_the_maw_it_reports(balance, target):
    xi_pos, xi_neg, y = draw()
    search = age_for_maw(xi_pos, xi_neg, y, balance, target)
    problem = WeightProblem(xi_pos, xi_neg, y, search.age, balance)
    again = solve_weights(problem)
    assert again.weights.equal(search.solution.weights)
    assert search.maw == float(problem.class_means(again.weights).mean())
    tolerance = 1e-3 if balance else 1 / (problem.num_classes * problem.sizes.min())
    assert search.reached == (abs(search.maw - target) <= tolerance)
    assert abs(search.maw - target) < 0.02
    assert search.evaluations <= 60
    assert f"asked {target:.4f}" in search.message


def test_balanced_searches_reach_the_target_on_ordinary_data():
    assert all(age_for_maw(*draw(s), 1.0, 0.7).reached for s in range(3))


@pytest.mark.parametrize("shift", [0.5, 3.0, -4.0])
def test_shifted_statistics_widen_the_bracket(shift):
    xi_pos, xi_neg, y = draw()
    for target in (0.0, 1.0):
        search = age_for_maw(xi_pos - shift, xi_neg - shift, y, 1.0, target)
        assert search.maw == pytest.approx(target, abs=1e-3)
        assert search.reached


def test_an_age_below_zero_is_tried_if_age_zero_keeps_too_much():
    search = age_for_maw(np.zeros(30), np.zeros(30), np.arange(30) % 3, 1.0, 0.0)
    assert search.reached
    assert search.age < 0


def test_a_jump_over_the_target_is_reported_with_the_closest_maw():
    # No statistics: every weight has slope -age, so MAW jumps from 0 to 1 at age 0.
    search = age_for_maw(np.zeros(30), np.zeros(30), np.arange(30) % 3, 0.0, 0.6)
    assert search.maw == 1.0
    assert not search.reached
    assert "MAW jumps over the target" in search.message


def test_the_closest_of_few_evaluations_is_kept():
    xi_pos, xi_neg, y = draw()
    search = age_for_maw(xi_pos, xi_neg, y, 1.0, 0.7, max_evaluations=3)
    assert search.evaluations == 3
    assert "raise `max_evaluations`" in search.message
    longer = age_for_maw(xi_pos, xi_neg, y, 1.0, 0.7, max_evaluations=6)
    assert abs(longer.maw - 0.7) <= abs(search.maw - 0.7)


def test_an_own_tolerance_is_respected():
    xi_pos, xi_neg, y = draw()
    loose = age_for_maw(xi_pos, xi_neg, y, 1.0, 0.7, tolerance=0.2)
    tight = age_for_maw(xi_pos, xi_neg, y, 1.0, 0.7, tolerance=1e-5)
    assert loose.reached
    assert loose.evaluations < tight.evaluations


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target_maw": 1.1}, r"`target_maw` must be in \[0, 1\]; got 1.1"),
        ({"balance": -1}, "`balance` must be in"),
        ({"tolerance": -1}, "`tolerance` must be in"),
        ({"max_evaluations": 0}, "`max_evaluations` must be a whole number"),
    ],
)
def test_wrong_searches_are_refused(changes, message):
    xi_pos, xi_neg, y = draw()
    given = {"balance": 1.0, "target_maw": 0.5}
    with pytest.raises(InputError, match=message):
        age_for_maw(xi_pos, xi_neg, y, **{**given, **changes})
