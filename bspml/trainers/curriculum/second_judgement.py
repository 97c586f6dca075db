"""Labels judged a second time, by the network that is trained on those kept.

The networks of a cross-fit's halves are half trained: the rate that they read is right to a
twentieth, and as many right labels are lost, or wrong ones kept.  The network after them is trained
on what was kept alone, and after two passes it knows the classes better than either half.  So it
judges every label once more, by the label model (`bspml.statistics.label_errors`), whose rate is
held from then on.

How honest is that?  A suspect weighed 0, so this network never saw its label.  One that was kept
it has seen: its label looks better than it is, so what looks wrong nonetheless is left out rightly,
and at worst a wrong one stays that was kept before.  Two passes are too few to learn wrong labels
by heart (docs/methods.md has the figures); later rounds hold the rate.

repair="confident"   a suspect that stays one, and shows another class with high probability, is
                     trained under that class from now on.  Labels that the network was trained on
                     since its last start are never repaired, nor what a person decided
"""

from __future__ import annotations

from typing import Any

import torch

from bspml.errors import CheckpointError
from bspml.shapes import Bool, Tensor
from bspml.statistics.label_errors import LabelErrors
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_number
from bspml.trainers.curriculum.samples import Samples
from bspml.weights.state import SampleWeights

CONFIDENT = 0.8  # probability from which another class is believed
_PASSES = 2.0  # over as many samples as there are, before labels are judged again


class SecondJudgement:
    """When it is due, and what the network was trained on until then.

    Args:
        n: samples.
        wanted: False: it is never due.

    Attributes:
        trained_on: (N,) bool, the samples that the network was trained on since its last start.
        passes: of training under weights so far: samples of every round over all samples.
        is_done: whether the labels were judged again.
        left_out: share of the samples without weight, repaired ones counted as kept, once done;
            without labels that another one of the same picture outdoes.
    """

    def __init__(self, n: int, wanted: bool) -> None:
        self.wanted = wanted
        self.trained_on = torch.zeros(n, dtype=torch.bool)
        self.passes, self.is_done, self.left_out = 0.0, False, 0.0

    def trained(self, rows: Bool[Tensor, " N"], under_weights: bool) -> None:
        """Note the samples of a round.

        Args:
            rows: (N,) what the network was trained on.
            under_weights: not in the warm-up.
        """
        self.trained_on |= rows
        if under_weights:
            self.passes += float(rows.double().mean())

    def restarted(self) -> None:
        """Note that the network has forgotten everything."""
        self.trained_on.zero_()

    def is_due(self, coming: float = 0.0) -> bool:
        """Say whether the labels are to be judged again.

        Args:
            coming: passes of the round before that, where it is still to be trained.
        """
        return self.wanted and not self.is_done and self.passes + coming >= _PASSES

    def done(self, kept: Bool[Tensor, " M"]) -> None:
        """Note what the judgement left out.

        Args:
            kept: (M,) which of the samples that are ranked keep weight; labels of a picture that
                another one of it outdoes are left out whatever the share.
        """
        self.is_done = True
        self.left_out = 1 - float(kept.double().mean())

    def repair(self, weights: SampleWeights, errors: LabelErrors, samples: Samples) -> None:
        """Train suspects under the class that they show, those that the network never saw.

        Args:
            weights: whose suspects weigh 0.
            errors: of the M samples, their classes as codes.
            samples: which of the N were judged.
        """
        other = torch.from_numpy(errors.other_probability).nan_to_num(0.0)
        codes = samples.codes_of_weights(torch.from_numpy(errors.other_class))
        suspects = (weights.weights.cpu() == 0) & ~weights.fixed.cpu() & ~self.trained_on
        believed = suspects & (samples.spread(other, 0.0) >= CONFIDENT)
        shown = torch.where(believed, samples.spread(codes, 0), weights.current_codes.cpu())
        weights.relabel(shown)
        weights.update(torch.where(believed, 1.0, weights.weights.cpu().double()))

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain values and tensors."""
        return {
            "trained_on": self.trained_on.clone(),
            "passes": self.passes,
            "is_done": self.is_done,
            "left_out": self.left_out,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: of another data set.
        """
        trained_on = state["trained_on"]
        if trained_on.shape != self.trained_on.shape or trained_on.dtype != torch.bool:
            raise CheckpointError(
                "the saved second judgement is of another data set. Resume with the same one."
            )
        check_flags(is_done=state["is_done"])
        passes = check_number(state["passes"], "passes", 0)
        left_out = check_number(state["left_out"], "left_out", 0, 1)
        self.trained_on = trained_on.clone()
        self.passes, self.is_done, self.left_out = passes, state["is_done"], left_out
