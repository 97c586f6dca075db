"""Labels and embeddings in the files people have them in: .npy, .npz, .csv, .tsv, .parquet, .txt.

Arrays are read without pickle.  A CSV of labels has a column `label` (or one column); a CSV of
embeddings has numeric columns, one per dimension.  Columns named like labels, names or texts are
passed over, as is the nameless index that pandas puts in front; any other column that holds no
numbers is refused.  Where a column is called `index`, it holds 0 to N-1 and says where each row
belongs, so that a file sorted in a spreadsheet is still right.

A file of one column, such as a .txt file, has no header, unless its first cell is a name that a
column of labels has and that does not come up again below, or the only cell that is not a whole
number.

Labels are integers if every cell is a whole number as Python writes it, else text: 007 and 1_0
are names.  Empty labels are refused, and so is nan among numbers.  Cells of a CSV follow the
spreadsheets' convention, see `bspml.files.cells`; lines of a .txt file, one label each, are taken
as they stand.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import Any

import numpy as np

from bspml.errors import DataError, InputError, about
from bspml.files.arrays import Archive, read_array, texts_of
from bspml.files.cells import plain_labels, protected_cell
from bspml.files.columns import (
    EMBEDDING_NAMES,
    ID_COLUMNS,
    LABEL_COLUMNS,
    NAME_COLUMNS,
    TEXT_COLUMNS,
    UNNAMED,
    NoColumnError,
    check_texts,
    check_uncontested,
    telling_names,
    warn_of_rivals,
    warn_of_twins,
)
from bspml.files.csv_tables import (
    Rows,
    columns_beside,
    csv_rows,
    label_column,
    lines,
    numeric_columns,
    text_columns,
    text_labels,
)
from bspml.files.opening import FAULTS, open_regular
from bspml.files.parquet_tables import (
    parquet_beside,
    parquet_embeddings,
    parquet_labels,
    parquet_texts,
)
from bspml.tensors.checks import check_embeddings, encode_labels

Reader = Callable[[BufferedIOBase], Any]


def read_labels(path: str | os.PathLike[str]) -> np.ndarray:
    """Read labels.

    Returns:
        (N,) int64 (uint64 where only that holds them), or strings where any is not an integer.

    Raises:
        DataError: missing, unreadable, or without labels, or some of them are empty; names the
            file.
    """
    labels: np.ndarray = _read_by_suffix(
        path,
        {
            ".npy": lambda file: _array_labels(read_array(file)),
            ".npz": lambda file: _array_labels(_npz_labels(Archive(file), path)),
            **_delimited(lambda rows: label_column(rows, path)),
            ".txt": text_labels,
            ".parquet": lambda file: _array_labels(parquet_labels(file, path)),
        },
        "labels",
    )
    if labels.dtype.kind == "U":
        warn_of_twins(labels.tolist(), path)
    return labels


def _array_labels(values: np.ndarray) -> np.ndarray:
    """What an array holds as labels; cells of text files are read as labels at once."""
    if values.ndim == 0:
        raise DataError("holds no labels.")
    encoded = encode_labels(values)
    classes = plain_labels(encoded.classes)
    if classes.dtype.kind == "U":
        check_texts(classes[encoded.codes.numpy()].tolist())
    return classes[encoded.codes.numpy()]


def read_embeddings(path: str | os.PathLike[str]) -> np.ndarray:
    """Read embeddings.

    Returns:
        (N, D) floats, in an array that may be written to.

    Raises:
        DataError: missing, unreadable, empty, not a table of numbers, or some of them are NaN or
            infinite; names the file.
    """
    array = _read_by_suffix(
        path,
        {
            ".npy": read_array,
            ".npz": lambda file: _npz_embeddings(Archive(file), path),
            **_delimited(numeric_columns),
            ".parquet": lambda file: parquet_embeddings(file, path),
        },
        "embeddings",
    )
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise DataError(
            f"{path}: embeddings must be a table of numbers, (N, D); got shape {array.shape}, "
            f"{array.dtype}."
        )
    if array.shape[1] == 0:
        raise DataError(
            f"{path}: has no column of numbers, such as d0, d1, ..., to be embeddings. Name a file "
            "that has; photos are embedded from their folder, by --backbone."
        )
    if array.dtype.kind != "f":
        array = array.astype(np.float32)
    elif array.dtype.itemsize > 8:  # long double, which torch does not have
        array = array.astype(np.float64)
    # The machine's byte order, and not parquet's read-only memory: torch takes neither well.
    array = np.require(array.astype(array.dtype.newbyteorder("="), copy=False), requirements="W")
    with about(path, faults=ValueError):
        check_embeddings(array)
    return array


def read_texts(
    path: str | os.PathLike[str], wanted: Sequence[str], what: str = "names"
) -> dict[str, list[str]]:
    """Read columns as N texts of a .txt (one a line, `name`), .csv, .tsv, .npz or .parquet file.

    Args:
        path: the file.
        wanted: names of columns in lower case; in a .npz a final s may follow (names, paths).
        what: it is asked for, in the plural, for messages.

    Returns:
        {column: N texts}, and {column: []} of those not wanted; {} for a kind of file that holds
        no text.

    Raises:
        DataError: missing, unreadable, or damaged, or a wanted column that is there twice or holds
            no text; names the file.
    """
    readers: dict[str, Reader] = {
        ".npy": lambda file: {},
        ".npz": lambda file: _npz_texts(Archive(file), wanted),
        **_delimited(lambda rows: text_columns(rows, wanted)),
        ".txt": lambda file: {"name": lines(file)},
        ".parquet": lambda file: parquet_texts(file, wanted),
    }
    return _read_by_suffix(path, readers, what)


def read_names(path: str | os.PathLike[str]) -> list[str] | None:
    """Read the N names of the samples in such a file, see `telling_names`; None without them.

    Raises:
        DataError: as `read_texts`.
    """
    names = telling_names(read_texts(path, (*NAME_COLUMNS, *ID_COLUMNS)))
    return None if names is None else [*names]


def read_beside(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """Read what stands beside the labels in a file of them, as cells for `write_table`.

    Returns:
        {column: N cells}: every column of a .csv, .tsv or .parquet file, of which lists are left
        out; names, ids, texts and splits of an .npz file.

    Raises:
        DataError: as `read_texts`.
    """
    suffix = Path(path).suffix.lower()
    readers = {**_delimited(columns_beside), ".parquet": parquet_beside}
    if suffix in readers:
        found = _read_by_suffix(path, {suffix: readers[suffix]}, "labels")
        # The index that pandas writes says something where it is in another order.
        return {k: v for k, v in found.items() if k != UNNAMED or v != [*map(str, range(len(v)))]}
    wanted = () if suffix == ".txt" else (*NAME_COLUMNS, *ID_COLUMNS, *TEXT_COLUMNS, "split")
    columns = read_texts(path, wanted) if wanted else {}
    return {k: [*map(protected_cell, v)] for k, v in columns.items() if k in wanted}


def fitting_names(path: str | os.PathLike[str], n: int) -> tuple[str, ...] | None:
    """Read the names of samples from a file of their labels or embeddings, where it has any.

    Args:
        path: the file.
        n: number of samples.

    Returns:
        n names; None where the file has none, or another number of samples.

    Raises:
        DataError: as `read_texts`, such as names of another number than its samples.
    """
    # The lines of a .txt file are the labels.
    names = None if Path(path).suffix.lower() == ".txt" else read_names(path)
    return tuple(names) if names is not None and len(names) == n else None


def _delimited(read: Callable[[Rows], Any]) -> dict[str, Reader]:
    """Readers of the rows of delimited text."""

    def of(mark: str) -> Reader:
        return lambda file: read(csv_rows(file, mark))

    return {".csv": of(","), ".tsv": of("\t")}


def _read_by_suffix(path: str | os.PathLike[str], readers: Mapping[str, Reader], what: str) -> Any:
    if not os.fspath(path):
        raise DataError(f"the name of the file of {what} is empty; name a file.")
    path = Path(path)
    expected = f"a file of {what} ({', '.join(readers)})"
    reader = readers.get(path.suffix.lower())
    kind = expected if reader is None else f"a {path.suffix} file"
    missing = f"no such file; expected {expected}."
    with open_regular(path, kind, missing=missing, faults=FAULTS) as file:
        if reader is None:
            raise DataError(
                f"{path}: cannot tell the format of {what} from {path.suffix or 'no suffix'!r}; "
                f"expected {', '.join(readers)}."
            )
        try:
            array = reader(file)
        except NoColumnError as err:
            raise NoColumnError(f"{path}: {err}") from err
        except (DataError, InputError) as err:
            raise DataError(f"{path}: {err}") from err
    if isinstance(array, np.ndarray) and (array.ndim == 0 or len(array) == 0):
        raise DataError(f"{path}: holds no {what}.")
    return array


# --- archives -------------------------------------------------------------------------------------


def _npz_embeddings(archive: Archive, where: str | os.PathLike[str]) -> np.ndarray:
    name = archive.find(EMBEDDING_NAMES)
    if name is None:
        return archive.read(_only(archive, EMBEDDING_NAMES[0], 2))
    others = [other.lower() for other in archive.names if len(archive.shape(other)) == 2]
    warn_of_rivals(name.lower(), others, EMBEDDING_NAMES, where)
    return archive.read(name)


def _npz_labels(archive: Archive, where: str | os.PathLike[str]) -> np.ndarray:
    name = archive.find(LABEL_COLUMNS)
    if name is None:
        return archive.read(_only(archive, LABEL_COLUMNS[0], 1))
    check_uncontested(name.lower(), [other.lower() for other in archive.names], where)
    n, read = _samples(archive), (*NAME_COLUMNS, *TEXT_COLUMNS, "split")
    _check_rows(archive, name, n)
    for other in archive.names:  # also where nobody asks for them
        if other.lower().removesuffix("s") in read and archive.shape(other):
            _check_rows(archive, other, n)
    return archive.read(name)


def _only(archive: Archive, name: str, ndim: int) -> str:
    """The only array of so many dimensions."""
    fitting = [other for other in archive.names if len(archive.shape(other)) == ndim]
    if len(fitting) != 1:
        raise NoColumnError(f"expected an array named {name!r}; it has {', '.join(archive.names)}.")
    return fitting[0]


def _samples(archive: Archive) -> int | None:
    """The number of rows of the embeddings, or else of the labels, by name; None without either."""
    for names, ndim in ((EMBEDDING_NAMES, 2), (LABEL_COLUMNS, 1)):
        name = archive.find(names)
        if name is not None and len(archive.shape(name)) >= ndim:
            return archive.shape(name)[0]
    return None


def _check_rows(archive: Archive, name: str, n: int | None) -> None:
    """Refuse a column of another length by its header, before gigabytes are built of it."""
    shape = archive.shape(name)
    if n is not None and shape[:1] != (n,):
        raise DataError(f"its array {name!r} is {shape}; expected one entry for each of {n} rows.")


def _npz_texts(archive: Archive, wanted: Sequence[str]) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    n = _samples(archive)
    for name in archive.names:
        column = name.lower() if name.lower() in wanted else name.lower().removesuffix("s")
        if column not in wanted:
            columns.setdefault(column, [])
            continue
        if column in columns:
            raise DataError(f"has two arrays that can be its `{column}`; keep one.")
        _check_rows(archive, name, n)
        if len(archive.shape(name)) != 1:
            raise DataError(
                f"its array {name!r} must have one entry a row, (N,); got {archive.shape(name)}."
            )
        n, columns[column] = archive.shape(name)[0], texts_of(archive.read(name))
    return columns
