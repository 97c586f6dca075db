"""Losses of the batch that was announced to the sample weights; of an evaluation's, unweighted."""

from __future__ import annotations

from torch import Tensor

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


def weighted_value(loss: Weighted, embeddings: Tensor, labels: Tensor) -> Tensor:
    """Return the loss of the announced batch; in an evaluation every row weighs 1.

    Then the loss is in eval mode, too, of which its trainer knows nothing: its averages stay.

    Args:
        loss: around one of pytorch-metric-learning.
        embeddings: (B, D).
        labels: (B,).
    """
    if loss.weights.batch_index is not None:
        return loss(embeddings, labels)
    before = loss.training, loss.weights.evaluating
    loss.weights.evaluating = True
    try:
        return loss.eval()(embeddings, labels)
    finally:
        loss.train(before[0])
        loss.weights.evaluating = before[1]
