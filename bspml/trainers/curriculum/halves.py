"""The two halves of a cross-fitted warm-up."""

from __future__ import annotations

import numpy as np
import torch

from bspml.shapes import Bool, Int, Tensor


def random_half(
    codes: Int[Tensor, " N"], seed: int, group: Int[Tensor, " N"] | None = None
) -> Bool[Tensor, " N"]:
    """Return a random half of every class, so that each class can be judged by the other.

    Args:
        codes: (N,) classes.
        seed: of the choice.
        group: (N,) int64 from 0, equal for samples that must be in one half, such as copies.

    Example:
        >>> half = random_half(torch.tensor([0, 0, 1, 1, 1, 1]), seed=0)
        >>> int(half[:2].sum()), int(half[2:].sum())
        (1, 2)
    """
    if group is not None:
        _, first, place = np.unique(group.numpy(), return_index=True, return_inverse=True)
        return random_half(codes[first], seed)[place.reshape(-1)]
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(len(codes), generator=generator, dtype=torch.float64)
    order = torch.argsort(codes + keys)  # by class, at random within it
    # Alternating along the whole order balances odd classes against each other.
    half = torch.zeros(len(codes), dtype=torch.bool)
    half[order[::2]] = True
    return half
