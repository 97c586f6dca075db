"""When labels are judged anew: after every round at first, after every k-th once weights rest.

A judgement costs an embedding of the training set and a pass over all its similarities, and soon
moves few weights.  After two judgements in a row that moved few, the next one waits for its round;
one that moves many makes every round count again.
"""

from __future__ import annotations

from bspml.files.run import SUSPECT_BELOW
from bspml.shapes import Float, Tensor
from bspml.tensors.checks import check_whole

RESTING = 0.03  # share of the weights that a judgement may move, and they rest
_IN_A_ROW = 2  # such judgements


def num_changed(before: Float[Tensor, " N"], after: Float[Tensor, " N"]) -> int:
    """Return how many weights crossed the line below which a sample is a suspect.

    Args:
        before: (N,) weights.
        after: (N,) weights of the same samples.

    Example:
        >>> import torch
        >>> num_changed(torch.tensor([1.0, 0.6, 0.0]), torch.tensor([0.2, 1.0, 1.0]))
        2
    """
    return int(((before < SUSPECT_BELOW) != (after < SUSPECT_BELOW)).sum())


class Pace:
    """Count rounds without a judgement, and judgements that moved few weights.

    Args:
        every: k, the rounds to a judgement while the weights rest.

    Example:
        >>> pace = Pace(every=4)
        >>> pace.judged(0.01), pace.is_due, pace.judged(0.02), pace.is_due
        (None, True, None, False)
    """

    def __init__(self, every: int) -> None:
        self.every, self.waited, self.resting = every, 0, 0

    @property
    def is_due(self) -> bool:
        """Say whether labels are to be judged after the coming round."""
        return self.resting < _IN_A_ROW or self.waited + 1 >= self.every

    def passed(self) -> None:
        """Note a round without a judgement."""
        self.waited += 1

    def judged(self, moved: float) -> None:
        """Note a judgement.

        Args:
            moved: share of the weights that it moved.
        """
        self.waited = 0
        self.resting = self.resting + 1 if moved <= RESTING else 0

    def state_dict(self) -> dict[str, int]:
        """Return both counts."""
        return {"waited": self.waited, "resting": self.resting}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take over what `state_dict` returned."""
        waited, resting = (check_whole(state[key], key, low=0) for key in ("waited", "resting"))
        self.waited, self.resting = waited, resting
