"""The sample weights as a CSV file that people open in a spreadsheet and programs read back.

Labels are written so that a spreadsheet neither runs nor rewrites them: see `bspml.files.cells`.  A
column of bare whole numbers is a column of integers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bspml.errors import DataError, InputError, RunError, about
from bspml.files.cells import bare_cell, label_cells, parse_labels, protected_cell
from bspml.files.columns import numbers_in, row_order
from bspml.files.delimited import TableRow, read_table, write_table
from bspml.words import LONGEST_LABEL

# A label is suspected of being wrong where its sample weighs less.
SUSPECT_BELOW = 0.5

_COLUMNS = ("index", "label", "weight", "flags")
_OPTIONAL = ("name", "is_noisy", "is_outlier", "true_label", "current_label")
_TRUTHS = ("is_noisy", "is_outlier")  # written as 0 and 1


@dataclass(frozen=True)
class WeightsTable:
    """One row per training sample, in the data set's order.

    Attributes:
        labels: (N,) integers or text, as given (possibly wrong).
        weights: (N,) float64 in [0, 1].
        flags: N sequences of words, such as ('untestable',).
        is_noisy: (N,) bool where the truth is known, else None.
        true_labels: (N,) like `labels` where the truth is known, else None.
        names: N names of the samples, such as their files, where they are known, else None.
        is_outlier: (N,) bool, the noisy ones of no class that a label names, else None.
        current_labels: (N,) like `labels`, those that samples were trained under at the end, where
            some were repaired, else None; the weights are theirs.
        sigma: (N,) the confidences that the weights were made of, NaN where there is none, else
            None.  For people: `read_weights` passes over them.
    """

    labels: np.ndarray
    weights: np.ndarray
    flags: Sequence[Sequence[str]]
    is_noisy: np.ndarray | None = None
    true_labels: np.ndarray | None = None
    names: Sequence[str] | None = None
    is_outlier: np.ndarray | None = None
    sigma: np.ndarray | None = None
    current_labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def trust(self) -> np.ndarray:
        """Return (N,) the weights of the given labels: 0 where another one took its place."""
        if self.current_labels is None:
            return self.weights
        return np.where(self.current_labels == self.labels, self.weights, 0.0)


def write_weights(path: str | os.PathLike[str], table: WeightsTable) -> Path:
    """Write the table, atomically.

    Columns: index, label, weight, flags[, name, is_noisy, is_outlier, true_label, current_label]
    [, sigma].
    Weights are written so that they read back exactly, flags joined by ';', truths as 0 and 1.

    Args:
        path: the CSV file (UTF-8).
        table: the columns.

    Returns:
        `path`.

    Raises:
        InputError: columns of different lengths.
        RunError: the file cannot be written.
    """
    columns: dict[str, list[str]] = {
        "index": [str(i) for i in range(len(table))],
        "label": label_cells(table.labels),
        "weight": [str(w) for w in table.weights],
        "flags": [";".join(words) for words in table.flags],
    }
    if table.names is not None:
        columns["name"] = [protected_cell(name) if name else "" for name in table.names]
    for name, truth in zip(_TRUTHS, (table.is_noisy, table.is_outlier), strict=True):
        if truth is not None:
            columns[name] = [str(int(true)) for true in truth]
    if table.true_labels is not None:
        columns["true_label"] = label_cells(table.true_labels)
    if table.current_labels is not None:
        columns["current_label"] = label_cells(table.current_labels)
    if table.sigma is not None:
        columns["sigma"] = ["" if s != s else f"{s:.6g}" for s in table.sigma.tolist()]
    for name, column in columns.items():
        if len(column) != len(table):
            raise InputError(
                f"`{name}` must have one entry per weight, {len(table)}; got {len(column)}."
            )
    return write_table(path, columns)


def read_weights(path: str | os.PathLike[str]) -> WeightsTable:
    """Read a table back, in whatever order its rows were left.

    Raises:
        RunError: missing, not such a table, or damaged; names the file and the line.
    """
    lines = read_table(path, _COLUMNS, _OPTIONAL, "a table of weights (CSV in UTF-8)", RunError)
    rows = [_parse_row(line) for line in lines]
    with about(path, RunError, DataError):
        order = row_order([row["index"] for row in rows], len(rows))
    rows = [rows[row] for row in order]
    columns = rows[0].keys() if rows else ()
    truths = {
        name: np.array([row[name] for row in rows], dtype=bool)
        for name in _TRUTHS
        if name in columns
    }
    return WeightsTable(
        labels=parse_labels([row["label"] for row in rows]),
        weights=np.array([row["weight"] for row in rows], dtype=np.float64),
        flags=tuple(tuple(filter(None, row["flags"].split(";"))) for row in rows),
        is_noisy=truths.get("is_noisy"),
        true_labels=parse_labels([row["true_label"] for row in rows])
        if "true_label" in columns
        else None,
        names=tuple(bare_cell(row["name"]) for row in rows) if "name" in columns else None,
        is_outlier=truths.get("is_outlier"),
        current_labels=parse_labels([row["current_label"] for row in rows])
        if "current_label" in columns
        else None,
    )


def _parse_row(row: TableRow) -> dict[str, Any]:
    cells: dict[str, Any] = dict(row.cells)
    try:
        (cells["weight"],) = numbers_in([cells["weight"]], "weight")
        for name in _TRUTHS:
            if name in cells:
                cells[name] = {"0": False, "1": True}[cells[name].strip()]
    except (ValueError, KeyError) as err:
        raise RunError(
            f"{row.where}: expected a weight, and {' and '.join(_TRUTHS)} as 0 or 1; got {err}."
        ) from err
    for name in ("label", "true_label", "current_label"):
        if len(bare_cell(row.cells.get(name, ""))) > LONGEST_LABEL:
            raise RunError(
                f"{row.where}: `{name}` is longer than {LONGEST_LABEL} characters, as no label is."
            )
    if not 0 <= cells["weight"] <= 1:
        raise RunError(f"{row.where}: a weight is in [0, 1]; got {row.cells['weight']}.")
    return cells
