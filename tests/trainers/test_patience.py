"""When a training stops early."""

import math

import pytest
import torch

from bspml.errors import CheckpointError, InputError
from bspml.trainers.patience import Patience


def after(values, evaluations=3):
    patience = Patience(evaluations, lambda metrics: metrics["value"])
    for value in values:
        patience.look({"value": value})
    return patience


@pytest.mark.parametrize(
    ("values", "waited", "best"),
    [
        ([], 0, -math.inf),
        ([0.1, 0.2, 0.3], 0, 0.3),
        ([0.3, 0.2, 0.3], 2, 0.3),  # as good is not better
        ([0.3, 0.2, 0.1, 0.4], 0, 0.4),
        ([math.nan, 0.2, math.nan], 1, 0.2),
        ([-5, -6, -7, -8], 3, -5),
    ],
)
def test_it_counts_what_was_no_better_since_the_best(values, waited, best):
    patience = after(values)
    assert (patience.waited, patience.best) == (waited, best)
    assert patience.exhausted == (waited >= 3)


def test_it_says_why_the_training_ends():
    stopped = after([0.3, 0.2, 0.1], 2)
    assert stopped.why() == "stopped early: no better than 0.3 in 2 evaluations since"
    nothing = after([math.nan, math.nan], 2)
    assert nothing.why() == "stopped early: the value was no finite number in 2 evaluations"


def test_its_state_goes_on():
    other = after([])
    other.load_state_dict(after([0.5, 0.4, 0.4]).state_dict())
    other.look({"value": 0.5})
    assert other.exhausted


@pytest.mark.parametrize(("best", "waited"), [("1", 0), (math.nan, 0), (1.0, -1), (1.0, True)])
def test_a_state_of_something_else_is_refused(best, waited):
    with pytest.raises(CheckpointError, match="patience must be a number and a count"):
        after([]).load_state_dict({"best": best, "waited": waited})


def test_no_evaluations_are_no_patience():
    with pytest.raises(InputError, match="`evaluations` must be a whole number of at least 1"):
        after([], evaluations=0)


def test_it_keeps_the_network_of_the_best_value_and_goes_on_with_it():
    network = torch.nn.Linear(1, 1)
    patience = Patience(None, lambda metrics: metrics["value"], network)
    for epoch, value in enumerate((0.2, 0.5, 0.4)):
        torch.nn.init.constant_(network.weight, epoch)
        patience.look({"value": value}, epoch)
    assert (patience.epoch, patience.kept["weight"].item()) == (1, 1)
    assert not patience.exhausted  # None never stops
    other = Patience(None, patience.value, torch.nn.Linear(1, 1))
    other.load_state_dict(patience.state_dict())
    assert (other.epoch, other.kept["weight"].item()) == (1, 1)
    with pytest.raises(CheckpointError, match="best network is another one than this"):
        Patience(None, patience.value, torch.nn.Linear(2, 1)).load_state_dict(patience.state_dict())


def test_a_state_from_before_a_network_was_kept_keeps_none():
    patience = after([])
    patience.load_state_dict({"best": 0.5, "waited": 1})
    assert (patience.epoch, patience.kept) == (None, None)
