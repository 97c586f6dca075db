"""Labels repaired by a network that never saw them.

The suspects of the first honest judgement weigh 0, so the network that is trained on the rest never
sees their labels.  After a few rounds it knows the classes well, and may judge them:

    hold out    some of the labels that are kept, class by class: right ones that it does not see,
                one for eight suspects, and one of eight that are kept at most: where most labels
                are wrong, training has few right ones to spare
    train       on the others
    judge       suspects and held-out samples by the label model against what was trained on; it is
                fitted to the held-out ones and as many suspects, since among suspects alone labels
                say nothing
    repair      a suspect whose probability of another class is high is trained under that class
                from now on; one whose own label is probably right comes back; the rest stays out

One label model serves all (`bspml.statistics.label_errors`).  Samples that the network was trained
on since its last start are never repaired, nor what a person decided.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bspml.errors import CheckpointError
from bspml.shapes import Bool, Float
from bspml.statistics.label_errors import LabelErrors, judge_labels
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_number
from bspml.weights.state import SampleWeights

CONFIDENT = 0.8  # probability from which a class is believed
_HELD_OUT = 1 / 8  # samples held out for each suspect, and of the kept samples at most
_LEFT = 2  # samples of a class that are never held out
_PASSES = 2.0  # over as many samples as there are, before the suspects are judged
_BACK = 0.05  # probability of being wrong up to which a suspect comes back under its own label
_FEWEST = 10  # samples to judge: the label model needs some
_CLEARED = 0.5  # of the held-out labels, which must look right for the network to be believed


class Repair:
    """What has been trained on, what is held out, and whether labels were repaired.

    Args:
        weights: the table whose labels are repaired.
        seed: of the samples held out.

    Attributes:
        trained_on: (N,) bool, the samples that the network was trained on since its last start.
        held_out: (N,) bool, kept samples that it is not trained on until the repair.
        passes: of training under weights so far: samples of every round over all samples.
        is_done: whether the suspects were judged.
        left_out: share of the samples that stayed out, once done.
    """

    def __init__(self, weights: SampleWeights, seed: int) -> None:
        self.weights, self.seed = weights, seed
        n = len(weights)
        self.trained_on = torch.zeros(n, dtype=torch.bool)
        self.held_out = torch.zeros(n, dtype=torch.bool)
        self.passes, self.is_done, self.left_out = 0.0, False, 0.0

    def hold_out(self) -> None:
        """Choose the samples to hold out, at random from those that are kept."""
        kept, codes = self.weights.weights.cpu() > 0, self.weights.current_codes.cpu()
        share = _HELD_OUT * min(int((~kept).sum()) / max(int(kept.sum()), 1), 1.0)
        allowed = kept & ~self.weights.fixed.cpu() & ~self.trained_on
        generator = torch.Generator().manual_seed(self.seed)
        keys = torch.rand(len(codes), generator=generator, dtype=torch.float64)
        for code in codes[allowed].unique():
            rows = (allowed & (codes == code)).nonzero()[:, 0]
            num_kept = int((kept & (codes == code)).sum())
            count = min(round(share * num_kept), num_kept - _LEFT)
            if count > 0:
                self.held_out[rows[keys[rows].argsort()[:count]]] = True

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

    @property
    def is_due(self) -> bool:
        """Say whether the suspects are to be judged now."""
        return not self.is_done and self.passes >= _PASSES

    def repair(self, embeddings: Float[Tensor, "N D"]) -> int:
        """Judge what the network never saw; give weights and current labels to what it knows.

        Args:
            embeddings: (N, D) of the network.

        Returns:
            How many samples are trained under another label from now on.
        """
        unseen = ~self.trained_on & ~self.weights.fixed.cpu()
        found = self._judged(embeddings, unseen)
        repaired = 0 if found is None else self._write(found, unseen)
        self.is_done = True
        self.held_out.zero_()
        self.left_out = 1 - float((self.weights.weights > 0).double().mean())
        return repaired

    def _judged(self, embeddings: Tensor, unseen: Bool[Tensor, " N"]) -> LabelErrors | None:
        """Judge the unseen labels; None where the network is not to be believed."""
        weights = self.weights.weights.cpu().double()
        if int(unseen.sum()) < _FEWEST or not bool((weights[self.trained_on] > 0).any()):
            return None
        found = judge_labels(
            embeddings,
            self.weights.current_codes.cpu(),
            weights * self.trained_on,
            unseen,
            fitted_to=self._balanced(unseen),
        )
        cleared = torch.from_numpy(found.wrong_probability)[self.held_out & unseen] <= 0.5
        is_believed = len(cleared) and float(cleared.double().mean()) >= _CLEARED
        return found if is_believed else None

    def _write(self, found: LabelErrors, unseen: Bool[Tensor, " N"]) -> int:
        """Write weights and labels of the unseen samples; how many have another label."""
        wrong = torch.from_numpy(found.wrong_probability)
        other = torch.from_numpy(found.other_probability)
        classes = torch.from_numpy(found.other_class)
        # Held-out samples that the model cannot judge were kept before, and stay.  Suspects are
        # more often wrong than those that the model was fitted to.
        bar = torch.where(self.held_out, 1 - CONFIDENT, _BACK)
        is_right = unseen & ((wrong <= bar) | (self.held_out & wrong.isnan()))
        is_other = unseen & (other >= CONFIDENT) & (classes >= 0)
        new, codes = self.weights.weights.cpu().double(), self.weights.current_codes.cpu()
        new[unseen] = (is_right | is_other)[unseen].double()
        self.weights.relabel(torch.where(is_other, classes, codes))
        self.weights.update(new)
        return int(is_other.sum())

    def _balanced(self, unseen: Bool[Tensor, " N"]) -> Bool[Tensor, " N"]:
        """Choose the held-out samples and as many suspects, at random."""
        suspects = (unseen & ~self.held_out).nonzero()[:, 0]
        generator = torch.Generator().manual_seed(self.seed)
        count = max(int(self.held_out.sum()), _FEWEST)
        chosen = torch.randperm(len(suspects), generator=generator)[:count]
        fitted = self.held_out & unseen
        fitted[suspects[chosen]] = True
        return fitted

    def state_dict(self) -> dict[str, Any]:
        """Return everything as plain values and tensors."""
        return {
            "trained_on": self.trained_on.clone(),
            "held_out": self.held_out.clone(),
            "passes": self.passes,
            "is_done": self.is_done,
            "left_out": self.left_out,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises:
            CheckpointError: of another data set.
        """
        masks = [state["trained_on"], state["held_out"]]
        if any(mask.shape != self.trained_on.shape or mask.dtype != torch.bool for mask in masks):
            raise CheckpointError(
                "the saved repair of labels is of another data set. Resume with the same one."
            )
        check_flags(is_done=state["is_done"])
        passes = check_number(state["passes"], "passes", 0)
        left_out = check_number(state["left_out"], "left_out", 0, 1)
        self.trained_on, self.held_out = (mask.clone() for mask in masks)
        self.passes, self.is_done, self.left_out = passes, state["is_done"], left_out
