"""Losses of the batch that was announced to the sample weights; of an evaluation's, unweighted."""

from __future__ import annotations

from typing import Any

from pytorch_metric_learning.losses import MultipleLosses
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from torch import Tensor, nn

from bspml.errors import InputError
from bspml.losses.cross_batch_memory import CrossBatchMemory
from bspml.losses.reducers.wrapping import held_by, table_of
from bspml.losses.weighted import Weighted
from bspml.shapes import Bool
from bspml.trainers.ignored_weights import refuse_between
from bspml.weights.state import SampleWeights


def kept_rows_of_batch(weights: SampleWeights, rows: int) -> Bool[Tensor, " B"] | None:
    """Return which rows of the announced batch weigh 1; None in an evaluation, or where all do.

    For losses that cannot multiply: they take the batch without the rows of weight 0.

    Args:
        weights: of the data set.
        rows: B.

    Raises:
        InputError: a weight between 0 and 1.
    """
    if weights.batch_index is None:
        return None
    of_batch = weights.for_batch(rows)
    refuse_between(of_batch, "pass a pytorch-metric-learning loss as `loss`")
    return None if bool((of_batch == 1).all()) else of_batch == 1


def under(loss: Any, weights: SampleWeights) -> nn.Module:
    """Return a loss under these weights: itself, where it looks them up already.

    Args:
        loss: of pytorch-metric-learning; or `Weighted`, a `CrossBatchMemory` around one, or
            `MultipleLosses` of such.
        weights: of the data set.

    Raises:
        InputError: one that `Weighted` refuses, of other weights, or of several processes.
    """
    if isinstance(loss, DistributedLossWrapper):
        raise InputError(
            "`loss` must be that of one process's batch; got a DistributedLossWrapper. Pass the "
            "loss that it wraps: the trainer averages the gradients of its processes."
        )
    is_sum = isinstance(loss, MultipleLosses)
    parts = held_by(loss) if is_sum else [loss]
    inner = [part.loss if isinstance(part, CrossBatchMemory) else part for part in parts]
    own = [table_of(part) for part in inner]
    if not (is_sum or isinstance(loss, Weighted | CrossBatchMemory)) or None in own:
        return Weighted(loss, weights)
    if any(table is not weights for table in own):
        raise InputError(
            f"`loss`, a {type(loss).__name__}, has other weights than the curriculum. Make both of "
            "one: `weights = bspml.SampleWeights(labels)`, `bspml.SelfPacedCurriculum(weights)`."
        )
    return loss


def weighted_value(
    loss: nn.Module, weights: SampleWeights, embeddings: Tensor, labels: Tensor
) -> Tensor:
    """Return the loss of the announced batch; in an evaluation every row weighs 1.

    Its averages stay then, though its trainer leaves it in train mode.

    Args:
        loss: as `under` returns it.
        weights: that it looks up.
        embeddings: (B, D).
        labels: (B,).
    """
    before = weights.evaluating
    weights.evaluating = weights.batch_index is None
    try:
        return loss(embeddings, labels)
    finally:
        weights.evaluating = before
