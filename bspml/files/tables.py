"""Labels and embeddings in the files people have them in: .npy, .npz, .csv, .tsv, .parquet, .txt.

Arrays are read without pickle.  A CSV of labels has a column `label` (or one column); a CSV of
embeddings has numeric columns, one per dimension.  Columns named like labels, names or texts are
passed over, as is the nameless index that pandas puts in front; any other column that holds no
numbers is refused.  Where a column is called `index`, it holds 0 to N-1 and says where each row
belongs, so that a file sorted in a spreadsheet is still right.

A file of one column has no header, unless its first cell is a name that a column of labels has
and that does not come up again below, or the only cell that is not a whole number.

Labels are integers if every cell is a whole number as Python writes it, else text: 007 and 1_0
are names.  Empty labels are refused, and so is nan among numbers.  Cells of a CSV follow the
spreadsheets' convention, see `bspml.files.cells`; lines of a .txt file, one label each, are taken
as they stand.
"""

from __future__ import annotations

import csv
import io
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bspml.errors import DataError
from bspml.files.atomic import atomic_write, is_special
from bspml.files.cells import plain_labels, protected_cell
from bspml.files.columns import EMBEDDING_NAMES, INDEX, LABEL_COLUMNS, NAME_COLUMNS, check_texts
from bspml.files.csv_tables import (
    csv_rows,
    label_column,
    lines,
    numeric_columns,
    text_columns,
    text_labels,
)
from bspml.files.parquet_tables import parquet_embeddings, parquet_labels, parquet_texts
from bspml.tensors.checks import check_embeddings, encode_labels

__all__ = ["FAULTS", "read_embeddings", "read_labels", "read_names", "read_texts", "write_labels"]

# What the parsers raise on files that are damaged, encrypted, or of another make.
FAULTS = (
    *(OSError, ValueError, EOFError, KeyError, OverflowError, RuntimeError, SyntaxError),
    *(zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, csv.Error),
)


def read_labels(path: str | os.PathLike[str]) -> np.ndarray:
    """(N,) int64 (uint64 where only that holds them), or strings where any is not an integer.

    Raises:
        DataError: missing, unreadable, or without labels, or some of them are empty; names the
            file.
    """
    path = _named(path, "labels")
    found = _read(
        path,
        {
            ".npy": _npy,
            ".npz": lambda p: _npz(p, LABEL_COLUMNS, ndim=1),
            ".csv": lambda p: label_column(csv_rows(p)),
            ".tsv": lambda p: label_column(csv_rows(p, "\t")),
            ".txt": text_labels,
            ".parquet": parquet_labels,
        },
        "labels",
    )
    try:
        encoded = encode_labels(found)
        labels = plain_labels(encoded.classes)[encoded.codes.numpy()]
        if labels.dtype.kind == "U":
            check_texts(labels.tolist())
    except ValueError as err:
        raise DataError(f"{path}: {err}") from err
    return labels


def read_embeddings(path: str | os.PathLike[str]) -> np.ndarray:
    """(N, D) floats, in an array that may be written to.

    Raises:
        DataError: missing, unreadable, empty, not a table of numbers, or some of them are NaN or
            infinite; names the file.
    """
    path = _named(path, "embeddings")
    array = _read(
        path,
        {
            ".npy": _npy,
            ".npz": lambda p: _npz(p, EMBEDDING_NAMES, ndim=2),
            ".csv": lambda p: numeric_columns(csv_rows(p)),
            ".tsv": lambda p: numeric_columns(csv_rows(p, "\t")),
            ".parquet": parquet_embeddings,
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
    array = np.require(array.astype(array.dtype.newbyteorder("="), copy=False), requirements="W")
    try:
        check_embeddings(array)
    except ValueError as err:
        raise DataError(f"{path}: {err}") from err
    return array


def read_texts(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """{column: N texts} of a .txt (one a line, `name`), .csv, .tsv, .npz or .parquet file.

    Column names in lower case; in a .npz, a final s is left out (names, paths).  {} for a kind of
    file that holds no text.

    Raises:
        DataError: missing, unreadable, or damaged; names the file.
    """
    path = _named(path, "names")
    readers = {
        ".npy": lambda p: {},
        ".npz": _npz_texts,
        ".csv": lambda p: text_columns(csv_rows(p)),
        ".tsv": lambda p: text_columns(csv_rows(p, "\t")),
        ".txt": lambda p: {"name": lines(p)},
        ".parquet": parquet_texts,
    }
    return _read(path, readers, "names")


def read_names(path: str | os.PathLike[str]) -> list[str] | None:
    """The N names in the first column of names of such a file, or None; raises as `read_texts`."""
    columns = read_texts(path)
    return next((columns[name] for name in NAME_COLUMNS if name in columns), None)


def write_labels(path: str | os.PathLike[str], columns: dict[str, Sequence[Any]]) -> Path:
    """Write equally long columns as CSV, atomically; the first is the index of the row.

    Text that a spreadsheet would run or rewrite is protected.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([INDEX, *columns])
    for i, row in enumerate(zip(*columns.values(), strict=True)):
        writer.writerow([i, *(protected_cell(v) if isinstance(v, str) else v for v in row)])
    return atomic_write(path, text.getvalue())


def _named(path: str | os.PathLike[str], what: str) -> Path:
    if not os.fspath(path):
        raise DataError(f"the name of the file of {what} is empty; name a file.")
    return Path(path)


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
    except FAULTS as err:
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
    with _archive(path) as archive:
        for name in names:
            if name in archive.files:
                return _member(archive, name)
        fitting = [name for name in archive.files if _member(archive, name).ndim == ndim]
        if len(fitting) == 1:
            return _member(archive, fitting[0])
        raise DataError(f"expected an array named {names[0]!r}; it has {', '.join(archive.files)}.")


def _archive(path: Path) -> Any:
    archive = np.load(path, allow_pickle=False)
    if isinstance(archive, np.ndarray):
        raise DataError("is a single array; name it .npy.")
    return archive


def _member(archive: Any, name: str) -> np.ndarray:
    member = archive[name]
    if not isinstance(member, np.ndarray):  # numpy hands other files out as bytes
        raise DataError(f"its member {name!r} is not an array.")
    return member


def _npz_texts(path: Path) -> dict[str, list[str]]:
    with _archive(path) as archive:
        files = [name for name in archive.files if name not in EMBEDDING_NAMES]
        members = {name: _member(archive, name) for name in files}
    return {
        name.lower().removesuffix("s"): array.astype(str).tolist()
        for name, array in members.items()
        if array.ndim == 1
    }
