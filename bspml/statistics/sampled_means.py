"""Everyone's soft mean t_i from a sample of everyone, with a bound at a named confidence.

With W = sum w_j and f(S) = exp(a (S - 1)),

    t_i = 1 + (1/a) log( F_i / (W - w_i) ),    F_i = sum_{j != i} w_j f(S_ij) = near_i + far_i

near_i runs over the lists near i (its own among them) and is exact.  far_i, over all the others,
is sampled: no member of shell l has f above a ceiling C_l for any sample of the group judged
together, so list l is drawn with probability W_l C_l / D, D = sum W_l C_l, and a member j of it
with probability w_j / W_l.  Then Z = f(S_ij) D / C_l has the expectation far_i and lies in [0, D].
For m independent draws let Z' be the mean, Q the mean square, V the sample variance (over m - 1),
and x = ln(8 / q).  With any L in (0, 1) fixed beforehand, and psi = -ln(1 - L) - L,

    |Z' - far| <= (D (x - ln 2) / m + psi Q / D) / L           but with probability q / 2
    |Z' - far| <= sqrt(2 V x / m) + 7 D x / (3 (m - 1))        empirical Bernstein, likewise

(Maurer & Pontil 2009, theorem 4, two-sided).  The first: (ln(1 + u) - u) / u^2 grows with u, so
ln(1 + L y) >= L y - psi y^2 for y >= -1 (Fan, Grama & Liu 2015), and for y = -Z / D and y = Z / D

    E exp(L y - psi y^2) <= 1 + L E(y) <= exp(L E(y))

so that the product of exp(L (y - E(y)) - psi y^2) over the draws exceeds exp(x - ln 2) with
probability q / 4 at most.  It is the shorter where Z is mostly small beside its range D, as with
many far samples, the second where D is small.  Both hold with probability 1 - q; the smaller is h.
Without any chance, near <= F_i <= near + D, and by Jensen's inequality

    far_i >= sum over far lists of W_l exp(a (q_i . mu_l - 1)),  mu_l the members' weighted mean.

So F_i lies in [near + Z' - h, near + Z' + h], cut at these.  We give the middle of log F over it,
and half of it, over a, as the error.  (Where lists are narrow Jensen's end is nearer to F_i than
the other: the middle is then above it, by a part that all samples share.)  Samples whose error is
above the one asked for draw half as many again, up to `_ROUNDS` times, and in the end are computed
against everyone.  The union bound
over N samples and all rounds, q = (1 - confidence) / (N rounds), makes ALL errors hold together
with the confidence named, although the samples of a group share their draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from bspml.distributed.group import rank, ranks
from bspml.distributed.rows import add_over_ranks
from bspml.shapes import Float, Tensor
from bspml.statistics.references import weight_elsewhere
from bspml.statistics.sample_lists import SampleLists, for_each_list, runs
from bspml.statistics.shells import Shells

_FEWEST_DRAWS = 256
_ROUNDS = 6
_STEP = 0.9  # L of the first bound
_PSI = -math.log(1 - _STEP) - _STEP
_FIRST_LISTS = 4
_SHELLS = 16  # of a list
_GUESSED, _SPENT = 0.5, 0.9  # quantile of F in a list, and share of its error, that draws are for
_BLOCK = 1 << 20  # similarities held at a time: they stay in the cache


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


def half_width(square: Tensor, variance: Tensor, draws: int, chance: float) -> Tensor:
    """Return how far the mean of independent values in [0, 1] may lie from its expectation.

    Args:
        square: (B,) means of the squares of the values.
        variance: (B,) their sample variances, over draws - 1.
        draws: m, at least 2.
        chance: probability q that the bound fails.

    Returns:
        (B,) the smaller of the module's two bounds, each at q / 2.
    """
    x = math.log(8 / chance)
    fixed = ((x - math.log(2)) / draws + _PSI * square) / _STEP
    bernstein = (2 * variance * x / draws).sqrt() + 7 * x / (3 * (draws - 1))
    return torch.minimum(fixed, bernstein)


def sampled_soft_means(
    lists: SampleLists,
    weights: Float[Tensor, " N"],
    judged: Tensor,
    a: float,
    error: float,
    confidence: float,
    seed: int,
    across_ranks: bool = False,
) -> SoftMeans:
    """Return t_i of the judged samples, each within `error`, all together with `confidence`.

    Args:
        lists: of all N samples.
        weights: (N,) float64, w_j >= 0; at least two positive.
        judged: (N,) bool.
        a: inverse temperature.
        error: largest error of any t_i, > 0.
        confidence: probability that all errors hold, in (0, 1).
        seed: of the draws.
        across_ranks: each process of a group judges the members of some lists.

    Returns:
        `SoftMeans`.
    """
    shells = Shells.of(lists, weights, _SHELLS)
    sampler = _Sampler(shells, judged, a, error, confidence, seed)
    n = len(weights)
    values, errors = torch.zeros(2, n, dtype=torch.float64)
    others = torch.from_numpy(weight_elsewhere(weights.numpy())).log()  # of the others' weight
    numbers = range(rank(), len(lists), ranks()) if across_ranks else range(len(lists))
    intervals = for_each_list(sampler.log_sums, numbers, lists.rows.device)
    for number, (low, high) in zip(numbers, intervals, strict=True):
        samples = shells.order[sampler.members(number)].cpu()
        values[samples] = 1 + ((low + high) / 2 - others[samples]) / a
        errors[samples] = (high - low) / (2 * a)
    pairs = torch.tensor(sum(sampler.pairs))
    if across_ranks:
        for shared in (values, errors, pairs):
            add_over_ranks(shared)  # to zeros: of each sample one rank has the value
    values[~judged], errors[~judged] = math.nan, math.nan
    return SoftMeans(values, errors, int(pairs) / (max(1, int(judged.sum())) * n))


class _Sampler:
    """Draws for each list's members, and the lists near them."""

    def __init__(
        self, shells: Shells, judged: Tensor, a: float, error: float, confidence: float, seed: int
    ) -> None:
        self.shells, self.a, self.error, self.seed = shells, a, error, seed
        self.weights, self.judged = shells.weights, judged.cpu()[shells.order.cpu()]
        self.cumulated = torch.cat([self.weights.new_zeros(1), self.weights.cumsum(0)])
        self.chance = (1 - confidence) / (len(self.weights) * _ROUNDS)
        self.allowed = math.expm1(2 * a * error)  # of F_high / F_low - 1
        self.pairs: list[int] = []  # computed; threads may append

    def members(self, number: int) -> Tensor:
        """Return positions of a list's judged members in list order."""
        start, stop = self.shells.list_starts[number : number + 2].tolist()
        return start + self.judged[start:stop].nonzero()[:, 0]

    def log_sums(self, number: int) -> tuple[Tensor, Tensor]:
        """Return low and high ends of log F of the judged members of one list, (B,) float64."""
        shells, a = self.shells, self.a
        rows = self.members(number)
        if len(rows) == 0:
            empty = torch.empty(0, dtype=torch.float64)
            return empty, empty
        queries = shells.rows[rows]
        is_first = shells.nearest(number, _FIRST_LISTS)
        cosines, least = self._survey(queries, ~is_first)
        ceilings = shells.ceilings(cosines)  # (S,)
        ceilings = ceilings.double().cpu().sub_(1).mul_(a).exp_().mul_(1.001)
        mass = shells.shell_weights * ceilings  # W_l C_l
        # near_i, exactly: the lists nearest to this one, then those that would make D too large.
        near = self._exact(queries, rows, runs(shells.list_starts, is_first.nonzero()[:, 0]))
        guess = float((near + least).quantile(_GUESSED))
        of_list = torch.zeros(len(shells), dtype=torch.float64).index_add_(0, shells.parent, mass)
        is_new, draws = self._plan_draws(torch.where(is_first, 0.0, of_list), guess)
        is_new, is_far = is_new & ~is_first, ~(is_first | is_new)
        if is_new.any():
            near += self._exact(queries, rows, runs(shells.list_starts, is_new.nonzero()[:, 0]))
            _, least = self._survey(queries, is_far)
        mass = torch.where(is_far[shells.parent], mass, 0.0)
        most = float(mass.sum()) * (1 + 1e-9)  # D
        # Without any chance: Jensen's least <= far_i <= D.
        low, high = (near + least).log(), (near + most).log()
        open_rows = (high - low > 2 * a * self.error).nonzero()[:, 0]
        sums, squares, num_drawn = torch.zeros_like(near), torch.zeros_like(near), 0
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + number) % 2**64)
        for _ in range(_ROUNDS):
            if len(open_rows) == 0 or num_drawn + draws > len(self.weights) // 2:
                break
            # scale = D / C_l, so f * scale / D = Z / D lies in [0, 1].
            columns, scale = self._draw_positions(mass, ceilings, most, draws, generator)
            z, z2 = self._far_sums(queries[open_rows], columns, scale / most)
            sums[open_rows] += z
            squares[open_rows] += z2 * (1 + 1e-4)  # float32 sums, rounded up
            num_drawn += draws
            draws = num_drawn // 2 + 1  # half as many again
            # Z' / D, Q / D^2 and V / D^2 of the m = `num_drawn` values; h is in units of far_i.
            mean, square = sums[open_rows] / num_drawn, squares[open_rows] / num_drawn
            variance = (square - mean**2).clamp_min(0) * (num_drawn / (num_drawn - 1))
            h = half_width(square, variance, num_drawn, self.chance) * most
            # The interval only narrows: both ends hold, so their intersection does.
            h, mean, base = h + 1e-4 * mean * most, mean * most, near[open_rows]
            low[open_rows] = torch.maximum(low[open_rows], (base + (mean - h).clamp_min(0)).log())
            high[open_rows] = torch.minimum(high[open_rows], (base + mean + h).log())
            open_rows = open_rows[(high - low)[open_rows] > 2 * a * self.error]
        if len(open_rows):
            everyone = torch.arange(len(self.weights))
            exact = self._exact(queries[open_rows], rows[open_rows], everyone).log()
            low[open_rows], high[open_rows] = exact, exact
        return low, high

    def _survey(self, queries: Tensor, is_far: Tensor) -> tuple[Tensor, Tensor]:
        """Return (L,) the largest similarity to each centroid, and Jensen's bound of the far sum.

        The bound, (B,) float64, is rounded down.
        """
        shells, cosines, least = self.shells, [], []
        weights = torch.where(is_far, shells.list_weights, 0.0).to(queries)
        for part in queries.split(max(1, _BLOCK // len(weights))):
            products = part @ shells.centroids.T  # (b, L)
            cosines.append(products.amax(0))
            products.mul_(shells.length).sub_(1 + 2e-3 * (shells.length == 0) + shells.slack)
            least.append(torch.mv(products.mul_(self.a).exp_(), weights).double().cpu())
        return torch.stack(cosines).amax(0), torch.cat(least).mul_(1 - 1e-4)

    def _plan_draws(self, mass: Tensor, guess: float) -> tuple[Tensor, int]:
        """Choose more lists to compute exactly, (L,) bool, and how many draws to begin with.

        The upper end lies some D x / (L m) above the far sum, which may be `_SPENT` of what is
        allowed; for that F is guessed.  Taking out lists whose members have high ceilings
        lowers D; the cheapest sum of their sizes and the draws wins.  It decides the time; the
        error is computed from what was seen.
        """
        descending = (mass / self.shells.sizes).argsort(descending=True)
        left = mass.sum() - torch.cat([mass.new_zeros(1), mass[descending].cumsum(0)])  # (L + 1,)
        sizes = self.shells.sizes[descending].cumsum(0)
        x = math.log(4 / self.chance)
        draws = left.clamp_min(0) * (x / (_STEP * _SPENT * self.allowed * max(guess, 1e-300)))
        draws = draws.clamp_min(_FEWEST_DRAWS)
        best = int((draws + torch.cat([sizes.new_zeros(1), sizes])).argmin())
        is_new = torch.zeros(len(mass), dtype=torch.bool)
        is_new[descending[:best]] = True
        return is_new, int(min(float(draws[best]), 1e15)) + 1

    def _draw_positions(
        self, mass: Tensor, ceilings: Tensor, most: float, draws: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw (m,) positions as the module says, and return them with (m,) D / C_l."""
        uniform = torch.rand(2, draws, generator=generator, dtype=torch.float64)
        edges = mass.cumsum(0)
        number = torch.searchsorted(edges, uniform[0] * edges[-1], right=True)
        last = int(mass.nonzero()[-1])  # a shell without weight is never drawn, by rounding neither
        number = number.clamp_(max=last)
        low, high = (self.cumulated[self.shells.starts[number + k]] for k in (0, 1))
        # In the samples' order, so that neighbours in memory are read together.
        inside, order = (low + uniform[1] * (high - low)).sort()
        number = number[order]
        place = torch.searchsorted(self.cumulated[1:], inside, right=True)
        place = torch.maximum(place, self.shells.starts[number])
        place = torch.minimum(place, self.shells.starts[number + 1] - 1)
        return place, most / ceilings[number]

    def _exact(self, queries: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """Sum w f over the positions `columns`, without the query itself: (B,) float64."""
        sums = torch.zeros(len(queries), dtype=torch.float64)
        self.pairs.append(len(queries) * len(columns))
        for part in columns.split(max(1, _BLOCK // len(queries))):
            f = self._f(queries, part)  # (B, k)
            f.masked_fill_((rows[:, None] == part).to(f.device), 0)
            sums += torch.mv(f, self.weights[part].to(f)).double().cpu()
        return sums

    def _far_sums(self, queries: Tensor, columns: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Sum `scale` f, and its square, over draws, (B,) each."""
        sums, squares = (torch.zeros(len(queries), dtype=torch.float64) for _ in range(2))
        self.pairs.append(len(queries) * len(columns))
        at_a_time = max(1, _BLOCK // len(queries))
        for some, factor in zip(columns.split(at_a_time), scale.split(at_a_time), strict=True):
            f = self._f(queries, some)  # (B, k)
            factor = factor.to(f)
            sums += torch.mv(f, factor).double().cpu()
            squares += torch.mv(f.square_(), factor.square()).double().cpu()
        return sums, squares

    def _f(self, queries: Tensor, part: Tensor) -> Tensor:
        shift = queries.new_full((), -self.a)
        columns = self.shells.rows[part.to(queries.device)]
        return torch.addmm(shift, queries, columns.T, alpha=self.a).exp_()
