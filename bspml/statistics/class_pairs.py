"""All pairs within classes: sums that need a sample's own class only.

The samples are sorted by class and small classes share a block, so that the products are large
enough to run at full speed.  The cost is sum_c N_c max(N_c, `_TOGETHER`) D: linear in N while
classes stay small, quadratic for one class that holds everything.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from bspml.shapes import Float, Int, Tensor

_TOGETHER = 256  # samples of small classes to a block
_WIDE = 2048  # a larger class is cut into blocks of this many rows and columns


def class_blocks(
    unit_rows: Float[Tensor, "N D"], codes: Int[Tensor, " N"]
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Yield every pair of two different samples of one class, once in each direction.

    Args:
        unit_rows: (N, D).
        codes: (N,) class of each, on any device.

    Yields:
        (rows, columns, S, pair): sample indices (b,) and (k,), their similarities (b, k), and the
        mask (b, k) of the pairs that are of one class and not of a sample with itself.
    """
    order = torch.argsort(codes, stable=True)
    ends = torch.bincount(codes).cumsum(0)
    ends = ends.unique().tolist()  # empty classes repeat the end before them
    first = start = 0
    for end in ends:
        if end - first >= _TOGETHER or end == len(codes):
            # Everything up to `start` is small classes; from there to `end` may be one large class.
            for low, high in ((first, start), (start, end)):
                if low < high:
                    yield from _blocks(unit_rows, codes, order[low:high])
            first = end
        start = end


def _blocks(
    unit_rows: Tensor, codes: Tensor, samples: Tensor
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    for rows in samples.split(_WIDE):
        left, left_codes = unit_rows[rows], codes[rows, None]
        for columns in samples.split(_WIDE):
            S = left @ unit_rows[columns].T  # (b, k)
            pair = (left_codes == codes[columns]) & (rows[:, None] != columns)
            yield rows, columns, S, pair
