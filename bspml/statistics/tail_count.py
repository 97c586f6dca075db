"""The count behind the noise rate: p-values in the upper tail, matched by class size.

`bspml.statistics.noise_rate` derives the corrections; here they are solved for the rate and its
interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2

from bspml.statistics.contrastive import ContrastiveStatistics
from bspml.statistics.references import SUPPORT_EDGES

TAIL = 0.75  # p-values above it are taken to come from wrong labels
FEWEST_LABELS = 10  # below it the interval is (0, 1)


@dataclass(frozen=True)
class TailCount:
    """What the estimate rests on: how many support-matched p-values lie in the upper tail."""

    tail: float  # number of p > TAIL
    tested: int
    leak: float  # by how much p-values of clean labels seem to reach the tail, in counts
    dispersion: float  # variance of `tail` over its mean
    sizes: np.ndarray  # (C,) references per class, classes without any left out
    judged_are_references: float  # share of judged samples that are their own class's references

    @property
    def num_classes(self) -> int:
        """Classes that have references."""
        return len(self.sizes)

    @classmethod
    def of(cls, stats: ContrastiveStatistics) -> TailCount:
        """Count the testable labels of `stats`."""
        p = _support_matched_p_values(stats)
        tested = stats.testable.numpy()
        codes, p = stats.codes.numpy()[tested], p[tested]
        sizes = stats.class_support.numpy()
        in_tail = p > TAIL
        tail, middle = in_tail.sum(), (p > 0.5).sum()
        dispersion = _dispersion(codes, in_tail, sizes[sizes > 0])
        # Wrong labels have uniform p: the middle holds (1 - .5) / (1 - TAIL) times their tail
        # count.  What it holds beyond that is clean labels that fit badly.  If these fade by a
        # third or more from the middle to the tail, twice the excess bounds what reaches the
        # tail.  About .7 standard errors on top, as chance may hide the excess.
        excess = middle * (1 - TAIL) / 0.5 - tail
        leak = 2 * max(0.0, excess) + 0.5 * np.sqrt(max(tail, 1) * dispersion)
        self_counted = (stats.class_support[stats.codes] - stats.support).numpy()[tested].mean()
        # Wrong labels from one class to another lie side by side where classes are tight, and fall
        # into the tail together or not at all: C (C - 1) draws, alike in every class, so that the
        # variance over classes does not show it.
        classes = int((sizes > 0).sum())
        dispersion = max(dispersion, tail / max(1, classes * (classes - 1)))
        return cls(
            float(tail), len(p), float(leak), dispersion, sizes[sizes > 0], float(self_counted)
        )

    def rate(self) -> float:
        """Return the corrected estimate, in [0, 1]."""
        return self._solve(self.tail)

    def interval(self) -> tuple[float, float]:
        """Poisson limits of the over-dispersed count, the low one less the leak, as rates."""
        if self.tested < FEWEST_LABELS:
            return 0.0, 1.0
        scaled = self.tail / self.dispersion
        low = self.dispersion * chi2.ppf(0.025, 2 * scaled) / 2 if self.tail else 0.0
        high = self.dispersion * chi2.ppf(0.975, 2 * (scaled + 1)) / 2
        rate = self.rate()
        ends = self._solve(max(0.0, low - self.leak)), self._solve(high)
        return min(ends[0], rate), max(ends[1], rate)

    def _solve(self, tail: float) -> float:
        ratio = tail / ((1 - TAIL) * self.tested)
        ratio = ratio / (1 + ratio / (self.num_classes - 1))
        if ratio <= 0:
            return 0.0
        largest = 0.999
        if _looks_wrong(largest, self) <= ratio:
            return 1.0
        return float(brentq(lambda pi: _looks_wrong(pi, self) - ratio, 0.0, largest, xtol=1e-6))


def _support_matched_p_values(stats: ContrastiveStatistics) -> np.ndarray:
    """Return (N,) p-values against the null of classes with as many references as the label's.

    A wrong sample that lands in a class at random finds there, without itself, what the class
    holds: so `support`, which leaves the sample out, is matched with `class_support`, which has
    nobody to leave out.  A stratum without null values borrows the nearest one that has some.
    """
    totals = stats.null_by_support.sum(1)
    filled = np.flatnonzero(totals)
    strata = np.arange(len(SUPPORT_EDGES))
    nearest = filled[np.abs(filled[None] - strata[:, None]).argmin(1)]
    below = (1 + np.cumsum(stats.null_by_support, 1)) / (1 + totals[:, None])  # (G, bins)
    stratum = np.searchsorted(SUPPORT_EDGES, stats.support.numpy(), side="right") - 1
    bins = stats.own_bin.numpy()
    p = below[nearest[np.maximum(stratum, 0)], np.maximum(bins, 0)]
    return np.where(bins >= 0, p, np.nan)


def cluster_variance(codes: np.ndarray, hits: np.ndarray, expected: np.ndarray) -> float:
    """Variance of a count whose hits come together within a class: sum of squared residuals.

    Args:
        codes: (n,) class of each.
        hits: (n,) bool, what is counted.
        expected: (C,) hits of each class, if all classes were alike.
    """
    classes = max(2, int((np.bincount(codes) > 0).sum()))
    return ((np.bincount(codes, hits) - expected) ** 2).sum() * classes / (classes - 1)


def _dispersion(codes: np.ndarray, in_tail: np.ndarray, sizes: np.ndarray) -> float:
    """Return how much more the tail count varies than a Poisson count, at least 1.

    Samples of one class share its references, so they fall into the tail together: the sum over
    classes of squared residuals measures it (cluster-robust variance).  The null's own sampling
    adds up to three times the rate over C - 1, and tiny classes vary by another 1 / size.
    """
    tail = in_tail.sum()
    variance = cluster_variance(codes, in_tail, np.bincount(codes) * tail / len(codes))
    ratio = tail / ((1 - TAIL) * len(codes))
    rate = min(1.0, ratio / (1 + ratio / (len(sizes) - 1)))
    null_noise = 1 + 3 * rate / (len(sizes) - 1)
    return float(max(1.0, variance / max(tail, 1)) * null_noise * (1 + 1 / sizes.mean()))


def _looks_wrong(pi: float, count: TailCount) -> float:
    """Share of testable samples that look wrong at noise rate pi, wrong or lonely ones.

    A class of n true members keeps Bin(n, 1 - pi) of them and receives about Poisson(n pi)
    strangers.  A clean sample with no true classmate left but with strangers looks wrong; with
    neither it is untestable.
    """
    n = _true_sizes(count.sizes.astype(float), pi)
    share = n / n.sum()
    no_strangers = np.exp(-n * pi)
    no_classmates = pi ** np.maximum(n - count.judged_are_references, 0)
    clean_testable = 1 - no_classmates * no_strangers
    wrong_testable = 1 - pi**n * no_strangers
    lonely = no_classmates * (1 - no_strangers)
    looks_wrong = share @ ((1 - pi) * lonely + pi * wrong_testable)
    return float(
        looks_wrong / max(share @ ((1 - pi) * clean_testable + pi * wrong_testable), 1e-12)
    )


def _true_sizes(sizes: np.ndarray, pi: float) -> np.ndarray:
    """Estimate class sizes before the noise: the observed ones drawn towards their mean.

    Noise at rate pi alone spreads equal classes of size n with variance n pi (1 - pi) + n pi;
    what varies beyond it is real.
    """
    mean, variance = sizes.mean(), sizes.var()
    by_noise = mean * pi * (2 - pi)
    real = max(0.0, 1 - by_noise / variance) if variance > 0 else 0.0
    return np.maximum(1.01, mean + np.sqrt(real) * (sizes - mean))
