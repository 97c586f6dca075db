"""Whom each class is taken for: by distance, and as the labels show.

Of the labels of class y that are confused, a share Q(y, z) says z.  Until wrong labels are seen it
is one by distance, S(y, z) ~ exp(-Delta(y, z) / tau); then

    Q_i(y, z) = (n(y, z) - a_i(y) + strength S(y, z)) / (n(y) - a_i(y) + strength)

with n(y, z) the expected number of labels z that are wrong and whose samples show y, n(y) its sum
over z, and a_i what label i itself adds to them: the posterior mean of a multinomial under a
Dirichlet prior of `STRENGTH` labels, each label left out of its own.  Every wrong label is counted,
a random one, too: were only those counted that no chance explains, two labels of one pair would
vouch for each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

STRENGTH = 2.0  # of the shares by distance, in labels: a power of 2 leaves their digits alone

_FEWEST_RANDOM = 0.01  # share of random errors under which labels are counted, so that some are
_STEPS = 6  # halving, towards what a label adds to the counts
_LEAST = 2.0**-120


class Pairs(NamedTuple):
    """Whom each class is taken for: E pairs (y, z), sorted by z.

    Attributes:
        starts: (C + 1,) int64, the first pair of each z.
        sources: (E,) int64, y.
        shares: (E,) S(y, z): over all z of a y they sum to 1.
        beyond: (E,) by how much Delta / tau exceeds its mean under S, over the same pairs.
        counts: (E,) n(y, z).
        totals: (C,) n(y).
    """

    starts: np.ndarray
    sources: np.ndarray
    shares: np.ndarray
    beyond: np.ndarray
    counts: np.ndarray
    totals: np.ndarray


class Confusions(NamedTuple):
    """Whom each class may be taken for: E pairs (y, z), sorted by z.

    Attributes:
        starts: (C + 1,) first pair of each z.
        sources: (E,) y.
        distances: (E,) Delta(y, z), at least 0; each y has one that is 0.  Infinite for a pair that
            is there only because labels of it were seen.
        counts: (E,) n(y, z), the expected number of labels seen to be wrong this way; 0 at first.
        unit: how far the third nearest class is, in the middle of all classes.
    """

    starts: np.ndarray
    sources: np.ndarray
    distances: np.ndarray
    counts: np.ndarray
    unit: float

    @classmethod
    def of(cls, nearest: np.ndarray, distances: np.ndarray) -> Confusions:
        """Turn each class's list of nearest others around.

        Args:
            nearest: (C, J) class numbers.
            distances: (C, J) at least 0, infinite for a class that nothing is taken for.

        Example:
            >>> pairs = Confusions.of(np.array([[1], [0]]), np.zeros((2, 1)))
            >>> pairs.starts, pairs.sources
            (array([0, 1, 2]), array([1, 0]))
        """
        classes = len(nearest)
        third = distances[:, min(2, distances.shape[1] - 1)]
        third = third[np.isfinite(third)]
        unit = (float(np.median(third)) if len(third) else 0.0) or 1.0
        sources = np.repeat(np.arange(classes), nearest.shape[1])
        targets, distances = nearest.ravel(), distances.ravel()
        kept = np.isfinite(distances)
        order = np.argsort(targets[kept], kind="stable")
        counts = np.bincount(targets[kept], minlength=classes)
        starts = np.concatenate([[0], np.cumsum(counts)])
        none = np.zeros(len(order))
        return cls(starts, sources[kept][order], distances[kept][order], none, unit)

    @property
    def targets(self) -> np.ndarray:
        """(E,) z."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def joined(self, sources: np.ndarray, targets: np.ndarray, counts: np.ndarray) -> Confusions:
        """Return these with further pairs, and counts for those alone.

        Args:
            sources: (F,) y.
            targets: (F,) z.
            counts: (F,) n(y, z).

        Example:
            >>> pairs = Confusions.of(np.array([[1], [0], [0]]), np.zeros((3, 1)))
            >>> seen = pairs.joined(np.array([0, 0]), np.array([1, 2]), np.array([3.0, 4.0]))
            >>> seen.sources, seen.distances, seen.counts
            (array([1, 2, 0, 0]), array([ 0.,  0.,  0., inf]), array([0., 0., 3., 4.]))
        """
        classes = len(self.starts) - 1
        mine = self.targets * classes + self.sources
        keys, place = np.unique(
            np.concatenate([mine, targets * classes + sources]), return_inverse=True
        )
        distances, all_counts = np.full(len(keys), np.inf), np.zeros(len(keys))
        distances[place[: len(mine)]] = self.distances
        all_counts[place[len(mine) :]] = counts
        starts = np.searchsorted(keys, np.arange(classes + 1) * classes)
        return Confusions(starts, keys % classes, distances, all_counts, self.unit)

    def pairs(self, tau: float) -> Pairs:
        """Return the pairs with their shares by distance.

        Args:
            tau: how far confusions reach, in units of the distances.
        """
        classes = len(self.starts) - 1
        shares, beyond = pair_shares(self.sources, self.distances, tau, classes)
        totals = np.bincount(self.sources, self.counts, classes)
        return Pairs(self.starts, self.sources, shares, beyond, self.counts, totals)


def nobody(num_classes: int) -> Confusions:
    """Return the confusions of classes that are taken for none other.

    Args:
        num_classes: C.

    Example:
        >>> nobody(2).starts
        array([0, 0, 0])
    """
    none = np.zeros(0)
    return Confusions(np.zeros(num_classes + 1, int), np.zeros(0, int), none, none, 1.0)


def pair_shares(
    sources: np.ndarray, distances: np.ndarray, tau: float, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return (E,) Q ~ exp(-distance / tau), which sums to 1 over the pairs of a source.

    And (E,) by how much distance / tau exceeds its mean under Q, over the same pairs.

    Args:
        sources: (E,) int64 y.
        distances: (E,) at least 0, of which each source has one that is 0.
        tau: above 0.
        num_classes: C.

    Example:
        >>> pair_shares(np.array([0, 0]), np.array([0.0, np.log(3)]), 1.0, 1)[0]
        array([0.75, 0.25])
    """
    beyond = np.minimum(distances / tau, 700.0)
    shares = np.exp(-beyond)
    shares /= np.bincount(sources, shares, num_classes)[sources]
    beyond -= np.bincount(sources, shares * beyond, num_classes)[sources]
    return shares, beyond


@numba.njit(cache=True, nogil=True)
def taken_for(count, total, share, less):
    """Return Q_i(y, z) of n(y, z), n(y), S(y, z) and a_i(y).

    Example:
        >>> taken_for(0.0, 6.0, 0.5, 0.0), taken_for(3.0, 6.0, 0.5, 2.0)
        (0.125, 0.3333333333333333)
    """
    return (count - less + STRENGTH * share) / (total - less + STRENGTH)


@numba.njit(cache=True, nogil=True)
def adds(of_label, pairs, shown, whole, right, errors, added):
    """Find what a label adds to the counts: the probability that it is wrong and shows y.

    Args:
        of_label: its first pair and the one after its last.
        pairs: see `Pairs`.
        shown: (C,) p times `whole`.
        whole: their sum.
        right: (1 - u - k) p(z).
        errors: u, k and C.
        added: is filled, one entry for each pair.
    """
    (first, last), (_, sources, taken, _, counts, totals) = of_label, pairs
    u, k, classes = errors
    even = u / classes
    counted = max(u, _FEWEST_RANDOM) / classes
    for j in range(last - first):
        added[j] = 0.0
    for _ in range(_STEPS):
        likely = right + even
        for j in range(last - first):
            e, y = first + j, sources[first + j]
            less = min(added[j], counts[e])
            likely += k * shown[y] / whole * taken_for(counts[e], totals[y], taken[e], less)
        likely = max(likely, _LEAST)
        for j in range(last - first):
            e, y = first + j, sources[first + j]
            q = taken_for(counts[e], totals[y], taken[e], min(added[j], counts[e]))
            new = shown[y] / whole * (counted + k * q) / likely
            added[j] = (added[j] + min(new, 1.0)) / 2


@numba.njit(cache=True, nogil=True)
def sums_of_pairs(added, codes, starts):
    """Return (E,) n(y, z), the sum over the labels of what each adds.

    Args:
        added: as `added_counts` returns it.
        codes: (M,) labels z.
        starts: (C + 1,) of the pairs.

    Example:
        >>> sums_of_pairs(np.array([0.5, 1.0]), np.array([1, 1]), np.array([0, 0, 1]))
        array([1.5])
    """
    counts, at = np.zeros(starts[-1]), 0
    for z in codes:
        for e in range(starts[z], starts[z + 1]):
            counts[e] += added[at]
            at += 1
    return counts
