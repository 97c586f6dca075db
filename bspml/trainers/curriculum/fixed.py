"""The curriculum that changes nothing: the weights of a clean subset, or the user's verdicts."""

from __future__ import annotations

from typing import Any

from bspml.errors import CheckpointError
from bspml.shapes import Bool, Tensor
from bspml.tensors.arguments import check_kind
from bspml.tensors.checks import check_whole
from bspml.trainers.curriculum.old_names import OldNames
from bspml.trainers.curriculum.record import CurriculumRecord
from bspml.trainers.state import faults_named
from bspml.weights.state import SampleWeights


class FixedCurriculum(OldNames):
    """Keep the weights as they are and train on the rows of positive weight.

    Args:
        weights: set beforehand with `weights.update(...)`.

    Example:
        >>> weights = SampleWeights([0, 0, 1, 1])
        >>> weights.update([1, 1, 1, 0])
        >>> FixedCurriculum(weights).training_mask()
        tensor([ True,  True,  True, False])
    """

    starts_with_update = may_reset = needs_embeddings = False
    rounds_to_reset = None

    def __init__(self, weights: SampleWeights) -> None:
        made = "SampleWeights: make them with SampleWeights(labels)"
        check_kind(weights, "weights", SampleWeights, made)
        self.weights, self.rounds = weights, 0

    def training_mask(self) -> Bool[Tensor, " N"]:
        """Return (N,) bool, rows of positive weight."""
        return self.weights.weights.cpu() > 0

    def allowed_mask(self) -> None:
        """Return every row, where those of positive weight are of too few classes for a batch."""

    def update(self, embeddings: Any) -> CurriculumRecord:
        """Change nothing."""
        self.rounds += 1
        return CurriculumRecord(
            round=self.rounds,
            phase="fixed",
            maw=self.weights.maw(),
            sdaw=self.weights.sdaw(),
            changed=0,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the number of updates; `SampleWeights` saves the weights."""
        return {"preset": "fixed", "rounds": self.rounds, "update": {}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: another thing's state.
        """
        with faults_named():
            if state["preset"] != "fixed":
                raise CheckpointError(
                    f"the state was saved with preset={state['preset']!r:.16}; this curriculum has "
                    "fixed weights. Resume with the configuration of the run."
                )
            self.rounds = check_whole(state["rounds"], "rounds", low=0)
