"""Rows of norm 1, in the three forms the package needs.

`unit_rows` is for similarities in floating point, `grid_unit_rows` for similarities that must come
out the same on every device and in every block, and `bspml.tensors.kernels.pairs.unit_rows_norms`
is the batch's own on a GPU, which keeps the norms that its gradient needs.
"""

from __future__ import annotations

import torch

from bspml.shapes import Float, Tensor
from bspml.tensors.checks import normalize_rows

GRID = 2.0**24  # a grid row's entries are multiples of 1 / GRID
_TILE_ROWS = 128  # rows turned into float64 at a time: they stay in a processor's cache


def unit_rows(embeddings: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Scale every row to norm 1, in float64 if the rows are float64, else in float32.

    Half precisions are widened before anything is computed.  Rows of any finite scale are scaled
    without overflow or underflow, subnormal ones included: their direction is that of the numbers
    as they were stored, of which subnormal floats keep fewer digits.  A zero row stays zero: its
    similarities are 0.  A row that holds NaN or infinity comes out with NaN in it; it is for the
    caller to refuse such rows first, as `bspml.tensors.checks.check_embeddings` does.

    Args:
        embeddings: (N, D) floats; the result has no gradient.

    Returns:
        (N, D), a new tensor on the same device.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float16))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    embeddings = embeddings.detach()
    return normalize_rows(embeddings if embeddings.dtype == torch.float64 else embeddings.float())


def grid_unit_rows(embeddings: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Scale every row to norm 1 and round its entries to multiples of 2^-24, in float32.

    Normalised in float64, whatever the rows' precision, so that rows of equal direction and unequal
    length become equal.  `bspml.evaluation.neighbours` says why the rounding makes similarities
    exact.  Zero rows stay zero; NaN and infinity as in `unit_rows`.

    Args:
        embeddings: (N, D) floats.

    Returns:
        (N, D) float32 on the same device.

    Example:
        >>> rows = grid_unit_rows(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
        >>> torch.equal(rows[0], rows[1]), bool((rows * 2**24 % 1 == 0).all())
        (True, True)
    """
    rows = torch.empty(embeddings.shape, dtype=torch.float32, device=embeddings.device)
    for start in range(0, len(rows), _TILE_ROWS):
        block = normalize_rows(embeddings[start : start + _TILE_ROWS].double())
        rows[start : start + _TILE_ROWS] = block.mul_(GRID).round_().div_(GRID)
    return rows


def rows_to_judge(embeddings: Float[Tensor, "N D"]) -> Float[Tensor, "N E"]:
    """Return `grid_unit_rows` on the CPU, without columns of zeros, which move the rounding.

    Args:
        embeddings: (N, D) floats.

    Example:
        >>> rows_to_judge(torch.tensor([[0.0, 2.0], [0.0, -3.0]])).tolist()
        [[1.0], [-1.0]]
    """
    rows = grid_unit_rows(embeddings.detach().cpu())
    filled = (rows != 0).any(0)
    return rows[:, filled] if filled.any() and not filled.all() else rows
