"""How many labels are wrong, and which: p-values, Storey's estimate, q-values, an interval.

From `bspml.contrastive`: d_i is the difficulty of the given label, the null is the difficulty of
random wrong labels.

    p_i   = (1 + #{null <= d_i}) / (1 + |null|)       small: fits far better than a random label
    pi    = min(1, #{p_i > .75} / (.25 N))            Storey's estimator of the noise rate
    q_(r) = min over this and later ranks of pi p_(r) N / r     share of wrong labels among the
                                                                samples ranked up to r

N counts testable samples only.  `NoiseEstimate.noise_rate` is pi with three corrections, each of
which vanishes for many classes of many samples:

1. Support.  p-values for the count come from the null of classes with as many references as the
   sample's own class has (without the sample): a soft mean over few references spreads more.
2. Few classes.  A wrong sample's true class is one of its C - 1 others, so the null holds true
   classes with share rho = pi / (C - 1), and these do not reach its upper tail.  With
   r = #{p > .75} / (.25 N) this gives r = pi / (1 - rho), that is  pi = r / (1 + r / (C - 1)).
3. Small classes.  A clean sample whose classmates are all wrong looks wrong as well.  With n
   samples a class it happens with probability pi^(n - 1) and more; `_looks_wrong` solves for pi.

The null is one of labels wrong AT RANDOM: confusions between similar classes look right to it, so
the estimate is a lower bound for those.  `bspml.confusions` gives the other bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import chi2

from bspml.checks import check_number
from bspml.contrastive import SUPPORT_EDGES, ContrastiveStatistics
from bspml.errors import InputError
from bspml.shapes import Float, Tensor

__all__ = ["NoiseEstimate", "estimate_noise", "keep_q_values", "label_p_values"]

TAIL = 0.75  # p-values above it are taken to come from wrong labels
PI_CAP = 0.95  # the rate used in q-values
FEW_CLASSES = 100  # below it the null's share of true classes (up to 1 %) is taken out for q
FEWEST_LABELS = 10  # below it the interval is (0, 1)
SMALL_CLASSES = 6.0  # mean references a class below which the estimate carries a warning


@dataclass(frozen=True)
class NoiseEstimate:
    """The noise rate, how sure we are, and a p- and q-value for every label.

    Attributes:
        noise_rate: share of labels wrong at random, in [0, 1], corrected as the module says.
        interval: 95 % interval (low, high) of `noise_rate`.
        storey: Storey's plain pi from `p_values`, uncorrected.
        lower_bound: at least this share of the labels is wrong (the interval's low end).
        upper_bound: at most this share, or None when confusions were not looked at.
        p_values: (N,) float64, NaN where the label cannot be judged.
        q_values: (N,) float64, likewise.  Promised for random errors only.
        num_testable: labels that could be judged.
        notes: what was corrected or cannot be had, in words.
    """

    noise_rate: float
    interval: tuple[float, float]
    storey: float
    lower_bound: float
    upper_bound: float | None
    p_values: Float[Tensor, " N"]
    q_values: Float[Tensor, " N"]
    num_testable: int
    notes: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The estimate in one sentence, for reports."""
        if self.num_testable == 0:
            return "No label could be judged: no class has a second sample to compare with."
        low, high = (_percent(v) for v in self.interval)
        at_random = f"{_percent(self.noise_rate)} % of the labels are wrong at random"
        if self.upper_bound is None:
            return (
                f"At least {at_random} (95 % interval {low} to {high} %); "
                "confusions between similar classes come on top."
            )
        return (
            f"Between {_percent(self.lower_bound)} and {_percent(self.upper_bound)} % of the "
            f"labels are wrong: at least {at_random} (95 % interval {low} to {high} %), "
            "and confusions between similar classes come on top."
        )


def estimate_noise(
    stats: ContrastiveStatistics,
    confusions_upper: float | None = None,
    correct_few_classes: bool = True,
) -> NoiseEstimate:
    """Estimate the noise rate from statistics at weight 1 of embeddings not trained on the labels.

    Statistics under solved weights must not come here: the estimate would feed on itself.

    Args:
        stats: of `contrastive_statistics`, all reference weights 0 or 1.
        confusions_upper: upper bound of the share of wrong labels, confusions included, as
            `bspml.confusions` gives it.
        correct_few_classes: take the true classes out of the null behind the q-values if there are
            fewer than `FEW_CLASSES` classes.  False: q-values from `p_values` as they are.

    Returns:
        `NoiseEstimate`.

    Raises:
        InputError: `confusions_upper` outside [0, 1].
    """
    if confusions_upper is not None:
        confusions_upper = check_number(confusions_upper, "confusions_upper", 0, 1)
    p = label_p_values(stats)
    num_testable = int(stats.testable.sum())
    if num_testable == 0:
        nothing = ("No class has a second sample of positive weight.",)
        return NoiseEstimate(0.0, (0.0, 1.0), 0.0, 0.0, 1.0, p, p.clone(), 0, nothing)
    tested = p[stats.testable].numpy()
    storey = min(1.0, float((tested > TAIL).mean() / (1 - TAIL)))
    count = _TailCount.of(stats)
    rate, interval = count.rate(), count.interval()
    num_classes = count.num_classes
    corrected = correct_few_classes and num_classes < FEW_CLASSES
    p_for_q = _decontaminated_p_values(stats, p, rate) if corrected else p
    high = interval[1]
    return NoiseEstimate(
        noise_rate=rate,
        interval=interval,
        storey=storey,
        lower_bound=interval[0],
        upper_bound=None if confusions_upper is None else max(high, confusions_upper),
        p_values=p,
        q_values=keep_q_values(p_for_q, rate),
        num_testable=num_testable,
        notes=_notes(stats, count, interval, corrected),
    )


def label_p_values(stats: ContrastiveStatistics) -> Float[Tensor, " N"]:
    """p_i = (1 + #{null <= d_i}) / (1 + |null|), (N,) float64; NaN where not testable.

    Null values in the bin of d_i count as at or below it, so p errs upwards by at most the share
    of that bin.
    """
    return _from_bins(stats, (1 + np.cumsum(stats.null)) / (1 + stats.null.sum()))


def keep_q_values(p_values: Float[Tensor, " N"], noise_rate: float) -> Float[Tensor, " N"]:
    """q_(r) = min over this and later ranks of pi p_(r) N / r; NaN p-values are left out of N.

    Args:
        p_values: (N,), small for labels that fit.
        noise_rate: pi in [0, 1]; capped at .95, as 1 would keep nobody.

    Returns:
        (N,) float64 in [0, 1]: keeping the samples with q below x keeps a share of at most x of
        randomly wrong labels, in expectation.  Equal p-values get equal q-values.
    """
    if p_values.ndim != 1:
        raise InputError(f"`p_values` must be (N,); got shape {tuple(p_values.shape)}.")
    pi = min(check_number(noise_rate, "noise_rate", 0, 1), PI_CAP)
    p = p_values.double().cpu().numpy()
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    ratio = pi * p[order] * len(order) / np.arange(1, len(order) + 1)
    q = np.full(len(p), np.nan)
    q[order] = np.minimum.accumulate(ratio[::-1])[::-1]
    return torch.from_numpy(q)


def _from_bins(stats: ContrastiveStatistics, values: np.ndarray) -> Float[Tensor, " N"]:
    """`values` (bins,) looked up at each testable sample's bin."""
    bins = stats.own_bin.numpy()
    return torch.from_numpy(np.where(bins >= 0, values[bins], np.nan))


def _decontaminated_p_values(
    stats: ContrastiveStatistics, p: Float[Tensor, " N"], pi: float
) -> Float[Tensor, " N"]:
    """p-values against truly wrong classes only, at noise rate pi.

    Let W be the distribution function of d at a wrong class, T at the true class.  Own labels and
    the null are the mixtures  O = (1 - pi) T + pi W  and  H = (1 - rho) W + rho T  with
    rho = pi / (C - 1), so  W = ((1 - pi) H - rho O) / (1 - pi - rho).
    """
    num_classes = int((stats.class_support > 0).sum())
    rho = pi / (num_classes - 1)
    if 1 - pi - rho < 0.05:  # nearly as wrong as chance: own labels and null look the same
        return p
    bins = stats.own_bin.numpy()
    own = np.cumsum(np.bincount(bins[bins >= 0], minlength=len(stats.null)))
    null = np.cumsum(stats.null)
    wrong = ((1 - pi) * null / null[-1] - rho * own / own[-1]) / (1 - pi - rho)
    smallest = 1 / (1 + null[-1])  # a difference of two empirical functions may dip below 0
    return _from_bins(stats, np.maximum.accumulate(np.clip(wrong, smallest, 1.0)))


@dataclass(frozen=True)
class _TailCount:
    """What the estimate rests on: how many support-matched p-values lie in the upper tail."""

    tail: float  # number of p > TAIL
    tested: int
    leak: float  # by how much p-values of clean labels seem to reach the tail, in counts
    dispersion: float  # variance of `tail` over its mean
    sizes: np.ndarray  # (C,) references per class, classes without any left out
    judged_are_references: float  # share of judged samples that are their own class's references

    @property
    def num_classes(self) -> int:
        return len(self.sizes)

    @classmethod
    def of(cls, stats: ContrastiveStatistics) -> _TailCount:
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
        return cls(
            float(tail), len(p), float(leak), dispersion, sizes[sizes > 0], float(self_counted)
        )

    def rate(self) -> float:
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
    """(N,) p-values against the null of classes with as many references as the label has.

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


def _dispersion(codes: np.ndarray, in_tail: np.ndarray, sizes: np.ndarray) -> float:
    """How much more the tail count varies than a Poisson count, at least 1.

    Samples of one class share its references, so they fall into the tail together: the sum over
    classes of squared residuals measures it (cluster-robust variance).  The null's own sampling
    adds up to three times the rate over C - 1, and tiny classes vary by another 1 / size.
    """
    tail = in_tail.sum()
    per_class = np.bincount(codes)
    expected = per_class * tail / len(codes)
    clusters = max(2, (per_class > 0).sum())
    variance = ((np.bincount(codes, in_tail) - expected) ** 2).sum() * clusters / (clusters - 1)
    ratio = tail / ((1 - TAIL) * len(codes))
    rate = min(1.0, ratio / (1 + ratio / (len(sizes) - 1)))
    null_noise = 1 + 3 * rate / (len(sizes) - 1)
    return float(max(1.0, variance / max(tail, 1)) * null_noise * (1 + 1 / sizes.mean()))


def _looks_wrong(pi: float, count: _TailCount) -> float:
    """Share of testable samples that look wrong at noise rate pi, wrong or lonely ones.

    A class of n true members keeps Bin(n, 1 - pi) of them and receives about Poisson(n pi)
    strangers.  A clean sample with no true classmate left but with strangers looks wrong; with
    neither it is untestable.
    """
    n = _true_sizes(count.sizes.astype(float), pi)
    share = n / n.sum()
    no_strangers = np.exp(-n * pi)
    alone = pi ** np.maximum(n - count.judged_are_references, 0)
    clean_testable = 1 - alone * no_strangers
    wrong_testable = 1 - pi**n * no_strangers
    lonely = alone * (1 - no_strangers)
    looks_wrong = share @ ((1 - pi) * lonely + pi * wrong_testable)
    return float(
        looks_wrong / max(share @ ((1 - pi) * clean_testable + pi * wrong_testable), 1e-12)
    )


def _true_sizes(sizes: np.ndarray, pi: float) -> np.ndarray:
    """Class sizes before the noise: the given ones drawn towards their mean.

    Noise at rate pi alone spreads equal classes of size n with variance n pi (1 - pi) + n pi;
    what varies beyond it is real.
    """
    mean, variance = sizes.mean(), sizes.var()
    by_noise = mean * pi * (2 - pi)
    real = max(0.0, 1 - by_noise / variance) if variance > 0 else 0.0
    return np.maximum(1.01, mean + np.sqrt(real) * (sizes - mean))


def _notes(
    stats: ContrastiveStatistics,
    count: _TailCount,
    interval: tuple[float, float],
    corrected: bool,
) -> tuple[str, ...]:
    notes = []
    judged = int((~stats.everyone.isnan()).sum())
    untestable = judged - count.tested
    if untestable:
        notes.append(
            f"{untestable} of {judged} samples are alone in their class: their labels cannot be "
            "judged and are left out."
        )
    if len(stats.zero_rows):
        notes.append(f"{len(stats.zero_rows)} embeddings of norm 0 are left out.")
    if corrected:
        notes.append(
            f"Few classes ({count.num_classes}): q-values use a null without the samples' true "
            f"classes. A rate of {1 - 1 / count.num_classes:.2f} or more could not be told from "
            "renamed classes."
        )
    if count.sizes.mean() < SMALL_CLASSES:
        notes.append(
            f"Small classes ({count.sizes.mean():.1f} samples on average): a correct label whose "
            "classmates are wrong looks wrong too; the rate is corrected for it, the p-values "
            "are not."
        )
    if interval[1] - interval[0] > 0.2:
        notes.append(
            f"The interval is wide: {count.tested} labels in {count.num_classes} classes are too "
            "few for a sharper answer, and q-values are no better than the rate behind them."
        )
    return tuple(notes)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}" if share < 0.0995 else f"{100 * share:.0f}"
