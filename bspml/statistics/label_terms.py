"""What p = softmax(sum of b_j T_j) says of labels, compiled: row by row, p itself never held.

Of large tables exp is a power series after  exp(x) = 2^k 2^f,  |f| <= 1/2, which a processor
computes for eight entries or more at a time.  In float32, exact to 2e-7 of an entry, of which a
mean over labels keeps less than 1e-7; what is said of the label itself is computed in float64,
however small.  Of tables of `EXACT` entries or fewer all is computed in float64: few labels leave
the likelihood so flat that a maximisation cannot find its way through such rounding, and ends
wherever the last digits of the features send it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np
from numba.extending import overload

from bspml.statistics.label_pairs import Pairs, adds, taken_for

EXACT = 1 << 16  # entries of a table

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
        tilt: (M,) what of g follows from the shares by distance, times `beyond`.
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
    pairs: Pairs,
    added: np.ndarray,
) -> LabelTerms:
    """Return what p says of the labels.

    Args:
        tables: (M, C) of each judge, no entry NaN or above 0.
        slopes: b of each judge.
        codes: (M,) labels z.
        pairs: whom each class is taken for.
        added: for each label in turn, and each pair of it, what the label adds to the count, as
            `added_counts` says; held while the slopes change.

    Example:
        >>> from bspml.statistics.label_pairs import nobody
        >>> pairs = nobody(2).pairs(1.0)
        >>> label_terms([np.zeros((1, 2))], np.ones(1), np.array([1]), pairs, np.zeros(0)).own
        array([0.5])
    """
    m, judges = len(codes), len(tables)
    terms = LabelTerms(*np.zeros((4, m)), *np.zeros((2, judges, m)))
    slopes = np.asarray(slopes, np.float64)
    _terms(_stored(tables), slopes, codes, (*pairs, added), terms)
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
    pairs: Pairs,
    shares: tuple[float, float],
    errors: tuple[float, float, int] = (0.0, 0.0, 1),
) -> Alternatives:
    """Return the best class other than each label.

    Args:
        tables: (M, C) of each judge, no entry NaN or above 0.
        slopes: b of each judge.
        codes: (M,) labels z.
        pairs: whom each class is taken for.
        shares: even and odd.
        errors: u, k and C of the model, by which each label is left out of the counts.

    Example:
        >>> from bspml.statistics.label_pairs import nobody
        >>> table, pairs = np.log([[0.5, 0.2, 0.3]]), nobody(3).pairs(1.0)
        >>> alternatives([table], np.ones(1), np.array([0]), pairs, (1.0, 0.0)).best
        array([2])
    """
    own, others, g, value, total, shown = np.zeros((6, len(codes)))
    found = Alternatives(own, others, g, codes.copy(), value, total, shown)
    slopes = np.asarray(slopes, np.float64)
    _alternatives(_stored(tables), slopes, codes, tuple(pairs), (*shares, *errors), found)
    return found


def added_counts(
    tables: Sequence[np.ndarray],
    slopes: np.ndarray,
    codes: np.ndarray,
    pairs: Pairs,
    errors: tuple[float, float, int],
) -> np.ndarray:
    """Return, for each label in turn and each pair of it, the probability that this is its error.

    That the label is wrong, at random or confused, and its sample of class y: what it adds to
    n(y, z).  It is left out of the count that judges it, so where it ends is found step by step.

    Args:
        tables: (M, C) of each judge, no entry NaN or above 0.
        slopes: b of each judge.
        codes: (M,) labels z.
        pairs: whom each class is taken for.
        errors: u, k and C.

    Example:
        >>> from bspml.statistics.label_pairs import Confusions
        >>> pairs = Confusions.of(np.array([[1], [0]]), np.zeros((2, 1))).pairs(1.0)
        >>> added_counts([np.array([[0.0, -9.0]])], np.ones(1), np.array([1]), pairs, (0.1, 0.1, 2))
        array([0.98368709])
    """
    added = np.zeros(int(np.diff(pairs.starts)[codes].sum()))
    slopes = np.asarray(slopes, np.float64)
    _added(_stored(tables), slopes, codes, tuple(pairs), errors, added)
    return added


def stored(table: np.ndarray) -> np.ndarray:
    """Return a table in the precision it is computed in: float64 up to `EXACT` entries, or float32.

    Args:
        table: (M, C) of a judge.

    Example:
        >>> stored(np.zeros((2, 3), np.float32)).dtype
        dtype('float64')
    """
    return np.asarray(table, np.float64 if table.size <= EXACT else np.float32)


def _stored(tables: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(map(stored, tables))


@numba.njit(cache=True, nogil=True)
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


def _exponentials(tables, slopes, i, shown, bits):
    """exp(logits - their largest) of row i into `shown`; returns the largest, and their sum."""
    raise NotImplementedError  # compiled only: one of the next two, by the kind of `shown`


@numba.njit(cache=True, nogil=True)
def _in_float64(tables, slopes, i, shown, bits):
    for c in range(len(shown)):
        shown[c] = _logit(tables, slopes, i, c)
    highest, total = shown.max(), 0.0
    for c in range(len(shown)):
        shown[c] = np.exp(shown[c] - highest)
        total += shown[c]
    return highest, total


@numba.njit(cache=True, nogil=True, fastmath=_FREE)
def _in_float32(tables, slopes, i, shown, bits):
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


@overload(_exponentials)
def _of_its_kind(tables, slopes, i, shown, bits):
    chosen = _in_float32 if shown.dtype == numba.float32 else _in_float64
    return lambda tables, slopes, i, shown, bits: chosen(tables, slopes, i, shown, bits)


@numba.njit(cache=True, nogil=True, fastmath=_FREE)
def _dot(a, b):
    total = a[0] * b[0]
    for c in range(1, len(a)):
        total += a[c] * b[c]
    return np.float64(total)


@numba.njit(cache=True, nogil=True)
def _logit(tables, slopes, i, c):
    logit = 0.0
    for j in range(len(tables)):
        logit += slopes[j] * tables[j][i, c]
    return logit


@numba.njit(cache=True, nogil=True)
def _terms(tables, slopes, codes, pairs, terms):
    starts, sources, taken, beyond, counts, totals, added = pairs
    own, largest, g, tilt, expected, routed = terms
    at, seen = 0, totals.max() > 0
    classes = tables[0].shape[1]
    shown, bits = np.empty(classes, tables[0].dtype), np.empty(classes, np.int32)
    for i in range(len(codes)):
        top, total = _exponentials(tables, slopes, i, shown, bits)
        z = codes[i]
        own[i] = min(1.0, np.exp(_logit(tables, slopes, i, z) - top) / total)
        largest[i] = 1 / total
        for j in range(len(tables)):
            expected[j, i] = _dot(shown, tables[j][i]) / total
        for e in range(starts[z], starts[z + 1]):
            y = sources[e]
            q = by_distance = taken[e]
            if seen:
                less = min(added[at], counts[e])
                q = taken_for(counts[e], totals[y], taken[e], less)
                by_distance = taken_for(0.0, totals[y] - less, taken[e], 0.0)
            share = shown[y] * q / total
            g[i] += share
            tilt[i] += shown[y] * by_distance / total * beyond[e]
            at += 1
            for j in range(len(tables)):
                routed[j, i] += share * tables[j][i, y]


@numba.njit(cache=True, nogil=True)
def _added(tables, slopes, codes, pairs, errors, added):
    starts = pairs[0]
    classes = tables[0].shape[1]
    shown, bits = np.empty(classes, tables[0].dtype), np.empty(classes, np.int32)
    at = 0
    for i in range(len(codes)):
        z = codes[i]
        first, last = starts[z], starts[z + 1]
        if first == last:
            continue
        highest, whole = _exponentials(tables, slopes, i, shown, bits)
        own = min(1.0, np.exp(_logit(tables, slopes, i, z) - highest) / whole)
        right = (1 - errors[0] - errors[1]) * own
        adds((first, last), pairs, shown, whole, right, errors, added[at:])
        at += last - first


@numba.njit(cache=True, nogil=True)
def _alternatives(tables, slopes, codes, pairs, shares, found):
    (starts, sources, taken, _, counts, totals), (even, odd, u, k, known) = pairs, shares
    own, others, g, best, value, total, likely = found
    classes = tables[0].shape[1]
    shown, bits = np.empty(classes, tables[0].dtype), np.empty(classes, np.int32)
    score, added = np.empty(classes), np.zeros(classes)
    seen = k > 0 and totals.max() > 0
    for i in range(len(codes)):
        highest, whole = _exponentials(tables, slopes, i, shown, bits)
        z = codes[i]
        for c in range(classes):
            score[c] = even * shown[c] / whole
        own[i] = min(1.0, np.exp(_logit(tables, slopes, i, z) - highest) / whole)
        if seen:
            right, of_label = (1 - u - k) * own[i], (starts[z], starts[z + 1])
            adds(of_label, pairs, shown, whole, right, (u, k, known), added)
        for e in range(starts[z], starts[z + 1]):
            y, less = sources[e], min(added[e - starts[z]], counts[e])
            routed = shown[y] * taken_for(counts[e], totals[y], taken[e], less) / whole
            g[i] += routed
            score[y] += odd * routed
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
