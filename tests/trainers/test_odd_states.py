"""Whatever a saved state holds in the place of a number, loading it refuses it in one sentence.

Every `load_state_dict` of the package but the trainers', which tests/trainers/test_state.py has.
"""

import copy
import math

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses

import bspml
from bspml.errors import CheckpointError
from bspml.losses.neighbour_vote import NeighbourVote
from bspml.losses.prism import PRISMFilter
from bspml.trainers import FixedCurriculum, Patience
from helpers.draws import randn

LABELS = torch.arange(40) // 10
ODD = (
    *(None, "x", -1, 0.5, math.nan, math.inf, 10**30, [], {}),
    *(torch.zeros(3), torch.full((40,), math.nan), torch.full((40,), -7), torch.ones(40, 2)),
    *(torch.zeros(40, dtype=torch.complex64), torch.zeros(40, 2, dtype=torch.bool)),
)


def curriculum(**options):
    made = bspml.SelfPacedCurriculum(bspml.SampleWeights(LABELS), **options)
    made.update(torch.eye(4)[LABELS] + 0.3 * randn(40, 4))
    return made


def repairing():
    made = bspml.SelfPacedCurriculum(
        bspml.SampleWeights(LABELS), warmup="cross-fit", repair="confident"
    )
    made.load_state_dict(made.state_dict())
    return made


def memory():
    made = bspml.CrossBatchMemory(pml_losses.ContrastiveLoss(), 3, 64)
    made(randn(8, 3), LABELS[:8])
    return made


MAKERS = {
    "sampler": lambda: bspml.PKSampler(LABELS, 2, 3),
    "weights": lambda: bspml.SampleWeights(LABELS),
    "auto": repairing,
    "paper": lambda: curriculum(preset="paper", target_maw=0.7),
    "fixed": lambda: FixedCurriculum(bspml.SampleWeights(LABELS)),
    "patience": lambda: Patience(2, len, torch.nn.Linear(2, 2)),
    "memory": memory,
    "vote": lambda: NeighbourVote(40, 3),
    "prism": lambda: PRISMFilter(4, 3, noise_rate=0.2),
}


POSSIBLE = {
    "auto": {
        "group",
        "interval",
        "last_share",
        "left_out",
        "noise_rate",
        "p_values",
        "passes",
        "rounds",
        "second",
    }
    | {"rounds_in_phase", "total_interval", "total_rate", "undecided"},
    "paper": {"age", "rounds"},
    "fixed": {"rounds", "update"},
    "patience": {"best", "epoch", "kept", "waited"},
    "sampler": {"epoch", "batches_per_epoch"},  # None is what it was
}


def paths(state, before=()):
    for key in state:
        yield (*before, key)
        if isinstance(state[key], dict):
            yield from paths(state[key], (*before, key))


def place_of(state, path):
    for key in path[:-1]:
        state = state[key]
    return state


def plain(state):
    values = {path: place_of(state, path)[path[-1]] for path in paths(state)}
    return repr({k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in values.items()})


@pytest.mark.parametrize("name", MAKERS)
def test_an_odd_state_is_refused_and_changes_nothing(name):
    made = MAKERS[name]()
    good = copy.deepcopy(made.state_dict())
    before, refused, taken = plain(good), [], set()
    # The tensors of other modules are torch's to refuse.
    numbers_alone = isinstance(made, torch.nn.Module) and name != "weights"
    for path in paths(good):
        if (numbers_alone and path[0] != "_extra_state") or len(path) < 1 + numbers_alone:
            continue
        for odd in ODD:
            state = copy.deepcopy(good)
            place_of(state, path)[path[-1]] = copy.deepcopy(odd)
            try:
                made.load_state_dict(state)
                taken.add((path[-1], repr(odd)[:16]))
            except CheckpointError as err:
                refused.append(str(err))
                assert plain(made.state_dict()) == before, (path, odd)
            made.load_state_dict(copy.deepcopy(good))
    assert len(refused) > 4
    assert not any("\n" in sentence for sentence in refused)
    # What a state of another run could hold as well.
    assert {key for key, _ in taken} <= POSSIBLE.get(name, set())
