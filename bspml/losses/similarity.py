"""Similarity matrices, in float32 at least and with one matrix product less backward."""

from __future__ import annotations

import math
from typing import Any

import torch
from pytorch_metric_learning.distances import BaseDistance, CosineSimilarity, DotProductSimilarity

from bspml.shapes import Float, Tensor
from bspml.tensors.arguments import check_kind
from bspml.tensors.kernels.device import by_kernel, kernel, runs_pair_kernels

_SMALLEST_NORM = 1e-12  # of torch.nn.functional.normalize, which pytorch-metric-learning uses


def similarity_matrix(
    embeddings: Float[Tensor, "B D"],
    ref_emb: Float[Tensor, "R D"] | None,
    distance: Any,
    known: Float[Tensor, "B R"] | None = None,
) -> Float[Tensor, "B R"]:
    """Return the matrix of a pytorch-metric-learning distance; no `ref_emb`: of the batch with
    itself.

    `known` may be the cosines of these embeddings, if they were computed before:
    then the product is not taken again, only differentiated.

    The numbers are that distance's own, bit for bit, except for rows that it cannot normalise:
    see `within_range`.  Autocast is switched off: it would take the product in half precision even
    of float32 embeddings, and half precision reorders pairs.

    Args:
        embeddings: (B, D).
        ref_emb: (R, D), or None.
        distance: of pytorch-metric-learning.
        known: (B, B) cosines, or None.
    """
    with torch.autocast(embeddings.device.type, enabled=False):
        if ref_emb is None and is_cosine(distance) and runs_pair_kernels(embeddings):
            return by_kernel(_DeviceGram.apply, _gram, embeddings, known)
        if distance.normalize_embeddings:
            embeddings = within_range(embeddings)
            ref_emb = None if ref_emb is None else within_range(ref_emb)
        if ref_emb is None and is_cosine(distance):
            return CosineGram.apply(embeddings, known)
        return distance(embeddings, ref_emb)


def _gram(embeddings: Float[Tensor, "B D"], cosines: Float[Tensor, "B B"] | None) -> Tensor:
    return CosineGram.apply(within_range(embeddings), cosines)


def is_cosine(distance: Any) -> bool:
    """Return whether `distance` is plain cosine similarity: no subclass, without statistics."""
    return (
        type(distance) in (CosineSimilarity, DotProductSimilarity)
        and distance.normalize_embeddings
        and distance.p == 2
        and distance.power == 1
        and not distance.collect_stats
    )


def within_range(embeddings: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
    """Return rows as they are, but those too short or too long to be normalised scaled to peak 1.

    The square of 1e-23 or of 2e19 leaves float32, and pytorch-metric-learning divides rows shorter
    than 1e-12 by 1e-12: cosines of such rows come out as 0.  A direction has no scale, so scaling
    these rows first gives their cosines.  A row of zeros stays.
    """
    norm = torch.linalg.vector_norm(embeddings.detach(), dim=1, keepdim=True)  # (B, 1)
    if embeddings.device.type == "cpu" and len(embeddings):
        shortest, longest = (float(n) for n in torch.aminmax(norm))
        if shortest >= _SMALLEST_NORM and longest < math.inf:  # NaN goes on
            return embeddings
    odd = (norm < _SMALLEST_NORM) | (norm == math.inf)
    # On an accelerator looking would make the step wait; there all rows are divided, mostly by 1.
    if embeddings.device.type == "cpu" and not odd.any():
        return embeddings
    peak = embeddings.detach().abs().amax(1, keepdim=True)
    return _Divide.apply(embeddings, torch.where(odd & (peak > 0), peak, 1))


def widen(embeddings: Float[Tensor, "B D"], dtype: torch.dtype) -> Float[Tensor, "B D"]:
    """Return the rows in a wider dtype; what they are computed with may leave the range of their
    own.

    The gradient of a cosine is of the order 1 / |e|: at a row of zeros, 1e12, which float16 does
    not hold, and infinity times the zeros upstream makes a whole layer's gradient NaN.  Rows whose
    norm float16 does not hold in full precision get a gradient of 0 where theirs would overflow:
    they have no direction to turn.  Any other overflow stays, so that a gradient scaler sees it.

    Args:
        embeddings: (B, D).
        dtype: at least as wide as theirs.
    """
    return embeddings if embeddings.dtype == dtype else _Widen.apply(embeddings, dtype)


class _Widen(torch.autograd.Function):
    """Convert rows (B, D) to a wider dtype; see `widen` for the gradient."""

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, dtype: torch.dtype) -> Tensor:
        """Map (B, D) to (B, D)."""
        wide = embeddings.to(dtype)
        ctx.own = embeddings.dtype
        norm = torch.linalg.vector_norm(wide, dim=1, keepdim=True)  # (B, 1)
        ctx.save_for_backward(norm < torch.finfo(ctx.own).smallest_normal)
        return wide

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Map the gradient (B, D) to (B, D).

        Args:
            ctx: of autograd.
            grad: (B, D).
        """
        (short,) = ctx.saved_tensors
        size = grad.detach().abs()
        leaves = (size > torch.finfo(ctx.own).max).any(1, keepdim=True)
        # Infinity and NaN come from elsewhere and pass.
        leaves &= torch.isfinite(size).all(1, keepdim=True)
        return grad.masked_fill(short & leaves, 0).to(ctx.own), None


class _Divide(torch.autograd.Function):
    """Rows over constants (B, 1).

    The gradient of a cosine is of the order 1 / |e|.  Below the smallest norm it stays at that of
    the smallest norm, as it does in pytorch-metric-learning: beyond, its square, which optimisers
    and norm clipping take, would leave float32.
    """

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, divisor: Tensor) -> Tensor:
        """Map (B, D) to (B, D)."""
        ctx.save_for_backward(divisor)
        return embeddings / divisor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Map the gradient (B, D) to (B, D).

        Args:
            ctx: of autograd.
            grad: (B, D).
        """
        (divisor,) = ctx.saved_tensors
        return grad / divisor.clamp_min(_SMALLEST_NORM), None


class CosineGram(torch.autograd.Function):
    """X X^T for the rows x_i = e_i / |e_i|, with its gradient written out.

    With M = (G + G^T) X the gradient of row i is  (M_i - x_i <x_i, M_i>) / |e_i|: one matrix
    product, where autograd takes one for each of the two factors, although both are X.
    A zero row stays zero.
    """

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, known: Tensor | None = None) -> Tensor:
        """Map (B, D) to (B, B); `known` is the result where it is at hand, and is not copied.

        Args:
            ctx: of autograd.
            embeddings: (B, D).
            known: (B, B), or None.
        """
        x, norm = _normalize(embeddings)
        ctx.save_for_backward(embeddings, x, norm)
        return x @ x.T if known is None else known.view_as(known)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Map the gradient (B, B) to (B, D).

        Args:
            ctx: of autograd.
            grad: (B, B).
        """
        embeddings, x, norm = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: the gradient must stay a function of e
            x, norm = _normalize(embeddings)
        with torch.autocast(x.device.type, enabled=False):
            pull = (grad + grad.T) @ x  # (B, D)
        along = (pull * x).sum(1, keepdim=True)
        # Rows shorter than the smallest norm are divided by that constant: no second term.
        along = along.masked_fill(norm <= _SMALLEST_NORM, 0)
        return (pull - x * along) / norm, None


class _DeviceGram(torch.autograd.Function):
    """`CosineGram` of `within_range`, in two kernels and two products."""

    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, known: Tensor | None = None) -> Tensor:
        """Map (B, D) to (B, B); `known` is the result where it is at hand, and is not copied.

        Args:
            ctx: of autograd.
            embeddings: (B, D).
            known: (B, B), or None.
        """
        x, norm, divisor = kernel("pairs.unit_rows_norms")(embeddings)
        ctx.save_for_backward(embeddings, x, norm, divisor)
        return x @ x.T if known is None else known.view_as(known)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """Map the gradient (B, B) to (B, D).

        Args:
            ctx: of autograd.
            grad: (B, B).
        """
        embeddings, x, norm, divisor = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph: the gradient must stay a function of e
            with torch.enable_grad():
                gram = _gram(embeddings, None)
            (pull,) = torch.autograd.grad(gram, embeddings, grad, create_graph=True)
            return pull, None
        with torch.autocast(x.device.type, enabled=False):
            return kernel("pairs.turned")((grad + grad.T) @ x, x, norm, divisor), None


def _normalize(embeddings: Tensor) -> tuple[Tensor, Tensor]:
    norm = torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)
    norm = norm.clamp_min(_SMALLEST_NORM)  # (B, 1)
    return embeddings / norm, norm


def check_distance(distance: Any) -> None:
    """Refuse what is no distance of pytorch-metric-learning.

    Raises:
        InputError: says what it must be.
    """
    must = "a distance of pytorch-metric-learning, such as CosineSimilarity()"
    check_kind(distance, "distance", BaseDistance, must)
