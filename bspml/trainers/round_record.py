"""What a round of training leaves behind, and who is told of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from bspml.trainers.curriculum import CurriculumRecord


@dataclass(frozen=True)
class RoundRecord:
    """One round.

    Attributes:
        round: 1-based.
        epochs: passes over the data so far: steps over the steps of one full pass.
        steps: optimiser steps so far.
        loss: mean training loss of the round.
        lr: learning rate of its last step, of the first group of the first optimiser.
        maw, sdaw: [Zhang 2023] eq. (14), after the weight step.
        curriculum: what the weight step did; None without a curriculum.
        metrics: whatever the `evaluate` callable returned, {} when it was not called.
        seconds_train: time of the theta-step.
        seconds_embed: time to embed the training set.
        notes: sentences for the user, such as that a round had to sample rows of weight 0.
        temporary: whether the network is one that the curriculum throws away, for a fresh one.
    """

    round: int
    epochs: float
    steps: int
    loss: float
    maw: float
    sdaw: float
    curriculum: CurriculumRecord | None
    metrics: dict[str, Any]
    seconds_train: float
    seconds_embed: float
    notes: tuple[str, ...] = ()
    lr: float | None = None
    temporary: bool = False

    @property
    def noise_rate(self) -> float | None:
        """Estimated share of labels wrong at random, of the weight step; None without one."""
        return None if self.curriculum is None else self.curriculum.noise_rate

    @property
    def noise_interval(self) -> tuple[float, float] | None:
        """The interval around `noise_rate`."""
        return None if self.curriculum is None else self.curriculum.noise_interval

    def as_dict(self) -> dict[str, Any]:
        """Return the record as nested plain values, for JSON."""
        return dataclasses.asdict(self)


@runtime_checkable
class Observer(Protocol):
    """Told of every step and round; both calls may save a checkpoint or draw a progress bar.

    `trainer` is the `bspml.trainers.alternating.AlternatingTrainer` that tells.
    """

    def on_step(self, trainer: Any, step: int, steps: int, loss: float) -> None:
        """Note that an optimiser step was taken.

        Args:
            trainer: the one that tells.
            step: 1-based, of this round.
            steps: of this round.
            loss: the last value known: of this step on a CPU, of the one before on a CUDA device.
        """

    def on_round(self, trainer: Any, record: RoundRecord) -> None:
        """Note the end of a round, its weight step and evaluation included.

        Args:
            trainer: the one that tells.
            record: of the round.
        """
