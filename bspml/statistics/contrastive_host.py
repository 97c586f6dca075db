"""The judged rows of the contrastive statistics on a processor, each product taken once.

References and rows are cut into panels, sorted by class.  The product of a panel of rows and one of
columns gives the rows' sums over the columns' classes; where the rows are references, too, it also
gives the columns' sums over the rows' classes, as S is symmetric, which wait until these columns
are rows.  When the turn of panel k comes, the later panels' sums over the classes before it wait:
at most N C / 4 numbers.  Where these are too many, only so many of the next panels' sums are kept
as fit, and the other products are taken again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bspml.statistics.contrastive_nearest import Candidates, candidates_of
from bspml.statistics.contrastive_rows import JudgedRows, RowFits
from bspml.statistics.contrastive_sums import TOGETHER, add_to_columns, add_to_rows, count_others
from bspml.statistics.references import SUPPORT_EDGES
from bspml.statistics.soft_means import LOWEST, pack
from bspml.tensors.largest import Largest, offer_to_columns, offer_to_rows
from bspml.tensors.unit_rows import unit_rows

_PANEL = 768  # rows and columns to a product, at most
_PANEL_VALUES = 1 << 23  # class sums of a panel of rows
_WAITING_BYTES = 5 << 25  # class sums of later panels
_CLASSES = 64  # judged together: their numbers stay in the processor's cache


class _Waiting(NamedTuple):
    """What earlier products say of a panel of rows."""

    first: int  # class
    sums: np.ndarray  # (powers, classes, rows)


class _Product(NamedTuple):
    """A panel of rows times one of columns."""

    E: np.ndarray  # (rows up to a multiple of `TOGETHER`, columns), becomes exp(a S), then its cube
    panel: slice
    beside: slice


class HostRows(JudgedRows):
    """On the CPU; what one product says is summed in float64, sums are as precise as the rows."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        m, reference = len(self.judged), self.reference
        self.fits = RowFits(*np.full((3, m), np.nan), *np.full((2, m), -1, np.int64))
        self.starts, self.weights = reference.starts, reference.weights
        # Where all references are judged, the first rows are they, in their order.
        self.shared = len(self.weights)
        if (self.position >= 0).sum() < self.shared:
            self.shared = 0
        first = self.position if self.shared else np.full(m, -1)
        self.order = np.argsort(np.where(first < 0, m, first), kind="stable")
        self.powers = 1 if self.tables is None else 2  # sums of exp(a S), and of exp(3 a S)
        # One histogram per thread; integers, so their sum does not depend on the split.
        self.threads = torch.get_num_threads()
        self.nulls = np.zeros((self.threads, len(SUPPORT_EDGES), self.bins), np.int64)
        self.pool = ThreadPoolExecutor(self.threads)
        kind = reference.embeddings.numpy().dtype
        # Exponentials are above 0, but for those of a row and itself.
        self.kept = Largest.nothing(m, self.candidates, kind, 0.0) if self.candidates else None

    def judge(self, embeddings: Tensor, block: int | None) -> None:
        """Judge all rows, a panel at a time.

        Args:
            embeddings: (N, D) of all samples, not normalised.
            block: rows and columns to a panel; None to choose.
        """
        classes = len(self.starts) - 1
        if block is None:
            most = _PANEL_VALUES // (self.powers * classes)
            block = min(_PANEL, max(TOGETHER, most // TOGETHER * TOGETHER))
            # Where nothing is shared, columns need not be cut as rows are, which many classes make
            # few.
            wide = block if self.shared else _PANEL * _PANEL // block
        else:
            wide = block
        columns = _cuts(0, len(self.weights), wide)
        panels = _cuts(0, self.shared, block) + _cuts(self.shared, len(self.judged), block)
        padded = -(-block // TOGETHER) * TOGETHER
        self.buffer = self.reference.embeddings.new_zeros(padded * wide)
        reach = self._reach(columns) if self.shared else 0
        sums = np.empty((self.powers, classes, padded), self.buffer.numpy().dtype)
        waiting: list[list[_Waiting]] = [[] for _ in columns]
        for k, panel in enumerate(panels):
            rows, place = self._rows(embeddings, panel), self.position[self.order[panel]]
            inside = panel.stop <= self.shared
            sums[:] = 0.0
            for m, beside in enumerate(columns):
                if inside and 0 < k - m <= reach:
                    continue  # waits
                later = None
                if inside and 0 < m - k <= reach:
                    later = self._nothing_yet(panel, beside)
                    waiting[m].append(later)
                self._multiply(rows, place, panel, beside, sums, later)
            for first, part in waiting[k] if inside else ():
                sums[:, first : first + part.shape[1], : part.shape[2]] += part
            if inside:
                waiting[k].clear()
            self._share(panel.stop - panel.start, self._judge_some, panel.start, sums)

    def _rows(self, embeddings: Tensor, panel: slice) -> Tensor:
        """The panel's rows, (B, D) of norm a."""
        if panel.stop <= self.shared:
            return self.reference.embeddings[panel] * self.a
        index = torch.from_numpy(self.judged[self.order[panel]])
        return unit_rows(embeddings[index]).mul_(self.a)

    def _classes_of(self, panel: slice) -> tuple[int, int]:
        """First class of a panel of references, and how many it has."""
        first, last = np.searchsorted(self.starts, [panel.start, panel.stop - 1], side="right") - 1
        return int(first), int(last - first) + 1

    def _nothing_yet(self, panel: slice, beside: slice) -> _Waiting:
        first, count = self._classes_of(panel)
        shape = self.powers, count, beside.stop - beside.start
        return _Waiting(first, np.zeros(shape, self.buffer.numpy().dtype))

    def _reach(self, panels: list[slice]) -> int:
        """How many panels ahead sums can wait, so that never too many do."""
        n, places = len(panels), np.arange(len(panels))
        counts = np.array([self._classes_of(panel)[1] for panel in panels])
        each = self.powers * (panels[0].stop - panels[0].start) * self.buffer.element_size()

        def held(reach: int) -> int:
            last = np.minimum(places + reach, n - 1)
            panels_ahead = np.triu(np.maximum(last[:, None] - places, 0))  # [of, at the turn of]
            return each * int((counts[:, None] * panels_ahead).sum(0).max())

        return bisect_right(range(1, n), _WAITING_BYTES, key=held)

    def _multiply(
        self,
        rows: Tensor,
        place: np.ndarray,
        panel: slice,
        beside: slice,
        sums: np.ndarray,
        later: _Waiting | None,
    ) -> None:
        """Add what one product says of its rows, and of its columns where these come later."""
        b, k = len(rows), beside.stop - beside.start
        padded = -(-b // TOGETHER) * TOGETHER
        block = self.buffer[: padded * k].view(padded, k)
        S = torch.mm(rows, self.reference.embeddings[beside].T, out=block[:b])
        own = np.flatnonzero((place >= beside.start) & (place < beside.stop))
        S[torch.from_numpy(own), torch.from_numpy(place[own] - beside.start)] = -torch.inf
        product = _Product(block.numpy(), panel, beside)
        for power in range(self.powers):
            self._share(b, self._of_rows, product, power, sums[power])
            if later is not None:
                self._share(k, self._of_columns, product, power, later.sums[power])

    def _of_rows(
        self, thread: int, low: int, high: int, product: _Product, power: int, sums: np.ndarray
    ) -> None:
        E, panel, beside = product
        some = E[low:high]
        # exp(a S) lies in [e^-a, e^a], which float32 holds for the a allowed.
        np.exp(some, out=some) if power == 0 else np.multiply(some, some * some, out=some)
        to = beside.start, beside.stop
        add_to_rows(E, to, self.weights, self.starts, sums, low, high)
        if self.kept is not None and power == 0:
            offer_to_rows(E, beside.start, self.kept.of(panel), low, high)

    def _of_columns(
        self, thread: int, low: int, high: int, product: _Product, power: int, sums: np.ndarray
    ) -> None:
        E, panel, beside = product
        to = panel.start, panel.stop
        add_to_columns(E, to, self.weights, self.starts, sums, low, high)
        if self.kept is not None and power == 0:
            offer_to_columns(E[: to[1] - to[0]], to[0], self.kept.of(beside), low, high)

    def _share(self, n: int, function: Callable[..., None], *arguments: Any) -> None:
        """Call function(thread, low, high, *arguments) with a run of n for each thread."""
        steps = -(-n // TOGETHER)
        cuts = [min(n, steps * t // self.threads * TOGETHER) for t in range(self.threads + 1)]
        runs = [(t, *cut) for t, cut in enumerate(pairwise(cuts))]
        runs = [run for run in runs if run[1] < run[2]]
        if len(runs) == 1:
            return function(*runs[0], *arguments)
        for job in [self.pool.submit(function, *run, *arguments) for run in runs]:
            job.result()
        return None

    def _judge_some(
        self, thread: int, low: int, high: int, first_row: int, whole: np.ndarray
    ) -> None:
        """Judge some rows of a panel by their class sums, which are overwritten."""
        a, totals, sums = self.a, self.reference.totals, whole[:, :, low:high]
        to = self.order[first_row + low : first_row + high]
        y, mates, n = self.codes[to], self.mates[to], np.arange(high - low)
        with np.errstate(divide="ignore", invalid="ignore"):
            everyone = np.log(sums[0].sum(0, np.float64) / (self.rest[to] + mates)) / a
            own = np.log((sums[:, y, n] / mates).astype(sums.dtype))
            best = np.full(len(n), -np.inf), np.full(len(n), -1)
            for first in range(0, len(totals), _CLASSES):
                some = slice(first, first + _CLASSES)
                means = sums[:, some]
                means /= totals[some, None]
                np.log(means, out=means)
                inside = np.flatnonzero((y >= first) & (y < first + _CLASSES))
                means[:, y[inside] - first, inside] = own[:, inside]
                means[0] /= a
                null = self.nulls[thread]
                count_others(means[0], first, y, everyone, self.stratum, best, null)
                if self.tables is not None:
                    self._keep(means, some, self.judged[to])
        has_other = best[1] >= 0
        own_mean = own[0] / a
        bins = np.floor((everyone - own_mean + 2.0) / 4.0 * self.bins)
        bins = np.where(mates > 0, np.clip(bins, 0, self.bins - 1), -1)
        found = own_mean, everyone, np.where(has_other, best[0], np.nan), best[1], bins
        for values, some_values in zip(self.fits, found, strict=True):
            values[to] = some_values

    def _keep(self, means: np.ndarray, some: slice, rows: np.ndarray) -> None:
        """Write both tables of some classes: means of exp(a S), and logarithms of exp(3 a S)."""
        assert self.tables is not None
        if self.tables.means is None:
            return pack(means[1], rows, self.tables.sharp[:, some])
        sharp = np.maximum(means[1] - 3.0 * self.a, LOWEST)
        sharp[self.stratum[some] < 0] = -np.inf
        self.tables.means[rows, some] = means[0].T
        self.tables.sharp[rows, some] = sharp.T

    def finish(self) -> tuple[RowFits, np.ndarray]:
        """Sum the threads' histograms."""
        self.pool.shutdown()
        return self.fits, self.nulls.sum(0)

    def nearest(self, n: int) -> Candidates | None:
        """Return the candidates of all n samples, if they were asked for."""
        if self.kept is None:
            return None
        dims = self.reference.embeddings.shape[1]
        similarities, places, error = candidates_of(self.kept, self.a, dims)
        sample = np.empty(len(self.weights), np.int64)
        referenced = np.flatnonzero(self.reference.position >= 0)
        sample[self.reference.position[referenced]] = referenced
        rows = self.judged[self.order]
        out = np.full((n, places.shape[1]), -np.inf), np.full((n, places.shape[1]), -1)
        out[0][rows] = similarities
        out[1][rows] = np.where(places < 0, -1, sample[places])
        return Candidates(*out, error)


def _cuts(start: int, stop: int, step: int) -> list[slice]:
    return [slice(low, min(low + step, stop)) for low in range(start, stop, step)]
