"""Losses of pytorch-metric-learning that are logarithms of sums, with a weight in every term.

Each function computes what the loss of that name computes, with sample j's terms multiplied by w_j
inside the sums:  log sum_j w_j e^{x_j} = log sum_j e^{x_j + log w_j}.  The weights outside, of the
samples or pairs that a value belongs to, are the reducer's.  With all weights 1 the values are
pytorch-metric-learning's.

A value that would be none without its positives (or negatives) counts as much as the best of them,
so that it fades as they do: `trust`, which the reducer multiplies by the anchor's weight; or by the
value, in a mean of all rows, where the row would stay with the value 0 (`stays`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch.nn.functional import softplus

from bspml.losses.kept_rows import Rows
from bspml.shapes import Bool, Float, Tensor

LossDict = dict[str, dict[str, Any]]


def weighted_values(loss: Any, rows: Rows, weights: Float[Tensor, " R"]) -> LossDict | None:
    """Return a loss's values with the weights inside its sums.

    Args:
        loss: a loss of pytorch-metric-learning.
        rows: the batch, with references and their labels.
        weights: (R,) of the references, above 0.

    Returns:
        The loss dictionary; None if no formula here is this loss's own: it is no logarithm of a
        sum, or a subclass that computes something else.
    """
    home = next(c for c in type(loss).__mro__ if {"compute_loss", "_compute_loss"} & vars(c).keys())
    values = _VALUES.get(home)
    if values is None:
        return None
    log_w = weights.log()
    if not isinstance(loss, pml_losses.GenericPairLoss):
        return values(loss, rows, log_w)
    pairs = lmu.convert_to_pairs(rows.indices_tuple, rows.labels, rows.ref_labels)
    if all(len(x) <= 1 for x in pairs):  # as in the parent's
        return loss.zero_losses()
    matrix = loss.distance(rows.embeddings, rows.ref_emb)  # (B, R)
    if values in _OF_BOTH and not (len(pairs[0]) and len(pairs[2])):
        return loss.zero_losses()
    return values(loss, matrix, pairs, log_w)


# -------------------------------------------------------------- values of samples, sums over (B, R)


def _multi_similarity(loss: Any, matrix: Tensor, pairs: Any, log_w: Tensor) -> LossDict:
    positive, negative = _masks(matrix, pairs)
    pull = loss.alpha * loss.distance.margin(matrix, loss.base)
    push = loss.beta * loss.distance.margin(loss.base, matrix)
    values = _log_sum(pull + log_w, positive, one=True) / loss.alpha
    return _of_samples(values + _log_sum(push + log_w, negative, one=True) / loss.beta)


def _sup_con(loss: Any, matrix: Tensor, pairs: Any, log_w: Tensor) -> LossDict:
    """Mean over the positives p, by weight, of  log( e^{S_ip / T} + sum_j w_j e^{S_ij / T} )
    - S_ip / T,  the sum over all others than p.

    So no value is below 0, and a reducer of values above 0 takes what it takes without weights.
    """
    positive, negative = _masks(matrix, pairs)
    scaled = _closeness(loss, matrix) / loss.temperature
    shares = torch.where(positive, log_w.exp(), 0)
    rest = (1 - log_w.exp()).clamp(min=0).log()  # of p's own term, which is whole
    every = _log_sum(scaled + log_w, positive | negative)[:, None]
    gap = torch.logaddexp(every, scaled + rest) - scaled
    total = shares.sum(1)
    values = (shares * gap).sum(1) / torch.where(total > 0, total, 1)
    return _of_samples(values, trust=_best(log_w, positive))


def _circle(loss: Any, matrix: Tensor, pairs: Any, log_w: Tensor) -> LossDict:
    positive, negative = _masks(matrix, pairs)
    fixed = matrix.detach()  # the self-paced factors have no gradient
    pull = -loss.gamma * torch.relu(loss.op - fixed) * (matrix - loss.delta_p)
    push = loss.gamma * torch.relu(fixed - loss.on) * (matrix - loss.delta_n)
    both = _log_sum(pull + log_w, positive) + _log_sum(push + log_w, negative)
    has_both = positive.any(1) & negative.any(1)
    trust = _best(log_w, positive) * _best(log_w, negative)
    return _of_samples(torch.where(has_both, softplus(both), 0), trust=trust)


def _generalized_lifted(loss: Any, matrix: Tensor, pairs: Any, log_w: Tensor) -> LossDict:
    positive, negative = _masks(matrix, pairs)
    pull = loss.distance.margin(matrix, loss.pos_margin) + log_w
    push = loss.distance.margin(loss.neg_margin, matrix) + log_w
    return _of_samples(torch.relu(_log_sum(pull, positive) + _log_sum(push, negative)))


def _nca(loss: Any, rows: Rows, log_w: Tensor) -> LossDict:
    """-log of the share, by weight, that the own class has in the softmax over all others."""
    if len(rows.embeddings) <= 1:
        return loss.zero_losses()
    within = rows.embeddings is rows.ref_emb
    counts = lmu.convert_to_weights(
        rows.indices_tuple, rows.labels, dtype=rows.embeddings.dtype, using_ref=not within
    )
    matrix = _closeness(loss, loss.distance(rows.embeddings, rows.ref_emb))
    assert rows.labels is not None
    assert rows.ref_labels is not None
    same = rows.labels[:, None] == rows.ref_labels
    others = torch.ones_like(same)
    if within:
        others.fill_diagonal_(False)
    terms = loss.softmax_scale * matrix + log_w
    values = _log_sum(terms, others) - _log_sum(terms, same & others)
    where = (same & others).any(1).nonzero()[:, 0]
    return _of_samples((values * counts)[where], where, _best(log_w, same & others)[where])


# --------------------------------------------------- values of positive pairs, sums over negatives


def _nt_xent(loss: Any, matrix: Tensor, pairs: Any, log_w: Tensor) -> LossDict:
    """-log( e^{S_ap / T} / (e^{S_ap / T} + sum_n w_n e^{S_an / T}) )."""
    a1, p, a2, n = pairs
    scaled = _closeness(loss, matrix) / loss.temperature
    negatives = _log_sum((scaled[a2, n] + log_w[n])[None], a1[:, None] == a2)
    # Not softplus, which takes x for log(1 + e^x) above 20.
    value = torch.logaddexp(negatives - scaled[a1, p], negatives.new_zeros(()))
    return _of_pairs(torch.where((a1[:, None] == a2).any(1), value, 0), a1, p)


def _lifted(loss: Any, matrix: Tensor, pairs: Any, log_w: Tensor) -> LossDict:
    a1, p, a2, n = pairs
    pull = loss.distance.margin(matrix[a1, p], loss.pos_margin)
    push = loss.distance.margin(loss.neg_margin, matrix[a2, n]) + log_w[n]
    of_either = (a1[:, None] == a2) | (p[:, None] == a2)
    return _of_pairs(torch.relu(_log_sum(push[None], of_either) + pull).square() / 2, a1, p)


def _tuplet_margin(loss: Any, matrix: Tensor, pairs: Any, log_w: Tensor) -> LossDict:
    a1, p, a2, n = pairs
    pull = torch.cos(torch.acos(matrix[a1, p]) - loss.margin)
    push = loss.scale * (matrix[a2, n] - pull[:, None]) + log_w[n]
    return _of_pairs(_log_sum(push, a1[:, None] == a2, one=True), a1, p)


def _angular(loss: Any, rows: Rows, log_w: Tensor) -> LossDict:
    """log(1 + sum_n w_n e^{4 tan^2 (a + p) n - 2 (1 + tan^2) a p}), n of other classes than a."""
    found = loss.get_pairs(*rows)
    if found[0] is None:
        return loss.zero_losses()
    anchors, positives, negative, a1, p = found
    tan = torch.tan(loss.alpha).square()
    of_pair = 2 * (1 + tan) * (anchors * positives).sum(1, keepdim=True)
    terms = 4 * tan * (anchors + positives) @ rows.ref_emb.T - of_pair  # type: ignore[union-attr]
    return _of_pairs(_log_sum(terms + log_w, negative, one=True), a1, p)


_VALUES: dict[type, Callable[..., LossDict]] = {
    pml_losses.MultiSimilarityLoss: _multi_similarity,
    pml_losses.SupConLoss: _sup_con,
    pml_losses.CircleLoss: _circle,
    pml_losses.GeneralizedLiftedStructureLoss: _generalized_lifted,
    pml_losses.NCALoss: _nca,
    pml_losses.NTXentLoss: _nt_xent,
    pml_losses.LiftedStructureLoss: _lifted,
    pml_losses.TupletMarginLoss: _tuplet_margin,
    pml_losses.AngularLoss: _angular,
}

# They are 0 without positives, and without negatives.
_OF_BOTH = (_sup_con, _nt_xent, _lifted, _tuplet_margin)


# ------------------------------------------------------------------------------------- the pieces


def _log_sum(
    x: Float[Tensor, "#n m"], keep: Bool[Tensor, "n m"], *, one: bool = False
) -> Float[Tensor, " n"]:
    """log sum e^x of the kept terms of each row, with `one` of 1 + sum; 0 for a row without any."""
    smallest = torch.finfo(x.dtype).min
    terms = x.expand(keep.shape).masked_fill(~keep, smallest)
    if one:
        terms = torch.cat([terms, terms.new_zeros(len(terms), 1)], dim=1)
    return terms.logsumexp(1).masked_fill(~keep.any(1), 0)


def _masks(matrix: Tensor, pairs: Any) -> tuple[Tensor, Tensor]:
    """The positives and the negatives of (B, R)."""
    positive = torch.zeros_like(matrix, dtype=torch.bool)
    negative = torch.zeros_like(positive)
    a1, p, a2, n = pairs
    positive[a1, p], negative[a2, n] = True, True
    return positive, negative


def _closeness(loss: Any, matrix: Tensor) -> Tensor:
    return matrix if loss.distance.is_inverted else -matrix


def _best(log_w: Tensor, keep: Bool[Tensor, "B R"]) -> Float[Tensor, " B"]:
    """The largest weight among the kept of each row, 1 at most; 1 for a row without any."""
    best = torch.where(keep, log_w.exp().clamp(max=1), 0).amax(1)
    return torch.where(keep.any(1), best, 1)


def _of_samples(
    values: Tensor, where: Tensor | None = None, trust: Tensor | None = None
) -> LossDict:
    rows = torch.arange(len(values), device=values.device) if where is None else where
    info = {"losses": values, "indices": rows, "reduction_type": "element"}
    return {"loss": info if trust is None else {**info, "trust": trust, "stays": where is None}}


def _of_pairs(values: Tensor, anchors: Tensor, others: Tensor) -> LossDict:
    return {"loss": {"losses": values, "indices": (anchors, others), "reduction_type": "pos_pair"}}
