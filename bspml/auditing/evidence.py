"""What the statistics say of the distinct samples of an audit, and what follows for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from bspml.auditing.report import Findings
from bspml.statistics.confusions import plausible_confusions
from bspml.statistics.contrastive import ContrastivePass, ContrastiveStatistics, contrastive_tables
from bspml.statistics.copies.distinct import Distinct
from bspml.statistics.label_errors import LabelErrors, judge_labels
from bspml.statistics.label_shares import widened
from bspml.statistics.noise_rate import (
    ALIKE,
    NoiseEstimate,
    estimate_noise,
    no_estimate,
    notes_on_samples,
    why_unjudgeable,
)
from bspml.statistics.one_right import Judged, one_right
from bspml.statistics.sampled_contrastive import (
    SampledContrastiveStatistics,
    sampled_contrastive_statistics,
)
from bspml.statistics.tail_count import FEWEST_LABELS
from bspml.tensors.checks import Labels
from bspml.words import counted, error_sentence

NOT_TOLD_APART = (
    "these embeddings do not tell the classes apart: permuted labels would fit as well. Take the "
    "features of a network that knows such data, or train one on them."
)
_COPIES = (
    "without copies under several labels, which vouch for none of these, fewer than two classes "
    "have a sample left to judge by. Decide the copies first."
)
_FEW = "too few labels have another sample of their class to compare with."
# What is known of a placeholder beside how probably it is wrong.
_PLACEHOLDER: dict[str, Any] = {
    **dict.fromkeys(("p_values", "margins", "outlier_score", "outlier_p"), np.nan),
    **{"other": -1, "other_probability": 0.0, "testable": False},
}
_VALLEY, _FEWEST_FAR = 0.4, 10
_REFERENCES = 5_000  # of an approximate audit's soft means
_UPPER_END = 5.0  # samples a class below which no upper end is claimed
_WEAK = (
    "These embeddings are too weak to tell labels confused with a similar class from their own "
    "errors: the estimate counts a quarter of what may be either, and the interval all of it."
)


@dataclass(frozen=True)
class Evidence(Findings):
    """Of N samples, copies included, and the class that each is of if not of its own."""

    other: np.ndarray
    other_probability: np.ndarray


def judge_distinct(
    embeddings: Any,
    labels: Labels,
    once: Distinct,
    a: float,
    seen: ContrastivePass | None = None,
    approximate: bool = False,
    across_ranks: bool = False,
) -> Evidence:
    """Judge distinct samples, and tell for all.

    Args:
        embeddings: (N, D).
        labels: (N,) as codes.
        once: the distinct ones.
        a: inverse temperature of the contrastive statistics.
        seen: these of all samples, if at hand: they serve where no sample is a copy.
        approximate: take sampled statistics and fewer references, at a cost nearly linear in N.
        across_ranks: share the sampled statistics among processes.
    """
    kept = np.flatnonzero(~once.placeholder)
    rows = torch.from_numpy(once.first[kept])
    codes = labels.codes[rows]
    vouching = torch.from_numpy(once.vouching[kept].astype(np.float64))
    some = Labels(codes, labels.classes)
    if len(rows) < len(embeddings):
        embeddings = embeddings[rows.to(embeddings.device)]
    # A row of norm 0 is like nobody.
    vouches = (embeddings != 0).any(1).cpu() & (vouching > 0)
    if len(codes[vouches].unique()) < 2 <= len(labels.classes):
        reason = ALIKE if len(np.unique(once.group)) < 2 else _COPIES
        return _spread(_unknown(len(kept), reason), once, kept)
    stats: ContrastiveStatistics
    errors, tables = None, None
    if approximate:
        stats = sampled_contrastive_statistics(
            embeddings, some, vouching, a, across_ranks=across_ranks
        )
    else:
        if seen is None or len(kept) < len(labels.codes) or vouching.min() < 1:
            seen = contrastive_tables(embeddings, some, vouching, a)
        stats, tables, _ = seen
    reason = why_unjudgeable(stats)
    if not reason and int(stats.testable.sum()) < FEWEST_LABELS:
        reason = _FEW
    if not reason:
        means, sharp = (None, None) if tables is None else tables
        upper = plausible_confusions(embeddings, stats, vouching, means).upper_bound
        estimate = estimate_noise(stats, upper)
        errors = judge_labels(
            embeddings,
            some,
            vouching,
            random_rate=estimate.noise_rate,
            soft_means=sharp,
            most_references=_REFERENCES if approximate else None,
        )
        reason = "" if errors.model is not None else NOT_TOLD_APART
    if reason or errors is None:
        return _spread(_unknown(len(kept), reason, stats), once, kept)
    found = _found(stats, estimate, errors, once.group[once.first[kept]])
    return _spread(found, once, kept)


def _unknown(n: int, reason: str, stats: ContrastiveStatistics | None = None) -> Evidence:
    nothing = no_estimate(n, reason)
    unknown = nothing.p_values.numpy()
    return Evidence(
        noise_rate=nothing.noise_rate,
        interval=nothing.interval,
        total_rate=nothing.noise_rate,
        total_interval=nothing.interval,
        lower_bound=0.0,
        upper_bound=1.0,
        sentence=f"No label could be judged: {reason}",
        notes=nothing.notes,
        other=np.full(n, -1) if stats is None else stats.other_class.numpy(),
        testable=np.zeros(n, dtype=bool),
        **{name: unknown for name, fill in _PLACEHOLDER.items() if isinstance(fill, float)},
        wrong_probability=unknown,
    )


def _found(
    stats: ContrastiveStatistics, estimate: NoiseEstimate, errors: LabelErrors, picture: np.ndarray
) -> Evidence:
    """What is known of the distinct samples that were judged, each a label of its `picture`."""
    model = errors.model
    assert model is not None
    rate, notes = errors.rate, list(notes_on_samples(stats))
    sizes = stats.class_support[stats.class_support > 0].double()
    low, high = widened(errors.interval, estimate.interval, sizes.numpy())
    if not model.can_tell:
        notes.append(_WEAK)
    upper = 1.0 if estimate.upper_bound is None else max(estimate.upper_bound, high)
    if float(sizes.mean()) < _UPPER_END:
        upper = 1.0
        notes.append(
            f"With {float(sizes.mean()):.1f} samples a class no upper end is claimed: confusions "
            "between classes of so few samples are not seen."
        )
    if errors.fitted < len(stats.codes):
        notes.append(
            f"The estimate rests on {errors.fitted:,} of {len(stats.codes):,} labels, and its "
            "interval holds the error of sampling; every label was judged."
        )
    if isinstance(stats, SampledContrastiveStatistics):
        notes.append(_sampled_note(stats))
    testable = stats.testable.numpy()
    # Nothing speaks for the label of a class of one: it is scored, and never flagged, and its doubt
    # is cut as a whole, so that no other class is more probable than the label is wrong.
    doubt, likely = errors.wrong_probability, errors.other_probability
    wrong = np.where(testable, doubt, np.minimum(doubt, 0.5))
    likely = np.where(wrong < doubt, np.minimum(likely * 0.5 / np.maximum(doubt, 0.5), 0.5), likely)
    odds = np.where(testable, errors.odds, np.minimum(errors.odds, 0.0))
    judged = Judged(wrong, errors.other_class, likely)
    wrong, other, other_probability = one_right(judged, odds, stats.codes.numpy(), picture)
    right = ~(wrong > 0.5) & ~np.isnan(errors.strangeness)
    strangers = beyond_a_gap(errors.strangeness, right, stats.codes.numpy())
    if strangers.any():
        notes.append(
            f"{counted(int(strangers.sum()), 'sample')} are far from every class, apart from all "
            "others: pictures of something else? They are no labels of another class, and in no "
            "rate."
        )
        right &= ~strangers
    return Evidence(
        noise_rate=estimate.noise_rate,
        interval=estimate.interval,
        total_rate=rate,
        total_interval=(low, high),
        lower_bound=min(estimate.lower_bound, low),
        upper_bound=upper,
        sentence="",
        notes=tuple(notes),
        p_values=estimate.p_values.numpy(),
        margins=stats.margin.numpy(),
        wrong_probability=wrong,
        other=other,
        other_probability=other_probability,
        outlier_score=outlier_scores(errors.strangeness, right),
        outlier_p=conformal_p(errors.strangeness, right),
        testable=testable,
    )


def _sampled_note(stats: SampledContrastiveStatistics) -> str:
    exact = int((~stats.exact_part.everyone.isnan()).sum())
    error = float(stats.everyone_error.nan_to_num(0).max())
    return (
        f"Statistics were sampled: how similar a sample is to everyone is within {error:.3f} for "
        f"all samples together, with confidence {stats.confidence:g}, and so are the difficulties "
        f"that p-values rank. The rate of random errors rests on {exact:,} labels judged exactly, "
        "and margins are theirs alone. Every label was judged by all class means, and by at most "
        f"{_REFERENCES:,} of the other samples, or four of each class."
    )


def conformal_p(strangeness: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return (N,) the share of samples with right labels that are at least as strange.

    Small: the sample is further from every class than those that belong to one (a conformal
    p-value; exact if the samples called right are).

    Args:
        strangeness: (N,), large for samples far from every class; NaN where unknown.
        right: (N,) bool, samples believed to belong to a class.

    Example:
        >>> conformal_p(np.array([1.0, 2.0, 9.0]), np.array([True, True, False])).round(2).tolist()
        [1.0, 0.67, 0.33]
    """
    usual = np.sort(strangeness[right])
    beyond = len(usual) - np.searchsorted(usual, strangeness, side="left")
    p = np.minimum(1.0, (1 + beyond) / (1 + len(usual)))
    return np.where(np.isnan(strangeness), np.nan, p)


def outlier_scores(strangeness: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return (N,) 0 in the middle of the samples with right labels, 1 at their 99th percentile.

    Args:
        strangeness: (N,), large for samples far from every class; NaN where unknown.
        right: (N,) bool, samples believed to belong to a class.

    Example:
        >>> outlier_scores(np.array([1.0, 2.0, 3.0, 9.0]), np.array([True] * 3 + [False])).round(1)
        array([-1. ,  0. ,  1. ,  7.1])
    """
    if not right.any():
        return np.full(len(strangeness), np.nan)
    middle, far = np.quantile(strangeness[right], [0.5, 0.99])
    if far - middle < 1e-9 * max(1.0, abs(middle)):  # nothing to measure by
        return np.full(len(strangeness), np.nan)
    return (strangeness - middle) / (far - middle)


def beyond_a_gap(strangeness: np.ndarray, right: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return (N,) bool, samples of no class that are too many to be told by the most distant ones.

    No other class is nearer to a sample of no class, so its label is believed, and where 1 of 100
    is such a one, they set the scale that they are measured by.  So the strangeness of the samples
    believed is cut in two, where the variance between the parts is largest [Otsu 1979], and the
    farther part is of no class if hardly any sample lies between the medians of the two: less than
    `_VALLEY` of the number around either, which is `_FEWEST_FAR` at least.  Distances that fall off
    to one side have no such gap, however long their tail.  Where most of the farther part is most
    of its classes, these are of varied samples.

    Args:
        strangeness: (N,), large for samples far from every class.
        right: (N,) bool, samples believed to belong to their class.
        codes: (N,) int64.

    Example:
        >>> near, far = np.linspace(0, 1, 90), np.linspace(6, 7, 10)
        >>> far_away = beyond_a_gap(np.r_[near, far], np.ones(100, bool), np.arange(100) % 5)
        >>> far_away.nonzero()[0].tolist() == [*range(90, 100)]
        True
    """
    none, values = np.zeros(len(right), bool), np.sort(strangeness[right])
    n = len(values)
    if n < 2:
        return none
    sums, below = values.cumsum(), np.arange(1, n)
    means = sums[:-1] / below, (sums[-1] - sums[:-1]) / (n - below)
    cut = int((below * (n - below) * (means[1] - means[0]) ** 2).argmax())
    low, high = np.median(values[: cut + 1]), np.median(values[cut + 1 :])
    ends = low + (high - low) * np.array([[-0.15, 0.85, 0.35], [0.15, 1.15, 0.65]])
    *tops, valley = np.diff(np.searchsorted(values, ends), axis=0)[0]
    if valley >= _VALLEY * min(tops) or min(tops) < _FEWEST_FAR:
        return none
    beyond = right & (strangeness > values[cut])
    is_varied = 2 * np.bincount(codes, beyond) > np.bincount(codes, right)
    return beyond if 2 * is_varied[codes[beyond]].sum() < beyond.sum() else none


def _spread(found: Evidence, once: Distinct, kept: np.ndarray) -> Evidence:
    """Tell for all samples what was found of the distinct ones, placeholders included."""
    n, aside = len(once.first), np.setdiff1d(np.arange(len(once.first)), kept)

    def every(values: np.ndarray, fill: Any) -> np.ndarray:
        full = np.full(n, np.nan if values.dtype.kind == "f" else fill, values.dtype)
        full[kept] = values
        full[aside] = fill
        return full[once.place]

    # The rate is one of labels: a sample counts as often as it stands in the data.  Those whose
    # copies disagree are counted by what is known of each, the others by the rate.
    times = np.bincount(once.place, minlength=n).astype(float)
    alike = ALIKE in found.sentence  # rows that all lie in one place are copies of nothing
    wrong = np.full(n, np.nan)
    wrong[kept] = found.wrong_probability
    wrong[aside] = np.nan if alike else once.wrong_share[aside]
    split = once.num_labels > 1
    added = float(np.nan_to_num(wrong[split]) @ times[split])
    agreed = float(times[~split].sum())

    chances = np.nan_to_num(wrong[split])
    # At least a label, as chances near 0 and 1 are not that exact.
    around = 1.96 * float(np.sqrt((chances * (1 - chances)) @ times[split] ** 2)) + split.any()

    proven = 0 if alike else once.proven_wrong

    def share(rate: float, more: float = 0.0) -> float:
        return float(min(1.0, max(proven, rate * agreed + added + more) / len(once.place)))

    def ends(interval: tuple[float, float]) -> tuple[float, float]:
        return share(interval[0], -around), share(interval[1], around)

    notes = list(found.notes)
    if copied := len(once.place) - n:
        notes.append(
            "Of each group of copies the first alone counts, in the rate and as evidence, which "
            f"leaves {counted(copied, 'sample')} aside: a copy vouches for nobody."
        )
    are = "is" if proven == 1 else "are"
    if proven:
        notes.append(
            f"{counted(proven, 'label')} at least {are} wrong: exact copies of a picture stand "
            "under several labels, of which one at most is right."
        )
    if len(aside) and not alike:
        groups = len(np.unique(once.group[once.first[aside]]))
        notes.append(
            f"{counted(len(aside), 'label')} belong to {counted(groups, 'picture')} found under "
            "three labels or more, such as a placeholder: one finding each, see the copies. They "
            "are counted as wrong, but for each label's share, and judge no other."
        )
    rate, interval = share(found.total_rate), ends(found.total_interval)
    noise, noise_interval = share(found.noise_rate), ends(found.interval)
    upper = share(found.upper_bound, around) if found.upper_bound < 1 else 1.0
    bounds = share(found.lower_bound, -around), upper
    sentence = error_sentence(rate, interval, bounds)
    if found.sentence:  # nothing is known but what copies prove
        rate = noise = proven / len(once.place)
        interval = noise_interval = bounds = rate, 1.0
        sentence = found.sentence
        if proven:
            sentence += (
                f" But {counted(proven, 'label')} of {len(once.place):,} at least {are} wrong, "
                "as exact copies under several labels prove."
            )
    return replace(
        found,
        noise_rate=noise,
        interval=noise_interval,
        total_rate=rate,
        total_interval=interval,
        lower_bound=bounds[0],
        upper_bound=bounds[1],
        sentence=sentence,
        notes=tuple(notes),
        wrong_probability=wrong[once.place],
        **{name: every(getattr(found, name), fill) for name, fill in _PLACEHOLDER.items()},
    )
