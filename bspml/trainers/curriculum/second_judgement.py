"""Labels judged a second time, by the network that is trained on those kept.

The networks of a cross-fit's halves are half trained: the rate that they read is right to a
twentieth, and as many right labels are lost, or wrong ones kept.  The network after them is trained
on what was kept alone, and soon knows the classes better than either half.  So in every judged
round of its first two passes it judges every label once more, by the label model
(`bspml.statistics.label_errors`); what the last of these leaves out is held from then on.  Where
most errors are confusions only the last one counts: so early it takes hard samples for wrong ones.

How honest is that?  A suspect weighed 0, so this network never saw its label.  One that was kept
it has seen: its label looks better than it is, so what looks wrong nonetheless is left out rightly,
and at worst a wrong one stays that was kept before.  Two passes are too few to learn wrong labels
by heart (docs/methods.md has the figures); later rounds hold the share that was left out.

Where most labels are wrong that is more than the rate (`surely_right`).  A class that lost every
label in the warm-up is judged by all of them (`with_lost_classes`).

repair="confident"   a suspect that stays one, and shows another class with high probability, is
                     trained under that class from now on.  Labels that the network was trained on
                     since its last start are never repaired, nor what a person decided.  A network
                     that began untrained names the class better after six passes than after two;
                     where few labels are right, two serve more (docs/methods.md)
"""

from __future__ import annotations

from typing import Any

import torch

from bspml.errors import CheckpointError
from bspml.shapes import Bool, Float, Tensor
from bspml.statistics.label_errors import LabelErrors
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_number
from bspml.trainers.curriculum.samples import Samples
from bspml.weights.state import SampleWeights

CONFIDENT = 0.8  # probability from which another class is believed
_DOUBTED = 0.1  # probability of being wrong from which a label is not surely right
_MORE = 0.5  # of what the rate lies above a half may be left out beyond it
_PASSES = 2.0  # over as many samples as there are, in which labels are judged again
_MORE_PASSES = 6.0  # before a network that began untrained repairs, if it is trained on enough
_ENOUGH = 0.4  # share of the samples; on fewer, waiting costs more than the better judgement brings


def surely_right(wrong_probability: Float[Tensor, " M"], share: float) -> float:
    """Return the share of the labels to keep, fewer than the rate keeps where most are wrong.

    Where most labels are wrong the rate is read too low, and what is kept beyond the right ones
    costs most, so labels in doubt go as well: at most half of what the rate lies above a half.
    Elsewhere the right ones among them would be missed more (docs/methods.md).

    Args:
        wrong_probability: (M,) of each label, NaN where it is not known.
        share: of the labels that the rate keeps.

    Example:
        >>> surely_right(torch.tensor([0.05, 0.1, 0.2, 0.4, 0.9]), 0.3)
        0.2
    """
    sure = float((wrong_probability.nan_to_num(0.0) < _DOUBTED).double().mean())
    return min(max(sure, share - _MORE * max(0.5 - share, 0.0), 0.0), share)


def with_lost_classes(values: Float[Tensor, " N"], weights: SampleWeights) -> Float[Tensor, " N"]:
    """Return the weights of those that judge, of a class that was lost those of all.

    A warm-up that leaves out every label of a class leaves nothing to compare it with, and it would
    stay out.  The network that stays tells the samples of a class that it never saw, too, so all of
    them count once more, as at the first; what a person left out does not.

    Args:
        values: (N,) of the references.
        weights: of all.
    """
    codes = weights.current_codes.cpu()
    lost = torch.bincount(codes, values)[codes] == 0
    return torch.where(lost & ~weights.fixed.cpu(), 1.0, values)


class SecondJudgement:
    """When it is due, and what the network was trained on until then.

    Args:
        n: samples.
        wanted: False: it is never due.
        waits: the last one comes after six passes, as long as enough samples are trained on.

    Attributes:
        trained_on: (N,) bool, the samples that the network was trained on since its last start.
        passes: of training under weights so far: samples of every round over all samples.
        is_done: whether the labels were judged again for the last time.
        left_out: share of the samples without weight, repaired ones counted as kept, once done;
            without labels that another one of the same picture outdoes.
    """

    def __init__(self, n: int, wanted: bool, waits: bool = False) -> None:
        self.wanted, self.waits, self.last_share = wanted, waits, 1.0
        self.trained_on = torch.zeros(n, dtype=torch.bool, device="cpu")
        self.passes, self.is_done, self.left_out = 0.0, False, 0.0

    def trained(self, rows: Bool[Tensor, " N"], under_weights: bool) -> None:
        """Note the samples of a round.

        Args:
            rows: (N,) what the network was trained on.
            under_weights: not in the warm-up.
        """
        self.trained_on = self.trained_on | rows
        if under_weights:
            self.last_share = float(rows.double().mean())
            self.passes += self.last_share

    def restarted(self) -> None:
        """Note that the network has forgotten everything."""
        self.trained_on = torch.zeros_like(self.trained_on)

    @property
    def is_due(self) -> bool:
        """Say whether labels that are judged now can be judged again by the label model."""
        return self.wanted and not self.is_done and self.passes > 0

    @property
    def is_last(self) -> bool:
        """Say whether such a judgement is the last one, whose share is held."""
        waits = self.waits and self.last_share >= _ENOUGH
        return self.is_due and self.passes >= (_MORE_PASSES if waits else _PASSES)

    def done(self, kept: Bool[Tensor, " M"]) -> None:
        """Note what the last judgement left out.

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
        suspects = (weights.weights.cpu() == 0) & ~samples.decided(weights) & ~self.trained_on
        believed = suspects & (samples.spread(other, 0.0) >= CONFIDENT)
        shown = torch.where(believed, samples.spread(codes, 0), weights.current_codes.cpu())
        weights.relabel(shown)
        weights.update(torch.where(believed, 1.0, weights.weights.cpu().double()))

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain values and tensors."""
        names = "passes", "last_share", "is_done", "left_out"
        numbers = {name: getattr(self, name) for name in names}
        return {"trained_on": self.trained_on.clone(), **numbers}

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
        share = check_number(state.get("last_share", 1.0), "last_share", 0, 1)  # unknown before
        self.trained_on = trained_on.clone()
        self.passes, self.last_share = passes, share
        self.is_done, self.left_out = state["is_done"], left_out
