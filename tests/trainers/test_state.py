"""What a saved trainer state must look like before any of it is taken over."""

import math

import pytest
import torch

from bspml.errors import CheckpointError
from bspml.files.checkpoints import generator_states
from bspml.trainers.state import check_position, check_trainer_state, faults_named

POSITION = {"round": 2, "step": 3, "steps": 11, "full_round": 5, "loss_sum": 1.5}


def optimizer_of(kind=torch.optim.Adam, rows=3, **options):
    layer = torch.nn.Linear(2, rows)
    optimizer = kind(layer.parameters(), lr=0.1, **options)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return optimizer


def state_of(optimizer, **parts):
    network = {
        "models": {}, "optimizers": {"trunk": optimizer.state_dict()}, "lr_schedulers": {},
    }  # fmt: skip
    return {
        "network": network,
        "initial": None,
        "loss_funcs": {},
        "curriculum": None,
        "sample_weights": None,
        "collected": None,
        "position": dict(POSITION),
        "generators": generator_states(),
        **parts,
    }


@pytest.mark.parametrize("step", [0, 5])
def test_a_position_at_either_end_of_a_round_is_possible(step):
    check_position({**POSITION, "steps": 10 + step, "step": step}, 5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"round": -1}, "`round` must be a whole number of at least 0; got -1"),
        ({"steps": 2.0}, r"`steps` must be a whole number of at least 0; got 2\.0"),
        ({"full_round": True}, "`full_round` must be a whole number"),
        ({"loss_sum": math.inf}, "`loss_sum` must be a finite number; got inf"),
        ({"loss_sum": "1"}, "`loss_sum` must be a finite number; got '1'"),
        ({"step": 6, "steps": 14}, "step 6, 14 steps in all, 5 to the epoch"),
        ({"steps": 14}, "is impossible where a full epoch has 5 steps"),  # 2 * 5 + 3 at most
        ({"steps": 4}, r"is impossible"),  # each round has a step at least
        ({"full_round": 6}, "6 to the epoch"),
    ],
)
def test_an_impossible_position_is_refused(change, message):
    with pytest.raises(CheckpointError, match=message):
        check_position({**POSITION, **change}, 5, "epoch")


def test_a_whole_state_is_accepted_with_and_without_a_network_to_return_to():
    optimizer = optimizer_of()
    state = state_of(optimizer)
    check_trainer_state(state, {"trunk": optimizer}, 7, 5)
    collected = torch.zeros(7, 2)
    again = {**state, "initial": state["network"], "collected": collected}
    check_trainer_state(again, {"trunk": optimizer}, 7, 5)


def test_collected_embeddings_of_other_data_are_refused():
    optimizer = optimizer_of()
    state = state_of(optimizer, collected=torch.zeros(6, 2))
    with pytest.raises(CheckpointError, match=r"are \(6, 2\); this data set has 7 samples"):
        check_trainer_state(state, {"trunk": optimizer}, 7, 5)


@pytest.mark.parametrize(
    "other",
    [optimizer_of(torch.optim.SGD, momentum=0.9), optimizer_of(rows=4)],
    ids=["other options", "other shapes"],
)
def test_an_optimiser_of_another_kind_or_network_is_refused(other):
    with pytest.raises(CheckpointError, match="optimiser `trunk` is of another kind or network"):
        check_trainer_state(state_of(other), {"trunk": optimizer_of()}, 7, 5)


def test_an_optimiser_may_have_other_values():
    other = optimizer_of(betas=(0.5, 0.9), foreach=True, weight_decay=0.1)
    check_trainer_state(state_of(other), {"trunk": optimizer_of()}, 7, 5)


@pytest.mark.parametrize("part", ["network", "initial", "loss_funcs", "position", "generators"])
def test_a_missing_part_is_refused_in_one_line(part):
    optimizer = optimizer_of()
    state = state_of(optimizer)
    del state[part]
    with pytest.raises(CheckpointError, match="does not hold the state of such a training") as err:
        check_trainer_state(state, {"trunk": optimizer}, 7, 5)
    assert "\n" not in str(err.value)


def test_only_faults_of_content_become_a_checkpoint_error():
    with pytest.raises(CheckpointError, match=r"\(KeyError: 'a'\)"), faults_named():
        {}["a"]
    with pytest.raises(CheckpointError, match=r"^as it is$"), faults_named():
        raise CheckpointError("as it is")
    with pytest.raises(KeyboardInterrupt), faults_named():
        raise KeyboardInterrupt
