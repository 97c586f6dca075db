"""The learning rate over the steps of a training, as a share of the configured one.

    share 1 |     /-------- constant
            |   /  \\
            | /      \\ cosine, linear: 0 after the last step
          0 +----------
            warm-up, decay

A curriculum that throws its network away (the cross-fitted warm-up) starts several: half A, half B,
and the one that stays.  Each start has the whole schedule, stretched over the steps until the next
start or the end, so that what judges the labels was trained by the same recipe as what is kept.

Nothing here imports torch: reading a configuration must not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from bspml.errors import InputError
from bspml.trainers.settings import Count, ReadBy, Rising, Section, Whole, key, section_of
from bspml.words import did_you_mean


class Schedule(Section):
    """The learning rate over the training: warm-up, then what `name` says."""

    name: Literal["constant", "step", "linear", "cosine"] = "constant"
    warmup_steps: Whole = key(0, "steps on which the rate rises in a line; at most half of a start")
    # Iterations.
    milestones: Annotated[
        tuple[Count, ...], Field(strict=False), Rising, ReadBy("name", ("step",))
    ] = ()
    factor: Annotated[float, Field(gt=0, le=1), ReadBy("name", ("step",))] = (
        0.1  # step: the rate times this at each
    )

    @model_validator(mode="after")
    def _consistent(self) -> Schedule:
        if self.name == "step" and not self.milestones:
            raise ValueError(
                "`name` step needs `milestones`, in iterations, such as [32000, 48000]"
            )
        return self

    @property
    def stretches(self) -> bool:
        """Say whether the rate of a step depends on how many there are."""
        return self.name in ("linear", "cosine")

    def over(self, steps: int) -> Rate:
        """Stretch the schedule over the steps of one start of a network."""
        return Rate(steps=steps, **self.model_dump())

    def check_steps(self, steps: int) -> None:
        """Refuse a training that ends before the warm-up has paid.

        Args:
            steps: of the whole training.

        Raises:
            InputError: the warm-up takes more than half of them.
        """
        if self.warmup_steps > steps // 2:
            raise InputError(
                f"`warmup_steps` is {self.warmup_steps}, but the training has {steps} steps and "
                f"may spend half of them on the warm-up; set it to {steps // 2} or less, or train "
                "longer."
            )


@dataclass(frozen=True)
class Rate:
    """The share of the learning rate at each step: a function for torch's `LambdaLR`.

    `LambdaLR` keeps the fields in its state, and takes them back from it.

    Attributes:
        name, warmup_steps, milestones, factor: of the `Schedule`.
        steps: the schedule is stretched over; a warm-up of more than half of them takes half.

    Example:
        >>> rate = Schedule(name="linear", warmup_steps=3).over(steps=7)
        >>> [rate(step) for step in range(8)]
        [0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0]
    """

    name: str
    warmup_steps: int
    milestones: tuple[int, ...]
    factor: float
    steps: int

    def __call__(self, step: int) -> float:
        """Return the share at `step`, from 0; that of the first step behind the last one is 0."""
        warmup = min(self.warmup_steps, self.steps // 2)
        rising = min(1.0, (step + 1) / (warmup + 1))
        done, decaying = max(0, min(step, self.steps) - warmup), self.steps - warmup
        if self.name == "cosine":
            return rising * 0.5 * (1 + math.cos(math.pi * done / decaying))
        if self.name == "linear":
            return rising * (1 - done / decaying)
        return rising * self.factor ** sum(step >= milestone for milestone in self.milestones)


def lr_schedule(name: str, **options: Any) -> Schedule:
    """Build the schedule of an `AlternatingTrainer`.

    Args:
        name: "constant", "step" (the rate times `factor` at each of the `milestones`), "linear" or
            "cosine" (down to 0 after the last step).
        options: `warmup_steps`, on which the rate first rises in a line; `milestones`; `factor`.

    Raises:
        InputError: an unknown schedule, or a value that it does not take or read.

    Example:
        >>> lr_schedule("cosine", warmup_steps=100).over(1000)(99)
        0.9900990099009901
    """
    unknown = sorted(options.keys() - Schedule.model_fields.keys())
    if unknown:
        known = [key for key in Schedule.model_fields if key != "name"]
        raise InputError(
            f"`{unknown[0]}` is no option of a schedule{did_you_mean(unknown[0], known) or '.'} "
            f"It takes {', '.join(known)}."
        )
    return section_of(Schedule, {"name": name, **options})
