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

Labels of a class may all be moved to one other, wherever it lies, which no distance foretells.  So
the model is fitted once more with the confusions that the labels themselves show, pair by pair
(`bspml.statistics.label_pairs`), and that one answers where it is clearly the better.

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
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from bspml.statistics.label_likelihood import LEAST, Fit, Likelihood, best_of, centred, counted_fit
from bspml.statistics.label_pairs import Confusions, nobody
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
_ALMOST_NO_K = -8.0  # log odds of k, at the start from the best model without it
_LEAST_K = 1e-4  # at the start from another model: with none there is no way to more
_SURE, _SILENT = 10.0, 1e-3  # b of a sure judge, by units
_SOME_K = 0.01  # from which counting starts
_GLANCES = 2
_PROMISING, _HOPELESS = 0.08, -1.0  # after these, by the same measure as the next two
_OTHER = 0.01  # errors that a sure judge must find in addition, and no model may find fewer
# Log likelihood for each wrong label, by which a model is clearly better, or still as good.  Pairs
# that are counted gain up to .36 where labels are random, human or of near classes, and .3 to 2.8
# where each class is moved to one other (CUB, CIFAR-10, Omniglot, Gaussian classes).
_CLEAR, _AS_WELL = 0.45, 0.25
_AS_GOOD = 4.0  # log likelihood, in all, below which no fit is better than another


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
        num_classes: C, without classes of which no label can be judged.
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
        pairs, classes = self.confusions.pairs(self.tau), self.num_classes
        even, odd = self.labels_random / classes, self.labels_confused
        if self.labels_random + self.labels_confused <= 0:  # then what the sample shows
            even, odd = 1.0, 0.0
        other = alternatives(
            filled, self.slopes, codes, pairs, (even, odd), (self.random, self.confused, classes)
        )
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
    likelihood = at_random.likelihood.under(confusions)
    alone = at_random.fits
    x = alone[0].x
    from_alone = np.concatenate([x[:1], [_ALMOST_NO_K], x[2:]])
    fits = [*alone, *likelihood.fits_from_starts(further=[from_alone])]
    best = _decided(likelihood, fits, random_rate)
    if support >= FEWEST_MATES and not half_trained:
        return _counted(likelihood, best, support)
    return _model(likelihood, best, support, half_trained)


def refit_label_model(
    model: LabelModel,
    tables: Sequence[np.ndarray],
    codes: np.ndarray,
    confusions: Confusions,
    support: float,
    half_trained: bool = False,
    how: Literal["on", "afresh", "counting"] = "on",
) -> LabelModel:
    """Fit a model anew, from where it was, to other labels or tables.

    Args:
        model: as it was fitted to similar tables.
        tables: see `fit_label_model`.
        codes: (M,) given labels.
        confusions: whom each class may be taken for; the model's counts are taken over.
        support: mean references a class.
        half_trained: see `fit_label_model`.
        how: "on" from where the model is; "afresh" from the usual starts as well, as a judge that
            was all too sure stays so; "counting" anew whom the classes are taken for, if it did.
    """
    check_flags(half_trained=half_trained)
    likelihood = Likelihood.of(tables, codes, confusions)
    k = max(model.confused, _LEAST_K)
    start = likelihood.pack(model.random, k, model.tau, model.slopes)
    known = model.confusions
    if known.counts.any():
        if how == "counting":
            return _model(*counted_fit(likelihood.seen(), start), support, half_trained)
        if not confusions.counts.any():
            confusions = confusions.joined(known.sources, known.targets, known.counts)
        likelihood = likelihood.under(confusions, start)
    afresh = how == "afresh"
    fits = likelihood.fits_from_starts(further=[start]) if afresh else [likelihood.fit(start)]
    return _model(likelihood, best_of(fits), support, half_trained)


def _counted(likelihood: Likelihood, best: Fit, support: float) -> LabelModel:
    """The model whose confusions the labels show, where it clearly is another and the better one.

    Where classes are far apart, "they overlap", by the soft means of wrong labels that lie beside
    each other, is as likely as "labels are wrong", by a sure judge: that one is tried by itself.
    """
    plain = _model(likelihood, best, support, False)
    u, k, tau, slopes = likelihood.unpack(best.x)
    sure = np.array([_SURE, *[_SILENT] * (len(likelihood.tables) - 1)]) / likelihood.units
    for b, worth, more in ((slopes, _PROMISING, -_OTHER), (sure, _HOPELESS, _OTHER)):
        seen, first = _glance(likelihood.seen(), likelihood.pack(u, max(k, _SOME_K), tau, b))
        errors, gain = _errors(seen, first), best.fun - first.fun
        if gain > worth * errors and errors > _errors(likelihood, best) + more:
            other = _model(*counted_fit(seen, first.x), support, False)
            if _is_another(plain, other, len(likelihood.codes)):
                return other
    return plain


def _glance(likelihood: Likelihood, x: np.ndarray) -> tuple[Likelihood, Fit]:
    """Counts, and the shares of errors by expectation-maximisation, slopes and reach held."""
    for _ in range(_GLANCES):
        likelihood = likelihood.counted(x)
        u, k, tau, slopes = likelihood.unpack(x)
        terms = likelihood.terms(slopes, tau)
        mixture = Mixture(terms.own, terms.g, likelihood.codes, likelihood.num_classes)
        u, k = mixture.shares(u, k)
        cost = -float(np.log(mixture.likelihood(u, k)).mean())
        x = likelihood.pack(u, max(k, _LEAST_K), tau, slopes)
    return likelihood, Fit(x, cost, True)


def _errors(likelihood: Likelihood, fit: Fit) -> float:
    u, k, _, _ = likelihood.unpack(fit.x)
    return error_rate(u, k, likelihood.num_classes)


def _is_another(plain: LabelModel, other: LabelModel, labels: int) -> bool:
    """Whether another model explains the labels clearly better, or as well by more errors."""
    errors = error_rate(other.random, other.confused, other.num_classes)
    gain = other.log_likelihood - plain.log_likelihood
    if gain > _CLEAR * errors + _AS_GOOD / labels:
        return True
    return gain > -_AS_WELL * errors and other.interval[0] > plain.interval[1]


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
    if random_rate is None or _errors(likelihood, best) >= random_rate:
        return best

    as_good = [f for f in fits if (f.fun - best.fun) * len(likelihood.codes) <= _AS_GOOD]
    return min(as_good, key=lambda fit: abs(_errors(likelihood, fit) - random_rate))


def _doubt(labels: Mixture, u: float, k: float) -> np.ndarray:
    """(M,) the probability of a wrong label, all of u and k taken for the labels' errors."""
    doubted = u * (1 - labels.own) / labels.num_classes + k * labels.g
    kept = (1 - u - k + u / labels.num_classes) * labels.own
    return doubted / np.maximum(doubted + kept, LEAST)
