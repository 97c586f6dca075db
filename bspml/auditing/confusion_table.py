"""Which classes are taken for which: the flagged labels counted by label and suggested label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy.stats import beta

from bspml.auditing.class_shares import taking_part
from bspml.auditing.columns import column

if TYPE_CHECKING:
    from bspml.auditing.report import AuditReport

_TAIL = 0.025  # on each side of a 95 % interval


def confusion_table(report: AuditReport) -> pd.DataFrame:
    """Count the flagged labels of each class by the class that fits them better.

    A flagged label that no other class fits better is in no row.  The intervals are Clopper and
    Pearson's, exact for a class whose labels are confused one by one; they say how well so many
    labels tell the share, not whether the flags are right.

    Args:
        report: the audit.

    Returns:
        A row per pair of classes that occurs, the most frequent first: label, suggested_label,
        count, share (of the labels of the class, in [0, 1]), low, high (its 95 % interval).

    Example:
        >>> import bspml
        >>> x = np.repeat(np.eye(4), 8, 0) + 0.2 * np.random.default_rng(0).normal(size=(32, 4))
        >>> report = bspml.audit(x, ["b", *"aaaaaaa", *"bbbbbbbb", *"cccccccc", *"dddddddd"])
        >>> confusion_table(report)[["label", "suggested_label", "count"]].values.tolist()
        [['b', 'a', 1]]
    """
    classes, codes = np.unique(
        np.concatenate([report.labels, report.suggested_labels]), return_inverse=True
    )
    given, suggested = codes.reshape(2, -1)
    confused = report.flagged & (given != suggested)
    pairs, counts = np.unique(
        given[confused] * len(classes) + suggested[confused], return_counts=True
    )
    order = np.argsort(-counts, kind="stable")
    rows, columns = np.divmod(pairs[order], len(classes))
    counts = counts[order]
    there = taking_part(report, report.weights)
    support = np.bincount(given[there], minlength=len(classes))[rows]
    high = beta.ppf(1 - _TAIL, counts + 1, support - counts)
    return pd.DataFrame(
        {
            "label": column(classes[rows]),
            "suggested_label": column(classes[columns]),
            "count": counts,
            "share": counts / support,
            "low": beta.ppf(_TAIL, counts, support - counts + 1),
            "high": np.where(counts == support, 1.0, high),  # beta has no second parameter 0
        }
    )
