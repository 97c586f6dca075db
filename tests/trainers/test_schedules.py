"""The learning rate of each step: beside torch's own schedulers, and by hand."""

import math

import pytest
import torch
from torch.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    SequentialLR,
)

from bspml.errors import InputError
from bspml.trainers.schedules import Schedule, lr_schedule

ROUNDING = 1e-12  # torch's schedulers multiply from step to step


def sgd(lr=0.3):
    return torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=lr)


def rates(make, steps):
    """The learning rates that a scheduler gives the first `steps` steps."""
    optimizer, found = sgd(), []
    scheduler = make(optimizer)
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def after_warmup(optimizer, warmup, scheduler):
    if not warmup:
        return scheduler
    rising = LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup)
    return SequentialLR(optimizer, [rising, scheduler], milestones=[warmup])


TORCHS = {
    "constant": lambda optimizer, left: ConstantLR(optimizer, factor=1.0),
    "linear": lambda optimizer, left: LinearLR(optimizer, 1.0, 0.0, total_iters=left),
    "cosine": lambda optimizer, left: CosineAnnealingLR(optimizer, T_max=left),
}


@pytest.mark.parametrize("warmup", [0, 1, 7])
@pytest.mark.parametrize("name", TORCHS)
def test_rates_are_those_of_torchs_own_schedulers(name, warmup):
    steps = 20
    own = rates(lambda o: LambdaLR(o, lr_schedule(name, warmup_steps=warmup).over(steps)), steps)
    theirs = rates(
        lambda o: after_warmup(o, warmup, TORCHS[name](o, steps - warmup)), steps
    )  # fmt: skip
    assert own == pytest.approx(theirs, rel=ROUNDING)
    assert max(own) == 0.3
    assert min(own) > 0


def test_milestones_are_those_of_torchs_own_scheduler():
    schedule = lr_schedule("step", milestones=[3, 5], factor=0.5)
    own = rates(lambda o: LambdaLR(o, schedule.over(8)), 8)
    assert own == pytest.approx(rates(lambda o: MultiStepLR(o, [3, 5], 0.5), 8), rel=ROUNDING)


def test_rates_worked_by_hand():
    # 2 of 6 steps rise: 1/3, 2/3; then cos at 0, 1/4, 2/4, 3/4 of its half turn; then 0.
    cosine = lr_schedule("cosine", warmup_steps=2).over(6)
    half = math.sqrt(0.5) / 2
    expected = [1 / 3, 2 / 3, 1, 0.5 + half, 0.5, 0.5 - half, 0]
    assert [cosine(step) for step in range(7)] == pytest.approx(expected, abs=ROUNDING)
    linear = lr_schedule("linear").over(4)
    assert [linear(step) for step in range(6)] == [1, 0.75, 0.5, 0.25, 0, 0]
    step = lr_schedule("step", milestones=[1, 3], warmup_steps=1).over(4)
    assert [step(k) for k in range(4)] == pytest.approx([0.5, 0.1, 0.1, 0.01], abs=ROUNDING)


def test_a_start_too_short_for_its_warmup_spends_half_of_it():
    rate = lr_schedule("constant", warmup_steps=100).over(5)
    assert [rate(step) for step in range(5)] == pytest.approx([1 / 3, 2 / 3, 1, 1, 1])
    assert [lr_schedule("cosine", warmup_steps=9).over(1)(step) for step in (0, 1)] == [1, 0]


def test_torch_saves_and_restores_the_stretch():
    def scheduler(steps):
        return LambdaLR(sgd(), lr_schedule("cosine").over(steps))

    state = scheduler(9).state_dict()
    other = scheduler(4)
    other.load_state_dict(state)
    assert other.lr_lambdas[0] == lr_schedule("cosine").over(9)


def test_the_warmup_leaves_half_of_the_training():
    schedule = lr_schedule("constant", warmup_steps=5)
    schedule.check_steps(10)
    message = r"`warmup_steps` is 5, but the training has 9 steps .* set it to 4 or less, or train"
    with pytest.raises(InputError, match=message):
        schedule.check_steps(9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "sine"}, "`name` must be one of constant, step, linear, cosine; got 'sine'"),
        ({"name": "cosine", "warmup_steps": -1}, "`warmup_steps` must be a whole number from"),
        ({"name": "cosine", "milestones": [3]}, "nothing reads it while `name` is cosine"),
        ({"name": "step", "milestones": [3, 3]}, "must be a list of whole numbers that rise"),
        ({"name": "step"}, "needs `milestones`, in iterations, such as"),
        ({"name": "step", "milestones": [3], "factor": 2.0}, r"`factor` must be in \(0, 1\]|a num"),
    ],
)
def test_what_no_schedule_takes_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        lr_schedule(**options)


def test_only_a_decay_stretches():
    found = {name: lr_schedule(name).stretches for name in ("constant", "linear", "cosine")}
    assert found == {"constant": False, "linear": True, "cosine": True}
    assert not Schedule(name="step", milestones=(4,)).stretches


def test_an_unknown_option_is_named():
    with pytest.raises(InputError, match="`warmup` is no option of a schedule; did you mean"):
        lr_schedule("cosine", warmup=3)
