"""A batch without a positive pair teaches nothing about similarity: said once, by each loss."""

from __future__ import annotations

import warnings

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
