"""The left-out discriminant: how well each class explains a sample, by distances that fit the data.

Linear discriminant analysis with the pooled covariance within classes, shrunk towards a multiple of
the identity, and with the judged sample left out of everything: of its class's mean, of the
covariance and of the shrinkage target.  With normalised rows x, weights w, W the weighted scatter
within classes, D dimensions and, all without sample i, m the weight of class c, mu_c its mean, C
the number of classes and f = sum w - C the degrees of freedom:

    Sigma = (1 - s) W / f + s tr(W) / (f D) I
    G_i(c) = -(x_i - mu_c)' Sigma^-1 (x_i - mu_c) / 2 + D / (2 m) + log m

D / (2 m) is what the noise of the mean adds to the distance.  Leaving i out takes c r r' from W,
with r = x_i - mu of its class before, k that class's weight and c = w_i k / (k - w_i).  In the
eigenvectors of W, eigenvalues e, this is exact and costs no second factorisation
(Sherman-Morrison): with rho = s / (1 - s) (tr(W) - c |r|^2) / D and V = diag(1 / (e + rho)),

    Sigma^-1 = f / (1 - s) (V + kappa V r r' V),   kappa = c / (1 - c r' V r)

One eigendecomposition serves every shrinkage.  Without leaving out, a residual that is part of W
makes its own direction cheap, and a wrong label seems to fit.  Ours, from textbook parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from bspml.shapes import Float, Int, Tensor
from bspml.tensors.unit_rows import unit_rows

_BLOCK_VALUES = 1 << 21  # of a table held at a time
_CLASSES = 512  # of a table computed at a time
_COVARIANCE_ROWS = 2048  # rows whose outer products are added at a time
_COVARIANCE_COLUMNS = 256  # of a block on or above the diagonal
_SUMMED_ROWS = 256  # rows in float64 at a time
_TINY = 1e-9


@dataclass(frozen=True)
class _Moments:
    """Weighted sums of rows, in float64: they can be added to, for other weights."""

    weights: Tensor  # (C,)
    sums: Tensor  # (C, D)
    outer: Tensor  # (D, D)

    @classmethod
    def of(cls, rows: Tensor, codes: Tensor, weights: Tensor, num_classes: int) -> _Moments:
        outer = _outer_products(rows, weights)
        return cls(*_class_sums(rows, codes, weights, num_classes), outer)

    def __add__(self, other: _Moments) -> _Moments:
        weights = (self.weights + other.weights).clamp_min(0)
        return _Moments(weights, self.sums + other.sums, self.outer + other.outer)

    @property
    def means(self) -> Tensor:
        """(C, D); 0 where a class has no reference."""
        means = self.sums / self.weights.clamp_min(_TINY)[:, None]
        means[self.weights <= 0] = 0
        return means


def _class_sums(
    rows: Tensor, codes: Tensor, weights: Tensor, num_classes: int
) -> tuple[Tensor, Tensor]:
    """(C,) weights and (C, D) weighted rows of each class, in float64."""
    sums = weights.new_zeros(num_classes, rows.shape[1])
    given = (values.split(_SUMMED_ROWS) for values in (rows, codes, weights))
    for part, classes, weight in zip(*given, strict=True):
        sums.index_add_(0, classes, (part * weight[:, None].to(part.dtype)).double())
    return weights.new_zeros(num_classes).index_add_(0, codes, weights), sums


def _outer_products(rows: Tensor, weights: Tensor) -> Tensor:
    """(D, D) float64, the weighted sum of x x' over the rows: half of it computed."""
    outer = weights.new_zeros(rows.shape[1], rows.shape[1])
    given = (values.split(_COVARIANCE_ROWS) for values in (rows, weights))
    for part, weight in zip(*given, strict=True):
        weighted = part * weight[:, None].to(part.dtype)
        for first in range(0, len(outer), _COVARIANCE_COLUMNS):
            some = slice(first, first + _COVARIANCE_COLUMNS)
            outer[some, first:] += weighted[:, some].T @ part[:, first:]
    return outer.triu_() + outer.triu(1).T


@dataclass(frozen=True)
class Discriminant:
    """Means and scatter of weighted reference samples, in the eigenvectors of the scatter.

    Attributes:
        rows: (N, D) all samples, normalised and centred.
        turned: (D, D) eigenvectors of the scatter, in columns.
        means: (C, D) class means, in the eigenvectors; 0 where a class has no reference.
        scatter: (D,) float64 eigenvalues e of W, at least 0.
        codes: (N,) int64 class of each sample.
        weights: (N,) float64 w, at least 0.
        class_weights: (C,) float64.
        moments: what they are made of.
        dims: columns with something in them, D above: a column of zeros changes nothing.
        known: what depends on the classes and the shrinkage only.
    """

    rows: Float[Tensor, "N D"]
    turned: Float[Tensor, "D D"]
    means: Float[Tensor, "C D"]
    scatter: Float[Tensor, " D"]
    codes: Int[Tensor, " N"]
    weights: Float[Tensor, " N"]
    class_weights: Float[Tensor, " C"]
    moments: _Moments
    dims: int
    known: dict[float, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        embeddings: Float[Tensor, "N D"],
        codes: Int[Tensor, " N"],
        weights: Float[Tensor, " N"],
        num_classes: int,
    ) -> Discriminant:
        """Compute means and scatter; moments in float64, rows kept in the embeddings' precision.

        Args:
            embeddings: (N, D), normalised here (half precisions in float32).
            codes: (N,) in [0, C).
            weights: (N,) float64, at least 0; 0: nobody's reference.
            num_classes: C.

        Example:
            >>> rows, codes = torch.tensor([[1.0, 0.1], [1, -0.1], [0, 1], [0.1, 1]]), [0, 0, 1, 1]
            >>> judge = Discriminant.of(rows, torch.tensor(codes), torch.ones(4).double(), 2)
            >>> judge.table(torch.tensor([0]), 0.5).argmax().item()
            0
        """
        rows = unit_rows(embeddings)
        codes, weights = codes.to(rows.device), weights.to(rows.device, torch.float64)
        dims = max(1, int((rows != 0).any(0).sum()))
        rows -= (weights.to(rows.dtype) @ rows) / weights.sum().to(rows.dtype)  # rounding is less
        moments = _Moments.of(rows, codes, weights, num_classes)
        return cls._from(rows, codes, weights, moments, dims)

    @classmethod
    def _from(
        cls, rows: Tensor, codes: Tensor, weights: Tensor, moments: _Moments, dims: int
    ) -> Discriminant:
        class_weights = moments.weights
        means = moments.means.to(rows.dtype)
        scatter = moments.outer - _outer_products(means, class_weights)
        # As precise as the products in it: the ridge is far above the rounding of an eigenvalue.
        scatter, turned = torch.linalg.eigh(scatter.to(rows.dtype))
        scatter = scatter.double().clamp_min(0)
        means = means @ turned
        return cls(rows, turned, means, scatter, codes, weights, class_weights, moments, dims)

    def reweighted(self, weights: Float[Tensor, " N"]) -> Discriminant:
        """Return the discriminant of the same rows under other weights.

        Only the rows whose weight changes are added up; the eigenvectors are computed anew.

        Args:
            weights: (N,) float64, at least 0.
        """
        weights = weights.to(self.weights)
        change = weights - self.weights
        some = change.nonzero()[:, 0]
        added = _Moments.of(self.rows[some], self.codes[some], change[some], len(self.means))
        return self._from(self.rows, self.codes, weights, self.moments + added, self.dims)

    def blocks(
        self, index: Int[Tensor, " M"], shrinks: Sequence[float]
    ) -> Iterator[tuple[Int[Tensor, " B"], list[Float[Tensor, "B C"]]]]:
        """Yield the tables of some ten MiB at a time: places in `index`, a table per shrinkage.

        Args:
            index: (M,) sample numbers.
            shrinks: each in (0, 1).
        """
        index = index.to(self.codes)
        by_class = torch.argsort(self.codes[index], stable=True)
        widest = max(len(self.class_weights), 3 * self.rows.shape[1])
        for places in by_class.split(max(1, _BLOCK_VALUES // widest)) if len(index) else ():
            part = index[places]
            rows = self.rows[part] @ self.turned
            yield places, [self._block(part, rows, shrink) for shrink in shrinks]

    def table(self, index: Int[Tensor, " M"], shrink: float) -> Float[Tensor, "M C"]:
        """Return G_i(c), as precise as the rows and on their device.

        Exact up to rounding: what refitting without each sample gives.  -inf where a class has no
        reference, NaN at the sample's own class where no other reference of it is left.

        Args:
            index: (M,) sample numbers.
            shrink: s in (0, 1).
        """
        return self.tables(index, (shrink,))[0]

    def tables(
        self, index: Int[Tensor, " M"], shrinks: Sequence[float]
    ) -> list[Float[Tensor, "M C"]]:
        """Return the table under each shrinkage.

        Args:
            index: (M,) sample numbers.
            shrinks: each in (0, 1).
        """
        tables = [self.rows.new_empty(len(index), len(self.means)) for _ in shrinks]
        for places, parts in self.blocks(index, shrinks):
            for table, part in zip(tables, parts, strict=True):
                table[places] = part
        return tables

    def _block(self, i: Tensor, rows: Tensor, shrink: float) -> Tensor:
        codes, weights = self.codes[i], self.weights[i]
        kind, dims, dot = rows.dtype, self.dims, torch.linalg.vecdot
        b = torch.arange(len(i), device=rows.device)
        before = self.class_weights[codes]
        mates = before - weights
        has_mates = mates > _TINY
        # x - the mean without i = (x - mean) k / (k - w) = gap * without; there may be none
        without = torch.where(has_mates, before / mates, 0.0)
        gap = rows - self.means[codes]
        share = weights * without  # c
        total = self.scatter.sum()
        trace = total - share * dot(gap, gap).double()
        trace = trace.clamp_min(_TINY * float(total) + 1e-300)
        present = (self.class_weights > 0).sum()
        freedom = self.weights.sum() - weights - present + (~has_mates & (weights > 0)).double()
        to_ridge = shrink / (1 - shrink) / dims
        scale = 1 / (self.scatter.to(kind) + (to_ridge * trace)[:, None].to(kind))  # V, (B, D)
        turned = scale * gap
        size = dot(turned, gap).double()
        kappa = share / (1 - share * size).clamp_min(1e-6)
        factor = freedom.clamp_min(1.0) / (2 * shrink - 2)  # below 0
        own = size * without.square() * (1 + kappa * size)
        own = factor * own + _of_support(mates, dims)
        scaled = scale.mul_(rows)
        # V = shares (B, n) @ at (n, D); factor (mu' V mu + x' V x) + support is left @ right.
        shares, traces = self._interpolate(trace)
        at, right = self._by_class(traces, to_ridge)
        alone = factor * dot(scaled, rows)
        left = torch.stack([alone, torch.ones_like(alone)], 1)
        left = torch.cat([factor[:, None] * shares, left], 1).to(kind)
        # factor kappa (r' V (x - mu))^2, with r' V mu = x' V mu - mu_y' V mu
        weight = (-factor * kappa).sqrt()[:, None]
        across = dot(turned, rows)[:, None] * weight.to(kind)
        own_classes, place = torch.unique(codes, return_inverse=True)
        few = 2 * len(at) * len(own_classes) <= len(i)
        if few:
            own_means = (at[:, None] * self.means[own_classes]).flatten(0, 1)  # V mu_y
            shares = (shares * weight).to(kind)[:, :, None]
        weight = weight.to(kind)
        table = rows.new_empty(len(i), len(self.means))
        for first in range(0, len(self.means), _CLASSES):  # faster than one wide product
            some = slice(first, first + _CLASSES)
            means = self.means[some].T
            part = scaled @ means
            if few:
                along = torch.addcmul(across, part, -weight)
                for k, values in enumerate((own_means @ means).unflatten(0, (len(at), -1))):
                    along.addcmul_(values.index_select(0, place), shares[:, k])
            else:
                along = torch.addmm(across, turned * -weight, means)
            part.mul_((-2 * factor).to(kind)[:, None]).addmm_(left, right[:, some])
            torch.addcmul(part, along, along, value=-1, out=table[:, some])
        table[b, codes] = torch.where(has_mates, own, torch.nan).to(kind)
        return table

    @cached_property
    def _nodes(self) -> Tensor:
        """(n,) traces between which those without any one sample are interpolated [Chebyshev].

        Leaving one sample out hardly moves the trace, and so the ridge; and V is smooth in it.
        Empty where one sample may be nearly all of the trace.
        """
        before = self.class_weights[self.codes]
        mates = before - self.weights
        share = torch.where(mates > _TINY, self.weights * before / mates, 0.0)
        high = float(self.scatter.sum())
        low = high - 4 * float(share.max())  # no row is further than 2 from a mean of rows
        if low <= _TINY * high:
            return self.scatter[:0]
        # n nodes leave ratio^n, as no eigenvalue is below 0.
        ratio = max((high**0.5 - low**0.5) / (high**0.5 + low**0.5), _TINY)
        n = math.ceil(math.log(torch.finfo(self.rows.dtype).eps / 2) / math.log(ratio))
        angles = torch.pi / n * (torch.arange(n, device=share.device).double() + 0.5)
        return (high + low) / 2 + (high - low) / 2 * angles.cos()

    def _interpolate(self, trace: Tensor) -> tuple[Tensor, Tensor]:
        """(B, n) and (n,): shares of what is computed at these traces in what it is at (B,)."""
        nodes = self._nodes
        if not 0 < len(nodes) < len(trace):
            return torch.eye(len(trace)).to(trace), trace
        places = torch.arange(len(nodes), device=trace.device)
        shares = torch.ones(len(trace), len(nodes)).to(trace)
        for k in places:
            others = nodes[places != k]
            shares[:, k] = ((trace[:, None] - others) / (nodes[k] - others)).prod(1)
        return shares, nodes

    def _by_class(self, traces: Tensor, to_ridge: float) -> tuple[Tensor, Tensor]:
        """V at some traces, (n, D); and (n + 2, C): mu' V mu of each class, 1, the support.

        Those at `_nodes` are kept.
        """
        if traces is self._nodes and to_ridge in self.known:
            return self.known[to_ridge]
        at = (1 / (self.scatter + to_ridge * traces[:, None])).to(self.means)
        support = _of_support(self.class_weights, self.dims)
        support = support.masked_fill_(self.class_weights <= 0, -torch.inf).to(self.means)
        terms = torch.cat(
            [at @ self.means.square().T, torch.stack([torch.ones_like(support), support])]
        )
        if traces is self._nodes:
            self.known[to_ridge] = at, terms
        return at, terms

    def nearest_classes(
        self, count: int, shrink: float, share: Float[Tensor, " N"]
    ) -> tuple[Int[Tensor, "C J"], Float[Tensor, "C J"]]:
        """Return for each class the J nearest others, and how much further than the first each is.

        The distance of classes y and c is that between their means in the metric of the table,
        half its square: by how much a typical sample of y prefers y to c.  Nothing is left out.

        Args:
            count: J, at most C - 1.
            shrink: s in (0, 1).
            share: (N,) float64, of each reference's weight, how much counts in the means.

        Returns:
            (C, J) class numbers, nearest first, and (C, J) float64 distances less that of the
            nearest; infinite for a class without references.
        """
        ridge = shrink / (1 - shrink) * self.scatter.sum() / self.dims
        freedom = (self.weights.sum() - (self.class_weights > 0).sum()).clamp_min(1.0)
        weights = self.weights * share.to(self.weights)
        sums, means = _class_sums(self.rows, self.codes, weights, len(self.means))
        means = (means / sums.clamp_min(_TINY)[:, None]).to(self.rows) @ self.turned
        whitened = means * (self.scatter + ridge.clamp_min(1e-30)).rsqrt().to(self.rows)
        squares = whitened.square().sum(1)
        absent = self.class_weights <= 0
        nearest, distances = [], []
        for part in torch.arange(len(whitened), device=whitened.device).split(1024):
            gaps = squares[part, None] + squares - 2 * whitened[part] @ whitened.T
            gaps = gaps.clamp_min_(0)
            gaps[:, absent] = torch.inf
            gaps[torch.arange(len(part)), part] = torch.inf
            found = gaps.topk(count, largest=False, sorted=True)
            nearest.append(found.indices)
            further = (found.values - found.values[:, :1].nan_to_num(posinf=0.0)).double()
            distances.append(further * freedom / (2 * (1 - shrink)))
        return torch.cat(nearest), torch.cat(distances)


def _of_support(weight: Tensor, dims: int) -> Tensor:
    """What the weight of a class adds to the table: the noise of its mean, and how usual it is."""
    weight = weight.clamp_min(_TINY)
    return dims / (2 * weight) + weight.log()
