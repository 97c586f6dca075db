"""Soft means of every class, as a table: the second judge of the label model.

    K_i(c) = log( sum_{j != i, y_j = c} w_j exp(a (S_ij - 1)) / sum_{j != i, y_j = c} w_j )

a s_i(c) - a of `bspml.statistics.contrastive`, at a larger a: at 30 a class is as near as its
nearest few samples, which serves classes of several kinds (a character in twenty hands) where a
mean and a covariance do not.  On Omniglot's pixels it lifts the AUROC of the label model from .967
to .981 over a = 10, and costs nothing where classes are one cloud.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch

from bspml.shapes import Float, Int, Tensor
from bspml.statistics.references import References
from bspml.tensors.checks import Labels
from bspml.tensors.unit_rows import unit_rows

SHARPNESS = 30.0  # a
_LEAST_LEFT = 1e-4  # of a sum whose weights change: below, rounding would show
_BLOCK_VALUES = 1 << 22  # similarities held at a time
_RUN = 4096  # references to a product, but for the rest of a class


@dataclass(frozen=True)
class SoftMeans:
    """References sorted by class, and all samples to judge.

    Attributes:
        rows: (N, D) as given.
        reference: those of positive weight.
        codes: (N,) int64 class of each sample.
        known: (N, C) the whole table, of another pass over the similarities, or None.
        change: the references whose weight has changed since `known`, by how much, and those of
            `known`; None for none.
    """

    rows: Float[Tensor, "N D"]
    reference: References
    codes: Int[Tensor, " N"]
    known: Float[Tensor, "N C"] | None = None
    change: tuple[References, References] | None = None

    @classmethod
    def of(
        cls,
        embeddings: Float[Tensor, "N D"],
        labels: Labels,
        weights: Float[Tensor, " N"],
        known: Float[Tensor, "N C"] | None = None,
    ) -> SoftMeans:
        """Sort the references.

        Args:
            embeddings: (N, D).
            labels: (N,) as codes.
            weights: (N,) float64, at least 0.
            known: (N, C) the table under these weights, if at hand.

        Raises:
            InputError: fewer than two classes have a reference.
        """
        reference = References.of(embeddings, labels, weights.cpu().numpy())
        return cls(embeddings, reference, labels.codes, known)

    def reweighted(self, labels: Labels, weights: Float[Tensor, " N"]) -> SoftMeans:
        """Return the soft means under other weights of the same references.

        Where the whole table is known, only the references whose weight changes are multiplied.
        What is left of a class's sum is then at least 1e-4 of it, which holds where no weight falls
        below that share.

        Args:
            labels: (N,) as codes.
            weights: (N,) float64, above 0 where they were.
        """
        reference = self.reference.reweighted(weights.cpu().numpy())
        if self.known is None:
            return replace(self, reference=reference)
        before = self.reference if self.change is None else self.change[1]
        change = reference.spread() - before.spread()
        changed = References.sorted_by_class(self.rows, labels, change)
        return replace(self, reference=reference, change=(changed, before))

    def table(self, index: Int[Tensor, " M"]) -> Float[Tensor, "M C"]:
        """Return K_i(c), as precise as the rows and on their device.

        -inf where a class has no reference, NaN at the sample's own class where no other reference
        of it is left.

        Args:
            index: (M,) sample numbers.
        """
        if self.known is not None and self.change is None:
            return self.known[index.to(self.known.device)].to(self._kind)
        columns = self.reference if self.change is None else self.change[0]
        widest = int(np.diff(columns.starts[_runs(columns.starts)]).max())
        size = max(1, _BLOCK_VALUES // max(1, widest))
        return torch.cat([self._block(part) for part in index.cpu().split(size)])

    def _block(self, i: Tensor) -> Tensor:
        mates = self._mates(i, self.reference)
        if self.known is None or self.change is None:
            sums = self._sums(i, self.reference)
        else:
            changed, before = self.change
            whole = self.known[i].double().exp() * self._mates(i, before)
            sums = torch.maximum(whole + self._sums(i, changed), _LEAST_LEFT * whole)
        # Far beyond every reference: below any similarity, but a number.
        table = (sums / mates).log().clamp_min(-2 * SHARPNESS)
        table[mates <= 0] = torch.nan
        table[:, torch.from_numpy(np.diff(self.reference.starts) == 0)] = -torch.inf
        return table.to(self._kind).contiguous()

    @property
    def _kind(self) -> torch.dtype:
        return torch.float64 if self.rows.dtype == torch.float64 else torch.float32

    def _sums(self, i: Tensor, reference: References) -> Tensor:
        """(B, C) float64, sum_{j != i, y_j = c} w_j exp(a (S_ij - 1))."""
        device, starts = self.rows.device, reference.starts
        position = torch.from_numpy(reference.position)[i]
        rows = unit_rows(self.rows[i.to(device)]).T
        weights = torch.from_numpy(reference.weights).to(device, rows.dtype)
        sums = []
        for first, stop in pairwise(_runs(starts)):
            some = slice(int(starts[first]), int(starts[stop]))
            similarities = reference.embeddings[some] @ rows  # (references, B)
            exponentials = similarities.sub_(1).mul_(SHARPNESS).exp_()
            inside = ((position >= some.start) & (position < some.stop)).nonzero()[:, 0]
            place = position[inside] - some.start
            exponentials[place.to(device), inside.to(device)] = 0.0  # j != i
            exponentials *= weights[some, None]
            lengths = torch.from_numpy(np.diff(starts[first : stop + 1])).to(device)
            sums.append(torch.segment_reduce(exponentials, "sum", lengths=lengths, axis=0))
        return torch.cat(sums).double().T

    def _mates(self, i: Tensor, reference: References) -> Tensor:
        """(B, C) float64, the weight of each class without i."""
        device = self.rows.device
        position, codes = torch.from_numpy(reference.position)[i], self.codes[i]
        inside = torch.arange(len(i))[position >= 0]
        totals = torch.from_numpy(reference.totals).to(device).repeat(len(i), 1)
        own = torch.from_numpy(reference.weights)[position[inside]].to(device)
        places = inside.to(device), codes[inside].to(device)
        alone = torch.from_numpy(np.diff(reference.starts))[codes[inside]] < 2
        totals[places] = torch.where(alone.to(device), 0.0, totals[places] - own)
        return totals


def _runs(starts: np.ndarray) -> list[int]:
    """Cut classes into runs of some `_RUN` references: the first of each, and C."""
    runs = [0]
    while runs[-1] < len(starts) - 1:
        last = np.searchsorted(starts, starts[runs[-1]] + _RUN, side="right") - 1
        runs.append(max(runs[-1] + 1, int(last)))
    return runs
