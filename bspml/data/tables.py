"""Labels and embeddings in the files people have them in: .npy, .npz, .csv, .parquet, .txt.

Arrays are read without pickle.  A CSV of labels has a column `label` (or one column); a CSV of
embeddings has numeric columns, one per dimension, and columns named like labels are passed over.
"""

from __future__ import annotations

import csv
import io
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bspml.errors import DataError
from bspml.files import atomic_write

LABEL_COLUMNS = ("label", "labels", "class", "y", "target")
_INDEX_COLUMNS = ("index", "id", "path", "name", "file", "filename", "sample_index")


def read_labels(path: str | os.PathLike[str]) -> np.ndarray:
    """(N,) integers, or strings where any label is not an integer.

    Raises:
        DataError: missing, unreadable, empty, or without labels; names the file.
    """
    path = Path(path)
    return _read(
        path,
        {
            ".npy": _npy,
            ".npz": lambda p: _npz(p, LABEL_COLUMNS, ndim=1),
            ".csv": lambda p: _from_text(_label_column(_csv_rows(p))),
            ".tsv": lambda p: _from_text(_label_column(_csv_rows(p, "\t"))),
            ".txt": lambda p: _from_text(p.read_text("utf-8-sig").splitlines()),
            ".parquet": _parquet_labels,
        },
        "labels",
    )


def read_embeddings(path: str | os.PathLike[str]) -> np.ndarray:
    """(N, D) floats.

    Raises:
        DataError: missing, unreadable, empty, or not a table of numbers; names the file.
    """
    path = Path(path)
    array = _read(
        path,
        {
            ".npy": _npy,
            ".npz": lambda p: _npz(p, ("embeddings", "embedding", "features", "x"), ndim=2),
            ".csv": lambda p: _numeric_columns(_csv_rows(p)),
            ".tsv": lambda p: _numeric_columns(_csv_rows(p, "\t")),
            ".parquet": _parquet_embeddings,
        },
        "embeddings",
    )
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise DataError(
            f"{path}: embeddings must be a table of numbers, (N, D); got shape {array.shape}, "
            f"{array.dtype}."
        )
    return array if array.dtype.kind == "f" else array.astype(np.float32)


def write_labels(path: str | os.PathLike[str], columns: dict[str, Sequence[Any]]) -> Path:
    """Write equally long columns as CSV, atomically; the first is the index of the row."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["index", *columns])
    writer.writerows([i, *row] for i, row in enumerate(zip(*columns.values(), strict=True)))
    return atomic_write(path, text.getvalue())


def _read(path: Path, readers: dict[str, Callable[[Path], np.ndarray]], what: str) -> np.ndarray:
    reader = readers.get(path.suffix.lower())
    if path.is_dir() or not path.exists():
        kind = "is a folder" if path.is_dir() else "no such file"
        raise DataError(f"{path}: {kind}; expected a file of {what} ({', '.join(readers)}).")
    if reader is None:
        raise DataError(
            f"{path}: cannot tell the format of {what} from {path.suffix or 'no suffix'!r}; "
            f"expected {', '.join(readers)}."
        )
    try:
        array = reader(path)
    except DataError as err:
        raise DataError(f"{path}: {err}") from err
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, csv.Error) as err:
        reason = str(err).splitlines()[0] if str(err) else type(err).__name__
        raise DataError(f"{path}: cannot be read as {path.suffix} ({reason}).") from err
    if array.ndim == 0 or len(array) == 0:
        raise DataError(f"{path}: holds no {what}.")
    return array


def _npy(path: Path) -> np.ndarray:
    return np.load(path, allow_pickle=False)


def _npz(path: Path, names: Sequence[str], ndim: int) -> np.ndarray:
    with np.load(path, allow_pickle=False) as archive:
        if not hasattr(archive, "files"):
            raise DataError("is a single array; name it .npy.")
        for name in names:
            if name in archive.files:
                return archive[name]
        fitting = [name for name in archive.files if archive[name].ndim == ndim]
        if len(fitting) == 1:
            return archive[fitting[0]]
        raise DataError(f"expected an array named {names[0]!r}; it has {', '.join(archive.files)}.")


def _csv_rows(path: Path, delimiter: str = ",") -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter=delimiter) if row]
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        odd = next(i for i, row in enumerate(rows, 1) if len(row) != len(rows[0]))
        raise DataError(f"row {odd} has {len(rows[odd - 1])} cells, the first has {len(rows[0])}.")
    return rows


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _label_column(rows: list[list[str]]) -> list[str]:
    if not rows:
        return []
    head = [cell.strip().lower() for cell in rows[0]]
    for name in LABEL_COLUMNS:
        if name in head:
            column = head.index(name)
            return [row[column] for row in rows[1:]]
    if len(head) == 1:
        return [row[0] for row in rows]
    raise DataError(f"has no column `label`; its columns are {', '.join(rows[0][:8])}.")


def _from_text(cells: Sequence[str]) -> np.ndarray:
    cells = [
        cell.removeprefix("'") if cell[:2] in ("'=", "'+", "'-", "'@") else cell for cell in cells
    ]
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except (ValueError, OverflowError):
        pass
    empty = [i for i, cell in enumerate(cells) if not cell.strip()]
    if empty:
        raise DataError(f"row {empty[0] + 1} has an empty label ({len(empty)} such rows)")
    return np.array(cells, dtype=str)


def _numeric_columns(rows: list[list[str]]) -> np.ndarray:
    if not rows:
        return np.empty((0, 0))
    keep = list(range(len(rows[0])))
    if not all(_is_number(cell) for cell in rows[0]):
        names = [cell.strip().lower() for cell in rows[0]]
        keep = [i for i, name in enumerate(names) if name not in LABEL_COLUMNS + _INDEX_COLUMNS]
        rows = rows[1:]
    try:
        return np.array([[float(row[i]) for i in keep] for row in rows], dtype=np.float32)
    except ValueError as err:
        raise DataError(f"a cell is not a number ({err}).") from err


def _frame(path: Path) -> Any:
    import pandas as pd

    return pd.read_parquet(path)


def _parquet_labels(path: Path) -> np.ndarray:
    frame = _frame(path)
    names = {str(name).lower(): name for name in frame.columns}
    for name in LABEL_COLUMNS:
        if name in names:
            column = frame[names[name]]
            if column.isna().any():
                raise DataError(f"{int(column.isna().sum())} labels are empty.")
            values = column.to_numpy()
            return values.astype(str) if values.dtype.kind == "O" else values
    raise DataError(f"has no column `label`; its columns are {', '.join(map(str, names))}.")


def _parquet_embeddings(path: Path) -> np.ndarray:
    frame = _frame(path)
    names = {str(name).lower(): name for name in frame.columns}
    if "embedding" in names or "embeddings" in names:  # one column of lists
        return np.stack(frame[names.get("embedding", names.get("embeddings"))].to_numpy())
    keep = [n for low, n in names.items() if low not in LABEL_COLUMNS + _INDEX_COLUMNS]
    return frame[keep].select_dtypes("number").to_numpy(dtype=np.float32)
