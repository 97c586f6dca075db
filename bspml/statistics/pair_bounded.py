"""The paper's pair statistics in nearly linear time, to an error you ask for and with its proof.

xi_neg_i = (1/beta) log(1 + A_i) sums exp(beta (S_ij - base)) over all samples j of other classes.
With beta = 50 a pair at S = .8 counts as much as 22,000 pairs at S = .6: near neighbours decide.
So the samples are cut into lists (`bspml.statistics.sample_lists`), and the lists near i are
visited.  Let V be the part of A_i found in the lists visited.  Of a list l that was not visited two
things are known (`bspml.statistics.sample_lists`): none of its members is more similar to i than
u_il = cos(max(0, angle(i, c_l) - r_l)), and the mean of exp(beta S_ij) over its n_l members is at
most exp(beta i.p_l + s_l).  With W_l the sum and w_l the largest of its members' weights,

    V  <=  A_i  <=  V + T_i,        T_i = sum over lists not visited of t_il

    t_il = exp(-beta base) min( W_l exp(beta u_il), n_l w_l exp(beta i.p_l + s_l) )

    (1/beta) log(1 + V)  <=  xi_neg_i  <=  (1/beta) log(1 + V + T_i)

We give the middle of this interval and half its width, `error_bound`.  Visiting stops when
T_i <= (exp(2 beta error) - 1) (1 + V), which is half width <= error.  It is decided for a narrow
list of samples at once: t_il grows with i.c_l, so the largest i.c_l among them gives a T for all,
and the smallest V among them is what T is held against.  Nothing here is a matter of
chance or of tuning: the bound holds for all samples of all data.

What depends on the data is the time.  Embeddings that gather in tight clusters need a few lists
a sample.  Embeddings spread evenly in many dimensions have no near and far: every list has to be
visited.  A few lists are tried first, and where most pairs would be computed anyway the exact
statistics are, which take half of them; `visited` and `exact` say what happened.

xi_pos needs the sample's own class only and is exact, at a cost of sum_c N_c^2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch

from bspml.shapes import ArrayLike, Float, Int, Tensor
from bspml.statistics.class_pairs import class_blocks
from bspml.statistics.pair import LARGEST_EXPONENT, PairStatistics, PairTask, exact_statistics
from bspml.statistics.sample_lists import SampleLists, for_each_list, runs
from bspml.tensors.checks import check_number, check_whole
from bspml.tensors.precision import full_precision
from bspml.tensors.unit_rows import unit_rows

_FIRST_LISTS = 2  # nearest wide lists visited before anything is decided
_MEMBERS = 25  # samples of a narrow list
_PILOT_LISTS = 24  # lists tried before the whole is started
_EXACT_FROM = 0.4  # share of pairs visited from which the exact statistics cost less
_SMALL = 2048  # samples below which lists do not pay
_FAR_SHARE = 0.5  # of the tail allowed, for what wide lists leave out; narrow ones have the rest
_BLOCK = 1 << 24  # similarities held at a time


@dataclass(frozen=True)
class NeighbourStatistics(PairStatistics):
    """Pair statistics with a proved error.

    Attributes:
        xi_pos: (N,) float64 on the CPU, exact.
        xi_neg: (N,) float64 on the CPU.
        zero_rows: rows of norm 0, whose similarities were taken as 0.
        error_bound: (N,) float64: the exact xi_neg lies within it, rounding of the embeddings'
            precision aside, and it is at most the error asked for.
        visited: share of the N^2 similarities that were computed for xi_neg.
        exact: the data did not permit less than most pairs, so all were taken; the bounds are 0.
        num_lists: lists the samples were cut into, 0 if they were not.

    Example:
        >>> E = torch.eye(40).repeat(3, 1)  # 40 classes, each in one place
        >>> stats = neighbour_statistics(E, list(range(40)) * 3, lists=20)
        >>> bool((stats.error_bound <= 1e-3).all()), 0 < stats.visited <= 1
        (True, True)
    """

    error_bound: Float[Tensor, " N"]
    visited: float
    exact: bool
    num_lists: int


@full_precision()
def neighbour_statistics(
    embeddings: Float[Tensor, "N D"] | ArrayLike,
    labels: Int[Tensor, " N"] | ArrayLike,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    sample_weights: Float[Tensor, " N"] | ArrayLike | None = None,
    error: float = 1e-3,
    lists: int | None = None,
    seed: int = 0,
) -> NeighbourStatistics:
    """Return xi_pos exactly and xi_neg within `error` for every sample, by near neighbours.

    Source: [Zhang 2023], eq. (3), as in `bspml.pair_statistics`; the bound is ours and is derived
    at the top of this module.

    Memory beside the embeddings: two normalised copies and O(N).  Deterministic for one `seed`;
    another seed makes other lists, with the same promise.

    Args:
        embeddings: (N, D), any scale; rows are normalised here.
        labels: (N,) integers or strings, possibly wrong.
        alpha: positive scale, in [1e-9, 1e9].
        beta: negative scale, in [1e-9, 1e9].  The larger, the fewer neighbours matter and the less
            it costs.
        base: similarity at which a pair counts as 1 in the sums.
        sample_weights: (N,) in [0, 1], or None for all 1; weight 0 is absence.
        error: largest error of any xi_neg, > 0; at most 2, or as far as that statistic reaches.
        lists: lists of the first cut, about sqrt(N) if None; it decides the time, not the error.
        seed: of the cut.

    Returns:
        `NeighbourStatistics`, on the CPU.

    Raises:
        InputError: as `bspml.pair_statistics`; an error that is not above 0, or bounds nothing.

    Example:
        >>> stats = neighbour_statistics([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [0, 0, 1])
        >>> stats.exact, float(stats.error_bound.max())  # three samples need no lists
        (True, 0.0)
    """
    task = PairTask.of(embeddings, labels, alpha, beta, base, sample_weights)
    # More than any similarity, or any statistic, spreads would bound nothing.
    log_count = math.log(max(1, len(task.codes)))
    reach = task.beta * (1 - task.base) + log_count
    widest = max(2.0, reach / task.beta)
    error = check_number(error, "error", 0, widest, open_low=True)
    lists = None if lists is None else check_whole(lists, "lists")
    seed = check_whole(seed, "seed", low=0)
    # Sums that overflow are kept as logarithms by the exact statistics only.
    largest = max(task.alpha * (1 + task.base), task.beta * (1 - task.base)) + log_count
    if largest <= LARGEST_EXPONENT and len(task.codes) >= (_SMALL if lists is None else 1):
        statistics = _bounded_statistics(task, error, lists, seed)
        if statistics is not None:
            return statistics
    exact = exact_statistics(task)
    zeros = torch.zeros_like(exact.xi_neg)
    return NeighbourStatistics(exact.xi_pos, exact.xi_neg, exact.zero_rows, zeros, 1.0, True, 0)


def _bounded_statistics(
    task: PairTask, error: float, lists: int | None, seed: int
) -> NeighbourStatistics | None:
    """Compute the statistics by lists; None where the exact ones cost less."""
    E = unit_rows(task.embeddings)
    search = _ListSearch(E, task, error, lists, seed)
    if search.pilot(seed) >= _EXACT_FROM:
        return None
    xi_pos, (xi_neg, bound) = _own_class_statistic(E, task), search.run()
    visited, num_lists = search.visited, len(search.lists)
    return NeighbourStatistics(xi_pos, xi_neg, task.zero_rows, bound, visited, False, num_lists)


def _own_class_statistic(E: Tensor, task: PairTask) -> Tensor:
    """Compute xi_pos of unit rows, (N,) float64 on the CPU."""
    sums = torch.zeros(len(E), dtype=torch.float64, device=E.device)
    weights = task.weights.to(E)
    for rows, columns, S, pair in class_blocks(E, task.codes.to(E.device)):
        terms = S.sub_(task.base).mul_(-task.alpha).exp_().masked_fill_(~pair, 0)  # (b, k)
        sums[rows] += torch.mv(terms, weights[columns])
    return sums.log1p().cpu() / task.alpha


class _ListSearch:
    """Visits the lists near each list, in an order and to a depth that the bound decides.

    There are two levels: wide lists, of which most are seen to be far with one bound, and inside
    the others narrow lists, which are visited or not.
    """

    def __init__(
        self, E: Tensor, task: PairTask, error: float, lists: int | None, seed: int
    ) -> None:
        self.beta, self.base = task.beta, task.base
        self.wide, self.lists, self.first_child = SampleLists.nested(E, lists, seed, _MEMBERS)
        order = self.lists.order
        self.codes = task.codes.to(E.device)[order]
        self.weights = task.weights.to(E)[order]
        self.scales = {id(lists): self._log_scales(lists) for lists in (self.wide, self.lists)}
        self.allowed = math.expm1(min(2 * self.beta * error, 500.0))
        self.pairs: list[int] = []  # computed by each visit; threads may append

    def _log_scales(self, lists: SampleLists) -> tuple[Tensor, Tensor]:
        """Return (L,) logarithms of the factors of each list's two bounds, rounded up.

        The first has the members' weight, the second n_l times the largest of them.
        """
        weights = self.weights.double()
        cumulated = torch.cat([weights.new_zeros(1), weights.cumsum(0)])
        sums = cumulated[lists.starts.to(cumulated.device)].diff()
        sums = sums * (1 + 1e-6) + 1e-12 * cumulated[-1]
        sizes = lists.sizes.to(weights.device)
        member = torch.repeat_interleave(torch.arange(len(lists), device=weights.device), sizes)
        largest = torch.zeros_like(sums).scatter_reduce_(0, member, weights, "amax")
        spread = lists.log_spread(self.beta).masked_fill(largest == 0, 0)  # may be infinite
        shift = self.beta * self.base - 1e-3
        return sums.log() - shift, (sizes * largest).log() + spread - shift

    @property
    def visited(self) -> float:
        """Share of the N^2 similarities computed so far."""
        return sum(self.pairs) / len(self.codes) ** 2

    def pilot(self, seed: int) -> float:
        """Measure the share of the pairs that a few wide lists drawn at random visit."""
        generator = torch.Generator().manual_seed(seed)
        numbers = torch.randperm(len(self.wide), generator=generator)[:_PILOT_LISTS].tolist()
        for _ in for_each_list(self.statistic, numbers, self.codes.device):
            pass
        share = sum(self.pairs) / (int(self.wide.sizes[numbers].sum()) * len(self.codes))
        self.pairs.clear()
        return share

    def run(self) -> tuple[Tensor, Tensor]:
        """Return (N,) xi_neg and (N,) its error bound, float64 on the CPU in the samples' order."""
        n, device = len(self.codes), self.codes.device
        xi_neg, bound = (torch.empty(n, dtype=torch.float64, device=device) for _ in range(2))
        numbers = range(len(self.wide))
        intervals = for_each_list(self.statistic, numbers, device)
        for number, (low, high) in zip(numbers, intervals, strict=True):
            start, stop = self.wide.starts[number : number + 2].tolist()
            samples = self.wide.order[start:stop]
            xi_neg[samples] = (low + high) / 2
            bound[samples] = (high - low) / 2
        return xi_neg.cpu(), bound.cpu()

    def statistic(self, number: int) -> tuple[Tensor, Tensor]:
        """Bound xi_neg of the members of a wide list from below and above, (B,) float64 each."""
        start, stop = self.wide.starts[number : number + 2].tolist()
        first, last = self.first_child[number : number + 2].tolist()
        nearest = self.wide.by_distance(number)
        sums = self._sum_over_lists(slice(start, stop), self.wide, nearest[:_FIRST_LISTS])
        tail = torch.zeros_like(sums)
        for low, high in pairwise(self.lists.starts[first : last + 1].tolist()):
            # Few samples at a time: lists are visited for all of them if one needs it.
            inside = slice(low - start, high - start)
            extra, bound = self._deeper(slice(low, high), sums[inside], nearest)
            sums[inside] += extra
            tail[inside] = bound
        return sums.log1p() / self.beta, (sums + tail).log1p() / self.beta

    def _deeper(self, rows: slice, sums: Tensor, nearest: Tensor) -> tuple[Tensor, float]:
        """Return what more a narrow list's members get, (B,), and a bound of the unvisited rest.

        Args:
            rows: the members' rows.
            sums: (B,) from the first of the lists `nearest`.
            nearest: (G,) wide lists by distance.
        """
        queries = self.lists.rows[rows]
        wide_terms = self._bounds(self.wide, self.wide.largest_cosines(queries))  # (G,)
        extra, num_visited = torch.zeros_like(sums), _FIRST_LISTS
        while True:
            wide_terms[nearest[:num_visited]] = 0  # visited: nothing is left of them
            allowed = self.allowed * (1 + float((sums + extra).min()))
            open_wide = _worth_visiting(wide_terms, allowed * _FAR_SHARE)
            children = runs(self.first_child, open_wide.nonzero()[:, 0].cpu()).to(open_wide.device)
            cosines = self.lists.largest_cosines(queries, children)  # (K,)
            terms = self._bounds(self.lists, cosines, children)
            is_needed = _worth_visiting(terms, allowed * (1 - _FAR_SHARE))
            size = int(self.lists.sizes[children[is_needed].cpu()].sum())
            visited_size = int(self.wide.sizes[nearest[:num_visited].cpu()].sum())
            if size <= 4 * visited_size or num_visited >= len(nearest):
                break  # what is left is little, or everything has been seen
            extra += self._sum_over_lists(rows, self.wide, nearest[num_visited : 2 * num_visited])
            num_visited *= 2
        extra += self._sum_over_lists(rows, self.lists, children[is_needed])
        return extra, float(wide_terms[~open_wide].sum() + terms[~is_needed].sum())

    def _bounds(self, lists: SampleLists, cosines: Tensor, numbers: Tensor | None = None) -> Tensor:
        """Bound what each of some `lists`, or all, adds for any of some samples, (K,) float64.

        Args:
            lists: wide or narrow ones.
            cosines: (K,) the samples' largest similarity to each centroid.
            numbers: (K,) of the lists, all if None.
        """
        by_weight, by_spread = self.scales[id(lists)]
        foot = lists.foot
        if numbers is not None:
            by_weight, by_spread, foot = by_weight[numbers], by_spread[numbers], foot[numbers]
        largest = lists.ceiling(cosines, numbers).double().mul_(self.beta).add_(by_weight)
        mean = (cosines * foot).mul_(self.beta).add_(by_spread)
        return torch.minimum(largest, mean).exp_()

    def _sum_over_lists(self, rows: slice, lists: SampleLists, numbers: Tensor) -> Tensor:
        """Sum exp(beta (S - base)) over other classes in some of `lists`, (B,) float64."""
        queries, codes = self.lists.rows[rows], self.codes[rows, None]
        sums = torch.zeros(len(queries), dtype=torch.float64, device=queries.device)
        columns = runs(lists.starts, numbers.cpu()).to(self.codes.device)
        self.pairs.append(len(queries) * len(columns))
        for part in columns.split(max(1, _BLOCK // len(queries))):
            S = queries @ self.lists.rows[part].T  # (B, k)
            terms = S.sub_(self.base).mul_(self.beta).exp_()
            terms.masked_fill_(codes == self.codes[part], 0)
            sums += torch.mv(terms, self.weights[part])
        return sums


def _worth_visiting(terms: Tensor, limit: float) -> Tensor:
    """Return (K,) bool, the lists to visit: all but the cheapest, up to `limit` together."""
    is_needed = terms > limit / (4 * max(1, len(terms)))  # the others need no sorting
    candidates = is_needed.nonzero()[:, 0]
    costs, ascending = terms[candidates].sort()
    left_out = terms[~is_needed].sum() + costs.cumsum(0) <= limit * (1 - 1e-3)
    is_needed[candidates[ascending[left_out]]] = False
    return is_needed
