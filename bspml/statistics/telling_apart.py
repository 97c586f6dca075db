"""Do the samples tell the classes apart at all, or would permuted labels fit as well?

A judge sees something if the given labels fit what it sees better than they would were they
permuted.  By how much depends on how many there are:

- Of many samples of thick classes the labels that the judge's best class hits by chance follow from
  the counts, `tells_apart`.
- The left-out class of a sample has a reference less than the others, and the fewer there are the
  more its mean is a matter of luck: of random samples, two a class of 500, the discriminant hits
  seven times what the counts say.  And of few samples so are the hits.  So there the labels are
  permuted and all are judged anew, `tells_apart_anew`: whatever the size and the classes.
"""

from __future__ import annotations

import numpy as np
import torch

from bspml.shapes import Float, Tensor
from bspml.statistics.discriminant import Discriminant
from bspml.statistics.soft_means import SoftMeans
from bspml.tensors.checks import Labels
from bspml.tensors.unit_rows import unit_rows

FEWEST_TESTED = 50  # samples below which the labels are permuted
FEWEST_OF_CLASS = 10.0  # mean samples a class below which they are
BY_CHANCE = 4.5  # standard deviations
_DOMINANT = 0.9  # share of a class beside which too few labels are left to permute
_PERMUTATIONS = 99
_REACHED = 2  # permutations that may fit as well: 3 of 100 random sets seem to tell
_CLEARLY, _FAR = 9, 8.0  # permutations, and standard deviations beyond them, that need no more
_ROUNDING = 1e-9
_MOST_TESTED, _MOST_DIMENSIONS = 1000, 128
_SHRINK = 0.5  # one for all, as to choose it by the labels favours these


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


def tells_apart_anew(rows: Float[Tensor, "N D"], codes: np.ndarray) -> bool:
    """Say whether the labels fit the left-out judges better than almost all permutations of these.

    How well: the mean probability that the judges give the label.  (Hits tell less: at 30 % wrong
    labels of 2 classes of 20, well apart, they tell half of the sets, and this tells 4 of 5.)

    Almost all: all but 2 of 99; of 50 samples and more, `BY_CHANCE` standard deviations are asked
    beyond their mean, as random sets are then to tell nothing at all.

    Deterministic.  Of many samples some whole classes are tested, by the directions in which they
    differ most; where one class has nearly all, there is no saying, and True.

    Args:
        rows: (N, D) the samples, each a reference of the others.
        codes: (N,) their labels.

    Example:
        >>> rows, codes = torch.eye(3).repeat_interleave(6, 0), np.repeat(np.arange(3), 6)
        >>> codes[[2, 8]] = 2, 0  # two of them wrong
        >>> tells_apart_anew(rows, codes), tells_apart_anew(torch.ones(18, 3), codes)
        (True, False)
    """
    _, place, sizes = np.unique(codes, return_inverse=True, return_counts=True)
    of_two = np.flatnonzero(sizes >= 2)  # a class of one cannot be judged
    step = -(-int(sizes[of_two].sum()) // _MOST_TESTED)
    tested = np.flatnonzero(np.isin(place, of_two[:: max(1, step)]))
    names, codes, sizes = np.unique(place[tested], return_inverse=True, return_counts=True)
    if len(names) < 2 or sizes.max() > _DOMINANT * len(codes):
        return True
    rows = unit_rows(rows[torch.from_numpy(tested).to(rows.device)].cpu()).double()
    values, vectors = torch.linalg.eigh(rows @ rows.T)
    rows = (vectors * values.clamp_min(0).sqrt())[:, -_MOST_DIMENSIONS:]
    fit, permuted, random = _fit(rows, codes), [], np.random.default_rng(0)
    for count in range(1, _PERMUTATIONS + 1):
        permuted.append(_fit(rows, random.permutation(codes)))
        if (np.array(permuted) >= fit - _ROUNDING).sum() > _REACHED:
            return False
        beyond, spread = fit - np.mean(permuted), np.std(permuted)
        if count >= _CLEARLY and (len(codes) >= FEWEST_TESTED or beyond > _FAR * spread):
            return bool(beyond > BY_CHANCE * spread)
    return True


def _fit(rows: Tensor, codes: np.ndarray) -> float:
    """The mean probability of a label, by both left-out judges."""
    some, everyone = torch.from_numpy(codes), torch.arange(len(codes))
    weights, labels = torch.ones(len(codes)).double(), Labels(some, np.unique(codes))
    tables = (
        Discriminant.of(rows, some, weights, len(labels.classes)).table(everyone, _SHRINK),
        SoftMeans.of(rows, labels, weights).table(everyone),
    )
    return float(sum(table.softmax(1)[everyone, some].mean() for table in tables))
