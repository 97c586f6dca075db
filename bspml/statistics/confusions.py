"""An upper bound for wrong labels that are confusions between similar classes.

A label wrong at random stands out against everybody; the twin's label does not.  So each label is
put to a second test, against its most plausible alternative k = argmax_{c != y} s_i(c):

    e_i = s_i(k) - s_i(y_i)              how much better the alternative fits (the margin)
    cloud = {s_j(k) - s_j(y_i) : y_j = k}     the same difference for samples labelled k
    p_i = (#{cloud < e_i} + #{cloud = e_i} / 2 + 1/2) / (1 + |cloud|)

If sample i truly belongs to k, p_i is uniform: it is one of the cloud.  Small p: it does not look
like a mislabelled k.  As for Storey's estimator,  kappa(u) = #{p > u} / ((1 - u) N)  then bounds
the share of mislabelled samples from above, as every correct label that reaches into the upper
part of its neighbour's cloud adds to it [Blanchard 2010: the largest share of one cloud contained
in another].  Two readings of it, of which the smaller is reported:

    typical = kappa(1/2)                       errors look like typical members of k
    broad   = kappa(1/4) / (1 + kappa(1/4))    errors may be less typical; but the clouds hold a
                                               share 1 - pi of true members only, which inflates
                                               kappa to about pi / (1 - pi)

What the embedding cannot separate counts as possibly wrong, so weak embeddings give a high bound
even on clean labels: it is a bound, not an estimate.  Ours, not from a paper; the readings were
chosen on human labels and on flips between similar classes, not proved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import torch

from bspml.errors import InputError
from bspml.shapes import Float, Tensor
from bspml.statistics.contrastive import ContrastiveStatistics
from bspml.statistics.references import References
from bspml.statistics.tail_count import cluster_variance
from bspml.tensors.checks import Labels, check_embeddings
from bspml.tensors.class_ids import by_code
from bspml.tensors.precision import full_precision
from bspml.tensors.row_checks import check_reference_weights
from bspml.tensors.row_index import check_same_rows
from bspml.tensors.unit_rows import unit_rows

_TYPICAL, _BROAD = 0.5, 0.25  # u of the two readings
_BLOCK_VALUES = 1 << 24  # similarities held at a time
_CLOUD = 512  # samples of a class that a few rivals are compared with


@dataclass(frozen=True)
class PlausibleConfusions:
    """Bound and per-sample test for labels confused with a similar class.

    Attributes:
        p_values: (N,) float64; near 1: the sample looks like a member of its most similar other
            class, even a central one.  NaN where there is nothing to compare with.
        typical: kappa(1/2), in [0, 1].
        broad: kappa(1/4) / (1 + kappa(1/4)), in [0, 1].
        upper_bound: the smaller of the two with 1.96 standard errors on top.
        num_tested: labels that have a p-value.
    """

    p_values: Float[Tensor, " N"]
    typical: float
    broad: float
    upper_bound: float
    num_tested: int


@full_precision()
def plausible_confusions(
    embeddings: Any,
    stats: ContrastiveStatistics,
    sample_weights: Any = None,
    means: np.ndarray | None = None,
) -> PlausibleConfusions:
    """Test every label against the most similar other class.

    Costs at most one more pass over the similarities, in blocks.

    Args:
        embeddings: (N, D), those `stats` was computed from.
        stats: of `contrastive_statistics`.
        sample_weights: (N,), those `stats` was computed with.
        means: (N, C) s_i(c) of `bspml.statistics.contrastive.contrastive_tables`, if at hand.

    Returns:
        `PlausibleConfusions`; `upper_bound` is 1 if no label could be tested.

    Raises:
        InputError: `embeddings` and `stats` are not of the same number of samples.
    """
    check_same_rows(embeddings=embeddings, sample_weights=sample_weights)
    embeddings = check_embeddings(embeddings)
    if len(embeddings) != len(stats.codes):
        raise InputError(
            f"`embeddings` must be those `stats` was computed from, {len(stats.codes)} rows; got "
            f"{len(embeddings)}."
        )
    weights = check_reference_weights(sample_weights, len(embeddings)).numpy()
    weights[stats.zero_rows] = 0
    fits = _Fits(embeddings, stats, weights) if means is None else means
    margin = stats.margin.numpy()
    tested, judged = ~np.isnan(margin), ~np.isnan(stats.own.numpy())
    # The cloud of a class needs no best other class: of sampled statistics it is all its samples.
    by_class = by_code(np.where(judged, stats.codes.numpy(), -1))
    if tested.sum() < judged.sum():
        by_class = {k: _some(members) for k, members in by_class.items()}
    p = np.full(len(margin), np.nan)
    for k, rivals in by_code(np.where(tested, stats.other_class.numpy(), -1)).items():
        if k in by_class:
            _test_against(by_class[k], rivals, fits, stats, p)
    return _bounds(torch.from_numpy(p), stats.codes)


def _some(members: np.ndarray) -> np.ndarray:
    """At most `_CLOUD` of them, at equal steps."""
    if len(members) <= _CLOUD:
        return members
    return members[np.linspace(0, len(members) - 1, _CLOUD).astype(int)]


def _test_against(
    members: np.ndarray,
    rivals: np.ndarray,
    fits: _Fits | np.ndarray,
    stats: ContrastiveStatistics,
    p: np.ndarray,
) -> None:
    """Write the p-values of `rivals`, whose best other class is that of the samples `members`."""
    margin = stats.margin.numpy()[rivals]
    classes, which = np.unique(stats.codes.numpy()[rivals], return_inverse=True)
    place = members[:, None], classes
    table = fits[place] if isinstance(fits, np.ndarray) else fits.of(*place)
    clouds = np.sort(stats.own.numpy()[members] - table.T, 1)
    p[rivals] = (_below(clouds, which, margin) + 0.5) / (1 + len(members))


@numba.njit(cache=True, nogil=True)
def _below(clouds, which, values):
    """Return (n,) how many of a cloud are below each value, half of those at it counted."""
    found = np.empty(len(values))
    for i in range(len(values)):
        cloud = clouds[which[i]]
        less = np.searchsorted(cloud, values[i], side="left")
        found[i] = (less + np.searchsorted(cloud, values[i], side="right")) / 2
    return found


class _Fits:
    """s_j(c), computed when it is asked for."""

    def __init__(
        self, embeddings: Tensor, stats: ContrastiveStatistics, weights: np.ndarray
    ) -> None:
        self.rows, self.a = unit_rows(embeddings), stats.a
        self.reference = References.of(embeddings, Labels(stats.codes, stats.classes), weights)

    def of(self, members: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """s_j(c) of samples (n, 1) outside these classes (K,), (n, K) float64."""
        starts, sizes = self.reference.starts[classes], np.diff(self.reference.starts)[classes]
        firsts = np.cumsum(sizes) - sizes
        places = np.arange(sizes.sum()) + np.repeat(starts - firsts, sizes)
        columns = self.reference.embeddings[torch.from_numpy(places)]
        weights = self.reference.weights[places]
        rows = self.rows[torch.from_numpy(members[:, 0]).to(self.rows.device)]
        sums = []
        for block in rows.split(max(1, _BLOCK_VALUES // len(places))):
            exponentials = ((block @ columns.T - 1) * self.a).exp_().double().cpu().numpy()
            sums.append(np.add.reduceat(exponentials * weights, firsts, 1))
        return 1 + np.log(np.concatenate(sums) / self.reference.totals[classes]) / self.a


def _bounds(p: Tensor, codes: Tensor) -> PlausibleConfusions:
    tested = (~p.isnan()).numpy()
    num_tested = int(tested.sum())
    if num_tested == 0:
        return PlausibleConfusions(p, 1.0, 1.0, 1.0, 0)
    values, labels = p.numpy()[tested], codes.numpy()[tested]
    typical, typical_high = _kappa(values, labels, _TYPICAL)
    broad, broad_high = _kappa(values, labels, _BROAD)
    return PlausibleConfusions(
        p_values=p,
        typical=min(1.0, typical),
        broad=broad / (1 + broad),
        upper_bound=min(1.0, typical_high, broad_high / (1 + broad_high)),
        num_tested=num_tested,
    )


def _kappa(p: np.ndarray, codes: np.ndarray, u: float) -> tuple[float, float]:
    """Compute kappa(u), and the same with 1.96 standard errors on top.

    Labels of a class err together (cats are confused, ships are not), so the variance of the count
    is the sum over classes of squared residuals, and at least that of a Poisson count.
    """
    above = p > u
    clustered = cluster_variance(codes, above, np.bincount(codes) * above.mean())
    variance = max(clustered, above.sum(), 1)
    scale = (1 - u) * len(p)
    return float(above.sum() / scale), float((above.sum() + 1.96 * np.sqrt(variance)) / scale)
