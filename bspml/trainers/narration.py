"""Who shows a person what a training does, whatever is trained."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from bspml.files.run import EpochRecord, RunFolder


@runtime_checkable
class Narrator(Protocol):
    """Shows a person what happens; the command line has one, tests have a silent one."""

    def begin(self, config: Any, folder: RunFolder) -> None:
        """Everything is checked; training starts now."""

    def say(self, line: str) -> None:
        """A line that stays."""

    def step(self, method: str, done: int, steps: int, loss: float) -> None:
        """Progress inside a round."""

    def record(self, record: EpochRecord) -> None:
        """A finished round."""


class Silent:
    """A narrator that says nothing."""

    def begin(self, config: Any, folder: RunFolder) -> None:
        """Nothing."""

    def say(self, line: str) -> None:
        """Nothing."""

    def step(self, method: str, done: int, steps: int, loss: float) -> None:
        """Nothing."""

    def record(self, record: EpochRecord) -> None:
        """Nothing."""
