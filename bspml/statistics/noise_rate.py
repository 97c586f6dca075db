"""How many labels are wrong, and which: p-values, Storey's estimate, q-values, an interval.

From `bspml.statistics.contrastive`: d_i is the difficulty of the given label, the null is the
difficulty of random wrong labels.

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
   samples a class it happens with probability pi^(n - 1) and more; `bspml.statistics.tail_count`
   solves for pi.

The null is one of labels wrong AT RANDOM: confusions between similar classes look right to it, so
the estimate is a lower bound for those.  `bspml.statistics.confusions` gives the other bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from bspml.errors import InputError
from bspml.shapes import Bool, Float, Tensor
from bspml.statistics.contrastive import ContrastiveStatistics
from bspml.statistics.tail_count import TAIL, TailCount
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_number
from bspml.tensors.unit_rows import unit_rows
from bspml.words import counted, noise_sentence

PI_CAP = 0.95  # the rate used in q-values
FEW_CLASSES = 100  # below it the null's share of true classes (up to 1 %) is taken out for q
_ALONE = "no class has a second sample of positive weight to compare with."
ALIKE = (
    "the embeddings fit all labels alike, as if they were all in one place. Did the model that "
    "made them collapse?"
)
_ONE_PLACE = 2e-4  # in similarity: 1.1 degrees between unit vectors
SMALL_CLASSES = 6.0  # mean references a class below which the estimate carries a warning


@dataclass(frozen=True)
class NoiseEstimate:
    """The noise rate, how sure we are, and a p- and q-value for every label.

    Attributes:
        noise_rate: share of labels wrong at random, in [0, 1], corrected as the module says.
        interval: 95 % interval (low, high) of `noise_rate`.
        storey: Storey's plain pi from the exact p-values, uncorrected.
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
            return f"No label could be judged: {self.notes[0]}"
        return noise_sentence(self.noise_rate, self.interval, self.upper_bound)


def estimate_noise(
    stats: ContrastiveStatistics,
    confusions_upper: float | None = None,
    correct_few_classes: bool = True,
) -> NoiseEstimate:
    """Estimate the noise rate from statistics at weight 1 of embeddings not trained on the labels.

    Statistics under solved weights must not come here: the estimate would feed on itself.

    Args:
        stats: of `contrastive_statistics`, all reference weights 0 or 1; of sampled ones the rows
            that were judged exactly tell the rate.
        confusions_upper: upper bound of the share of wrong labels, confusions included, as
            `bspml.statistics.confusions` gives it.
        correct_few_classes: take the true classes out of the null behind the q-values if there are
            fewer than `FEW_CLASSES` classes.  False: q-values from `p_values` as they are.

    Returns:
        `NoiseEstimate`.

    Raises:
        InputError: `confusions_upper` outside [0, 1].
    """
    check_flags(correct_few_classes=correct_few_classes)
    if confusions_upper is not None:
        confusions_upper = check_number(confusions_upper, "confusions_upper", 0, 1)
    num_testable = int(stats.testable.sum())
    if num_testable == 0:
        return no_estimate(len(stats.codes), _ALONE)
    p = label_p_values(stats)
    exact = stats.exact_part
    if not exact.testable.any():
        return no_estimate(len(stats.codes), _ALONE)
    tested = label_p_values(exact)[exact.testable].numpy()
    storey = min(1.0, float((tested > TAIL).mean() / (1 - TAIL)))
    count = TailCount.of(exact)
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


def why_unjudgeable(stats: ContrastiveStatistics) -> str:
    """Return why no label can be judged, in a sentence; '' where some can.

    Embeddings that are all in one place fit every label alike: all difficulties, of given labels
    and of random ones, lie within `_ONE_PLACE` of each other.
    """
    if not stats.testable.any():
        return _ALONE
    own = stats.own_bin[stats.testable].numpy()
    occupied = np.flatnonzero(stats.null)
    apart = max(own.max(), occupied[-1]) - min(own.min(), occupied[0]) if len(occupied) else 0
    # Two neighbouring bins may be one place, where one ends and the other begins.
    return ALIKE if apart <= max(1, _ONE_PLACE / 4 * len(stats.null)) else ""


def all_in_one_place(embeddings: Float[Tensor, "N D"]) -> bool:
    """Return whether embeddings have collapsed: `ALIKE` is what to say then.

    Their mean squared distance to the mean direction is what similarities differ by, half of it.

    Args:
        embeddings: (N, D) floats.

    Example:
        >>> all_in_one_place(torch.eye(4)), all_in_one_place(torch.ones(4, 4))
        (False, True)
    """
    rows = unit_rows(embeddings).double()
    return bool(rows.square().sum(1).mean() - rows.mean(0).square().sum() < _ONE_PLACE / 4)


def no_estimate(n: int, reason: str) -> NoiseEstimate:
    """Return the answer where no label can be judged: any rate is possible, and the notes say why.

    Args:
        n: labels.
        reason: a sentence for the notes.
    """
    nothing = torch.full((n,), float("nan"), dtype=torch.float64)
    return NoiseEstimate(
        noise_rate=0.0,
        interval=(0.0, 1.0),
        storey=0.0,
        lower_bound=0.0,
        upper_bound=1.0,
        p_values=nothing,
        q_values=nothing.clone(),
        num_testable=0,
        notes=(reason,),
    )


def label_p_values(stats: ContrastiveStatistics) -> Float[Tensor, " N"]:
    """Return p_i = (1 + #{null <= d_i}) / (1 + |null|), (N,) float64; NaN where not testable.

    Null values in the bin of d_i count as at or below it, so p errs upwards by at most the share
    of that bin.
    """
    return _from_bins(stats, (1 + np.cumsum(stats.null)) / (1 + stats.null.sum()))


def keep_q_values(p_values: Float[Tensor, " N"], noise_rate: float) -> Float[Tensor, " N"]:
    """Return q_(r) = min over this and later ranks of pi p_(r) N / r; NaN p-values are left out of
    N.

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


def best_fitting(
    p_values: Float[Tensor, " N"], difficulty: Float[Tensor, " N"], share: float
) -> Bool[Tensor, " N"]:
    """Return which labels fit best: those of the smallest p-values, ties by difficulty.

    Args:
        p_values: (N,), small for labels that fit; no NaN.
        difficulty: (N,), small for labels that fit.
        share: of the labels that are called best fitting, in [0, 1].

    Example:
        >>> best_fitting(torch.tensor([0.9, 0.1, 0.1]), torch.tensor([0.3, 0.5, 0.2]), 1 / 3)
        tensor([False, False,  True])
    """
    by_fit = torch.argsort(difficulty, stable=True)
    by_fit = by_fit[torch.argsort(p_values[by_fit], stable=True)]
    best = torch.zeros(len(p_values), dtype=torch.bool)
    best[by_fit[: round(share * len(p_values))]] = True
    return best


def _from_bins(stats: ContrastiveStatistics, values: np.ndarray) -> Float[Tensor, " N"]:
    """Look up `values` (bins,) at each testable sample's bin."""
    bins = stats.own_bin.numpy()
    return torch.from_numpy(np.where(bins >= 0, values[bins], np.nan))


def _decontaminated_p_values(
    stats: ContrastiveStatistics, p: Float[Tensor, " N"], pi: float
) -> Float[Tensor, " N"]:
    """Compute p-values against truly wrong classes only, at noise rate pi.

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


def notes_on_samples(stats: ContrastiveStatistics) -> tuple[str, ...]:
    """Say which samples could not be judged.

    Args:
        stats: of all samples at weight 1.
    """
    notes = []
    judged, tested = int((~stats.everyone.isnan()).sum()), int(stats.testable.sum())
    untestable = judged - tested
    if untestable:
        cannot = "are alone in their class: they are left out of the rate, and have no p-value"
        if untestable == 1:
            cannot = "is alone in its class: it is left out of the rate, and has no p-value"
        notes.append(f"{untestable} of {judged} samples {cannot}.")
    if len(stats.zero_rows):
        notes.append(f"{counted(len(stats.zero_rows), 'embedding')} of norm 0 left out.")
    return tuple(notes)


def _notes(
    stats: ContrastiveStatistics, count: TailCount, interval: tuple[float, float], corrected: bool
) -> tuple[str, ...]:
    notes = [*notes_on_samples(stats)]
    if count.tested < int(stats.testable.sum()):
        notes.append(
            f"The rate rests on {count.tested:,} labels drawn at random and judged exactly, and "
            "its interval holds the error of drawing them."
        )
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
