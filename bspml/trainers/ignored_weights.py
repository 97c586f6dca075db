"""Losses that look no weight up: the sampler leaves rows of weight 0 out, and the rest weighs 1."""

from __future__ import annotations

from collections.abc import Iterable

from pytorch_metric_learning.losses import MultipleLosses
from torch import nn

from bspml.errors import InputError
from bspml.losses.reducers.wrapping import held_by
from bspml.shapes import Float, Tensor
from bspml.weights.state import SampleWeights


def refuse_between(weights: Float[Tensor, " B"], remedy: str) -> None:
    """Refuse weights between 0 and 1.

    Args:
        weights: of a batch whose loss cannot multiply by them.
        remedy: what else there is but other weights, as the end of a sentence.

    Raises:
        InputError: one lies there.
    """
    if bool(((weights > 0) & (weights < 1)).any()):
        raise InputError(
            "this loss takes weights 0 and 1 only; got one between them. Use the curriculum's "
            f"rule='threshold', or {remedy}."
        )


def refuse_ignored(weights: SampleWeights, holders: Iterable[nn.Module]) -> None:
    """Refuse a step in which a sample of a weight below 1 counted in full.

    Args:
        weights: with the batch of the step announced, and its loss computed.
        holders: modules; one that holds the table may do without looking it up.  Of several, and
            of several losses of a sum, each must hold it: which of them looked it up is not known.

    Raises:
        InputError: nobody looked the weights of the batch up, or one of several losses did not.
    """
    parts = [p for h in holders for p in (held_by(h) if isinstance(h, MultipleLosses) else [h])]
    if weights.batch_index is None or (weights.looked_up and len(parts) < 2):
        return
    blind = [part for part in parts if all(module is not weights for module in part.modules())]
    if parts and not blind:
        return
    of_batch = weights.weights[weights.batch_index.to(weights.weights.device)]
    if bool((of_batch == 1).all()):
        return
    wrap = "wrap the loss: bspml.Weighted(loss, curriculum.weights)"
    if len(parts) > 1:
        wrap += f", each of several ({type(blind[0]).__name__} has no weights)"
    refuse_between(of_batch, wrap)
    raise InputError(
        "a batch has rows of weight 0, and this loss would count them: the others fill no batch, "
        "or labels were decided after the rows of this epoch had been chosen. Decide before "
        f"training, or {wrap}."
    )
