"""The two halves of a cross-fitted warm-up."""

from __future__ import annotations

import numpy as np
import torch

from bspml.shapes import Bool, Int, Tensor
from bspml.weights.problem import by_first_appearance


def random_half(
    codes: Int[Tensor, " N"], seed: int, group: Int[Tensor, " N"] | None = None
) -> Bool[Tensor, " N"]:
    """Return a random half of every class, so that each class can be judged by the other.

    Classes and groups are taken in the order of their first samples, whatever their numbers.

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
        number = by_first_appearance(group.numpy())
        first = np.unique(number, return_index=True)[1]
        return random_half(codes[first], seed)[number]
    generator = torch.Generator().manual_seed(seed)
    keys = torch.rand(len(codes), generator=generator, dtype=torch.float64, device="cpu")
    by_class = torch.from_numpy(by_first_appearance(codes.numpy()))
    order = torch.argsort(by_class + keys)  # at random within a class
    # Alternating along the whole order balances odd classes against each other.
    half = torch.zeros_like(codes, dtype=torch.bool)
    half[order[::2]] = True
    return half
