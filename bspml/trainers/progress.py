"""Who shows the user how far a training is, whatever is trained."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from bspml.files.run import EpochRecord, RunFolder


@runtime_checkable
class Narrator(Protocol):
    """Shows the user what happens; the command line has one, a script is silent without one."""

    def begin(self, config: Any, folder: RunFolder) -> None:
        """Say what is trained where: everything is checked, and training starts now.

        Args:
            config: the experiment.
            folder: of the run.
        """

    def say(self, line: str) -> None:
        """Say a line that stays."""

    def step(self, method: str, done: int, steps: int, loss: float) -> None:
        """Show progress inside a round.

        Args:
            method: in training.
            done: steps of this round so far.
            steps: of this round.
            loss: the last value known.
        """

    def record(self, record: EpochRecord) -> None:
        """Say how a round ended."""


class Silent:
    """A narrator that says nothing."""

    def begin(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    say = step = record = begin
