"""Groups of more near copies than neighbours are known: a scene of many frames, a placeholder.

All known neighbours of each member are members, so the group is a component of the neighbours'
graph that no link leaves.  What is outside is searched for from its first member: with r the
largest distance from this one inside, and R the least one outside,

    (2 r)^2 <= bound (R - r)^2        distances of any two inside, and of any one to the outside

A class is such a group as well: one that holds a third of its commonest label is left, as among
smaller groups (`bursts`).
"""

from __future__ import annotations

import numpy as np
import torch

from bspml.shapes import Float, Tensor
from bspml.statistics.copies.bursts import LARGEST_RATIO_MANY
from bspml.statistics.copies.nearest import Nearest
from bspml.tensors.copies import linked


def find_crowds(near: Nearest, codes: np.ndarray, rows: Float[Tensor, "N D"]) -> list[np.ndarray]:
    """Return the groups that are far from all others, all known neighbours of which are inside.

    Args:
        near: of N distinct rows.
        codes: (N,) int64 labels.
        rows: from `bspml.tensors.unit_rows.grid_unit_rows`.

    Returns:
        int64 members of each group, ascending.

    Example:
        >>> from bspml.statistics.copies.nearest import nearest_rows
        >>> from bspml.tensors.unit_rows import grid_unit_rows
        >>> x = torch.randn(400, 8, generator=torch.Generator().manual_seed(0))
        >>> x[:40] = x[0] + 0.001 * x[:40]
        >>> rows = grid_unit_rows(x)
        >>> [len(g) for g in find_crowds(nearest_rows(rows, 30), np.arange(400) % 10, rows)]
        [40]
    """
    n, k = near.places.shape
    centre = rows.double().mean(0)
    apart = 2 * float(rows.double().square().sum(1).mean() - centre.square().sum())
    tight = near.squared[:, -1] <= LARGEST_RATIO_MANY * apart
    own = np.flatnonzero(tight)
    places = near.places[own]
    number = linked(np.repeat(own, k), places.reshape(-1), n)
    sizes, loose = np.bincount(number), np.bincount(number, ~tight)
    size_of_label = np.bincount(codes)
    groups = []
    for component in np.flatnonzero((sizes > k) & (loose == 0)):
        members = np.flatnonzero(number == component)
        labels = np.bincount(codes[members])
        if 3 * labels.max() < size_of_label[labels.argmax()] and _is_far(rows, members):
            groups.append(members)
    return groups


def _is_far(rows: Tensor, members: np.ndarray) -> bool:
    """Whether the members lie near each other compared with all other rows."""
    if len(members) == len(rows):
        return False
    first = rows[members[0]]
    r = float((rows[members].double() - first).square().sum(1).max()) ** 0.5
    squared = 2 - 2 * (rows @ first).double()  # of unit rows; far ones need no more digits
    squared[members] = torch.inf
    outside = max(0.0, float(squared.min())) ** 0.5
    return 2 * r <= LARGEST_RATIO_MANY**0.5 * (outside - r)
