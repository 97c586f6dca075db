"""Batches that teach nothing, or less than they could: said once, by each loss."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from bspml.shapes import Int, Tensor
from bspml.words import counted


class PositiveWatch:
    """Warn at the first batch that has no two samples of one label.

    Only on the CPU, where looking costs no synchronisation; a trainer notices a loss of exactly 0
    on any device.

    Example:
        >>> import torch
        >>> PositiveWatch().look(torch.tensor([0, 0, 1]))  # nothing to say
    """

    def __init__(self) -> None:
        self.is_silent = False

    def look(self, labels: Int[Tensor, " B"] | Tensor | None) -> None:
        """Look at the labels of a batch that is compared with itself.

        Args:
            labels: (B,), or None: unknown.
        """
        if self.is_silent or labels is None or labels.device.type != "cpu" or labels.ndim != 1:
            return
        if len(labels) == 0 or len(labels.unique()) < len(labels):
            return
        self.is_silent = True
        warnings.warn(
            f"a batch of {counted(len(labels), 'sample')} has as many labels: without two samples "
            "of one label there is no positive pair to learn from. Draw batches with PKSampler. "
            "Said once.",
            stacklevel=4,
        )


class ChoiceWatch:
    """Warn at the first batch whose pairs or triplets were chosen among rows of weight 0, too.

    Example:
        >>> import torch
        >>> pairs = (torch.tensor([0, 1]),) * 3
        >>> ChoiceWatch().look(pairs, pairs)  # nothing to say
    """

    def __init__(self) -> None:
        self.is_silent = False

    def look(self, mined: Sequence[Tensor] | None, left: Sequence[Tensor] | None) -> None:
        """Look at what a miner chose.

        Args:
            mined: 3 or 4 index tensors, or None.
            left: those of them whose rows all weigh something.
        """
        if self.is_silent or mined is None or left is None:
            return
        gone, count = len(mined[0]) - len(left[0]), len(mined[0])
        if len(mined) == 4:
            gone, count = gone + len(mined[2]) - len(left[2]), count + len(mined[2])
        if gone == 0:
            return
        self.is_silent = True
        warnings.warn(
            f"{gone} of {count} mined pairs or triplets have a row of weight 0, and go. A miner "
            "that chooses for an anchor, such as the hardest, chose them in the place of others: "
            "give it to Weighted(loss, weights, miner=miner) and call that with none, or draw "
            "batches without such rows, sampler.set_rows(curriculum.training_mask()). Said once.",
            stacklevel=6,
        )
