"""A batch without some of its rows, as if it had never had them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from pytorch_metric_learning.reducers import DoNothingReducer

from bspml.errors import InputError
from bspml.losses.pairs import pair_indices
from bspml.shapes import Bool, Int, Tensor


class Rows(NamedTuple):
    """What a loss of pytorch-metric-learning is called with.

    Attributes:
        embeddings: (B, D).
        labels: (B,) or None.
        indices_tuple: pairs (a1, p, a2, n), triplets (a, p, n), or None.
        ref_emb: (R, D), or None: the batch is compared with itself.
        ref_labels: (R,) or None.
    """

    embeddings: Tensor
    labels: Tensor | None
    indices_tuple: Any = None
    ref_emb: Tensor | None = None
    ref_labels: Tensor | None = None


def kept_rows(
    rows: Rows, keep: Bool[Tensor, " B"], keep_refs: Bool[Tensor, " R"] | None = None
) -> Rows:
    """Leave rows out of a batch, and every pair or triplet that has one of them.

    Row numbers in the pairs are those of the shorter batch.  Labels that were one tensor on both
    sides stay one, which tells losses that row i is one sample on both sides.

    Args:
        rows: the whole batch.
        keep: (B,) which of its rows stay.
        keep_refs: (R,) which references stay; None: all.

    Raises:
        InputError: pairs that are not 3 or 4 index tensors.

    Example:
        >>> triplet = torch.tensor([0]), torch.tensor([2]), torch.tensor([3])
        >>> batch = Rows(torch.eye(4), torch.tensor([0, 0, 0, 1]), triplet)
        >>> left = kept_rows(batch, torch.tensor([True, False, True, True]))
        >>> left.labels.tolist(), [int(i) for i in left.indices_tuple]
        ([0, 0, 1], [0, 1, 2])
    """
    embeddings, labels, pairs, ref_emb, ref_labels = rows
    codes = None if labels is None else labels[keep.to(labels.device)]
    within = ref_emb is None
    other = keep if within else keep_refs
    refs, ref_codes = ref_emb, ref_labels
    if ref_emb is not None and keep_refs is not None:
        refs = ref_emb[keep_refs]
        if ref_labels is not None:
            ref_codes = ref_labels[keep_refs.to(ref_labels.device)]
            if ref_labels is labels and torch.equal(keep, keep_refs):
                ref_codes = codes
    return Rows(embeddings[keep], codes, _pairs(pairs, keep, other), refs, ref_codes)


def _pairs(pairs: Any, keep: Tensor, keep_others: Tensor | None) -> Any:
    """Renumber the pairs whose samples all stay."""
    if pairs is None:
        return None
    if not isinstance(pairs, list | tuple) or len(pairs) not in (3, 4):
        raise InputError(
            "`indices_tuple` must hold 3 (a, p, n) or 4 (a1, p, a2, n) index tensors; got "
            f"{type(pairs).__name__}. Pass what a miner returns."
        )
    pairs = tuple(pair_indices(values, keep.device) for values in pairs)
    anchors = _numbers(keep)
    others = None if keep_others is None else _numbers(keep_others)
    if len(pairs) == 3:
        return _stay(pairs, (anchors, others, others))
    a1, p, a2, n = pairs
    return (*_stay((a1, p), (anchors, others)), *_stay((a2, n), (anchors, others)))


def _numbers(keep: Bool[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Number the kept rows from 0; -1 for the others."""
    return torch.where(keep, keep.cumsum(0) - 1, -1)


def _stay(indices: tuple[Tensor, ...], numbers: tuple[Tensor | None, ...]) -> tuple[Tensor, ...]:
    new = [i if number is None else number[i] for i, number in zip(indices, numbers, strict=True)]
    stays = torch.stack([i >= 0 for i in new]).all(0)
    return tuple(i[stays] for i in new)


def loss_of_mined(loss: Any, miner: Any, embeddings: Tensor, labels: Any, **named: Any) -> Any:
    """Return the loss of the pairs that a miner finds in a batch, or of all without a miner.

    Args:
        loss: called with embeddings, labels and pairs.
        miner: called with embeddings and labels; None: pairs are the loss's affair.
        embeddings: (B, D).
        labels: (B,).
        **named: of the loss's call.
    """
    pairs = None if miner is None else miner(embeddings, labels)
    return loss(embeddings, labels, pairs, **named)


def no_loss(embeddings: Tensor, loss: Any) -> Any:
    """Return 0, with a gradient of 0, for a batch of which nothing counts.

    Args:
        embeddings: (B, D); only their gradient is 0 then, whatever they hold.
        loss: its parameters, such as proxies, have a gradient of 0, too.  One that reduces nothing
            has its own word for no loss.
    """
    for part in loss.modules():
        if hasattr(part, "see_nothing"):
            part.see_nothing(embeddings)
    reducer = getattr(loss, "reducer", None)
    if isinstance(getattr(reducer, "inner", reducer), DoNothingReducer):
        return loss.zero_losses()
    # Not (embeddings * 0).sum(): infinity times 0 is NaN.
    learned = [p.flatten()[:0].sum() for p in loss.parameters() if p.requires_grad]
    return sum(learned, embeddings[:0].sum())
