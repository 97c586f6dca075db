"""The log-sums of the multi-similarity loss, stable and with their gradient written out."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from bspml.shapes import Bool, Float, Tensor
from bspml.tensors.kernels.device import by_kernel, kernel, runs_pair_kernels


class PairWeights(NamedTuple):
    """What weighs the pairs of a batch; None stands for 1.

    Attributes:
        log_w: (R,) log w_j, inside both sums.
        positive: (B,) a_i, times the log-sum of the positives.
        negative: (B,) b_i, times the log-sum of the negatives.
    """

    log_w: Float[Tensor, " R"] | None
    positive: Float[Tensor, " B"] | None
    negative: Float[Tensor, " B"] | None


class Scales(NamedTuple):
    """The three numbers of the loss.

    For a distance, where smaller is closer, alpha and beta are negative; the elements are divided
    by their absolute values.

    Attributes:
        alpha: scale of the positives' exponent.
        beta: scale of the negatives' exponent.
        base: similarity at which a pair's term is 1.
    """

    alpha: float
    beta: float
    base: float


class MultiSimilarityTerms(torch.autograd.Function):
    """a_i / alpha log(1 + sum_P w_j e^{-alpha (S_ij - base)}) + b_i / beta log(1 + sum_Q ...).

    The derivative by S_ij is  b_i t_ij - a_i s_ij  with s and t the shares of pair j in the two
    1 + sum.  The forward pass has the shares at hand: keeping them spares autograd a
    dozen passes over (B, R).

    Call `apply(similarity, positive, negative, weights, scales)`: (B, R), two bool masks (B, R),
    `PairWeights` and `Scales`.  Only the similarity is differentiated.
    """

    @staticmethod
    def forward(
        ctx: Any,
        similarity: Tensor,
        positive: Tensor,
        negative: Tensor,
        weights: PairWeights,
        scales: Scales,
    ) -> Tensor:
        """Compute the elements (B,), and keep their derivatives.

        Args:
            ctx: of autograd.
            similarity: (B, R).
            positive: (B, R) bool, the pairs of the first sum.
            negative: (B, R) bool, those of the second.
            weights: of the pairs.
            scales: alpha, beta and base.
        """
        ctx.arguments = (positive, negative, weights, scales)
        if runs_pair_kernels(similarity):
            launch = kernel("pairs.multi_similarity_terms")
            losses, slope = by_kernel(launch, terms_by_operations, similarity, *ctx.arguments)
        else:
            losses, slope = terms_by_operations(similarity, *ctx.arguments)
        ctx.save_for_backward(similarity, slope)
        return losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Turn the gradient by the elements (B,) into that by the similarity (B, R).

        Args:
            ctx: of autograd.
            grad: (B,).
        """
        similarity, slope = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: the shares must stay a function of S
            _, slope = terms_by_operations(similarity, *ctx.arguments)
        return grad[:, None] * slope, *[None] * 4


def terms_by_operations(
    similarity: Float[Tensor, "B R"],
    positive: Bool[Tensor, "B R"],
    negative: Bool[Tensor, "B R"],
    weights: PairWeights,
    scales: Scales,
) -> tuple[Float[Tensor, " B"], Float[Tensor, "B R"]]:
    """Compute `MultiSimilarityTerms` by torch's operations, on any device.

    Args:
        similarity: (B, R).
        positive: (B, R), the pairs of the first sum.
        negative: (B, R), those of the second.
        weights: of the pairs.
        scales: alpha, beta and base.

    Returns:
        The elements (B,) and their derivatives by the similarity (B, R).
    """
    alpha, beta, base = scales
    log_weights, positive_factor, negative_factor = weights
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
    """Compute x_ij = scale (S_ij - base) + log w_j of the kept pairs, -inf of the others.

    A weight of 0 enters as log 0 = -inf, which drops the term.
    """
    offset = similarity.new_full((), -scale * base)
    if log_weights is not None:
        offset = offset + log_weights  # (R,)
    return torch.where(keep, torch.add(offset, similarity, alpha=scale), -math.inf)


def log_one_plus_sum(x: Float[Tensor, "B R"]) -> tuple[Float[Tensor, " B"], Float[Tensor, "B R"]]:
    """Return log(1 + sum_j e^{x_ij}) and each term's share; overwrites x.

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
