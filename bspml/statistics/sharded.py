"""The statistics of the whole training set, their rows shared by the ranks.

Every rank holds all embeddings and calls these together; every rank gets the whole result.  In a
group of one they are the statistics themselves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bspml.distributed.group import ranks
from bspml.distributed.rows import add_over_ranks, gather_rows, share_of
from bspml.statistics.contrastive import ContrastiveStatistics, contrastive_statistics

# Per-row fields that only a judged row has; the others are the same whichever rows are judged.
_JUDGED = ("own", "everyone", "difficulty", "testable", "other_class", "other", "own_bin")


def sharded_contrastive_statistics(
    embeddings: Any, labels: Any, sample_weights: Any = None, rows: Tensor | None = None
) -> ContrastiveStatistics:
    """Return `contrastive_statistics`, each rank judging its share of the rows against all
    references.

    Args:
        embeddings: (N, D), the same on every rank, as everything else.
        labels: (N,).
        sample_weights: (N,) in [0, 1] of the references, or None for all 1.
        rows: (M,) ascending sample indices to judge, or None for all.

    Returns:
        The whole statistics on every rank: equal on all of them, and to those of one process but
        for rounding (other blocks of rows are multiplied).
    """
    if ranks() == 1:
        return contrastive_statistics(embeddings, labels, sample_weights, rows=rows)
    judged = torch.arange(len(embeddings)) if rows is None else rows
    mine = judged[share_of(len(judged))]
    part = contrastive_statistics(embeddings, labels, sample_weights, rows=mine)
    whole: dict[str, Any] = {}
    for name in _JUDGED:
        whole[name] = values = getattr(part, name).clone()
        values[judged] = gather_rows(values[mine])  # the others are as this rank has them
    null = torch.from_numpy(part.null_by_support.copy())
    whole["null_by_support"] = add_over_ranks(null).numpy()
    return replace(part, **whole)
