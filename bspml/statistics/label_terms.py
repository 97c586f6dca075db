"""What p = softmax(sum of b_j T_j) says of labels, compiled: row by row, p itself never held.

exp is a power series after  exp(x) = 2^k 2^f,  |f| <= 1/2, which a processor computes for eight
entries or more at a time.  In float32, exact to 2e-7 of an entry, of which a mean over labels keeps
less than 1e-7; what is said of the label itself is computed in float64, however small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, no_type_check

import numba
import numpy as np

_LOG2E = np.float32(math.log2(math.e))
_SMALLEST = np.float32(-126.0)  # power of 2: below every entry that counts
_NOTHING = 2.0**-120
_HALF, _ONE, _BIAS, _MANTISSA = (np.float32(value) for value in (0.5, 1.0, 127.0, 2.0**23))
_S1, _S2, _S3, _S4, _S5, _S6, _S7 = (
    np.float32(math.log(2) ** n / math.factorial(n)) for n in range(1, 8)
)
_FREE = {"reassoc", "contract", "nsz", "nnan"}  # tables hold no NaN


class LabelTerms(NamedTuple):
    """What the likelihood of M labels and its gradient are made of, for J tables of C classes.

    Attributes:
        own: (M,) p(z).
        largest: (M,) the largest p.
        g: (M,) sum_y p(y) Q(y, z).
        tilt: (M,) sum_y p(y) Q(y, z) (a value of each pair).
        expected: (J, M) sum_c p(c) T_j(c).
        routed: (J, M) sum_y p(y) Q(y, z) T_j(y).
    """

    own: np.ndarray
    largest: np.ndarray
    g: np.ndarray
    tilt: np.ndarray
    expected: np.ndarray
    routed: np.ndarray


def label_terms(
    tables: Sequence[np.ndarray],
    slopes: np.ndarray,
    codes: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
) -> LabelTerms:
    """Return what p says of the labels.

    Args:
        tables: (M, C) of each judge, no entry NaN or above 0.
        slopes: b of each judge.
        codes: (M,) labels z.
        pairs: of the E pairs (y, z), sorted by z: (C + 1,) the first of each z, (E,) y, (E,)
            Q(y, z), and (E,) a value of each.

    Example:
        >>> none = np.zeros(3, int), np.zeros(0, int), np.zeros(0), np.zeros(0)
        >>> label_terms([np.zeros((1, 2))], np.ones(1), np.array([1]), none).own
        array([0.5])
    """
    m, judges = len(codes), len(tables)
    terms = LabelTerms(*np.zeros((4, m)), *np.zeros((2, judges, m)))
    slopes = np.asarray(slopes, np.float64)
    _terms(_single(tables), slopes, codes, pairs, terms)
    return terms


class Alternatives(NamedTuple):
    """The class most probably right if the label z is not, by  f(y) = p(y) (even + odd Q(y, z)).

    Attributes:
        own: (M,) p(z).
        others: (M,) 1 - p(z), to all its digits where p(z) is nearly 1.
        g: (M,) sum_y p(y) Q(y, z).
        best: (M,) int64, the y != z of largest f.
        value: (M,) f of it.
        total: (M,) sum of f over y != z.
        shown: (M,) p of it.
    """

    own: np.ndarray
    others: np.ndarray
    g: np.ndarray
    best: np.ndarray
    value: np.ndarray
    total: np.ndarray
    shown: np.ndarray


def alternatives(
    tables: Sequence[np.ndarray],
    slopes: np.ndarray,
    codes: np.ndarray,
    pairs: tuple[np.ndarray, np.ndarray, np.ndarray],
    shares: tuple[float, float],
) -> Alternatives:
    """Return the best class other than each label.

    Args:
        tables: (M, C) of each judge, no entry NaN or above 0.
        slopes: b of each judge.
        codes: (M,) labels z.
        pairs: the first three of `label_terms`.
        shares: even and odd.

    Example:
        >>> none = np.zeros(4, int), np.zeros(0, int), np.zeros(0)
        >>> table = np.log([[0.5, 0.2, 0.3]])
        >>> alternatives([table], np.ones(1), np.array([0]), none, (1.0, 0.0)).best
        array([2])
    """
    own, others, g, value, total, shown = np.zeros((6, len(codes)))
    found = Alternatives(own, others, g, codes.copy(), value, total, shown)
    slopes = np.asarray(slopes, np.float64)
    _alternatives(_single(tables), slopes, codes, pairs, shares, found)
    return found


def _single(tables: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(np.asarray(table, np.float32) for table in tables)


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
@no_type_check
def leads(table):
    """Return (M,) float64, by how much the largest entry of each row leads the second.

    Args:
        table: (M, C), C at least 2.

    Example:
        >>> leads(np.array([[1.0, 3.0, 2.5]]))
        array([0.5])
    """
    found = np.empty(len(table))
    for i in range(len(table)):
        first = second = -np.inf
        for value in table[i]:
            if value > first:
                first, second = value, first
            elif value > second:
                second = value
        found[i] = first - second
    return found


@numba.njit(cache=True, nogil=True, fastmath=_FREE)
@no_type_check
def _exponentials(tables, slopes, i, shown, bits):
    """exp(logits - their largest) of row i into `shown`; returns the largest, and their sum."""
    classes = len(shown)
    table, b = tables[0][i], np.float32(slopes[0])
    for c in range(classes):
        shown[c] = -b * table[c]
    for j in range(1, len(tables)):
        table, b = tables[j][i], np.float32(slopes[j])
        for c in range(classes):
            shown[c] -= b * table[c]
    # Costs are at least 0, and such numbers are ordered like the whole numbers of their bits, of
    # which the least is found many at a time.
    stored = shown.view(np.int32)
    least = stored[0]
    for c in range(1, classes):
        least = min(least, stored[c])
    bits[0] = least
    lowest = bits.view(np.float32)[0]
    for c in range(classes):
        power = max((lowest - shown[c]) * _LOG2E, _SMALLEST)
        whole = np.floor(power + _HALF)
        f = power - whole
        p = _S7
        p = p * f + _S6
        p = p * f + _S5
        p = p * f + _S4
        p = p * f + _S3
        p = p * f + _S2
        p = p * f + _S1
        shown[c] = p * f + _ONE
        bits[c] = np.int32((whole + _BIAS) * _MANTISSA)  # 2^whole as it is stored
    scale = bits.view(np.float32)
    total = np.float32(0.0)
    for c in range(classes):
        shown[c] *= scale[c]
        total += shown[c]
    return -np.float64(lowest), np.float64(total)


@numba.njit(cache=True, nogil=True, fastmath=_FREE)
@no_type_check
def _dot(a, b):
    total = np.float32(0.0)
    for c in range(len(a)):
        total += a[c] * b[c]
    return np.float64(total)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _logit(tables, slopes, i, c):
    logit = 0.0
    for j in range(len(tables)):
        logit += slopes[j] * tables[j][i, c]
    return logit


@numba.njit(cache=True, nogil=True)
@no_type_check
def _terms(tables, slopes, codes, pairs, terms):
    starts, sources, taken, values = pairs
    own, largest, g, tilt, expected, routed = terms
    classes = tables[0].shape[1]
    shown, bits = np.empty(classes, np.float32), np.empty(classes, np.int32)
    for i in range(len(codes)):
        top, total = _exponentials(tables, slopes, i, shown, bits)
        z = codes[i]
        own[i] = min(1.0, np.exp(_logit(tables, slopes, i, z) - top) / total)
        largest[i] = 1 / total
        for j in range(len(tables)):
            expected[j, i] = _dot(shown, tables[j][i]) / total
        for e in range(starts[z], starts[z + 1]):
            y = sources[e]
            share = shown[y] * taken[e] / total
            g[i] += share
            tilt[i] += share * values[e]
            for j in range(len(tables)):
                routed[j, i] += share * tables[j][i, y]


@numba.njit(cache=True, nogil=True)
@no_type_check
def _alternatives(tables, slopes, codes, pairs, shares, found):
    (starts, sources, taken), (even, odd) = pairs, shares
    own, others, g, best, value, total, likely = found
    classes = tables[0].shape[1]
    shown, bits = np.empty(classes, np.float32), np.empty(classes, np.int32)
    score = np.empty(classes)
    for i in range(len(codes)):
        highest, whole = _exponentials(tables, slopes, i, shown, bits)
        z = codes[i]
        for c in range(classes):
            score[c] = even * shown[c] / whole
        own[i] = min(1.0, np.exp(_logit(tables, slopes, i, z) - highest) / whole)
        for e in range(starts[z], starts[z + 1]):
            routed = shown[sources[e]] * taken[e] / whole
            g[i] += routed
            score[sources[e]] += odd * routed
        first = True
        for c in range(classes):
            if c == z:
                continue
            total[i] += score[c]
            others[i] += shown[c] / whole
            if first or score[c] > value[i]:
                best[i], value[i], first = c, score[c], False
        if shown[best[i]] <= _NOTHING * whole:  # all beyond what a number holds: by their logits
            top = -np.inf
            for c in range(classes):
                logit = _logit(tables, slopes, i, c)
                if c != z and logit > top:
                    best[i], top = c, logit
        likely[i] = np.exp(_logit(tables, slopes, i, best[i]) - highest) / whole
