"""Groups of up to thirty samples far from all others: twins, bursts, frames of one scene.

However many samples have copies, a group of n is told by a gap: each of its samples has the others
as its n - 1 nearest, the largest distance inside is small beside the least one to the outside,

    rho = max inside / min outside   (squared distances)

and nothing about the rest of the data is asked, where a copy may be as usual as you like.  In
local dimension m, distances grow like volume (`duplicates` says more): given the n-th neighbour
of a sample, the n - 1 nearer ones are uniform in its ball, so by chance

    v = rho^((n - 1) m / 2)   has   P(v <= x) <= x,

and at most about N x groups have v <= x.  m / 2 is Hill's estimate from the neighbours beyond
the tenth, which of a larger group are its own: v is then far below any bound, and rho decides.
Groups are kept while N v is at most `_FALSE_SHARE` of them.

A small class is such a group too, and so is a cluster inside a class that nobody named.  Against
the first, a group of n is none where its commonest label has fewer than 1.5 n + 1 samples, some of
them strays with wrong labels; unless its own labels disagree more than wrong ones do, like those
of a "no image" picture.  Beyond eleven, where classes are as large, it is none either if it holds a
third of its commonest label.  Against the second, rho is bounded, beyond eleven more tightly:
Gaussian clusters that share a label are taken for bursts where their centres lie some eight times
further apart than their samples do.  One limit is left: a class of three scenes or fewer of more
than eleven frames each looks like clusters; groups of more than thirty, of which nothing outside is
among the neighbours known, are left to `crowds`.  Ours, not from a paper.
"""

from __future__ import annotations

import numpy as np

from bspml.statistics.copies.nearest import Nearest

_MOST = 10  # copies of a sample
_FALSE_SHARE = 0.05
_PRIOR = 10.0  # neighbours' worth of the median dimension in each local one
# Clusters that nobody named, of well separated classes, reach .1 and those of two samples .3.  Of
# large groups nothing but this bound tells clusters from bursts, which are below .015.
_LARGEST_RATIO_PAIR, _LARGEST_RATIO, LARGEST_RATIO_MANY = 0.3, 0.1, 0.03


def find_bursts(near: Nearest, codes: np.ndarray) -> list[np.ndarray]:
    """Return the groups of samples that are far nearer to each other than to all others.

    Args:
        near: of N distinct rows, ten neighbours at least.
        codes: (N,) int64 labels.

    Returns:
        int64 members of each group, ascending; a group can lie inside another.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.standard_normal((40, 5))
        >>> x[1] = x[0] + 0.001
        >>> squared = ((x[:, None] - x) ** 2).sum(2) + np.diag([np.inf] * 40)
        >>> near = Nearest(np.argsort(squared, 1)[:, :30], np.sort(squared, 1)[:, :30])
        >>> find_bursts(near, np.zeros(40, np.int64))
        [array([0, 1])]
    """
    known = near.places.shape[1]
    most = min(_MOST, known // 3)
    inverse = _inverse_dimension(near.squared, most + 1)
    class_size = np.bincount(codes, minlength=1)[codes]
    groups, volumes = [], []
    for copies in range(1, known if known > 2 * _MOST else most + 1):
        bound = _LARGEST_RATIO if copies <= _MOST else LARGEST_RATIO_MANY
        bound = _LARGEST_RATIO_PAIR if copies == 1 else bound
        own = near.squared[:, copies - 1] <= bound * near.squared[:, copies]
        members = _isolated(near.places, copies, np.flatnonzero(own))
        inside = near.squared[members, copies - 1].max(1)
        outside = near.squared[members, copies].min(1)
        is_near = (inside <= bound * outside) & ~_is_class(codes[members], class_size[members])
        ratio = inside[is_near] / outside[is_near]
        groups += list(members[is_near])
        volumes.append(ratio ** (copies / inverse[members[is_near]].mean(1)))
    v = np.concatenate(volumes)
    ordered = np.sort(v)
    enough = np.flatnonzero(len(codes) * ordered <= _FALSE_SHARE * np.arange(1, len(v) + 1))
    largest = ordered[enough[-1]] if len(enough) else -1.0
    return [group for group, volume in zip(groups, v, strict=True) if volume <= largest]


def _isolated(places: np.ndarray, copies: int, rows: np.ndarray) -> np.ndarray:
    """(G, copies + 1) groups of `rows` whose members all have each other as `copies` nearest."""
    group = np.sort(np.concatenate([rows[:, None], places[rows, :copies]], 1), 1)
    found, times = np.unique(group, axis=0, return_counts=True)
    return found[times == copies + 1]


def _is_class(labels: np.ndarray, class_size: np.ndarray) -> np.ndarray:
    """Which groups (G, n) may be a class of the data instead, (G,) bool."""
    n = labels.shape[1]
    agreeing = (labels[:, :, None] == labels[:, None]).sum(2)  # (G, n)
    most = agreeing.max(1)
    size = np.where(agreeing == most[:, None], class_size, class_size.max(initial=0)).min(1)
    small = (2 * size < 3 * n + 2) & ((n < 6) | (3 * most >= n))
    return small | (3 * most >= size) if n > _MOST + 1 else small


def _inverse_dimension(squared: np.ndarray, start: int) -> np.ndarray:
    """(N,) 2 / m of each sample, from the neighbours `start` (1 the nearest) and beyond.

    The spacings  s log(delta_(s+1) / delta_s)  are exponential with mean 2 / m; their mean without
    the two largest, where classes may end, over what that is for mean 1.
    """
    tiny = np.finfo(np.float64).tiny
    logs = np.log(np.maximum(squared[:, start - 1 :], tiny))
    spacings = np.sort(np.diff(logs, axis=1) * np.arange(start, squared.shape[1]), 1)
    n = spacings.shape[1]
    two_largest = 2 * (1 / np.arange(1, n + 1)).sum() - 1  # expected sum, of mean 1
    inverse = spacings[:, :-2].sum(1) / (n - two_largest)
    return np.maximum((inverse * n + np.median(inverse) * _PRIOR) / (n + _PRIOR), tiny)
