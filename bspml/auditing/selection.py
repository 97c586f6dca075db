"""Which labels to flag: those more likely wrong than right, the n most suspect, or a precision."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bspml.errors import InputError
from bspml.tensors.checks import check_number, check_whole


class Selection(NamedTuple):
    """Labels chosen to look at.

    Attributes:
        rows: (n,) int64 samples, the most suspect first.
        wrong: how many of them are expected to be wrong.
        right: how many are expected to be right after all.
    """

    rows: np.ndarray
    wrong: float
    right: float


def choose(
    order: np.ndarray,
    wrong_probability: np.ndarray,
    flagged: np.ndarray,
    n: int | None,
    precision: float | None,
) -> Selection:
    """Choose labels by number or precision, or those flagged.

    Args:
        order: (M,) samples that can be chosen, the most suspect first.
        wrong_probability: (N,) of all samples.
        flagged: (N,) bool, what is chosen without a number.
        n: so many, at most M.
        precision: as many of the most suspect as are wrong with this mean probability, in (0, 1].

    Raises:
        InputError: both, or a number outside its range.

    Example:
        >>> chances = np.array([0.9, 0.2, 0.6])
        >>> choose(np.array([0, 2, 1]), chances, chances > 0.5, None, 0.7)
        Selection(rows=array([0, 2]), wrong=1.5, right=0.5)
    """
    if n is not None and precision is not None:
        raise InputError(
            f"`select` takes `n` or `precision`; got n={n!r} and precision={precision!r}. Pass one "
            "of them."
        )
    if n is not None:
        rows = order[: check_whole(n, "n", 0)]
    elif precision is not None:
        precision = check_number(precision, "precision", 0, 1, open_low=True)
        mean = np.cumsum(wrong_probability[order]) / np.arange(1, len(order) + 1)
        rows = order[: int((mean >= precision).sum())]  # the mean falls
    else:
        rows = order[flagged[order]]
    wrong = float(wrong_probability[rows].sum())
    return Selection(rows, wrong, len(rows) - wrong)
