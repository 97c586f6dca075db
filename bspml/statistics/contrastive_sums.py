"""The compiled sums of the contrastive statistics: over classes, of rows and of columns of a block.

Blocks are (rows, columns), both sorted by class; tables are (classes, samples), so that what is
done to all samples uses the processor's vectors.  What one block says is summed in float64.
Every function works on a range of samples, `low` to `high`, so that threads share a table without
meeting.
"""

from __future__ import annotations

import numba
import numpy as np

TOGETHER = 8  # rows whose sums are formed at once

# Loops that the processor's vectors run go over a slice from 0, or count in `np.uintp`: a range
# with a start of its own may hold negative numbers, which count from the end, and is taken one by
# one.


# The order of the additions is free, so that they use the processor's vectors; one program adds
# in one order.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def add_to_rows(block, columns, weights, starts, sums, low, high):
    """Add the weighted sums of each row over each class of the columns.

    `TOGETHER` rows at a time: of a class of few columns, loops and branches would cost more than
    the additions.  So the block must have rows, and `sums` places, up to a multiple of that.

    Args:
        block: (rows, columns).
        columns: its columns among the references, the first and the one behind the last.
        weights: (R,) of the references.
        starts: (C + 1,) first reference of each class.
        sums: (C, places), added to.
        low, high: rows, `low` a multiple of `TOGETHER`.
    """
    left, right = columns
    first = np.searchsorted(starts, left, side="right") - 1
    for r in range(low, high, 8):
        c = first
        start = left
        while start < right:
            stop = min(starts[c + 1], right)
            s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
            for k in range(np.uintp(start - left), np.uintp(stop - left)):
                w = weights[k + np.uintp(left)]
                s0 += w * block[r, k]
                s1 += w * block[r + 1, k]
                s2 += w * block[r + 2, k]
                s3 += w * block[r + 3, k]
                s4 += w * block[r + 4, k]
                s5 += w * block[r + 5, k]
                s6 += w * block[r + 6, k]
                s7 += w * block[r + 7, k]
            sums[c, r] += s0
            sums[c, r + 1] += s1
            sums[c, r + 2] += s2
            sums[c, r + 3] += s3
            sums[c, r + 4] += s4
            sums[c, r + 5] += s5
            sums[c, r + 6] += s6
            sums[c, r + 7] += s7
            c += 1
            start = stop


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _add_weighted(row, weight, sums):
    for j in range(len(row)):
        sums[j] += weight * row[j]


@numba.njit(cache=True, nogil=True)
def add_to_columns(block, rows, weights, starts, sums, low, high):
    """Add the weighted sums of each column over each class of the rows.

    Args:
        block: (rows, columns).
        rows: its rows among the references, the first and the one behind the last.
        weights: (R,) of the references.
        starts: (C + 1,) first reference of each class.
        sums: (classes of the rows, columns), added to.
        low, high: columns.
    """
    top, bottom = rows
    first = np.searchsorted(starts, top, side="right") - 1
    c = first
    for i in range(top, bottom):
        while starts[c + 1] <= i:
            c += 1
        _add_weighted(block[i - top, low:high], weights[i], sums[c - first, low:high])


@numba.njit(cache=True, nogil=True)
def count_others(means, first, codes, everyone, stratum, best, null):
    """Enter the other classes' difficulties into the histograms, and keep the best other class.

    Args:
        means: (classes, samples) s_i(c).
        first: number of the first class.
        codes: (samples,) given classes.
        everyone: (samples,) t_i.
        stratum: (C,) row of each class in the histograms, -1: it has no reference.
        best: (samples,) s_i and (samples,) class of the best so far, written to.
        null: (G, bins) added to.
    """
    bins = null.shape[1]
    other, other_class = best
    for c in range(first, first + len(means)):
        if stratum[c] < 0:
            continue
        mean, counts = means[c - first], null[stratum[c]]
        for r in range(len(codes)):
            if codes[r] == c:
                continue
            if mean[r] > other[r]:  # the first of equals
                other[r], other_class[r] = mean[r], c
            b = int(np.floor((everyone[r] - mean[r] + 2.0) / 4.0 * bins))
            counts[min(max(b, 0), bins - 1)] += 1


@numba.njit(cache=True)
def weight_of_mates(weights, starts):
    """Return (R,) the weight of each reference's class without it.

    Summed from both ends: the total less its own would cancel where that is nearly all of it.

    Args:
        weights: (R,) of the references.
        starts: (C + 1,) first reference of each class.
    """
    out = np.empty(len(weights))
    for c in range(len(starts) - 1):
        before, after = 0.0, 0.0
        for j in range(starts[c], starts[c + 1]):
            out[j] = before
            before += weights[j]
        for j in range(starts[c + 1] - 1, starts[c] - 1, -1):
            out[j] += after
            after += weights[j]
    return out
