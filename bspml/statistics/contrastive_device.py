"""The judged rows of the contrastive statistics on an accelerator, where their similarities are.

Nothing but the results crosses to the host: 60,000 rows against 60,000 references are 14 GB of
similarities.  In torch's own operations, so it also runs, slower, on the CPU.
"""

from __future__ import annotations

import math
from typing import Any, no_type_check

import numba
import numpy as np
import torch
from torch import Tensor

from bspml.statistics.contrastive_rows import JudgedRows, RowFits
from bspml.statistics.references import SUPPORT_EDGES, weight_elsewhere

_BLOCK_BYTES = 1 << 30  # held at a time
_PER_REFERENCE, _PER_CLASS = 20, 80  # bytes of a judged row, for each reference and class


class DeviceRows(JudgedRows):
    """On the device of the references; sums over a class and over classes in float64."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        reference = self.reference
        self.device = device = reference.embeddings.device
        self.lengths = self._on_device(np.diff(reference.starts))
        self.weights = self._on_device(reference.weights)[:, None]
        self.all_alike = bool((reference.weights == 1).all())
        self.totals = self._on_device(reference.totals)[:, None]  # (C, 1)
        self.present = self.lengths[:, None] > 0
        # Invalid pairs are counted in a bin behind the last.
        strata = np.where(self.stratum < 0, len(SUPPORT_EDGES), self.stratum)
        self.offset = self._on_device(strata * self.bins)[:, None]
        mates = _weight_of_others(reference.weights, reference.starts, self.codes, self.position)
        rest = weight_elsewhere(reference.totals)[self.codes]
        self.mates, self.rest = self._on_device(mates), self._on_device(rest)  # (M,)
        self.columns, self.places = self._on_device(self.codes), self._on_device(self.position)
        m = len(self.judged)
        # In the order of `RowFits`: own, everyone, other; other_class, own_bin.
        self.means = torch.full((3, m), math.nan, dtype=torch.float64, device=device)
        self.numbers = torch.full((2, m), -1, device=device)
        size = (len(SUPPORT_EDGES) + 1) * self.bins
        self.counts = torch.zeros(size, dtype=torch.int64, device=device)

    def _on_device(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def default_block(self) -> int:
        """Return the rows whose block takes about 1 GiB."""
        row = _PER_REFERENCE * len(self.weights) + _PER_CLASS * len(self.totals)
        return max(1, min(len(self.judged), _BLOCK_BYTES // row))

    def judge(self, first: int, rows: Tensor) -> None:
        """Judge a block: class sums by runs of references, then everything else on (C, B).

        Args:
            first: place of the block's first row among the judged.
            rows: (B, D) of norm a.
        """
        part = slice(first, first + len(rows))
        y, place = self.columns[part], self.places[part]
        sample = torch.arange(len(rows), device=self.device)
        values = self._class_sums(rows, place, sample)  # (C, B)
        weight = self.totals.expand(-1, len(rows)).clone()
        weight[y, sample] = self.mates[part]
        mean = torch.where(weight > 0, (values / weight).log() / self.a, math.nan)
        everyone = (values.sum(0) / (self.rest[part] + self.mates[part])).log() / self.a
        own = mean[y, sample]
        others = mean.masked_fill(~self.present, -math.inf)
        others[y, sample] = -math.inf
        best = others.argmax(0)  # the first of equals
        other = others[best, sample]
        has_other = other > -math.inf
        bins = ((everyone - mean + 2.0) / 4.0 * self.bins).floor().nan_to_num()
        bins = bins.clamp_(0, self.bins - 1).long()
        # The pairs of a row and another class enter the histograms.
        outside = len(SUPPORT_EDGES) * self.bins
        index = torch.where(others > -math.inf, bins + self.offset, outside).flatten()
        self.counts.scatter_add_(0, index, torch.ones_like(index))
        other = torch.where(has_other, other, math.nan)
        self.means[:, part] = torch.stack([own, everyone, other])
        other_class = torch.where(has_other, best, -1)
        own_bin = torch.where(own.isnan(), -1, bins[y, sample])
        self.numbers[:, part] = torch.stack([other_class, own_bin])

    def _class_sums(self, rows: Tensor, place: Tensor, sample: Tensor) -> Tensor:
        """Return (C, B), sum of w_j exp(a S_ij) over a class's references, without i itself."""
        terms = torch.mm(self.reference.embeddings, rows.T).exp_()  # (R, B)
        # A row's own term becomes 0; one that is no reference writes back what stands at place 0.
        is_reference = place >= 0
        at = place.clamp(min=0)
        terms[at, sample] = torch.where(is_reference, 0.0, terms[at, sample])
        weighted = terms.double()
        return torch.segment_reduce(
            weighted if self.all_alike else weighted.mul_(self.weights),
            "sum",
            lengths=self.lengths,
            axis=0,
            unsafe=True,  # skips a look at the lengths, which would wait for the device
            initial=0,
        )

    def finish(self) -> tuple[RowFits, np.ndarray]:
        """Bring the results to the host."""
        null = self.counts.view(-1, self.bins)[:-1].cpu().numpy()
        return RowFits(*self.means.cpu().numpy(), *self.numbers.cpu().numpy()), null


@numba.njit(cache=True)
@no_type_check
def _weight_of_others(weights, starts, codes, position):
    """Sum the weight of each row's class without the row, (M,), anew: no cancellation."""
    out = np.zeros(len(codes))
    for r in range(len(codes)):
        for j in range(starts[codes[r]], starts[codes[r] + 1]):
            if j != position[r]:
                out[r] += weights[j]
    return out
