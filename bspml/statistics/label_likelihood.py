"""The likelihood of given labels under `bspml.statistics.label_model`, with its exact gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from bspml.statistics.label_terms import LabelTerms, label_terms, leads, pair_shares

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


class Confusions(NamedTuple):
    """Whom each class may be taken for: E pairs (y, z), sorted by z.

    Attributes:
        starts: (C + 1,) first pair of each z.
        sources: (E,) y.
        distances: (E,) Delta(y, z), at least 0; each y has one that is 0.
        unit: how far the third nearest class is, in the middle of all classes.
    """

    starts: np.ndarray
    sources: np.ndarray
    distances: np.ndarray
    unit: float

    @classmethod
    def of(cls, nearest: np.ndarray, distances: np.ndarray) -> Confusions:
        """Turn each class's list of nearest others around.

        Args:
            nearest: (C, J) class numbers.
            distances: (C, J) at least 0, infinite for a class that nothing is taken for.

        Example:
            >>> pairs = Confusions.of(np.array([[1], [0]]), np.zeros((2, 1)))
            >>> pairs.starts, pairs.sources
            (array([0, 1, 2]), array([1, 0]))
        """
        classes = len(nearest)
        third = distances[:, min(2, distances.shape[1] - 1)]
        third = third[np.isfinite(third)]
        unit = (float(np.median(third)) if len(third) else 0.0) or 1.0
        sources = np.repeat(np.arange(classes), nearest.shape[1])
        targets, distances = nearest.ravel(), distances.ravel()
        kept = np.isfinite(distances)
        order = np.argsort(targets[kept], kind="stable")
        counts = np.bincount(targets[kept], minlength=classes)
        starts = np.concatenate([[0], np.cumsum(counts)])
        return cls(starts, sources[kept][order], distances[kept][order], unit)

    def probabilities(self, tau: float) -> np.ndarray:
        """Return (E,) Q(y, z): over all z of a y they sum to 1.

        Args:
            tau: how far confusions reach, in units of the distances.
        """
        return self.shares(tau)[0]

    def shares(self, tau: float) -> tuple[np.ndarray, np.ndarray]:
        """Return (E,) Q(y, z), and by how much Delta / tau exceeds its mean over Q.

        Args:
            tau: how far confusions reach, in units of the distances.
        """
        return pair_shares(self.sources, self.distances, tau, len(self.starts) - 1)


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
    """

    tables: list[np.ndarray]
    codes: np.ndarray
    confusions: Confusions
    units: np.ndarray
    typical: np.ndarray
    testable: np.ndarray

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
        tables = [centred(t[testable]) for t in tables]
        units = np.array([np.median(leads(t)) for t in tables]) + 1e-9
        return cls(tables, codes[testable], confusions, units, typical, testable)

    @property
    def num_classes(self) -> int:
        """C."""
        return self.tables[0].shape[1]

    def thinned(self) -> Likelihood:
        """Return the likelihood of fewer labels, evenly taken, if these are many.

        Where it is large enough to tell one maximum from another, and small enough to be climbed
        from every start.
        """
        count = max(_FEWEST_COARSE, _COARSE_VALUES // self.num_classes)
        if count >= len(self.codes):
            return self
        rows = np.linspace(0, len(self.codes) - 1, count).round().astype(int)
        tables = [table[rows] for table in self.tables]
        return replace(self, tables=tables, codes=self.codes[rows])

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
        confusions = self.confusions
        pairs = confusions.starts, confusions.sources, *confusions.shares(tau)
        return label_terms(self.tables, slopes, self.codes, pairs)

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
        (M, C) float32.
    """
    lead = table - np.fmax.reduce(table, 1)[:, None]
    return np.fmax(lead, _LOWEST, out=lead).astype(np.float32, copy=False)


def nobody(num_classes: int) -> Confusions:
    """Return the confusions of classes that are taken for none other.

    Args:
        num_classes: C.

    Example:
        >>> nobody(2).starts
        array([0, 0, 0])
    """
    return Confusions(np.zeros(num_classes + 1, int), np.zeros(0, int), np.zeros(0), 1.0)


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
