"""Lists of samples cut into shells around their centroids, so that a few set no bound for all.

The radius of a list is that of its farthest member.  Sorted by their distance from the centroid and
cut into shells, most members have a smaller one: the bound of `bspml.statistics.sample_lists` holds
for each shell with its own radius, and costs no product more, as the centroid is the same.  It is
the direction of the members' weighted mean, which so is at hand for every query, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bspml.shapes import Float, Int, Tensor
from bspml.statistics.sample_lists import SampleLists, ceiling, rounded_radius


@dataclass(frozen=True)
class Shells:
    """N unit rows sorted by list, and within it by closeness to the centroid, in L lists.

    Attributes:
        rows: (N, D) in this order.
        order: (N,) int64, the sample each row came from.
        weights: (N,) float64 on the CPU, in this order.
        list_starts: (L + 1,) int64 on the CPU.
        list_weights: (L,) float64 on the CPU.
        centroids: (L, D) unit rows.
        length: (L,) of the members' weighted mean, whose direction is the centroid, rounded down.
        starts: (S + 1,) int64 on the CPU: shell s is rows[starts[s] : starts[s + 1]].
        parent: (S,) int64 on the CPU, the list it is part of.
        shell_weights: (S,) float64 on the CPU.
        cosine, sine: (S,) of the largest angle between a member and the centroid.
        slack: how far a computed similarity may lie from the exact one.
    """

    rows: Float[Tensor, "N D"]
    order: Int[Tensor, " N"]
    weights: Float[Tensor, " N"]
    list_starts: Int[Tensor, " M"]
    list_weights: Float[Tensor, " L"]
    centroids: Float[Tensor, "L D"]
    length: Float[Tensor, " L"]
    starts: Int[Tensor, " K"]
    parent: Int[Tensor, " S"]
    shell_weights: Float[Tensor, " S"]
    cosine: Float[Tensor, " S"]
    sine: Float[Tensor, " S"]
    slack: float

    @classmethod
    def of(cls, lists: SampleLists, weights: Float[Tensor, " N"], count: int) -> Shells:
        """Cut each list into `count` shells, fewer if it has fewer members.

        Args:
            lists: of the N samples.
            weights: (N,) float64, at least 0, in the samples' order.
            count: shells of a list.
        """
        sizes, rows = lists.sizes.tolist(), lists.rows
        inside = weights[lists.order.cpu()]
        totals = torch.stack([w.sum() for w in inside.split(sizes)])
        means = torch.stack(
            [
                (part.double().T @ w.to(part.device)).cpu()
                for part, w in zip(rows.split(sizes), inside.split(sizes), strict=True)
            ]
        )
        means /= totals.clamp_min(torch.finfo(totals.dtype).tiny)[:, None]
        length = means.norm(dim=1)
        directed = length > 1e-3  # else the members cancel, or weigh nothing
        directions = (means / length.clamp_min(1e-3)[:, None]).to(rows)
        centroids = torch.where(directed[:, None].to(rows.device), directions, lists.centroids)
        closeness = torch.cat(
            [part @ c for part, c in zip(rows.split(sizes), centroids, strict=True)]
        )
        member = torch.repeat_interleave(torch.arange(len(sizes)), lists.sizes)
        order = torch.argsort(closeness, descending=True)
        order = order[torch.argsort(member.to(order.device)[order], stable=True)]
        edges = lists.starts[:-1, None] + lists.sizes[:, None] * torch.arange(count) // count
        first = edges.flatten().unique()
        starts = torch.cat([first, lists.starts[-1:]])
        farthest = closeness[order][(starts[1:] - 1).to(order.device)].double()
        cosine, sine = rounded_radius(farthest, lists.slack)
        inside = inside[order.cpu()]
        # Not differences of running sums: beside one large weight the small ones cancel.
        shell_weights = torch.stack([w.sum() for w in inside.split(starts.diff().tolist())])
        return cls(
            rows=rows[order],
            order=lists.order[order],
            weights=inside,
            list_starts=lists.starts,
            list_weights=totals,
            centroids=centroids,
            # q.mean >= -|mean| in any case: -1 of the product is what is left of a short one.
            length=torch.where(directed, length, 0.0).to(rows),
            starts=starts,
            parent=member[first],
            shell_weights=shell_weights,
            cosine=cosine.to(rows),
            sine=sine.to(rows),
            slack=lists.slack,
        )

    def __len__(self) -> int:
        return len(self.centroids)

    @property
    def sizes(self) -> Int[Tensor, " L"]:
        """(L,) members of each list."""
        return self.list_starts.diff()

    def ceilings(self, cosines: Float[Tensor, " L"]) -> Float[Tensor, " S"]:
        """Return the largest similarity any member of each shell can have to any query.

        Args:
            cosines: (L,) the queries' largest similarity to each centroid.
        """
        of_shell = (cosines + self.slack).clamp(-1.0, 1.0)[self.parent.to(cosines.device)]
        return ceiling(of_shell, self.cosine, self.sine, self.slack)

    def nearest(self, number: int, count: int) -> Tensor:
        """Return (L,) bool on the CPU, a list and those whose centroids are nearest to its.

        Args:
            number: of the list.
            count: how many, itself among them.
        """
        closeness = torch.mv(self.centroids, self.centroids[number]).cpu()
        closeness[number] = 2.0
        near = torch.zeros(len(self), dtype=torch.bool)
        near[closeness.topk(min(count, len(self))).indices] = True
        return near
