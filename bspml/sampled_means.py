"""Everyone's soft mean t_i from a sample of everyone, with a bound at a named confidence.

With W = sum w_j and f(S) = exp(a (S - 1)),

    t_i = 1 + (1/a) log( F_i / (W - w_i) ),    F_i = sum_{j != i} w_j f(S_ij) = near_i + far_i

near_i runs over the lists near i (its own among them) and is exact.  far_i, over all the others,
is W times the mean of Y = f(S_ij) [j not near] for j drawn with probability w_j / W.  Y lies in
[0, R_i], R_i = f(the largest bound of a list left out): taking the near lists out makes R_i small.
For m independent draws with mean Y' and sample variance V (over m - 1), and x = ln(8 / q):

    |Y' - mean| <= R sqrt((x - ln 2) / (2 m))                  Hoeffding, but with probability q / 2
    |Y' - mean| <= sqrt(2 V x / m) + 7 R x / (3 (m - 1))       empirical Bernstein, likewise

(Maurer & Pontil 2009, theorem 4, two-sided).  Both hold with probability 1 - q; the smaller is h.
So F_i lies in [near + W (Y' - h), near + W (Y' + h)], cut at near and at near + sum of the list
bounds, which are certain.  We give the middle of log F over that interval, and half of it, over a,
as the error.  Samples whose error is above the one asked for draw four times as many, up to
`rounds` times, and in the end are computed against everyone.  The union bound over N samples and
all rounds, q = (1 - confidence) / (N rounds), makes ALL errors hold together with the confidence
named, although all samples share the draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from bspml.sample_lists import SampleLists, for_each_list
from bspml.shapes import Float, Tensor

__all__ = ["SoftMeans", "half_width", "sampled_soft_means"]

_FIRST_DRAWS = 4096
_FIRST_LISTS = 4
_BLOCK = 1 << 24  # similarities held at a time


@dataclass(frozen=True)
class SoftMeans:
    """t_i of the samples judged and what is known of their error.

    Attributes:
        values: (N,) float64 on the CPU, NaN where not judged.
        errors: (N,) float64, likewise: all |values - t| are at most this, with the confidence.
        computed: share of the similarities computed for them.
    """

    values: Float[Tensor, " N"]
    errors: Float[Tensor, " N"]
    computed: float


def half_width(variance: Tensor, largest: Tensor, draws: int, chance: float) -> Tensor:
    """How far the mean of `draws` values in [0, largest] may lie from its expectation.

    Args:
        variance: (B,) sample variances, over draws - 1.
        largest: (B,) R.
        draws: m, at least 2.
        chance: probability q that the bound fails.

    Returns:
        (B,) the smaller of Hoeffding's and the empirical Bernstein bound, each at q / 2.
    """
    x = math.log(8 / chance)
    hoeffding = largest * math.sqrt((x - math.log(2)) / (2 * draws))
    bernstein = (2 * variance * x / draws).sqrt() + 7 * largest * x / (3 * (draws - 1))
    return torch.minimum(hoeffding, bernstein)


def sampled_soft_means(
    lists: SampleLists,
    weights: Float[Tensor, " N"],
    judged: Tensor,
    a: float,
    error: float,
    confidence: float,
    seed: int,
) -> SoftMeans:
    """t_i of the judged samples, each within `error`, all together with `confidence`.

    Args:
        lists: of all N samples.
        weights: (N,) float64, w_j >= 0; at least two positive.
        judged: (N,) bool.
        a: inverse temperature.
        error: largest error of any t_i, > 0.
        confidence: probability that all errors hold, in (0, 1).
        seed: of the draws.

    Returns:
        `SoftMeans`.
    """
    sampler = _Sampler(lists, weights, judged, a, error, confidence, seed)
    n = len(weights)
    values, errors = (torch.full((n,), math.nan, dtype=torch.float64) for _ in range(2))
    numbers = range(len(lists))
    found = for_each_list(sampler.log_sums, numbers, lists.rows.device)
    for number, (low, high) in zip(numbers, found, strict=True):
        samples = lists.order[sampler.members(number)].cpu()
        total = (sampler.total - weights[samples]).log()  # log of the others' weight
        values[samples] = 1 + ((low + high) / 2 - total) / a
        errors[samples] = (high - low) / (2 * a)
    return SoftMeans(values, errors, sum(sampler.pairs) / (max(1, int(judged.sum())) * n))


class _Sampler:
    """One shared set of draws, and the lists near each list."""

    def __init__(
        self,
        lists: SampleLists,
        weights: Tensor,
        judged: Tensor,
        a: float,
        error: float,
        confidence: float,
        seed: int,
    ) -> None:
        self.lists, self.a = lists, a
        order = lists.order.cpu()
        self.weights = weights[order]
        self.judged = judged.cpu()[order]
        self.total = float(weights.sum())
        n = len(order)
        edges = torch.cat([torch.zeros(1, dtype=torch.float64), self.weights.cumsum(0)])
        self.list_weights = edges[lists.starts].diff().clamp_min(0) + 1e-12 * self.total
        self.most_draws = max(_FIRST_DRAWS, n // 2)
        rounds = 1 + max(0, math.ceil(math.log(self.most_draws / _FIRST_DRAWS, 4)))
        self.chance = (1 - confidence) / (n * rounds)
        self.allowed = math.expm1(2 * a * error)  # of F_high / F_low - 1
        self.error = error
        self.mean = (lists.rows.T @ self.weights.to(lists.rows)) / self.total  # (D,)
        generator = torch.Generator().manual_seed(seed)
        uniform = torch.rand(
            _FIRST_DRAWS * 4 ** (rounds - 1), generator=generator, dtype=torch.float64
        )
        drawn = torch.searchsorted(edges[1:], uniform * self.total, right=True).clamp_(max=n - 1)
        self.drawn_list = torch.searchsorted(lists.starts, drawn, right=True) - 1  # (m,)
        self.drawn = drawn
        self.pairs: list[int] = []  # computed; threads may append

    def members(self, number: int) -> Tensor:
        """Positions of a list's judged members in list order."""
        start, stop = self.lists.starts[number : number + 2].tolist()
        return start + self.judged[start:stop].nonzero()[:, 0]

    def log_sums(self, number: int) -> tuple[Tensor, Tensor]:
        """Low and high ends of log F of the judged members of one list, (B,) float64."""
        lists, a = self.lists, self.a
        rows = self.members(number)
        if len(rows) == 0:
            nothing = torch.empty(0, dtype=torch.float64)
            return nothing, nothing
        queries = lists.rows[rows]
        ceilings = lists.upper(queries, torch.arange(len(lists)))  # (B, L)
        ceilings = ceilings.sub_(1).mul_(a).exp_().double().cpu()
        first = self._nearest(number)
        near = self._exact(queries, rows, self._columns(first))
        visited = first | self._too_high(ceilings, near + self._mean_of_exponentials(queries))
        near += self._exact(queries, rows, self._columns(visited & ~first))
        left_out = ~visited
        if not left_out.any():
            return near.log(), near.log()
        largest = ceilings[:, left_out].amax(1) * 1.001
        certain = (ceilings[:, left_out] * 1.001) @ self.list_weights[left_out]
        low, high = near.log(), (near + certain).log()
        open_rows = torch.arange(len(rows))
        sums, squares, draws = torch.zeros_like(near), torch.zeros_like(near), 0
        wanted = _FIRST_DRAWS
        while wanted <= len(self.drawn):
            open_rows = open_rows[(high - low)[open_rows] > 2 * a * self.error]
            if len(open_rows) == 0:
                return low, high
            part = self.drawn[draws:wanted]
            outside = left_out[self.drawn_list[draws:wanted]]
            more, more_squares = self._draw(queries[open_rows], part[outside])
            sums[open_rows] += more
            squares[open_rows] += more_squares * (1 + 1e-4)  # float32 sums, rounded up
            draws, wanted = wanted, wanted * 4
            mean = sums[open_rows] / draws
            variance = (squares[open_rows] - draws * mean**2).clamp_min(0) / (draws - 1)
            h = half_width(variance, largest[open_rows], draws, self.chance)
            base = near[open_rows]
            below = (base + self.total * (mean - h).clamp_min(0)).log()
            above = (base + self.total * (mean + h)).log()
            low[open_rows] = torch.maximum(low[open_rows], below)
            high[open_rows] = torch.minimum(high[open_rows], above)
        open_rows = open_rows[(high - low)[open_rows] > 2 * a * self.error]
        if len(open_rows):
            everyone = torch.arange(len(self.weights))
            exact = self._exact(queries[open_rows], rows[open_rows], everyone).log()
            low[open_rows], high[open_rows] = exact, exact
        return low, high

    def _nearest(self, number: int) -> Tensor:
        """(L,) bool, the list itself and the ones nearest to it."""
        u = torch.mv(self.lists.centroids, self.lists.centroids[number]).cpu()
        u[number] = 2.0
        nearest = torch.zeros(len(u), dtype=torch.bool)
        nearest[u.argsort(descending=True)[:_FIRST_LISTS]] = True
        return nearest

    def _mean_of_exponentials(self, queries: Tensor) -> Tensor:
        """(B,) below F but for the query's own part: W times the exponential of the mean."""
        return self.total * torch.mv(queries, self.mean).sub_(1).mul_(self.a).exp_().double().cpu()

    def _too_high(self, ceilings: Tensor, guess: Tensor) -> Tensor:
        """(L,) bool, lists to compute exactly, as their ceilings would make R too large.

        For m draws the term 7 R x / (3 m) of the bound should take at most half of what is
        allowed, for which F is guessed.  More draws allow a larger R and so fewer lists; the
        cheapest m is taken.  It decides the time; the error is computed from what was seen.
        """
        worst = (ceilings / guess[:, None]).amax(0)  # (L,)
        x = math.log(8 / self.chance)
        best, cheapest = worst > math.inf, math.inf
        draws = _FIRST_DRAWS
        while draws <= len(self.drawn):
            visited = worst > 3 * draws * self.allowed / (4 * 7 * x * self.total)
            cost = float(self.lists.sizes[visited].sum()) + draws
            if cost < cheapest:
                best, cheapest = visited, cost
            draws *= 4
        return best

    def _columns(self, visited: Tensor) -> Tensor:
        starts = self.lists.starts
        runs = [torch.arange(int(starts[k]), int(starts[k + 1])) for k in visited.nonzero()[:, 0]]
        return torch.cat(runs) if runs else torch.empty(0, dtype=torch.int64)

    def _exact(self, queries: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """(B,) float64, sum of w f over the positions `columns`, without the query itself."""
        found = torch.zeros(len(queries), dtype=torch.float64)
        self.pairs.append(len(queries) * len(columns))
        for part in columns.split(max(1, _BLOCK // len(queries))):
            f = self._f(queries, part)  # (B, k)
            f.masked_fill_((rows[:, None] == part).to(f.device), 0)
            found += torch.mv(f, self.weights[part].to(f)).double().cpu()
        return found

    def _draw(self, queries: Tensor, part: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) sums of f and of f squared over draws."""
        sums, squares = (torch.zeros(len(queries), dtype=torch.float64) for _ in range(2))
        self.pairs.append(len(queries) * len(part))
        for some in part.split(max(1, _BLOCK // len(queries))):
            f = self._f(queries, some)
            sums += f.sum(1).double().cpu()
            squares += torch.linalg.vector_norm(f, dim=1).square().double().cpu()
        return sums, squares

    def _f(self, queries: Tensor, part: Tensor) -> Tensor:
        shift = queries.new_full((), -self.a)
        columns = self.lists.rows[part.to(queries.device)]
        return torch.addmm(shift, queries, columns.T, alpha=self.a).exp_()
