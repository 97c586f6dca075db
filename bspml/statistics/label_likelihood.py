"""The likelihood of given labels under `bspml.statistics.label_model`, with its exact gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from bspml.statistics.label_pairs import Confusions, nobody, sums_of_pairs
from bspml.statistics.label_terms import LabelTerms, added_counts, label_terms, leads, stored

LEAST = 1e-300  # of a likelihood

_LOWEST = -1e7  # of a table, in place of -inf, so that 0 times it is 0
# (1 / b in units of the judge, log odds of k): soft, softer, and judges that are nearly sure, which
# is a maximum of its own where a few labels are far from their class.
_STARTS = ((0.3, -1.0), (1.5, -3.0), (0.05, -2.0))
_FIRST_U = -1.5  # log odds of u at the start
_NO_K = -40.0  # log odds of k = 0
_SHARE_BOUND, _TAU_BOUND, _SLOPE_BOUNDS = (-12.0, 6.0), (-8.0, 4.0), (-8.0, 8.0)
_ITERATIONS = 200
_COARSE_VALUES = 1 << 19  # of a table from which every start is tried
_FEWEST_COARSE = 300
_TURNS, _COUNTINGS, _GAIN = 6, 3, 1e-5


class Fit(NamedTuple):
    """Where one maximisation ended: the point, minus the mean log likelihood, whether it ended
    well."""

    x: np.ndarray
    fun: float
    success: bool


def best_of(fits: Sequence[Fit]) -> Fit:
    """Return the fit of the largest likelihood."""
    return min(fits, key=lambda fit: fit.fun)


@dataclass(frozen=True)
class Likelihood:
    """Minus the mean log likelihood of M labels, with its gradient.

    The point is x = (log odds of u and of k against neither, log tau, minus log b of each judge),
    tau and b in units that the data give.

    Attributes:
        tables: of each judge, (M, C), each row's largest entry 0.
        codes: (M,) labels.
        confusions: whom each class may be taken for.
        units: of b, for each judge: the median lead of the best class.
        typical: median of what each judge says of the given class.
        testable: which of the samples given these M are.
        added: what each label adds to the counts of its pairs; see `label_terms`.
        num_classes: C, without classes of which no label can be judged: a random label that is
            among the M has not hit one of them.
    """

    tables: list[np.ndarray]
    codes: np.ndarray
    confusions: Confusions
    units: np.ndarray
    typical: np.ndarray
    testable: np.ndarray
    added: np.ndarray
    num_classes: int

    @classmethod
    def of(
        cls, tables: Sequence[np.ndarray], codes: np.ndarray, confusions: Confusions
    ) -> Likelihood:
        """Leave out the samples whose label cannot be judged, and centre the tables.

        Args:
            tables: of each judge, (M, C).
            codes: (M,) labels.
            confusions: whom each class may be taken for.
        """
        m = np.arange(len(codes))
        testable = np.all([np.isfinite(t[m, codes]) for t in tables], 0)
        typical = np.array([np.median(t[m, codes][testable]) for t in tables])
        classes = int(np.all([np.isfinite(t).any(0) for t in tables], 0).sum())
        tables = [centred(t[testable]) for t in tables]
        units = np.array([np.median(leads(t)) for t in tables]) + 1e-9
        none, codes = np.zeros(0), codes[testable]
        found = cls(tables, codes, confusions, units, typical, testable, none, classes)
        return found.under(confusions)

    def thinned(self) -> Likelihood:
        """Return the likelihood of fewer labels, evenly taken, if these are many.

        Where it is large enough to tell one maximum from another, and small enough to be climbed
        from every start.
        """
        count = max(_FEWEST_COARSE, _COARSE_VALUES // self.tables[0].shape[1])
        if count >= len(self.codes):
            return self
        rows = np.linspace(0, len(self.codes) - 1, count).round().astype(int)
        tables = [table[rows] for table in self.tables]
        chosen = np.zeros(len(self.codes), dtype=bool)
        chosen[rows] = True
        added = self.added[np.repeat(chosen, np.diff(self.confusions.starts)[self.codes])]
        return replace(self, tables=tables, codes=self.codes[rows], added=added)

    def fits_from_starts(
        self, with_k: bool = True, further: Sequence[np.ndarray] = ()
    ) -> list[Fit]:
        """Maximise the likelihood from every start; over fewer labels where they are many.

        Where it was over fewer, only the best goes on over all.

        Args:
            with_k: False: k = 0.
            further: points to start from as well.
        """
        coarse = self.thinned()
        fits = [coarse.fit(start, with_k) for start in [*self.starts(), *further]]
        if coarse is self:
            return sorted(fits, key=lambda fit: fit.fun)
        return [self.fit(best_of(fits).x, with_k)]

    def starts(self) -> list[np.ndarray]:
        """Points to start from."""
        slopes = len(self.tables)
        return [
            np.array([_FIRST_U, k, 0.0, *[np.log(slope * slopes)] * slopes]) for slope, k in _STARTS
        ]

    def unpack(self, x: np.ndarray) -> tuple[float, float, float, np.ndarray]:
        """Return u, k, tau and b.

        Args:
            x: the point.
        """
        odds = np.exp([0.0, x[0], x[1]])
        shares = odds / odds.sum()
        return (
            float(shares[1]),
            float(shares[2]),
            self.confusions.unit * float(np.exp(x[2])),
            np.exp(-x[3:]) / self.units,
        )

    def pack(self, u: float, k: float, tau: float, slopes: np.ndarray) -> np.ndarray:
        """Return the point of these, as `unpack` gives them.

        Args:
            u: share of labels drawn at random.
            k: share of confused labels.
            tau: how far confusions reach.
            slopes: b of each judge.
        """
        shares = np.log(np.maximum([u, k], LEAST) / max(1 - u - k, LEAST))
        x = np.array([*shares, np.log(tau / self.confusions.unit), *-np.log(slopes * self.units)])
        return np.clip(x, *np.transpose(self._bounds(True)))

    def terms(self, slopes: np.ndarray, tau: float) -> LabelTerms:
        """Return what p says of the labels, the largest p and g among it.

        Args:
            slopes: b of each judge.
            tau: reach of the confusions.
        """
        return label_terms(self.tables, slopes, self.codes, self.confusions.pairs(tau), self.added)

    def under(self, confusions: Confusions, x: np.ndarray | None = None) -> Likelihood:
        """Return the likelihood under other confusions, each label left out of their counts.

        Args:
            confusions: whom each class may be taken for.
            x: the point at which what a label adds is computed; None where nothing was counted.
        """
        pairs = int(np.diff(confusions.starts)[self.codes].sum())
        found = replace(self, confusions=confusions, added=np.zeros(pairs))
        return found if x is None else replace(found, added=found._added(x))

    def counted(self, x: np.ndarray) -> Likelihood:
        """Return the likelihood under the counts that the labels add up to at a point.

        Args:
            x: the point.
        """
        counts = sums_of_pairs(self._added(x), self.codes, self.confusions.starts)
        return self.under(self.confusions._replace(counts=counts), x)

    def seen(self) -> Likelihood:
        """Return the likelihood with every pair that two labels show, in either judge's eyes."""
        classes = self.tables[0].shape[1]
        keys = [table.argmax(1) * classes + self.codes for table in self.tables]
        found = []
        for tops in keys:
            pairs, times = np.unique(tops[tops % classes != tops // classes], return_counts=True)
            found.append(pairs[times >= 2])
        pairs = np.unique(np.concatenate(found))
        none = np.zeros(len(pairs))
        return self.under(self.confusions.joined(pairs // classes, pairs % classes, none))

    def _added(self, x: np.ndarray) -> np.ndarray:
        u, k, tau, slopes = self.unpack(x)
        pairs, errors = self.confusions.pairs(tau), (u, k, self.num_classes)
        return added_counts(self.tables, slopes, self.codes, pairs, errors)

    def _bounds(self, with_k: bool) -> list[tuple[float, float]]:
        shares = [_SHARE_BOUND, _SHARE_BOUND if with_k else (_NO_K, _NO_K)]
        return [*shares, _TAU_BOUND, *[_SLOPE_BOUNDS] * len(self.tables)]

    def fit(self, start: np.ndarray, with_k: bool = True) -> Fit:
        """Maximise the likelihood from a point.

        Args:
            start: x.
            with_k: False: k = 0.
        """
        start = start if with_k else np.concatenate([start[:1], [_NO_K], start[2:]])
        found = minimize(
            self.value,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=self._bounds(with_k),
            options={"maxiter": _ITERATIONS, "ftol": 1e-10, "gtol": 1e-6},
        )
        return Fit(found.x, float(found.fun), bool(found.success))

    def value(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus the mean log likelihood, and its gradient in x.

        Args:
            x: the point.
        """
        u, k, tau, slopes = self.unpack(x)
        classes = self.num_classes
        own, _, g, tilt, expected, routed = self.terms(slopes, tau)
        neither = 1 - u - k
        likelihood = np.maximum(neither * own + u / classes + k * g, LEAST)
        gradient = [
            -(u * (1 / classes / likelihood - 1)).mean(),
            -(k * (g / likelihood - 1)).mean(),
            -(k * tilt / likelihood).mean(),
        ]
        explained = 1 - u / classes / likelihood
        rows = np.arange(len(self.codes))
        for j, (table, b) in enumerate(zip(self.tables, slopes, strict=True)):
            by_label = neither * own * table[rows, self.codes] + k * routed[j]
            gradient.append((b * (by_label / likelihood - explained * expected[j])).mean())
        return -float(np.log(likelihood).mean()), np.array(gradient)


def centred(table: np.ndarray) -> np.ndarray:
    """Let each row's largest entry be 0, and no entry infinite.

    Args:
        table: (M, C); NaN counts as -inf.

    Returns:
        (M, C), as `label_terms.stored` has it.
    """
    lead = table - np.fmax.reduce(table, 1)[:, None]
    return stored(np.fmax(lead, _LOWEST, out=lead))


def counted_fit(likelihood: Likelihood, x: np.ndarray) -> tuple[Likelihood, Fit]:
    """Count whom the classes are taken for and fit, by turns, until the likelihood gains no more.

    Args:
        likelihood: with the pairs that may be counted.
        x: the point to start from.
    """
    best = None
    for _ in range(_TURNS):
        for _ in range(_COUNTINGS):
            likelihood = likelihood.counted(x)
        fit = likelihood.fit(x)
        x = fit.x
        if best is not None and fit.fun > best[1].fun - _GAIN:
            break
        best = likelihood, fit
    assert best is not None
    return best


def label_costs(tables: Sequence[np.ndarray], codes: np.ndarray) -> list[float]:
    """Return minus the mean log likelihood of labels under each judge and random errors alone.

    The first is fitted from every start, each other from where the one before it ended.

    Args:
        tables: (M, C) of each judge.
        codes: (M,) given labels.
    """
    rows, costs, x = np.arange(len(codes)), [], None
    for table in tables:
        if not np.isfinite(table[rows, codes]).any():
            costs.append(0.0)  # no label to be explained
            continue
        likelihood = Likelihood.of([table], codes, nobody(table.shape[1]))
        if x is None:
            fit = best_of(likelihood.fits_from_starts(with_k=False))
        else:
            fit = likelihood.fit(x, with_k=False)
        x = fit.x
        costs.append(fit.fun)
    return costs
