"""The labels' own share of errors, told from the judges': on samples whose class is sure.

And the share of wrong labels among those kept.  See `bspml.statistics.label_model`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bspml.statistics.label_likelihood import LEAST

SURE = 0.95  # mean largest p of the samples from which the labels' own errors are told
SURE_OF_FEW = 0.995  # the same for classes of few references
FEWEST_SURE = 0.1  # of all samples; fewer and the judges' errors cannot be told from the labels'
FEWEST_MATES = 8.0  # references a class below which it has few
_FEW_CLASSES = 3
BLAMED = 0.25  # of k, taken for the labels' errors where they cannot be told

_ALIKE = 1e-3  # of probabilities, more than the order of the samples changes in a fit

_EM_STEPS = 200
_AT_ZERO = 1e-4
_NORMAL = 1.96


def widened(
    interval: tuple[float, float], by_null: tuple[float, float], sizes: np.ndarray
) -> tuple[float, float]:
    """Return the interval of a rate, with that of the null where the judges know too little.

    Few references, or classes, tell the judges little; of random errors the null tells more.

    Args:
        interval: of the label model's rate.
        by_null: of the rate of random errors.
        sizes: (C,) references of each class that has some.

    Example:
        >>> widened((0.1, 0.2), (0.0, 0.3), np.array([20, 20])), widened((0, 1), (0, 2), np.ones(9))
        ((0.0, 0.3), (0, 2))
    """
    if sizes.mean() >= FEWEST_MATES and len(sizes) > _FEW_CLASSES:
        return interval
    return min(interval[0], by_null[0]), max(interval[1], by_null[1])


def surest(largest: np.ndarray, mean: float) -> np.ndarray:
    """Return (M,) bool: as many of the surest samples as have this mean largest p.

    Args:
        largest: (M,) the largest p of each.
        mean: in (0, 1).

    Example:
        >>> surest(np.array([0.5, 1.0, 0.92, 0.93]), 0.95).tolist()
        [False, True, True, True]
    """
    order = np.argsort(-largest, kind="stable")
    means = np.cumsum(largest[order]) / np.arange(1, len(order) + 1)
    count = int((means >= mean).sum())  # the mean falls
    sure = np.zeros(len(largest), dtype=bool)
    if count:
        sure[largest >= largest[order[count - 1]]] = True
    return sure


def error_rate(u: float, k: float, num_classes: int) -> float:
    """Return the share of wrong labels: a random one may hit the right class.

    Args:
        u: share of labels drawn at random.
        k: share of confused labels.
        num_classes: C.

    Example:
        >>> error_rate(0.2, 0.1, 10)
        0.28
    """
    return u * (1 - 1 / num_classes) + k


@dataclass(frozen=True)
class Mixture:
    """A mixture of three known parts: (1 - u - k) own + u / C + k g, with shares to be found."""

    own: np.ndarray  # (M,) p(z)
    g: np.ndarray  # (M,)
    codes: np.ndarray  # (M,)
    num_classes: int

    def __getitem__(self, some: np.ndarray) -> Mixture:
        return Mixture(self.own[some], self.g[some], self.codes[some], self.num_classes)

    def likelihood(self, u: float, k: float) -> np.ndarray:
        """Return (M,) the probability of each label.

        Args:
            u: share of labels drawn at random.
            k: share of confused labels.
        """
        mixed = (1 - u - k) * self.own + u / self.num_classes + k * self.g
        return np.maximum(mixed, LEAST)

    def shares(self, u: float, k: float) -> tuple[float, float]:
        """Find u and k by expectation-maximisation, from those given."""
        u, k = max(u, 0.02), max(k, 0.02)
        u, k = (share * min(1.0, 0.98 / (u + k)) for share in (u, k))  # some labels are right
        for _ in range(_EM_STEPS):
            likelihood, before = self.likelihood(u, k), u + k
            u = float((u / self.num_classes / likelihood).mean())
            k = float((k * self.g / likelihood).mean())
            if abs(u + k - before) < 1e-7:
                break
        return u, k

    def rate(self, u: float, k: float) -> float:
        """Return the share of wrong labels.

        Args:
            u: share of labels drawn at random.
            k: share of confused labels.
        """
        return error_rate(u, k, self.num_classes)

    def deviation(self, u: float, k: float, with_k: bool = True) -> float:
        """Standard error of the rate, or of its random part.

        The larger of that of independent labels and that of classes whose labels err together
        (sandwich variance); a share at 0 stays there.
        """
        parts = np.array([u > _AT_ZERO, with_k and k > _AT_ZERO])
        if not parts.any():
            return 0.0
        scores = np.stack([1 / self.num_classes - self.own, self.g - self.own], 1)[:, parts]
        scores /= self.likelihood(u, k)[:, None]
        weight = np.array([1 - 1 / self.num_classes, 1.0])[parts]
        bread = np.linalg.pinv(scores.T @ scores)
        by_class = np.zeros((1 + self.codes.max(), scores.shape[1]))
        np.add.at(by_class, self.codes, scores)
        present = max(2, len(np.unique(self.codes)))
        clustered = bread @ (by_class.T @ by_class) @ bread * present / (present - 1)
        return float(np.sqrt(max(weight @ clustered @ weight, weight @ bread @ weight)))


def labels_own(
    everyone: Mixture, used: np.ndarray, blamed: float | None, u: float, k: float
) -> tuple[float, float, tuple[float, float]]:
    """Return u_l, k_l and the 95 % interval of the rate.

    Args:
        everyone: all samples.
        used: (M,) bool, those of sure class.
        blamed: share of k that is taken for the labels'; None where the used can tell.
        u: of the model, fitted to all.
        k: likewise.
    """
    some = everyone[used]
    if blamed is not None:
        # From the random errors alone to all that the judges and labels do not agree on.
        low = some.rate(u, 0.0) - _NORMAL * some.deviation(u, k, with_k=False)
        high = some.rate(u, k) + _NORMAL * some.deviation(u, k)
        return u, blamed * k, _limits(low, high, some.rate(u, blamed * k), len(some.own))
    shares = some.shares(u, k)
    if everyone.rate(u, 0.0) > some.rate(*shares):
        # Random errors are told from the judges' own by all samples, and more of these say more.
        some, shares = everyone, (u, 0.0)
    rate, deviation = some.rate(*shares), some.deviation(*shares)
    around = _NORMAL * deviation
    return *shares, _limits(rate - around, rate + around, rate, len(some.own))


def _limits(low: float, high: float, rate: float, n: int) -> tuple[float, float]:
    # n labels without one wrong leave up to 3.7 / n [the upper Poisson limit].
    return low if low > _AT_ZERO else 0.0, min(1.0, max(high, rate + 3.7 / n))


def wrong_share_of_kept(wrong_probability: np.ndarray) -> np.ndarray:
    """Return (N,) the share of wrong labels among those at least as probably right.

    Keeping the labels with q below x keeps a share of at most x of wrong ones, in expectation:
    the mean probability of being wrong over all that rank before or beside a label.  Probabilities
    that are alike to a thousandth rank beside each other: else the rounding of the fit, in which
    the order of the samples shows, would rank the labels that are as good as certainly wrong.

    Args:
        wrong_probability: (N,), NaN where unknown; such labels count nowhere and get NaN.

    Example:
        >>> wrong_share_of_kept(np.array([0.0, 0.2, np.nan, 0.7])).round(3).tolist()
        [0.0, 0.1, nan, 0.3]
    """
    known = np.flatnonzero(~np.isnan(wrong_probability))
    order = known[np.argsort(wrong_probability[known], kind="stable")]
    ranked = wrong_probability[order]
    last = np.searchsorted(ranked, ranked + _ALIKE, side="right")
    q = np.full(len(wrong_probability), np.nan)
    q[order] = (np.cumsum(ranked) / np.arange(1, len(ranked) + 1))[last - 1] if len(order) else []
    return q
