"""How far a number on the test classes would move, had other classes of the kind been tested."""

from __future__ import annotations

import math

import numpy as np

from bspml.shapes import Float, Int, Tensor

DRAWS = 1000
LEVEL = 0.95
_AT_ONCE = 2**21  # classes drawn before they are summed: 16 MB an index, 48 MB two values


def class_intervals(
    values: Float[Tensor, "Q S"], codes: Int[Tensor, " Q"], seed: int = 0
) -> tuple[tuple[float, float], ...]:
    """Estimate 95 % intervals of means over queries, by drawing the classes anew.

    Queries of one class succeed and fail together, so not they are drawn but classes, as many as
    there are, with replacement, each with all its queries (the cluster bootstrap).  Of the means
    in 1,000 such draws the interval is from the 2.5 % to the 97.5 % quantile.  The neighbours of
    a query stay those of the whole gallery, and the network is one: what another seed of the
    training would change is not in it, nor what other classes beside it in the gallery would.  So
    intervals are somewhat narrow, the more so the fewer classes there are: docs/evaluate.md says
    how often they hold.  The order of the rows and the names of the classes move no end.

    Args:
        values: (Q, S) numbers of each query.
        codes: (Q,) its class, any integers.
        seed: of the draws.

    Returns:
        S pairs (low, high); NaN for fewer than two classes, which say nothing about others.

    Example:
        >>> import torch
        >>> hits = torch.tensor([[1.0], [1.0], [0.0], [1.0], [0.0], [0.0]])
        >>> class_intervals(hits, torch.tensor([0, 0, 1, 1, 2, 2]))
        ((0.0, 1.0),)
    """
    classes, place = np.unique(codes.cpu().numpy(), return_inverse=True)
    number, count = values.shape[1], len(classes)
    if count < 2:
        return ((math.nan, math.nan),) * number
    # Sums of each class, and last how many queries it has.
    sums = np.zeros((count, number + 1))
    np.add.at(sums, place, np.c_[values.cpu().double().numpy(), np.ones(len(place))])
    # By what the classes are, not by their names; rounded, for sums depend on the order of rows.
    sums = sums[np.lexsort((*sums[:, :-1].round(9).T, sums[:, -1]))]
    draw = np.random.default_rng(seed)
    means = []
    step = max(1, _AT_ONCE // count)
    for start in range(0, DRAWS, step):
        drawn = draw.integers(count, size=(min(step, DRAWS - start), count))
        totals = np.stack([column[drawn].sum(1) for column in sums.T], 1)
        means.append(totals[:, :-1] / totals[:, -1:])
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail], axis=0)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))
