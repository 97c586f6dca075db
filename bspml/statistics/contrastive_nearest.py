"""The references most similar to each row, kept while a pass over all similarities goes by.

What a pass sees are rounded similarities, so these are candidates: `Candidates` says how far off a
similarity is at most, and whoever needs the nearest exactly settles their order anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bspml.tensors.largest import Largest

_EXPONENTIAL = 8.0  # relative error of an exponential, in units of its rounding


class Candidates(NamedTuple):
    """The k references most similar to each sample, the sample itself left out.

    Attributes:
        similarities: (N, k) float64, descending, rounded; -inf where there is no further reference.
        rows: (N, k) int64 their sample indices, -1 likewise.
        error: how far a similarity is at most from the product of the rows, each normalised
            exactly.  So a sample that is not listed is at most as similar as the last that is, plus
            twice this.

    Example:
        >>> from bspml.statistics.contrastive import contrastive_tables
        >>> rows = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
        >>> found = contrastive_tables(rows, [0, 1, 1], candidates=1).candidates
        >>> found.rows.tolist(), found.similarities.round(3).tolist()
        ([[1], [2], [1]], [[0.6], [0.8], [0.8]])
    """

    similarities: np.ndarray
    rows: np.ndarray
    error: float


def candidates_of(kept: Largest, a: float, dims: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return similarities, places and the error as `Candidates` has them.

    Args:
        kept: the largest exponentials exp(a S) of each row.
        a: theirs.
        dims: D of the products.
    """
    values, places = kept.descending()
    with np.errstate(divide="ignore"):
        similarities = np.log(values.astype(np.float64)) / a
    # Of the product, whose terms' sizes add up to at most 1, and of two norms, in any order of
    # the sums; of scaling; of the exponential, whose relative error is a times a similarity's.
    unit = float(np.finfo(values.dtype).eps) / 2
    return similarities, places, 1.01 * unit * (2 * dims + 16 + _EXPONENTIAL / a)
