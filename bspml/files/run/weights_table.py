"""The sample weights as a CSV file that a person opens in a spreadsheet and a program reads back.

Labels are written so that a spreadsheet neither runs nor rewrites them: see `bspml.files.cells`.  A
column of bare whole numbers is a column of integers.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bspml.errors import InputError, RunError
from bspml.files.atomic import atomic_write, is_special
from bspml.files.cells import bare_cell, label_cells, parse_labels, protected_cell

# A label is suspected of being wrong where its sample weighs less.
SUSPECT_BELOW = 0.5

_COLUMNS = ("index", "label", "weight", "flags")
_OPTIONAL = ("name", "is_noisy", "is_outlier", "true_label")
_TRUTHS = ("is_noisy", "is_outlier")  # written as 0 and 1


@dataclass(frozen=True)
class WeightsTable:
    """One row per training sample, in the data set's order.

    Attributes:
        labels: (N,) integers or text, as given (possibly wrong).
        weights: (N,) float64 in [0, 1].
        flags: N tuples of words, such as ('untestable',).
        is_noisy: (N,) bool where the truth is known, else None.
        is_outlier: (N,) bool, the noisy ones of no class that a label names, else None.
        true_labels: (N,) like `labels` where the truth is known, else None.
        names: N names of the samples, such as their files, where they are known, else None.
    """

    labels: np.ndarray
    weights: np.ndarray
    flags: tuple[tuple[str, ...], ...]
    is_noisy: np.ndarray | None = None
    true_labels: np.ndarray | None = None
    names: tuple[str, ...] | None = None
    is_outlier: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.weights)


def write_weights(
    path: str | os.PathLike[str],
    labels: Any,
    weights: Any,
    *,
    flags: Sequence[Sequence[str]] | None = None,
    is_noisy: Any = None,
    is_outlier: Any = None,
    true_labels: Any = None,
    names: Sequence[str] | None = None,
    sigma: Any = None,
) -> Path:
    """Write the table, atomically.

    Columns: index, label, weight, flags[, name, is_noisy, is_outlier, true_label][, sigma].

    Args:
        path: the CSV file (UTF-8).
        labels: (N,) integers or text.
        weights: (N,) in [0, 1]; written so that they read back exactly.
        flags: words about each sample, joined by ';'.
        is_noisy: (N,) bool, where known; written as 0 and 1.
        is_outlier: (N,) bool, which of these belong to no class that a label names, likewise.
        true_labels: (N,), where known.
        names: N names of the samples, where known.
        sigma: (N,) the confidences that the weights were made of, NaN as an empty cell; for a
            person, `read_weights` passes over them.

    Raises:
        InputError: columns of different lengths.
        RunError: the file cannot be written.
    """
    weights = _array(weights)
    columns: dict[str, list[str]] = {
        "index": [str(i) for i in range(len(weights))],
        "label": label_cells(_array(labels)),
        "weight": [str(w) for w in weights],
        "flags": [";".join(words) for words in flags] if flags is not None else [""] * len(weights),
    }
    if names is not None:
        columns["name"] = [protected_cell(name) if name else "" for name in names]
    for name, truth in zip(_TRUTHS, (is_noisy, is_outlier), strict=True):
        if truth is not None:
            columns[name] = [str(int(true)) for true in _array(truth)]
    if true_labels is not None:
        columns["true_label"] = label_cells(_array(true_labels))
    if sigma is not None:
        columns["sigma"] = ["" if s != s else f"{s:.6g}" for s in _array(sigma).tolist()]
    for name, column in columns.items():
        if len(column) != len(weights):
            raise InputError(
                f"`{name}` must have one entry per weight, {len(weights)}; got {len(column)}."
            )
    text = io.StringIO()
    writer = csv.writer(text)  # RFC 4180: lines end in CR LF
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return atomic_write(path, text.getvalue())


def read_weights(path: str | os.PathLike[str]) -> WeightsTable:
    """Read a table back, in whatever order a person left its rows.

    Raises:
        RunError: missing, not such a table, or damaged; names the file and the line.
    """
    rows = _read_rows(Path(path))
    order = sorted(range(len(rows)), key=lambda r: rows[r]["index"])
    if [rows[r]["index"] for r in order] != list(range(len(rows))):
        raise RunError(
            f"{path}: the column `index` must hold 0 to {len(rows) - 1}, each once; "
            "rows were lost or doubled. Restore them."
        )
    rows = [rows[r] for r in order]
    known = rows[0].keys() if rows else ()
    return WeightsTable(
        labels=parse_labels([r["label"] for r in rows]),
        weights=np.array([r["weight"] for r in rows], dtype=np.float64),
        flags=tuple(tuple(filter(None, r["flags"].split(";"))) for r in rows),
        **{
            name: np.array([r[name] for r in rows], dtype=bool) for name in _TRUTHS if name in known
        },
        true_labels=parse_labels([r["true_label"] for r in rows])
        if "true_label" in known
        else None,
        names=tuple(bare_cell(r["name"]) for r in rows) if "name" in known else None,
    )


def _read_rows(path: Path) -> list[dict[str, Any]]:
    if is_special(path):
        raise RunError(f"{path}: is a pipe or a device, not a table of weights.")
    try:
        # utf-8-sig: spreadsheets put a byte-order mark in front when they save.
        with path.open(encoding="utf-8-sig", errors="surrogatepass", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            names = reader.fieldnames or ()
            missing = [name for name in _COLUMNS if name not in names]
            if missing:
                raise RunError(
                    f"{path}: is not a table of weights: no column `{missing[0]}`. Expected "
                    f"commas between {', '.join(_COLUMNS)}."
                )
            return [_parse_row(row, f"{path}: line {reader.line_num}") for row in reader]
    except OSError as err:
        if isinstance(err, RunError):
            raise
        raise RunError(f"{path}: cannot be read ({err.strerror or err}).") from err
    except (UnicodeDecodeError, csv.Error) as err:
        raise RunError(f"{path}: is not a CSV file in UTF-8 ({err}).") from err


def _parse_row(row: dict[str, Any], where: str) -> dict[str, Any]:
    present = [*_COLUMNS, *(name for name in _OPTIONAL if name in row)]
    if any(row[name] is None for name in present):
        raise RunError(f"{where}: has too few cells; expected {', '.join(present)}.")
    parsed = {name: row[name] for name in present}
    try:
        parsed["index"] = int(row["index"])
        parsed["weight"] = float(row["weight"])
        for name in _TRUTHS:
            if name in parsed:
                parsed[name] = {"0": False, "1": True}[row[name].strip()]
    except (ValueError, KeyError) as err:
        raise RunError(
            f"{where}: expected a whole index, a weight, and {' and '.join(_TRUTHS)} as 0 or 1; "
            f"got {err}."
        ) from err
    if not 0 <= parsed["weight"] <= 1:
        raise RunError(f"{where}: a weight is in [0, 1]; got {row['weight']}.")
    return parsed


def _array(values: Any) -> np.ndarray:
    """Any array as numpy's; a tensor is fetched from its device, without importing torch."""
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
