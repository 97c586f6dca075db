"""Of one picture's labels one at most is right: what is known of each, given the others.

A picture that stands in the data under k different labels has k - 1 wrong ones at least.  Judged
one by one the labels may all seem to fit, as they do where nothing else in the data is wrong.  With
r_j the log odds that label j is right, given what the picture shows and that label alone,

    P(j is right) = exp(r_j) / (1 + sum_l exp(r_l))        the 1 stands for none of them

so that the chances of being wrong sum to k - 1 or more.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Judged(NamedTuple):
    """What is known of M labels.

    Attributes:
        wrong: (M,) the probability that the label is wrong; NaN where it cannot be judged.
        other: (M,) int64, the class that is most probably right if the label is not.
        other_probability: (M,) the probability that this class is the right one.
    """

    wrong: np.ndarray
    other: np.ndarray
    other_probability: np.ndarray


def one_right(judged: Judged, odds: np.ndarray, codes: np.ndarray, picture: np.ndarray) -> Judged:
    """Return the same, where labels of one picture know of each other.

    Args:
        judged: each label by itself.
        odds: (M,) log odds that it is wrong.
        codes: (M,) int64 labels, different ones within a picture.
        picture: (M,) int64, which labels are of one picture; most have one of their own.

    Returns:
        As given for pictures under one label.  Elsewhere the picture's best other label is
        suggested, where no other class is more probable.

    Example:
        >>> alone = Judged(np.array([0.2, 0.2]), np.array([3, 3]), np.array([0.1, 0.1]))
        >>> both = one_right(alone, -np.log([4.0, 4.0]), np.array([0, 1]), np.array([7, 7]))
        >>> both.wrong.round(2).tolist(), both.other.tolist()
        ([0.56, 0.56], [1, 0])
    """
    places = np.flatnonzero((np.bincount(picture)[picture] > 1) & ~np.isnan(judged.wrong))
    if not len(places):
        return judged
    own = np.unique(picture[places], return_inverse=True)[1].reshape(-1)
    # Sorted by picture, the best label first.
    order = np.lexsort((odds[places], own))
    places, own = places[order], own[order]
    starts = np.flatnonzero(np.diff(own, prepend=-1))
    r = -odds[places]
    top = np.maximum(r[starts], 0.0)
    share = np.exp(r - top[own])
    right = share / (np.add.reduceat(share, starts) + np.exp(-top))[own]
    # The best of the others: the first, and for that one the second, if there is one.
    best = starts[own]
    best = np.where(best == np.arange(len(own)), np.minimum(best + 1, len(own) - 1), best)
    beside = np.where(own[best] == own, right[best], 0.0)
    wrong, other, probability = (values.copy() for values in judged)
    wrong[places] = 1 - right
    before = judged.wrong[places]
    times = np.divide(wrong[places], before, out=np.zeros(len(places)), where=before > 0)
    elsewhere = probability[places] * times
    sibling = beside > elsewhere
    other[places] = np.where(sibling, codes[places][best], other[places])
    probability[places] = np.where(sibling, beside, np.minimum(elsewhere, wrong[places]))
    return Judged(wrong, other, probability)
