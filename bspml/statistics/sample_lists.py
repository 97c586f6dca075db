"""Samples cut into lists of near neighbours, with a proved bound for every list.

List l has a unit centroid c_l and a radius r_l, the largest angle between c_l and a member.
Angles between unit vectors obey the triangle inequality, so for every sample q and member x

    angle(q, x) >= angle(q, c_l) - angle(c_l, x) >= angle(q, c_l) - r_l
    S_qx        <= cos(max(0, angle(q, c_l) - r_l))

and no member needs to be looked at to know it.  `upper` is that bound, rounding included.

A list's sum of exponentials is far below size times its largest term where few members reach that
bound.  Take p_l, the foot of the members' mean on c_l, and any t >= 0.  With Y = q.(x - p_l), for a
member x drawn at random,

    mean_x exp(t S_qx) = exp(t q.p_l) mean(exp(t Y)),    Y <= R_l = max |x - p_l|,
    mean(Y) = q.(mean(x) - p_l) <= d_l,                  mean(Y^2) = q' M_l q <= v_l

with d_l the length of mean(x) - p_l and v_l at least the largest eigenvalue of M_l, the second
moment of x - p_l.  (exp(t y) - 1 - t y) / y^2 grows with y, so exp(t Y) <= 1 + t Y + Y^2 g with
g = (exp(t R_l) - 1 - t R_l) / R_l^2, and

    mean_x exp(t S_qx) <= exp(t q.p_l) (1 + t d_l + v_l g)

(the step to Bennett's inequality).  `log_spread` is the logarithm of the last factor; for v_l we
take tr(M^8)^(1/8).  Both bounds grow with q.c_l, so the largest q.c_l of several samples gives one
that holds for all of them.

The lists come from k-means on a part of the samples; then the widest lists are split, because
one list that joins two distant clusters has a useless bound for everybody.  Narrow lists inside
them are made around seeds far from each other.  How good the lists are decides the time a search
takes, never whether its bound holds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import torch

from bspml.shapes import Float, Int, Tensor

_Result = TypeVar("_Result")

_SAMPLES_PER_LIST = 64  # k-means is trained on
_ROUNDS = 6
_SPLITS_PER_LIST = 1  # lists made by splitting, for each list of k-means
_SMALLEST = 12  # a list is not split below
_MOST_INSIDE = 64  # narrow lists of a wide one
_NARROW = 0.999  # cosine of a radius that needs no splitting
_BLOCK = 1024
_HELD = 1 << 22  # similarities held at a time


@dataclass(frozen=True)
class SampleLists:
    """N unit rows sorted by list.

    Attributes:
        rows: (N, D) the unit rows in list order.
        order: (N,) int64, the sample each row came from.
        starts: (L + 1,) int64 on the CPU, list l is rows[starts[l] : starts[l + 1]]; none is empty.
        centroids: (L, D) unit rows.
        cosine: (L,) cos r_l, rounded down.
        sine: (L,) sin r_l, rounded up.
        foot: (L,) |p_l|, the mean's part along the centroid.
        reach: (L,) float64, R_l, rounded up.
        drift: (L,) float64, d_l, rounded up.
        variance: (L,) float64, v_l, rounded up.
        slack: how far a computed similarity may lie from the exact one.
    """

    rows: Float[Tensor, "N D"]
    order: Int[Tensor, " N"]
    starts: Int[Tensor, " M"]
    centroids: Float[Tensor, "L D"]
    cosine: Float[Tensor, " L"]
    sine: Float[Tensor, " L"]
    foot: Float[Tensor, " L"]
    reach: Float[Tensor, " L"]
    drift: Float[Tensor, " L"]
    variance: Float[Tensor, " L"]
    slack: float

    def __len__(self) -> int:
        return len(self.centroids)

    @classmethod
    def of(cls, unit_rows: Float[Tensor, "N D"], lists: int | None, seed: int) -> SampleLists:
        """Cut unit rows (zero rows allowed) into about `lists` lists, sqrt(N) if None.

        Splitting makes up to twice as many.

        Args:
            unit_rows: (N, D).
            lists: how many, or None.
            seed: of k-means.
        """
        return cls._measured(unit_rows, _cut_into_lists(unit_rows, lists, seed))

    @classmethod
    def nested(
        cls, unit_rows: Float[Tensor, "N D"], lists: int | None, seed: int, members: int
    ) -> tuple[SampleLists, SampleLists, Tensor]:
        """Cut wide lists as `of` does, and narrow ones of about `members` samples inside them.

        Args:
            unit_rows: (N, D).
            lists: how many wide ones, or None.
            seed: of k-means.
            members: of a narrow list.

        Returns:
            The wide and the narrow lists, of the same rows in the same order, and (G + 1,) int64:
            wide list g holds the narrow lists first_child[g] to first_child[g + 1] - 1.
        """
        wide = _cut_into_lists(unit_rows, lists, seed)
        parts = [_cut_narrow(unit_rows[samples], members) for samples in wide]
        narrow = [samples[k] for samples, part in zip(wide, parts, strict=True) for k in part]
        children = torch.tensor([len(part) for part in parts])
        first_child = torch.cat([children.new_zeros(1), children.cumsum(0)])
        inner = cls._measured(unit_rows, narrow)
        edges = inner.starts[first_child].tolist()
        outer = cls._measured(unit_rows, [inner.order[a:b] for a, b in pairwise(edges)])
        return replace(outer, rows=inner.rows, order=inner.order), inner, first_child

    @classmethod
    def _measured(cls, unit_rows: Tensor, lists: list[Tensor]) -> SampleLists:
        # A dot product of D products in order errs by at most D ulp/2; twice that for the inputs.
        slack = (2 * unit_rows.shape[1] + 8) * torch.finfo(unit_rows.dtype).eps / 2
        order = torch.cat(lists)
        rows = unit_rows[order]
        sizes = torch.tensor([len(part) for part in lists])
        starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        parts = rows.split(sizes.tolist())
        centroids = torch.stack([_centre(part) for part in parts])
        shapes = [_shape(part, c) for part, c in zip(parts, centroids, strict=True)]
        cosine, foot, reach, drift, variance = torch.stack(shapes, 1).double()  # (L,) each
        cosine, sine = rounded_radius(cosine, slack)
        return cls(
            rows=rows,
            order=order,
            starts=starts,
            centroids=centroids,
            cosine=cosine.to(rows),
            sine=sine.to(rows),
            foot=foot,
            reach=reach + slack,
            drift=drift + slack,
            # |x - p| <= 2: an entry of M's Gram matrix errs by 4 slack times its weights, M by
            # that; the powers by parts in a million.
            variance=variance * (1 + 1e-3) + 8 * slack,
            slack=slack,
        )

    @property
    def sizes(self) -> Int[Tensor, " L"]:
        """(L,) members of each list."""
        return self.starts.diff()

    def cosines(self, queries: Float[Tensor, "B D"], lists: Tensor | None = None) -> Tensor:
        """Return (B, K) similarities of queries and centroids, of all lists if None, rounded up.

        Args:
            queries: (B, D) unit rows.
            lists: (K,) numbers, or None.
        """
        centroids = self.centroids if lists is None else self.centroids[lists]
        return torch.mm(queries, centroids.T).add_(self.slack).clamp_(-1.0, 1.0)

    def largest_cosines(
        self, queries: Float[Tensor, "B D"], lists: Tensor | None = None
    ) -> Float[Tensor, " K"]:
        """Return (K,) the largest of `cosines` over the queries, at least one; not all held at a
        time.

        Args:
            queries: (B, D) unit rows.
            lists: (K,) numbers, or None.
        """
        at_a_time = max(1, _HELD // len(self))
        parts = [self.cosines(part, lists).amax(0) for part in queries.split(at_a_time)]
        return torch.stack(parts).amax(0)

    def ceiling(self, cosines: Tensor, lists: Tensor | None = None) -> Tensor:
        """Return (..., K) `upper` from what `cosines` gave, or from the largest of several queries.

        With u = cos angle(q, c) the bound is cos(angle - r) = u cos r + sqrt(1 - u^2) sin r where
        angle > r, that is u < cos r, and 1 elsewhere.  It grows with u.

        Args:
            cosines: (..., K).
            lists: (K,) numbers, or None: all.
        """
        radii = self.cosine, self.sine
        if lists is not None:
            radii = self.cosine[lists], self.sine[lists]
        return ceiling(cosines, *radii, self.slack)

    def by_distance(self, number: int) -> Int[Tensor, " L"]:
        """Return (L,) all lists by the distance of their centroids from one's; it comes first
        itself."""
        closeness = torch.mv(self.centroids, self.centroids[number])
        closeness[number] = 2.0
        return closeness.argsort(descending=True)

    def log_spread(self, t: float) -> Float[Tensor, " L"]:
        """Return (L,) float64, log(1 + t d_l + v_l g): t q.p_l and this bound log mean_x exp(t
        S_qx)."""
        reach = self.reach.clamp_min(1e-3)  # g grows with it: rounded up
        g = ((t * reach).exp() - 1 - t * reach) / reach.square()
        # The rounding of q.p_l is below a slack.
        return (t * self.drift + self.variance * g).log1p() + t * self.slack


def ceiling(cosines: Tensor, cosine: Tensor, sine: Tensor, slack: float) -> Tensor:
    """Return `SampleLists.ceiling` of (..., K) cosines to K centroids, of these radii and slack."""
    across = cosines.square().neg_().add_(1).clamp_min_(0).sqrt_()
    bound = (cosines * cosine).add_(across.mul_(sine)).add_(slack)
    return bound.masked_fill_(cosines >= cosine, 1.0 + slack)


def rounded_radius(cosine: Float[Tensor, " K"], slack: float) -> tuple[Tensor, Tensor]:
    """Return cosines of radii, `slack` off at most, rounded down, and their sines, rounded up."""
    cosine = (cosine - slack).clamp(-1.0, 1.0)
    return cosine, (1 - cosine.square()).clamp_min(0).sqrt() + slack


def runs(starts: Int[Tensor, " M"], numbers: Int[Tensor, " K"]) -> Int[Tensor, " R"]:
    """Return all k with starts[l] <= k < starts[l + 1] for an l of `numbers`.

    Args:
        starts: (L + 1,) on the CPU, where each list begins.
        numbers: (K,) of the lists, on the CPU.
    """
    first, sizes = starts[numbers], starts[numbers + 1] - starts[numbers]
    before = torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
    return torch.repeat_interleave(first, sizes) + (torch.arange(len(before)) - before)


def for_each_list(
    work: Callable[[int], _Result], numbers: Iterable[int], device: torch.device
) -> Iterator[_Result]:
    """Return work(l) for each list, in order; on the CPU as many at a time as torch has threads.

    A list's products are too small to be worth sharing among threads, so each thread takes whole
    lists.  The numbers do not depend on how many there are.

    Args:
        work: what is done for a list.
        numbers: the lists.
        device: where the rows are.
    """
    threads = torch.get_num_threads()
    if threads == 1 or device.type != "cpu":
        yield from map(work, numbers)
        return
    torch.set_num_threads(1)
    try:
        # OpenMP keeps the number of threads for each thread of its own.
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(work, numbers)
    finally:
        torch.set_num_threads(threads)


def _centre(rows: Tensor) -> Tensor:
    mean = rows.mean(0)
    norm = mean.norm()
    # Members that cancel, or a zero row: any direction serves, the radius covers it.
    if norm > 1e-3:
        return mean / norm
    fallback = torch.zeros_like(mean)
    fallback[0] = 1
    return fallback


def _shape(rows: Tensor, centroid: Tensor) -> Tensor:
    """Measure a list, (5,): cosine of its radius, |p|, R, d and tr(M^8)^(1/8)."""
    along = rows @ centroid
    foot = along.mean().clamp_min(0)
    away = rows - foot * centroid  # (n, D)
    moment = away @ away.T if len(rows) < rows.shape[1] else away.T @ away
    moment = moment / len(rows)
    total = moment.trace()
    scaled = moment / total.clamp_min(torch.finfo(rows.dtype).tiny)  # no power underflows
    square = scaled @ scaled
    largest = (square @ square).norm().sqrt().sqrt() * total
    reach = away.square().sum(1).max().sqrt()
    return torch.stack([along.min(), foot, reach, away.mean(0).norm(), largest])


def _nearest_centroids(rows: Tensor, centroids: Tensor) -> Tensor:
    """Return (N,) the centroid of largest similarity."""
    member = torch.empty(len(rows), dtype=torch.int64, device=rows.device)
    # Written in place: results kept between the products would leave holes in the memory.
    for part, block in zip(rows.split(_BLOCK), member.split(_BLOCK), strict=True):
        torch.argmax(part @ centroids.T, 1, out=block)
    return member


def _k_means(rows: Tensor, k: int, seed: int) -> Tensor:
    """Return (k, D) unit centroids of a random part of the rows, by spherical Lloyd steps."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(rows), generator=generator)[: k * _SAMPLES_PER_LIST]
    sample = rows[chosen.to(rows.device)]
    centroids = sample[:k].clone()
    for _ in range(_ROUNDS):
        centroids = _lloyd(sample, centroids)
    return centroids


def _lloyd(rows: Tensor, centroids: Tensor) -> Tensor:
    """Return (k, D) the unit means of the rows nearest to each centroid."""
    # index_add_ on one thread or a sorted sum: the order is fixed on the CPU.
    sums = torch.zeros_like(centroids).index_add_(0, _nearest_centroids(rows, centroids), rows)
    norms = sums.norm(dim=1, keepdim=True)
    # A centroid that lost its members stays where it was.
    return torch.where(norms > 1e-3, sums / norms.clamp_min(1e-3), centroids)


def _members_of_centroids(rows: Tensor, centroids: Tensor) -> list[Tensor]:
    """Return the row numbers nearest to each centroid, empty lists left out."""
    member = _nearest_centroids(rows, centroids)
    sizes = torch.bincount(member, minlength=len(centroids)).tolist()
    return [part for part in torch.argsort(member, stable=True).split(sizes) if len(part)]


def _cut_into_lists(rows: Tensor, lists: int | None, seed: int) -> list[Tensor]:
    """Return the sample indices of each list: k-means, then the widest are split."""
    n = len(rows)
    k = max(1, round(math.sqrt(n))) if lists is None else min(lists, n)
    cells = _members_of_centroids(rows, _k_means(rows, k, seed))
    return _split_widest(rows, cells, (1 + _SPLITS_PER_LIST) * k)


def _split_widest(rows: Tensor, lists: list[Tensor], most: int) -> list[Tensor]:
    """Split lists, widest first, until there are `most` or all are small.

    A split goes between the member farthest from the centroid and the one farthest from that.
    """
    lists = list(lists)
    widths: list[tuple[float, int, int]] = []  # (cos of the radius, list, farthest member)

    def measure(number: int) -> None:
        if len(lists[number]) >= 2 * _SMALLEST:
            part = rows[lists[number]]
            cosine, farthest = (part @ _centre(part)).min(0)
            heapq.heappush(widths, (float(cosine), number, int(farthest)))

    if len(lists) < most:
        for number in range(len(lists)):
            measure(number)
    while len(lists) < most and widths and widths[0][0] < _NARROW:
        _, number, farthest = heapq.heappop(widths)
        samples = lists[number]
        part = rows[samples]
        to_one = part @ part[farthest]
        leaves = to_one > part @ part[int(to_one.argmin())]
        if not leaves.any() or leaves.all():
            continue
        lists[number], new = samples[~leaves], samples[leaves]
        lists.append(new)
        measure(number)
        measure(len(lists) - 1)
    return lists


def _cut_narrow(rows: Tensor, members: int) -> list[Tensor]:
    """Cut rows into lists of about `members`: seeds far from each other, then a Lloyd step.

    Each new seed is the row farthest from the seeds before it.
    """
    k = min(-(-len(rows) // members), _MOST_INSIDE)
    closest = rows @ _centre(rows)
    seeds = [int(closest.argmin())]
    closest = rows @ rows[seeds[0]]
    while len(seeds) < k:
        seeds.append(int(closest.argmin()))
        torch.maximum(closest, rows @ rows[seeds[-1]], out=closest)
    return _members_of_centroids(rows, _lloyd(rows, rows[seeds]))
