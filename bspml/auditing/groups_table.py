"""The groups of copies of an audit, as a table."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bspml.auditing.columns import column
from bspml.files.arrays import text_objects
from bspml.statistics.copies.copy_groups import list_copy_groups


def groups_table(duplicates: pd.DataFrame, codes: np.ndarray, classes: np.ndarray) -> pd.DataFrame:
    """List the groups of two samples or more, those under most labels first.

    Args:
        duplicates: pairs from `find_duplicates`.
        codes: (N,) int64 labels.
        classes: (C,) what they stand for.

    Returns:
        A row per group: group, kind ("exact" or "near"), samples, labels (how many),
        most_frequent (label), placeholder, rows (sample numbers, as text).
    """
    groups = list_copy_groups(duplicates, codes)
    most_frequent = np.array([next(iter(group.label_counts)) for group in groups], np.int64)
    table = pd.DataFrame(
        {
            "group": np.arange(len(groups)),
            "kind": column(text_objects(group.kind for group in groups)),
            "samples": np.array([len(group) for group in groups], np.int64),
            "labels": np.array([len(group.label_counts) for group in groups], np.int64),
            "most_frequent": column(classes[most_frequent]),
            "placeholder": np.array([group.placeholder for group in groups], bool),
            "rows": column(text_objects(" ".join(map(str, g.samples.tolist())) for g in groups)),
        }
    )
    table = table.sort_values(["labels", "samples"], ascending=False, kind="stable")
    return table.reset_index(drop=True)
