"""Schedulers of a trainer: of every optimiser, stretched at each start."""

from types import SimpleNamespace

import pytest
import torch

from bspml.errors import InputError
from bspml.trainers.schedules import lr_schedule
from bspml.trainers.scheduling import Scheduling


def make(name="linear", **options):
    layers = [torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)]
    optimizers = {
        "trunk_optimizer": torch.optim.SGD(layers[0].parameters(), lr=0.5),
        "metric_loss_optimizer": torch.optim.SGD(layers[1].parameters(), lr=50.0),
    }
    trainer = SimpleNamespace(optimizers=optimizers, lr_schedulers={})
    return Scheduling(trainer, lr_schedule(name, **options)), trainer


def rates(trainer):
    return [optimizer.param_groups[0]["lr"] for optimizer in trainer.optimizers.values()]


def step(trainer, steps):
    for _ in range(steps):
        for optimizer in trainer.optimizers.values():
            optimizer.step()
        for scheduler in trainer.lr_schedulers.values():
            scheduler.step()


def test_every_optimiser_follows_from_its_own_rate():
    scheduling, trainer = make()
    assert list(trainer.lr_schedulers) == [
        "trunk_scheduler_by_iteration",
        "metric_loss_scheduler_by_iteration",
    ]
    scheduling.begin_round(4, None)
    step(trainer, 1)
    assert rates(trainer) == [0.375, 37.5]
    step(trainer, 3)
    assert rates(trainer) == [0, 0]


def test_the_stretch_ends_at_the_reset_however_few_steps_the_next_network_has():
    scheduling, trainer = make()
    scheduling.begin_round(left=10, to_reset=4)
    step(trainer, 2)
    assert rates(trainer)[0] == 0.25
    scheduling.begin_round(left=8, to_reset=2)  # a second round of this network
    step(trainer, 1)
    assert rates(trainer)[0] == 0.125
    other, there = make()
    other.begin_round(left=2, to_reset=4)
    step(there, 1)
    assert rates(there)[0] == 0.375


def test_a_first_step_has_the_rate_of_its_own_stretch():
    scheduling, trainer = make("constant", warmup_steps=3)
    scheduling.begin_round(8, None)
    assert rates(trainer)[0] == 0.125


def test_a_network_that_stays_must_get_the_steps_it_was_promised():
    scheduling, trainer = make()
    scheduling.begin_round(6, None)
    step(trainer, 2)
    scheduling.begin_round(4, None)
    with pytest.raises(InputError, match="`epochs`: 4 steps are left of the 6 that the linear"):
        scheduling.begin_round(5, None)
