"""How much better another class fits each sample than its label, by the left-out discriminant."""

from __future__ import annotations

from typing import Any

import torch

from bspml.shapes import Float, Tensor
from bspml.statistics.contrastive import JudgingTask
from bspml.statistics.discriminant import Discriminant
from bspml.tensors.precision import full_precision


@full_precision()
def label_margins(
    embeddings: Any, labels: Any, sample_weights: Any = None, shrink: float = 0.5
) -> Float[Tensor, " N"]:
    """Return the best other class's entry of the discriminant less that of the label.

    Each sample is left out of what judges it; see `bspml.statistics.discriminant`.

    Args:
        embeddings: (N, D); rows are normalised here, rows of norm 0 are left out.
        labels: (N,) of any kind `bspml.tensors.checks.encode_labels` takes.
        sample_weights: (N,) in [0, 1], weight of each sample as a reference; 1 if None.
        shrink: of the covariance, in (0, 1).

    Returns:
        (N,) float64 on the CPU, large where the label is suspicious; NaN where the label has no
        other reference, or no other class has one.

    Example:
        >>> label_margins([[1.0, 0.1], [1, -0.1], [0.9, 0], [0, 1], [0.1, 1]], [0, 0, 1, 1, 1]) > 0
        tensor([False, False,  True, False, False])
    """
    task = JudgingTask.of(embeddings, labels, sample_weights, 10.0, None, 16)
    codes = task.labels.codes
    judge = Discriminant.of(task.embeddings, codes, task.weights, len(task.labels.classes))
    margins = torch.full((len(codes),), torch.nan, dtype=torch.float64)
    judged = task.judged.nonzero()[:, 0].to(judge.codes.device)
    for places, (table,) in judge.blocks(judged, (shrink,)):
        rows = judged[places]
        own = judge.codes[rows, None]
        label = table.gather(1, own)[:, 0]
        other = table.scatter_(1, own, -torch.inf).amax(1)
        values = torch.where(other.isfinite(), other - label, torch.nan)
        margins[rows.cpu()] = values.double().cpu()
    return margins
