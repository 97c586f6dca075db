"""The judged rows of the contrastive statistics on an accelerator, where their similarities are.

Nothing but the results crosses to the host: 60,000 rows against 60,000 references are 14 GB of
similarities.  In torch's own operations, so it also runs, slower, on the CPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bspml.statistics.contrastive_rows import JudgedRows, RowFits
from bspml.statistics.references import SUPPORT_EDGES
from bspml.tensors.unit_rows import unit_rows

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
        self.with_class, self.beside = map(self._on_device, (self.mates, self.rest))  # (M,)
        self.columns, self.places = self._on_device(self.codes), self._on_device(self.position)
        m = len(self.judged)
        # In the order of `RowFits`: own, everyone, other; other_class, own_bin.
        self.means = torch.full((3, m), math.nan, dtype=torch.float64, device=device)
        self.numbers = torch.full((2, m), -1, device=device)
        size = (len(SUPPORT_EDGES) + 1) * self.bins
        self.counts = torch.zeros(size, dtype=torch.int64, device=device)

    def _on_device(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    def judge(self, embeddings: Tensor, block: int | None) -> None:
        """Judge all rows, a block of about 1 GiB at a time.

        Args:
            embeddings: (N, D) of all samples, not normalised.
            block: rows at a time; None to choose.
        """
        row = _PER_REFERENCE * len(self.weights) + _PER_CLASS * len(self.totals)
        block = max(1, _BLOCK_BYTES // row) if block is None else block
        for first in range(0, len(self.judged), block):
            index = torch.from_numpy(self.judged[first : first + block]).to(self.device)
            self._judge_block(first, unit_rows(embeddings[index]).mul_(self.a))

    def _judge_block(self, first: int, rows: Tensor) -> None:
        """Judge rows (B, D) of norm a: class sums by runs of references, the rest on (C, B)."""
        part = slice(first, first + len(rows))
        y, place = self.columns[part], self.places[part]
        sample = torch.arange(len(rows), device=self.device)
        values = self._class_sums(rows, place, sample)  # (C, B)
        weight = self.totals.expand(-1, len(rows)).clone()
        weight[y, sample] = self.with_class[part]
        mean = torch.where(weight > 0, (values / weight).log() / self.a, math.nan)
        everyone = (values.sum(0) / (self.beside[part] + self.with_class[part])).log() / self.a
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
