"""Which samples tell the label model, the shrinkage and the rounds, and which stand for a class."""

from __future__ import annotations

import numpy as np
import torch

from bspml.shapes import Tensor
from bspml.statistics.contrastive import JudgingTask

_FIT_VALUES = 1 << 21  # of a table that the model is fitted to
_FEWEST_FITTED = 1500
_FEW_ROWS = 2000  # by which the shrinkage and the rounds are chosen, at most
_FEW_VALUES = 1 << 19  # of a table of these
_FEWEST_OF_CLASS = 4  # references that are left of a class


def thinned(task: JudgingTask, most: int) -> Tensor:
    """Return (N,) the weights of some references of every class, evenly taken; 0 for the others.

    Args:
        task: the references.
        most: of them, but for four of each class.
    """
    codes, classes = task.labels.codes.numpy(), len(task.labels.classes)
    kept = np.flatnonzero(task.weights.numpy() > 0)
    kept = kept[np.argsort(codes[kept], kind="stable")]
    sizes = np.bincount(codes[kept], minlength=classes)
    size = sizes[codes[kept]]
    rank = np.arange(len(kept)) - (np.cumsum(sizes) - sizes)[codes[kept]]
    share = np.minimum(max(_FEWEST_OF_CLASS, most // classes), size)
    chosen = kept[(rank + 1) * share // size > rank * share // size]
    left = torch.zeros_like(task.weights)
    left[chosen] = task.weights[chosen]
    return left


def few_rows(classes: int) -> int:
    """Return how many rows choose the shrinkage, and whether another round helps.

    Example:
        >>> few_rows(10), few_rows(4000)
        (2000, 500)
    """
    return max(_FEWEST_FITTED // 3, min(_FEW_ROWS, _FEW_VALUES // classes))


def sample_to_fit(codes: np.ndarray, judged: np.ndarray, classes: int) -> np.ndarray:
    """Return rows to fit to, spread evenly over the classes, so that no class is without.

    Args:
        codes: (M,) their classes.
        judged: (M,) rows.
        classes: C.
    """
    count = max(_FEWEST_FITTED, _FIT_VALUES // classes)
    return evenly(judged[np.argsort(codes, kind="stable")], count)


def evenly(rows: np.ndarray, count: int) -> np.ndarray:
    """Return `count` of the rows, at equal steps.

    Args:
        rows: (M,), all of them if no more.
        count: at least 2.

    Example:
        >>> evenly(np.arange(9), 3)
        array([0, 4, 8])
    """
    if len(rows) <= count:
        return rows
    return rows[np.linspace(0, len(rows) - 1, count).round().astype(int)]
