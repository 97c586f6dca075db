"""Shrunk whitening: makes frozen, general-purpose features tell similar classes apart.

Features of a network trained for something else vary mostly in directions that have nothing to do
with the classes at hand, and cosine similarity listens to those.  Whitening evens the directions
out; it looks at no label, so judging labels on whitened features stays honest.
"""

from __future__ import annotations

from typing import Any

import torch

from bspml.shapes import Float, Tensor
from bspml.tensors.checks import check_embeddings, check_number
from bspml.tensors.precision import full_precision
from bspml.tensors.unit_rows import unit_rows


@full_precision()
def whiten_embeddings(embeddings: Any, shrink: float = 0.3) -> Float[Tensor, "N D"]:
    """Centre, normalise, and divide each principal direction by sqrt(variance + shrink * mean).

    x -> V diag(l + shrink mean(l))^(-1/2) V' (x - m) / |x - m|,  V diag(l) V' the second moment of
    the centred, normalised rows.  A large `shrink` leaves only the centring.

    For embeddings trained on these classes it is not needed and may cost a little.

    Args:
        embeddings: (N, D), rows normalised here first; rows of norm 0 stay 0.
        shrink: in (0, inf), share of the mean variance added to every direction.

    Returns:
        (N, D), float64 if `embeddings` is, else float32; not normalised.
    """
    shrink = check_number(shrink, "shrink", 0, open_low=True)
    rows = unit_rows(check_embeddings(embeddings))
    empty = (rows == 0).all(1, keepdim=True)
    mean = rows.sum(0) / (~empty).sum().clamp_min(1)
    rows = unit_rows(torch.where(empty, 0, rows - mean))
    moment = (rows.T @ rows).double() / len(rows)  # (D, D)
    variance, directions = torch.linalg.eigh(moment)
    # Clamped: rounding makes null directions slightly negative.
    scale = (variance.clamp_min(0) + shrink * variance.mean()).rsqrt()
    if not torch.isfinite(scale).all():  # all rows equal: nothing to even out
        return rows
    return rows @ ((directions * scale) @ directions.T).to(rows.dtype)
