"""Labels and embeddings in the files people have them in: .npy, .npz, .csv, .tsv, .parquet, .txt.

Arrays are read without pickle.  A CSV of labels has a column `label` (or one column); a CSV of
embeddings has numeric columns, one per dimension, and columns named like labels are passed over,
as is the nameless index that pandas puts in front.  Where a column is called `index`, it holds
0 to N-1 and says where each row belongs, so that a file sorted in a spreadsheet is still right.

A file of one column has no header, unless its first cell is a name that a column of labels has
and that does not come up again below, or the only cell that is not a whole number.

Labels are integers if every cell is a whole number as Python writes it, else text: 007 and 1_0
are names.  Cells of a CSV follow the spreadsheets' convention, see `bspml.cells`; lines of a .txt
file, one label each, are taken as they stand.
"""

from __future__ import annotations

import csv
import io
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bspml.cells import bare_cell, integers, parse_labels, protected_cell
from bspml.checks import encode_labels, some_of
from bspml.errors import DataError
from bspml.files import atomic_write, is_special

LABEL_COLUMNS = ("label", "labels", "class", "y", "target")
_EMBEDDING_NAMES = ("embeddings", "embedding", "features", "x")
_INDEX = "index"
_PASSED_OVER = (
    *LABEL_COLUMNS,
    *("true_label", "true_labels", "is_noisy"),  # what `write_labels` may put beside them
    *(_INDEX, "id", "path", "name", "file", "filename", "sample_index", "unnamed: 0"),
)

# What the parsers raise on files that are damaged, encrypted, or of another make.
_FAULTS = (
    *(OSError, ValueError, EOFError, KeyError, OverflowError, RuntimeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, csv.Error),
)


def read_labels(path: str | os.PathLike[str]) -> np.ndarray:
    """(N,) integers, or strings where any label is not an integer.

    Raises:
        DataError: missing, unreadable, empty, or without labels; names the file.
    """
    path = Path(path)
    found = _read(
        path,
        {
            ".npy": _npy,
            ".npz": lambda p: _npz(p, LABEL_COLUMNS, ndim=1),
            ".csv": lambda p: _label_column(_csv_rows(p)),
            ".tsv": lambda p: _label_column(_csv_rows(p, "\t")),
            ".txt": _text_lines,
            ".parquet": _parquet_labels,
        },
        "labels",
    )
    try:
        labels = encode_labels(found)
    except ValueError as err:
        raise DataError(f"{path}: {err}") from err
    return labels.classes[labels.codes.numpy()]


def read_embeddings(path: str | os.PathLike[str]) -> np.ndarray:
    """(N, D) floats, in an array that may be written to.

    Raises:
        DataError: missing, unreadable, empty, or not a table of numbers; names the file.
    """
    path = Path(path)
    array = _read(
        path,
        {
            ".npy": _npy,
            ".npz": lambda p: _npz(p, _EMBEDDING_NAMES, ndim=2),
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
    if array.dtype.kind != "f":
        array = array.astype(np.float32)
    elif array.dtype.itemsize > 8:  # long double, which torch does not have
        array = array.astype(np.float64)
    # The machine's byte order, and not parquet's read-only memory: torch takes neither well.
    return np.require(array.astype(array.dtype.newbyteorder("="), copy=False), requirements="W")


def read_texts(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """{column: N texts} of a .txt (one a line, `name`), .csv, .tsv, .npz or .parquet file.

    Column names in lower case; in a .npz, a final s is left out (names, paths).  {} for a kind of
    file that holds no text.

    Raises:
        DataError: missing, unreadable, or damaged; names the file.
    """
    path = Path(path)
    readers = {
        ".npy": lambda p: {},
        ".npz": _npz_texts,
        ".csv": lambda p: _csv_texts(_csv_rows(p)),
        ".tsv": lambda p: _csv_texts(_csv_rows(p, "\t")),
        ".txt": lambda p: {"name": _lines(p)},
        ".parquet": _parquet_texts,
    }
    return _read(path, readers, "names")


def write_labels(path: str | os.PathLike[str], columns: dict[str, Sequence[Any]]) -> Path:
    """Write equally long columns as CSV, atomically; the first is the index of the row.

    Text that a spreadsheet would run or rewrite is protected.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([_INDEX, *columns])
    for i, row in enumerate(zip(*columns.values(), strict=True)):
        writer.writerow([i, *(protected_cell(v) if isinstance(v, str) else v for v in row)])
    return atomic_write(path, text.getvalue())


def _read(path: Path, readers: Mapping[str, Callable[[Path], Any]], what: str) -> Any:
    reader = readers.get(path.suffix.lower())
    fault = _fault(path)
    if fault:
        raise DataError(f"{path}: {fault}; expected a file of {what} ({', '.join(readers)}).")
    if reader is None:
        raise DataError(
            f"{path}: cannot tell the format of {what} from {path.suffix or 'no suffix'!r}; "
            f"expected {', '.join(readers)}."
        )
    try:
        array = reader(path)
    except DataError as err:
        raise DataError(f"{path}: {err}") from err
    except MemoryError as err:
        raise DataError(f"{path}: says that it holds more than fits into memory.") from err
    except _FAULTS as err:
        reason = str(err).splitlines()[0] if str(err) else type(err).__name__
        raise DataError(f"{path}: cannot be read as {path.suffix} ({reason}).") from err
    if isinstance(array, np.ndarray) and (array.ndim == 0 or len(array) == 0):
        raise DataError(f"{path}: holds no {what}.")
    return array


def _fault(path: Path) -> str:
    try:
        if path.is_dir():
            return "is a folder"
        if not path.exists():
            return "no such file"
    except OSError as err:  # no permission on the way, or a name too long
        return f"cannot be read ({err.strerror})"
    return "is a pipe or a device" if is_special(path) else ""


# --- arrays ---------------------------------------------------------------------------------------


def _npy(path: Path) -> np.ndarray:
    array = np.load(path, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise DataError("is an archive of arrays; name it .npz.")
    return array


def _npz(path: Path, names: Sequence[str], ndim: int) -> np.ndarray:
    with np.load(path, allow_pickle=False) as archive:
        if not hasattr(archive, "files"):
            raise DataError("is a single array; name it .npy.")
        for name in names:
            if name in archive.files:
                return _member(archive, name)
        fitting = [name for name in archive.files if _member(archive, name).ndim == ndim]
        if len(fitting) == 1:
            return _member(archive, fitting[0])
        raise DataError(f"expected an array named {names[0]!r}; it has {', '.join(archive.files)}.")


def _member(archive: Any, name: str) -> np.ndarray:
    member = archive[name]
    if not isinstance(member, np.ndarray):  # numpy hands other files out as bytes
        raise DataError(f"its member {name!r} is not an array.")
    return member


def _npz_texts(path: Path) -> dict[str, list[str]]:
    with np.load(path, allow_pickle=False) as archive:
        files = [name for name in getattr(archive, "files", ()) if name not in _EMBEDDING_NAMES]
        members = {name: _member(archive, name) for name in files}
    return {
        name.lower().removesuffix("s"): array.astype(str).tolist()
        for name, array in members.items()
        if array.ndim == 1
    }


# --- text -----------------------------------------------------------------------------------------


def _lines(path: Path) -> list[str]:
    # Only line feeds end a line: str.splitlines would also cut names at U+2028 or a form feed.
    lines = path.read_bytes().decode("utf-8-sig").split("\n")
    lines = [line.removesuffix("\r") for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _text_lines(path: Path) -> np.ndarray:
    lines = _lines(path)
    _check_labels(lines)
    whole = integers(lines)
    return np.array(lines, dtype=str) if whole is None else whole


def _csv_rows(path: Path, delimiter: str = ",") -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file, delimiter=delimiter, strict=True))  # strict: quotes must close
    while rows and not rows[-1]:
        rows.pop()
    if not rows:
        return []
    # A blank line is an empty label in a file of one column, and nothing in any other.
    single = max(map(len, rows)) == 1
    rows = [row or [""] for row in rows] if single else [row for row in rows if row]
    odd = next((i for i, row in enumerate(rows, 1) if len(row) != len(rows[0])), None)
    other = next((mark for mark in ";\t," if mark != delimiter and mark in rows[0][0]), None)
    if other is not None and len(rows[0]) == 1:
        raise DataError(
            f"its columns seem to be separated by {other!r}, not {delimiter!r}. Save it with "
            "commas (.csv) or tabs (.tsv); if it is one column of labels, name that `label`."
        )
    if odd is not None:
        raise DataError(f"row {odd} has {len(rows[odd - 1])} cells, the first has {len(rows[0])}.")
    return rows


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_whole(cell: str) -> bool:
    return integers([cell]) is not None


def _names(header: Iterable[Any]) -> list[str]:
    return [str(cell).strip().lower() for cell in header]


def _label_column(rows: list[list[str]]) -> np.ndarray:
    if not rows:
        return np.empty(0)
    names = _names(rows[0])
    if len(names) == 1:
        below = [row[0] for row in rows[1:]]
        known = names[0] in LABEL_COLUMNS and rows[0][0] not in below
        named = known or (bool(below) and not _is_whole(rows[0][0]) and all(map(_is_whole, below)))
        return _labels(below if named else [rows[0][0], *below])
    column = _find(names, LABEL_COLUMNS)
    if column is None:
        raise DataError(f"has no column `label`; its columns are {', '.join(rows[0][:8])}.")
    order = _row_order(names, rows[1:])
    return _labels([row[column] for row in rows[1:]])[order]


def _find(names: list[str], wanted: Sequence[str]) -> int | None:
    """Where the first of `wanted` that is there stands; two columns of that name are refused."""
    name = next((name for name in wanted if name in names), None)
    if name is None:
        return None
    if names.count(name) > 1:
        raise DataError(f"has {names.count(name)} columns `{name}`; keep one.")
    return names.index(name)


def _row_order(names: list[str], rows: Sequence[Sequence[Any]]) -> np.ndarray:
    """(N,) the rows in the order of the column `index`, or as they stand without one."""
    column = _find(names, (_INDEX,))
    if column is None:
        return np.arange(len(rows))
    return _sorted_by([str(row[column]) for row in rows])


def _sorted_by(index: Sequence[str]) -> np.ndarray:
    found = integers(index)
    n = len(index)
    if found is None or not np.array_equal(np.sort(found), np.arange(n)):
        missing = sorted(set(range(n)) - set(() if found is None else found.tolist()))
        raise DataError(
            f"the column `index` must hold 0 to {n - 1}, each once; {some_of(missing)} missing. "
            "Restore the rows, or rename the column."
        )
    return np.argsort(found)


def _labels(cells: Sequence[str]) -> np.ndarray:
    _check_labels([bare_cell(cell) for cell in cells])
    return parse_labels(cells)


def _check_labels(labels: Sequence[str]) -> None:
    empty = [i for i, label in enumerate(labels) if not label.strip()]
    if empty:
        raise DataError(f"row {empty[0] + 1} has an empty label ({len(empty)} such rows).")
    if any("\0" in label for label in labels):
        raise DataError("a label holds the character NUL, which numpy cuts off the end of text.")


def _csv_texts(rows: list[list[str]]) -> dict[str, list[str]]:
    if not rows:
        return {}
    names, below = _names(rows[0]), rows[1:]
    below = [below[i] for i in _row_order(names, below)]
    return {name: [bare_cell(row[i]) for row in below] for i, name in enumerate(names)}


def _numeric_columns(rows: list[list[str]]) -> np.ndarray:
    if not rows:
        return np.empty((0, 0))
    keep, order = list(range(len(rows[0]))), np.arange(len(rows))
    if not all(_is_number(cell) for cell in rows[0]):
        names = _names(rows[0])
        rows = rows[1:]
        # The nameless first column is the index that pandas writes.
        keep = [i for i in keep if names[i] not in _PASSED_OVER and (i or names[i])]
        order = _row_order(names, rows)
    elif len(keep) > 1 and rows[0] == [str(i) for i in keep] and not all(map(_is_whole, rows[-1])):
        raise DataError(
            f"its first row is {', '.join(rows[0][:4])}{', ...' * (len(keep) > 4)}: are these "
            "names of columns, or a sample? Name the columns d0, d1, ..., or remove the row."
        )
    try:
        table = np.array([[float(row[i]) for i in keep] for row in rows], dtype=np.float32)
    except ValueError as err:
        raise DataError(f"a cell is not a number ({err}).") from err
    return table[order]


# --- parquet --------------------------------------------------------------------------------------


def _frame(path: Path) -> tuple[Any, list[str]]:
    """The frame, its rows in the order of a column or an index called `index`, and its names."""
    import pandas as pd

    frame = pd.read_parquet(path)
    if frame.index.name is not None:
        frame = frame.reset_index()
    names = _names(frame.columns)
    column = _find(names, (_INDEX,))
    if column is not None:
        frame = frame.iloc[_sorted_by([str(i) for i in frame.iloc[:, column]])]
    return frame, names


def _parquet_labels(path: Path) -> np.ndarray:
    frame, names = _frame(path)
    column = _find(names, LABEL_COLUMNS)
    if column is None:
        raise DataError(f"has no column `label`; its columns are {', '.join(names)}.")
    values = frame.iloc[:, column]
    if values.isna().any():
        raise DataError(f"{int(values.isna().sum())} labels are empty.")
    return values.to_numpy()


def _parquet_embeddings(path: Path) -> np.ndarray:
    frame, names = _frame(path)
    lists = _find(names, ("embedding", "embeddings"))
    if lists is not None:
        return np.stack(frame.iloc[:, lists].to_numpy())
    keep = [i for i, name in enumerate(names) if name not in _PASSED_OVER]
    return frame.iloc[:, keep].select_dtypes("number").to_numpy(dtype=np.float32)


def _parquet_texts(path: Path) -> dict[str, list[str]]:
    frame, names = _frame(path)
    columns = {name: frame.iloc[:, i] for i, name in enumerate(names)}
    return {n: c.astype(str).tolist() for n, c in columns.items() if c.dtype.kind in "OT"}
