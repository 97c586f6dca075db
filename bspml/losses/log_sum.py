"""The log-sums of the multi-similarity loss, stable and with their gradient written out."""

from __future__ import annotations

import math
from typing import Any

import torch

from bspml.shapes import Bool, Float, Tensor
from bspml.tensors.kernels.device import by_kernel, runs_pair_kernels


class MultiSimilarityTerms(torch.autograd.Function):
    """a_i / alpha log(1 + sum_P w_j e^{-alpha (S_ij - base)}) + b_i / beta log(1 + sum_Q ...).

    The derivative by S_ij is  b_i t_ij - a_i s_ij  with s and t the shares of pair j in the two
    1 + sum.  The forward pass has the shares at hand: keeping them spares autograd a
    dozen passes over (B, R).

    Call `apply(similarity, positive, negative, log_weights, positive_factor, negative_factor,
    alpha, beta, base)`: (B, R), two bool masks (B, R), log w (R,), a (B,), b (B,), three numbers;
    None for log w, a or b stands for w = 1, a = 1, b = 1.  For a distance, where smaller is
    closer, alpha and beta are negative; the elements are divided by their absolute values.
    Only the similarity is differentiated.
    """

    @staticmethod
    def forward(
        ctx: Any,
        similarity: Tensor,
        positive: Tensor,
        negative: Tensor,
        log_weights: Tensor | None,
        positive_factor: Tensor | None,
        negative_factor: Tensor | None,
        alpha: float,
        beta: float,
        base: float,
    ) -> Tensor:
        """(B, R) to (B,)."""
        ctx.numbers = (alpha, beta, base)
        ctx.given = (positive, negative, log_weights, positive_factor, negative_factor)
        losses, slope = _terms(similarity, *ctx.given, *ctx.numbers)
        ctx.save_for_backward(similarity, slope)
        return losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """(B,) to (B, R)."""
        similarity, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: the shares must stay a function of S
            _, slope = _operations(similarity, *ctx.given, *ctx.numbers)
        return grad[:, None] * slope, *[None] * 8


def _terms(similarity: Float[Tensor, "B R"], *more: Any) -> tuple[Tensor, Tensor]:
    """Elements (B,) and their derivatives by the similarity (B, R); `more` as in `_operations`."""
    if runs_pair_kernels(similarity):
        return by_kernel(_by_kernel, _operations, similarity, *more)
    return _operations(similarity, *more)


def _by_kernel(*given: Any) -> tuple[Tensor, Tensor]:
    from bspml.tensors.kernels.pairs import multi_similarity_terms

    return multi_similarity_terms(*given)


def _operations(
    similarity: Float[Tensor, "B R"],
    positive: Bool[Tensor, "B R"],
    negative: Bool[Tensor, "B R"],
    log_weights: Float[Tensor, " R"] | None,
    positive_factor: Float[Tensor, " B"] | None,
    negative_factor: Float[Tensor, " B"] | None,
    alpha: float,
    beta: float,
    base: float,
) -> tuple[Float[Tensor, " B"], Float[Tensor, "B R"]]:
    x = _exponents(similarity, positive, log_weights, -alpha, base)
    y = _exponents(similarity, negative, log_weights, beta, base)
    # Both at once: half the operations, which are what a small batch costs.
    sums, shares = log_one_plus_sum(torch.cat((x, y)))
    (pulls, pushes), (pull_share, push_share) = sums.chunk(2), shares.chunk(2)
    if positive_factor is not None:
        pulls, pull_share = pulls * positive_factor, pull_share * positive_factor[:, None]
    if negative_factor is not None:
        pushes, push_share = pushes * negative_factor, push_share * negative_factor[:, None]
    slope = push_share - pull_share
    return pulls / abs(alpha) + pushes / abs(beta), slope if beta > 0 else -slope


def _exponents(
    similarity: Float[Tensor, "B R"],
    keep: Bool[Tensor, "B R"],
    log_weights: Float[Tensor, " R"] | None,
    scale: float,
    base: float,
) -> Float[Tensor, "B R"]:
    """x_ij = scale (S_ij - base) + log w_j of the kept pairs, -inf of the others.

    A weight of 0 enters as log 0 = -inf, which drops the term.
    """
    offset = similarity.new_full((), -scale * base)
    if log_weights is not None:
        offset = offset + log_weights  # (R,)
    return torch.where(keep, torch.add(offset, similarity, alpha=scale), -math.inf)


def log_one_plus_sum(
    x: Float[Tensor, "B R"],
) -> tuple[Float[Tensor, " B"], Float[Tensor, "B R"]]:
    """log(1 + sum_j e^{x_ij}) and each term's share; overwrites x.

    Returns:
        The logarithms (B,), 0 for a row of -inf, and e^{x_ij} / (1 + sum) (B, R).
    """
    # With the largest exponent m >= 0 taken out,  1 + sum e^x = e^m (1 + rest)  where
    # rest = e^-m - 1 + sum e^{x-m}.  Either m = 0, or the sum is at least 1: nothing cancels, and
    # log1p keeps small sums that log(1 + sum) would round away.
    m = x.detach().amax(1, keepdim=True).clamp_(min=0)  # (B, 1)
    terms = x.sub_(m).exp_()  # (B, R)
    rest = terms.sum(1, keepdim=True) + torch.expm1(-m)  # (B, 1)
    return (m + torch.log1p(rest)).squeeze(1), terms / (1 + rest)
