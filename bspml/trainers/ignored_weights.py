"""Losses that look no weight up: the sampler leaves rows of weight 0 out, and the rest weighs 1."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from bspml.errors import InputError
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
        holders: modules; where one of them holds the table, a step may do without.

    Raises:
        InputError: nobody looked the weights of the batch up.
    """
    if weights.batch_index is None or weights.looked_up:
        return
    of_batch = weights.weights[weights.batch_index.to(weights.weights.device)]
    if bool((of_batch == 1).all()) or any(m is weights for h in holders for m in h.modules()):
        return
    refuse_between(of_batch, "wrap the loss: bspml.Weighted(loss, curriculum.weights)")
    raise InputError(
        "a batch has rows of weight 0, since the others fill none, and this loss would count them. "
        "Wrap it: bspml.Weighted(loss, curriculum.weights)."
    )
