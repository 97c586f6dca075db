"""How well low weights find wrong labels, where it is known which are wrong."""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from bspml.errors import InputError
from bspml.files.run import SUSPECT_BELOW
from bspml.tensors.checks import as_numbers, check_number
from bspml.tensors.row_index import check_same_rows, index_of


@dataclass(frozen=True)
class NoiseDetection:
    """What `noise_detection` found.  NaN: the share of nothing.

    Attributes:
        auroc: chance that a noisy sample weighs less than a clean one, ties counting half; NaN
            unless both kinds occur.
        precision: share of the flagged that are noisy; NaN if nothing is flagged.
        recall: share of the noisy that are flagged; 0 if nothing is flagged, NaN without noise.
        false_alarm_rate: share of the clean that are flagged; NaN without clean samples.
        num_flagged, num_noisy, num_samples: the counts behind the shares.
        threshold: samples of weight below it are flagged.
    """

    auroc: float
    precision: float
    recall: float
    false_alarm_rate: float
    num_flagged: int
    num_noisy: int
    num_samples: int
    threshold: float

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; NaN as None."""
        found = asdict(self).items()
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in found}


def noise_detection(
    sample_weights: Any, is_noisy: Any, threshold: Any = SUSPECT_BELOW, ignore: Any = None
) -> NoiseDetection:
    """Compare weights with the truth: a sample is flagged if its weight is below `threshold`.

    Args:
        sample_weights: (N,) in [0, 1].
        is_noisy: (N,) bool, which labels are wrong.
        threshold: weights strictly below are flagged, so a weight of 0.5 is kept at 0.5.
        ignore: (N,) bool, samples left out of every figure (outliers, untestable samples).

    Raises:
        InputError: shapes or pandas indices differ, weights outside [0, 1] or NaN, or `is_noisy`
            not boolean.

    Warns:
        UserWarning: no sample is noisy, or none is clean: the figures about them are NaN.

    Example:
        >>> noise_detection([0.1, 0.9, 0.2, 0.8], [True, False, False, True]).precision
        0.5
    """
    found = detected(sample_weights, is_noisy, threshold, ignore)
    for kind, count, figures in (
        ("noisy", found.num_noisy, "AUROC and recall"),
        ("clean", found.num_samples - found.num_noisy, "AUROC and the rate of false alarms"),
    ):
        if not count:
            warnings.warn(
                f"`is_noisy` calls none of the {found.num_samples} samples {kind}, so {figures} "
                "are NaN: there is nothing to tell apart.",
                stacklevel=2,
            )
    return found


def detected(
    sample_weights: Any, is_noisy: Any, threshold: Any = SUSPECT_BELOW, ignore: Any = None
) -> NoiseDetection:
    """Do what `noise_detection` does, without its warnings: for those who print NaN as nothing.

    Args:
        sample_weights, is_noisy, threshold, ignore: as there.
    """
    truth = ("`is_noisy`", index_of(is_noisy))
    check_same_rows(truth, sample_weights=sample_weights, ignore=ignore)
    weights = _check_weights(sample_weights)
    noisy = _check_mask(is_noisy, "is_noisy", len(weights))
    threshold = check_number(threshold, "threshold", 0.0, 1.0)
    if ignore is not None:
        is_counted = ~_check_mask(ignore, "ignore", len(weights))
        weights, noisy = weights[is_counted], noisy[is_counted]
    flagged = weights < threshold
    return NoiseDetection(
        auroc=_auroc(weights, noisy),
        precision=_share(noisy[flagged]),
        recall=_share(flagged[noisy]),
        false_alarm_rate=_share(flagged[~noisy]),
        num_flagged=int(flagged.sum()),
        num_noisy=int(noisy.sum()),
        num_samples=len(weights),
        threshold=threshold,
    )


def _auroc(weights: np.ndarray, noisy: np.ndarray) -> float:
    """Compute the AUROC from the rank sum of the noisy, lowest weight last (Mann-Whitney)."""
    positive, negative = int(noisy.sum()), int((~noisy).sum())
    if not positive or not negative:
        return math.nan
    # The score is 1 - weight; -weight has the same order without rounding small weights away.
    rank_sum = rankdata(-weights)[noisy].sum()
    return float((rank_sum - positive * (positive + 1) / 2) / (positive * negative))


def _share(hits: np.ndarray) -> float:
    return float(hits.mean()) if len(hits) else math.nan


def _as_array(values: Any, name: str) -> np.ndarray:
    remedy = "Pass one array; of samples without an entry, `ignore` them."
    found = as_numbers(values, name, "one number per sample, shape (N,)", remedy).detach().cpu()
    return (found.double() if found.is_floating_point() else found).numpy()  # no bfloat16 there


def _check_weights(sample_weights: Any) -> np.ndarray:
    weights = _as_array(sample_weights, "sample_weights")
    if weights.ndim != 1 or weights.dtype.kind not in "fiub":
        raise InputError(
            f"`sample_weights` must be one number per sample, shape (N,); got {weights.dtype} of "
            f"shape {weights.shape}. Pass `weights.weights` of a `SampleWeights`."
        )
    weights = weights.astype(np.float64)
    outside = ~((weights >= -1e-9) & (weights <= 1 + 1e-9))  # NaN is outside too
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise InputError(
            f"`sample_weights` must lie in [0, 1]; got {weights[row]:g} at row {row} "
            f"({int(outside.sum())} such rows). Scores of another scale must be mapped first."
        )
    return weights


def _check_mask(values: Any, name: str, n: int) -> np.ndarray:
    mask = _as_array(values, name)
    if mask.shape != (n,):
        raise InputError(f"`{name}` must be (N,) = ({n},) like `sample_weights`; got {mask.shape}.")
    if mask.dtype.kind != "b":
        if len(mask) == 0:  # an empty list reads as floats
            return np.zeros(0, dtype=bool)
        if mask.dtype.kind not in "iu" or not np.isin(mask, (0, 1)).all():
            raise InputError(f"`{name}` must be True or False per sample; got {mask.dtype}.")
        mask = mask.astype(bool)
    return mask
