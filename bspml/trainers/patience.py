"""When to stop early: after so many evaluations in a row without a new best one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from bspml.errors import CheckpointError
from bspml.tensors.arguments import check_kind
from bspml.tensors.checks import check_whole


class Patience:
    """Wait for a better value, so many evaluations long.

    The value must be measured on classes held out of the training, not on the test classes: when
    to stop is a choice like any other.

    Args:
        evaluations: in a row without a new best value, after which the training stops.
        value: reads it, larger being better, from what `evaluate` returned; NaN is never a best.

    Attributes:
        best: value so far, -inf before the first.
        waited: evaluations since then.

    Example:
        >>> patience = Patience(2, lambda metrics: metrics["recall"])
        >>> for recall in (0.5, 0.6, 0.6, 0.55):
        ...     patience.look({"recall": recall})
        >>> patience.exhausted, patience.best
        (True, 0.6)
    """

    def __init__(self, evaluations: int, value: Callable[[Mapping[str, Any]], float]) -> None:
        self.evaluations = check_whole(evaluations, "evaluations")
        reads = "a function that reads a number from what `evaluate` returned"
        check_kind(value, "value", Callable, reads)
        self.value = value
        self.best, self.waited = -math.inf, 0

    def look(self, metrics: Mapping[str, Any]) -> None:
        """Take an evaluation into account."""
        value = float(self.value(metrics))
        if value > self.best:
            self.best, self.waited = value, 0
        else:
            self.waited += 1

    @property
    def exhausted(self) -> bool:
        """Say whether it is time to stop."""
        return self.waited >= self.evaluations

    def state_dict(self) -> dict[str, Any]:
        """Return what has been seen."""
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: another thing's state.
        """
        best, waited = state["best"], state["waited"]
        if type(best) is not float or math.isnan(best) or type(waited) is not int or waited < 0:
            raise CheckpointError(
                f"the checkpoint's patience must be a number and a count; got {best!r:.40} and "
                f"{waited!r:.40}. Start the run anew."
            )
        self.best, self.waited = best, waited
