"""When labels are judged anew."""

import torch

from bspml.trainers.curriculum.pace import RESTING, Pace, num_changed


def judged_rounds(pace, moved):
    """Rounds of which labels are judged, where judgements move these shares in turn."""
    rounds, moved = [], list(moved)
    for number in range(1, 100):
        if not moved:
            return rounds
        if pace.is_due:
            rounds.append(number)
            pace.judged(moved.pop(0))
        else:
            pace.passed()
    return rounds


def test_after_two_judgements_that_moved_little_every_kth_round_is_judged():
    low, high = RESTING, RESTING + 1e-9
    assert judged_rounds(Pace(4), [high, low, high, low, low, low, low]) == [1, 2, 3, 4, 5, 9, 13]
    # One that moves much makes every round count, until two rest again.
    assert judged_rounds(Pace(4), [low, low, high, low, low, low]) == [1, 2, 6, 7, 8, 12]


def test_every_1_judges_always():
    assert judged_rounds(Pace(1), [0.0] * 5) == [1, 2, 3, 4, 5]


def test_a_state_goes_on_where_it_was():
    for stop in range(6):
        whole, moved = Pace(3), [0.0] * 5
        for _ in range(stop):
            whole.judged(moved.pop()) if whole.is_due else whole.passed()
        resumed = Pace(3)
        resumed.load_state_dict(whole.state_dict())
        assert judged_rounds(resumed, moved) == judged_rounds(whole, moved)


def test_a_change_is_the_crossing_of_the_line_of_suspects():
    before = torch.tensor([0.0, 0.49, 0.5, 1.0, 0.7])
    assert num_changed(before, torch.tensor([0.4, 0.5, 0.49, 0.5, 0.7])) == 2
