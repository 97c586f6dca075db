"""What share of each class is flagged, and its mean weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from bspml.auditing.report import AuditReport


def flagged_by_class(report: AuditReport, weights: np.ndarray) -> pd.DataFrame:
    """Return the table of classes with the weights' mean and share of zeros in it.

    Args:
        report: whose classes.
        weights: (N,), 0 for flagged labels.
    """
    label = pd.Index(report.classes["label"].astype(str))
    codes = label.get_indexer(np.asarray(report.labels).astype(str))
    flagged = (weights == 0) & ~report.is_decided
    # A decided label may be of no class that is left.
    there = (codes >= 0) & taking_part(report, weights)
    shares = weights_by_class(codes[there], weights[there], flagged[there], len(label))
    known = report.classes["share_flagged"].notna() | (shares["share_flagged"] > 0)
    return report.classes.assign(
        mean_weight=shares["mean_weight"],
        share_flagged=np.where(known, shares["share_flagged"], np.nan),
    )


def taking_part(report: AuditReport, weights: np.ndarray) -> np.ndarray:
    """Return which samples count in their class, (N,) bool: not those that a person dropped.

    Args:
        report: with their decisions.
        weights: (N,), 0 for flagged labels, and for dropped samples.
    """
    return (weights > 0) | ~report.is_decided


def weights_by_class(
    codes: np.ndarray, weights: np.ndarray, flagged: np.ndarray, num_classes: int
) -> dict[str, np.ndarray]:
    """Return the columns `support`, `mean_weight` and `share_flagged` of the table of classes.

    Args:
        codes: (N,) the row of each sample's class.
        weights: (N,).
        flagged: (N,) bool.
        num_classes: C, each of at least one sample.

    Example:
        >>> one = np.array([True, False, False])
        >>> weights_by_class(np.array([0, 0, 1]), 1.0 - one, one, 2)["share_flagged"]
        array([0.5, 0. ])
    """
    support = np.bincount(codes, minlength=num_classes)
    return {
        "support": support,
        "mean_weight": np.bincount(codes, weights, num_classes) / support,
        "share_flagged": np.bincount(codes, flagged, num_classes) / support,
    }
