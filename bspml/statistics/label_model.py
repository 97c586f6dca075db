"""One model of given labels over two left-out judges: what a sample shows, what its label says.

With L_i(c) of `bspml.statistics.discriminant` and K_i(c) of `bspml.statistics.soft_means`, each
judging sample i without itself, and z the given label out of C:

    p_i = softmax(b_1 L_i + b_2 K_i),  b >= 0                        what the sample shows
    Q(y, c) ~ exp(-Delta(y, c) / tau),  Q(y, y) = 0                  whom class y is taken for
    P(z | x_i) = (1 - u - k) p_i(z) + u / C + k sum_y p_i(y) Q(y, z)  what its label says

u is the share of labels drawn at random, k the share confused with a class near in the judges' own
eyes: Delta is the distance between class means beyond that of the nearest class, over the J
nearest classes (64; from 1,024 classes on fewer, down to 16).  u, k, b and tau maximise the mean of
log P(z_i | x_i), by L-BFGS with exact gradients from several starts; one of them is the best model
with k = 0, so the fit is never worse than that one.  The starts are tried on some of the labels,
where these are many, and the best goes on over all.

Whose confusions are they?  The k of all samples holds the judges' own errors too, which gather
where the judges are unsure, while labels go wrong whatever the judges think.  So the labels' shares
u_l and k_l are fitted again, b and tau held, on the surest samples: as many, the surest first, as
have a mean largest p of `SURE`, or of `SURE_OF_FEW` where the classes have fewer than
`FEWEST_MATES` references, as means over few are less sure than they seem.  Where these are fewer
than `FEWEST_SURE` of all, the judges cannot tell, and a quarter of k is taken for the labels'.

An embedding half trained on such labels is surer than it should be, and random errors make it
confuse similar classes: k is .06 to .13 beside u = .3 and .5 on halves of the glyphs without a
confused label, and .35 where .31 are.  So there the labels' share of k is k / (u + k) / 2, whoever
is sure: all of it halved, as leaving out right labels costs more than keeping wrong ones.

The odds that a label is wrong,

    wrong  u_l (1 - p(z)) / C + k_l g        g = sum_y p(y) Q(y, z)
    right  (1 - u - k + u_l / C) p(z) + (u - u_l)+ / C + (k - k_l)+ g

rank the labels; the class y != z is the right one in proportion to p(y) (u_l / C + k_l Q(y, z)).
Ours, not from a paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bspml.statistics.label_likelihood import (
    LEAST,
    Confusions,
    Fit,
    Likelihood,
    best_of,
    centred,
    nobody,
)
from bspml.statistics.label_shares import (
    BLAMED,
    FEWEST_MATES,
    FEWEST_SURE,
    SURE,
    SURE_OF_FEW,
    Mixture,
    error_rate,
    labels_own,
    surest,
)
from bspml.statistics.label_terms import alternatives
from bspml.tensors.arguments import check_flags

NEAREST = 64  # J
FEWEST_TESTED = 50  # samples below which nothing tells whether a judge sees anything
BY_CHANCE = 4.5  # standard deviations
_ALMOST_NO_K = -8.0  # log odds of k, at the start from the best model without it
_LEAST_K = 1e-4  # at the start from another model: with none there is no way to more
_AS_GOOD = 4.0  # log likelihood, in all, below which no fit is better than another
_DOMINANT = 0.9  # share of a class beside which too few labels are left to permute


@dataclass(frozen=True)
class LabelModel:
    """A fitted model; see the module.

    Attributes:
        random: u.
        confused: k.
        labels_random: u_l, the labels' own.
        labels_confused: k_l.
        slopes: (2,) b of the discriminant and of the soft means.
        tau: how far confusions reach, in units of `Confusions.distances`.
        confusions: whom each class may be taken for.
        typical: (2,) what each judge says of a right label, in the middle: takes the place of a
            class that has no other sample.
        log_likelihood: mean over the samples fitted.
        converged: the best fit ended at a maximum.
        sure: (M,) bool, which of the samples fitted told the labels' errors.
        can_tell: the judges' errors could be told from the labels'.
        interval: 95 % interval of `rate`.
        num_classes: C.
    """

    random: float
    confused: float
    labels_random: float
    labels_confused: float
    slopes: np.ndarray
    tau: float
    confusions: Confusions
    typical: np.ndarray
    log_likelihood: float
    converged: bool
    sure: np.ndarray
    can_tell: bool
    interval: tuple[float, float]
    num_classes: int

    @property
    def rate(self) -> float:
        """Return the share of labels that are wrong: a random one may hit the right class."""
        return error_rate(self.labels_random, self.labels_confused, self.num_classes)

    def verdicts(self, tables: Sequence[np.ndarray], codes: np.ndarray) -> Verdicts:
        """Judge labels from the judges' tables.

        Args:
            tables: two of (M, C), as `Discriminant.table` and `SoftMeans.table` return them.
            codes: (M,) given labels.
        """
        filled = [_filled(t, codes, v) for t, v in zip(tables, self.typical, strict=True)]
        starts, sources = self.confusions.starts, self.confusions.sources
        pairs = starts, sources, self.confusions.probabilities(self.tau)  # Q(y, z)
        classes = self.num_classes
        even, odd = self.labels_random / classes, self.labels_confused
        if self.labels_random + self.labels_confused <= 0:  # then what the sample shows
            even, odd = 1.0, 0.0
        other = alternatives(filled, self.slopes, codes, pairs, (even, odd))
        own, g = other.own, other.g
        wrong = self.labels_random * other.others / classes + self.labels_confused * g
        right = (1 - self.random - self.confused + self.labels_random / classes) * own
        right += max(0.0, self.random - self.labels_random) / classes
        right += max(0.0, self.confused - self.labels_confused) * g
        odds = np.log(np.maximum(wrong, LEAST)) - np.log(np.maximum(right, LEAST))
        probability = wrong / np.maximum(wrong + right, LEAST)
        share = np.where(other.total > 0, other.value / np.maximum(other.total, LEAST), 0.0)
        # Where no label is thought wrong the odds are all equal: rank by what the samples show.
        if wrong.max(initial=0) <= 0:
            odds = np.log(np.maximum(other.shown, LEAST)) - np.log(np.maximum(own, LEAST))
        doubt = _doubt(Mixture(own, g, codes, classes), self.random, self.confused)
        return Verdicts(odds, probability, other.best, probability * share, doubt)


class Verdicts(NamedTuple):
    """What the model says of M labels.

    Attributes:
        odds: (M,) log odds that the label is wrong, to rank by.
        wrong: (M,) the probability of that.
        other: (M,) the class that is most probably right if the label is not.
        other_probability: (M,) the probability that this class is the right one.
        doubt: (M,) as `wrong`, with all of u and k taken for the labels' errors.
    """

    odds: np.ndarray
    wrong: np.ndarray
    other: np.ndarray
    other_probability: np.ndarray
    doubt: np.ndarray


@dataclass(frozen=True)
class RandomErrors:
    """The best models without confusions, from which the whole one starts.

    Attributes:
        likelihood: of the labels, without confusions.
        fits: its maxima, the best first.
    """

    likelihood: Likelihood
    fits: list[Fit]

    @classmethod
    def of(cls, tables: Sequence[np.ndarray], codes: np.ndarray) -> RandomErrors:
        """Fit them.

        Args:
            tables: two of (M, C), as `Discriminant.table` and `SoftMeans.table` return them.
            codes: (M,) given labels.
        """
        likelihood = Likelihood.of(tables, codes, nobody(tables[0].shape[1]))
        return cls(likelihood, likelihood.fits_from_starts(with_k=False))

    @property
    def doubt(self) -> np.ndarray:
        """(M,) the probability that a label is wrong; 0 for one that cannot be judged."""
        likelihood = self.likelihood
        u, _, tau, slopes = likelihood.unpack(self.fits[0].x)
        own = likelihood.terms(slopes, tau).own
        judged = Mixture(own, np.zeros(len(own)), likelihood.codes, likelihood.num_classes)
        doubt = np.zeros(len(likelihood.testable))
        doubt[likelihood.testable] = _doubt(judged, u, 0.0)
        return doubt


def fit_label_model(
    tables: Sequence[np.ndarray],
    codes: np.ndarray,
    confusions: Confusions,
    support: float,
    random_rate: float | None = None,
    half_trained: bool = False,
    at_random: RandomErrors | None = None,
) -> LabelModel:
    """Fit the model to labels and the tables of their judges.

    Args:
        tables: two of (M, C), as `Discriminant.table` and `SoftMeans.table` return them; samples
            whose own class has no other reference are left out.
        codes: (M,) given labels.
        confusions: whom each class may be taken for.
        support: mean references a class.
        random_rate: share of labels wrong at random, known otherwise: it decides where the
            likelihood cannot.  With few classes, equally far apart, an unsure judge and a sure one
            with random errors explain the labels as well.
        half_trained: the embedding learned from such labels, and not for long; see the module.
        at_random: of the same tables and labels, if at hand.
    """
    check_flags(half_trained=half_trained)
    at_random = at_random or RandomErrors.of(tables, codes)
    likelihood = replace(at_random.likelihood, confusions=confusions)
    alone = at_random.fits
    x = alone[0].x
    from_alone = np.concatenate([x[:1], [_ALMOST_NO_K], x[2:]])
    fits = [*alone, *likelihood.fits_from_starts(further=[from_alone])]
    return _model(likelihood, _decided(likelihood, fits, random_rate), support, half_trained)


def refit_label_model(
    model: LabelModel,
    tables: Sequence[np.ndarray],
    codes: np.ndarray,
    confusions: Confusions,
    support: float,
    half_trained: bool = False,
    afresh: bool = False,
) -> LabelModel:
    """Fit a model anew, from where it was, to other labels or tables.

    Args:
        model: as it was fitted to similar tables.
        tables: see `fit_label_model`.
        codes: (M,) given labels.
        confusions: whom each class may be taken for.
        support: mean references a class.
        half_trained: see `fit_label_model`.
        afresh: from the usual starts as well; a judge that was all too sure stays so.
    """
    check_flags(half_trained=half_trained, afresh=afresh)
    likelihood = Likelihood.of(tables, codes, confusions)
    k = max(model.confused, _LEAST_K)
    start = likelihood.pack(model.random, k, model.tau, model.slopes)
    fits = likelihood.fits_from_starts(further=[start]) if afresh else [likelihood.fit(start)]
    return _model(likelihood, best_of(fits), support, half_trained)


def _model(likelihood: Likelihood, best: Fit, support: float, half_trained: bool) -> LabelModel:
    u, k, tau, slopes = likelihood.unpack(best.x)
    terms = likelihood.terms(slopes, tau)
    sure = surest(terms.largest, SURE if support >= FEWEST_MATES else SURE_OF_FEW)
    can_tell = bool(sure.sum() >= FEWEST_SURE * len(sure)) and not half_trained
    blamed = None if can_tell else k / max(u + k, LEAST) / 2 if half_trained else BLAMED
    used = sure if can_tell else np.ones(len(sure), dtype=bool)
    everyone = Mixture(terms.own, terms.g, likelihood.codes, likelihood.num_classes)
    labels_random, labels_confused, interval = labels_own(everyone, used, blamed, u, k)
    return LabelModel(
        random=u,
        confused=k,
        labels_random=labels_random,
        labels_confused=labels_confused,
        slopes=slopes,
        tau=tau,
        confusions=likelihood.confusions,
        # A class of one is rarer by its size, which the discriminant counts.
        typical=likelihood.typical - [np.log(support), 0.0],
        log_likelihood=-float(best.fun),
        converged=bool(best.success),
        sure=used,
        can_tell=can_tell,
        interval=interval,
        num_classes=likelihood.num_classes,
    )


def _filled(table: np.ndarray, codes: np.ndarray, typical: float) -> np.ndarray:
    """`centred`, a label that cannot be judged fitting as right ones typically do."""
    m = np.arange(len(codes))
    own = table[m, codes]
    table = table.copy()
    table[m, codes] = np.where(np.isfinite(own), own, typical)
    return centred(table)


def _decided(likelihood: Likelihood, fits: Sequence[Fit], random_rate: float | None) -> Fit:
    """The best fit, or the one nearest to `random_rate` of those as good."""
    best = best_of(fits)
    if random_rate is None:
        return best

    def rate(fit: Fit) -> float:
        u, k, _, _ = likelihood.unpack(fit.x)
        return error_rate(u, k, likelihood.num_classes)

    if rate(best) >= random_rate:
        return best
    as_good = [f for f in fits if (f.fun - best.fun) * len(likelihood.codes) <= _AS_GOOD]
    return min(as_good, key=lambda fit: abs(rate(fit) - random_rate))


def _doubt(labels: Mixture, u: float, k: float) -> np.ndarray:
    """(M,) the probability of a wrong label, all of u and k taken for the labels' errors."""
    doubted = u * (1 - labels.own) / labels.num_classes + k * labels.g
    kept = (1 - u - k + u / labels.num_classes) * labels.own
    return doubted / np.maximum(doubted + kept, LEAST)


def tells_apart(table: np.ndarray, codes: np.ndarray) -> bool:
    """Say whether a judge finds the given label more often than by chance.

    By chance: were the labels permuted among the samples.  The judge's best class hits the label of
    h samples; permuted, of about sum_c (samples judged c) (samples labelled c) / M.  `BY_CHANCE`
    standard deviations above that tell.  Below `FEWEST_TESTED` samples, or where one class has
    nearly all, there is no saying, and True.

    Args:
        table: (M, C) of the judge.
        codes: (M,) given labels.

    Example:
        >>> random = np.random.default_rng(0)
        >>> tells_apart(random.normal(size=(200, 5)), random.integers(0, 5, 200))
        False
    """
    finite = np.isfinite(table[np.arange(len(codes)), codes])
    table, codes = table[finite], codes[finite]
    return finds_labels(np.where(np.isnan(table), -np.inf, table).argmax(1), codes)


def finds_labels(best: np.ndarray, codes: np.ndarray) -> bool:
    """Say whether a judge's best classes are the given labels more often than by chance.

    Args:
        best: (M,) codes, the class that fits each sample best.
        codes: (M,) given labels.

    Example:
        >>> codes = np.arange(60) % 3
        >>> finds_labels(codes, codes), finds_labels((codes + 1) % 3, codes)
        (True, False)
    """
    m = len(codes)
    if m < FEWEST_TESTED or np.bincount(codes).max() > _DOMINANT * m:
        return True
    hits, classes = (best == codes).sum(), 1 + max(best.max(), codes.max())
    judged, labelled = np.bincount(best, minlength=classes), np.bincount(codes, minlength=classes)
    expected = (judged * labelled).sum() / m
    variance = max(expected * (1 - expected / m), 1.0)
    return bool(hits - expected > BY_CHANCE * np.sqrt(variance))


def wrong_share_of_kept(wrong_probability: np.ndarray) -> np.ndarray:
    """Return (N,) the share of wrong labels among those at least as probably right.

    Keeping the labels with q below x keeps a share of at most x of wrong ones, in expectation:
    the mean probability of being wrong over all that rank before or beside a label.

    Args:
        wrong_probability: (N,), NaN where unknown; such labels count nowhere and get NaN.

    Example:
        >>> wrong_share_of_kept(np.array([0.0, 0.2, np.nan, 0.7])).round(3).tolist()
        [0.0, 0.1, nan, 0.3]
    """
    known = np.flatnonzero(~np.isnan(wrong_probability))
    order = known[np.argsort(wrong_probability[known], kind="stable")]
    ranked = wrong_probability[order]
    last = np.searchsorted(ranked, ranked, side="right")  # equal ones share one value
    q = np.full(len(wrong_probability), np.nan)
    q[order] = (np.cumsum(ranked) / np.arange(1, len(ranked) + 1))[last - 1] if len(order) else []
    return q
