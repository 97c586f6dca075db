"""When to stop early, and which network to keep: that of the best evaluation so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from bspml.errors import CheckpointError
from bspml.tensors.arguments import check_kind
from bspml.tensors.checks import check_number, check_whole
from bspml.trainers.state import faults_named
from bspml.words import counted


class Patience:
    """Wait for a better value, so many evaluations long, and keep the network that had the best.

    The value must be measured on classes held out of the training, not on the test classes: when
    to stop is a choice like any other.

    Args:
        evaluations: in a row without a new best value, after which the training stops; None never
            stops it.
        value: reads it, larger being better, from what `evaluate` returned; NaN is never a best.
        network: what is evaluated, whose state at the best value is to be kept; None keeps none.

    Attributes:
        best: value so far, -inf before the first.
        waited: evaluations since then.
        epoch: passes over the data done at the best value, None before the first.
        kept: state of `network` then, or None.

    Example:
        >>> patience = Patience(2, lambda metrics: metrics["recall"])
        >>> for epoch, recall in enumerate((0.5, 0.6, 0.6, 0.55)):
        ...     patience.look({"recall": recall}, epoch)
        >>> patience.exhausted, patience.best, patience.epoch
        (True, 0.6, 1)
    """

    def __init__(
        self,
        evaluations: int | None,
        value: Callable[[Mapping[str, Any]], float],
        network: nn.Module | None = None,
    ) -> None:
        self.evaluations = None if evaluations is None else check_whole(evaluations, "evaluations")
        reads = "a function that reads a number from what `evaluate` returned"
        check_kind(value, "value", Callable, reads)
        self.value, self.network = value, network
        self.best, self.waited = -math.inf, 0
        self.epoch: float | None = None
        self.kept: dict[str, Tensor] | None = None

    def look(self, metrics: Mapping[str, Any], epoch: float = 0) -> None:
        """Take an evaluation into account.

        Args:
            metrics: what `evaluate` returned.
            epoch: passes over the data done.
        """
        value = float(self.value(metrics))
        if not value > self.best:
            self.waited += 1
            return
        self.best, self.waited, self.epoch = value, 0, epoch
        if self.network is not None:
            self.kept = {k: v.detach().clone() for k, v in self.network.state_dict().items()}

    @property
    def exhausted(self) -> bool:
        """Say whether it is time to stop."""
        return self.evaluations is not None and self.waited >= self.evaluations

    def why(self) -> str:
        """Say why the training ends, where the patience is exhausted."""
        since = counted(self.waited, "evaluation")
        if self.best == -math.inf:
            return f"stopped early: the value was no finite number in {since}"
        return f"stopped early: no better than {self.best:.4g} in {since} since"

    def state_dict(self) -> dict[str, Any]:
        """Return what has been seen, and the network that is kept."""
        return {"best": self.best, "waited": self.waited, "epoch": self.epoch, "kept": self.kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: another thing's state.
        """
        with faults_named():
            best, waited = state["best"], state["waited"]
            if type(best) is not float or math.isnan(best) or type(waited) is not int or waited < 0:
                raise CheckpointError(
                    f"the checkpoint's patience must be a number and a count; got {best!r:.16} and "
                    f"{waited!r:.16}. Start the run anew."
                )
            epoch, kept = state.get("epoch"), state.get("kept")
            if epoch is not None:
                check_number(epoch, "epoch", 0)
            if kept is not None and self.network is not None:
                own = {name: value.shape for name, value in self.network.state_dict().items()}
                if {name: value.shape for name, value in kept.items()} != own:
                    raise CheckpointError(
                        "the checkpoint's best network is another one than this. Resume with the "
                        "configuration of the run, or start it anew."
                    )
            self.best, self.waited = best, waited
            # Neither was kept in the first versions: such a run ends with its last network.
            self.epoch, self.kept = epoch, kept
