"""A schedule at work: torch's schedulers of all optimisers, stretched anew at each start."""

from __future__ import annotations

from typing import Any

from torch.optim.lr_scheduler import LambdaLR

from bspml.errors import InputError
from bspml.trainers.schedules import Rate, Schedule


class Scheduling:
    """Give every optimiser of a pml trainer a `LambdaLR` of one schedule.

    Args:
        trainer: a `MetricLossOnly`, which steps its schedulers after each iteration.
        schedule: of all learning rates.

    Raises:
        InputError: the trainer schedules an optimiser by itself.
    """

    def __init__(self, trainer: Any, schedule: Schedule) -> None:
        if trainer.lr_schedulers:
            raise InputError(
                f"`schedule` is {schedule.name}, but the trainer has `lr_schedulers` "
                f"{', '.join(trainer.lr_schedulers)} already. Leave one of the two out."
            )
        self.trainer, self.schedule = trainer, schedule
        self._stretch(steps=1)  # there before the first start, to take the state of a checkpoint

    def begin_round(self, left: int, to_reset: int | None) -> None:
        """Stretch the schedule of a network that starts; check that of another.

        Args:
            left: steps that the network which stays has to the end of the training.
            to_reset: steps until a fresh network starts; None: this one stays.

        Raises:
            InputError: the schedule of the network that stays was stretched over another training.
        """
        scheduler = next(iter(self.trainer.lr_schedulers.values()))
        rate, done = scheduler.lr_lambdas[0], scheduler.last_epoch
        assert isinstance(rate, Rate)
        if done == 0:
            self._stretch(left if to_reset is None else to_reset)
        elif to_reset is None and self.schedule.stretches and done + left != rate.steps:
            raise InputError(
                f"`epochs`: {rate.steps - done} steps are left of the {rate.steps} that the "
                f"{self.schedule.name} schedule was stretched over, and it is asked for {left}. "
                "Train for the `epochs` it was begun with, or under a constant schedule."
            )

    def _stretch(self, steps: int) -> None:
        """Make the schedulers, which set the rate of a first step."""
        rate = self.schedule.over(steps)
        for name, optimizer in self.trainer.optimizers.items():
            key = f"{name.removesuffix('_optimizer')}_scheduler_by_iteration"
            self.trainer.lr_schedulers[key] = LambdaLR(optimizer, rate)
