"""Delimited text (CSV, TSV): the one way to read and to write it.

UTF-8, with or without the byte-order mark that spreadsheets put in front.  Names of files that are
no text survive as lone surrogates.  Files are written as RFC 4180 says: commas, and lines that end
in CR LF.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bspml.errors import DataError, RunError, UserError, about
from bspml.files.atomic import atomic_write
from bspml.files.columns import check_spelling, column_names, find_column
from bspml.files.opening import FAULTS, open_regular
from bspml.words import counted

LINE_END = re.compile("\r\n|\n|\r")  # of whatever system
MARK = "\ufeff"  # UTF-8's byte order mark
_LONGEST = 2**31 - 1  # characters of a field: what is written is read again, however long


class Row(NamedTuple):
    """The fields of one row, and the line on which it ends, counted from 1, for messages."""

    fields: tuple[str, ...]
    line: int


class TableRow(NamedTuple):
    """The cells of one row by the name of their column, and 'FILE: line N' for messages."""

    cells: dict[str, str]
    where: str


def read_rows(file: io.BufferedIOBase, delimiter: str = ",") -> Iterator[Row]:
    """Read the rows of delimited text, a blank line as a row without fields.

    Args:
        file: open for reading bytes; closed at the end.
        delimiter: between the fields of a row.

    Yields:
        The rows, the header included.

    Raises:
        csv.Error: a quote that is not closed, or closed inside a field; files that were joined.
        UnicodeDecodeError: not UTF-8.

    Example:
        >>> list(read_rows(io.BytesIO(b'label,weight\\n"a,b",1\\n')))[1]
        Row(fields=('a,b', '1'), line=2)
    """
    limit = csv.field_size_limit(_LONGEST)  # of the whole process, so it is put back
    try:
        with io.TextIOWrapper(file, "utf-8-sig", "surrogatepass", newline="") as text:  # type: ignore[type-var]
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            for fields in reader:
                if fields and MARK in fields[0]:
                    raise csv.Error(
                        f"line {reader.line_num} has a byte order mark inside: were files joined? "
                        "Take it out, and a second header"
                    )
                yield Row(tuple(fields), reader.line_num)
    finally:
        csv.field_size_limit(limit)


def read_table(
    path: str | os.PathLike[str],
    needed: Sequence[str],
    optional: Sequence[str] = (),
    what: str = "a CSV file",
    error: type[UserError] = DataError,
) -> list[TableRow]:
    """Read a CSV file whose first row names its columns, in any order and case.

    Args:
        path: the file.
        needed: columns that it must have.
        optional: columns that it may have.
        what: the file should be, for messages.
        error: the class of all errors.

    Returns:
        The rows below the header, without blank ones; columns of other names are there too,
        unless they look like misspelt ones.

    Raises:
        UserError: of the class `error`: missing or damaged, without a column of `needed`, with two
            columns of one name, or with a row of another length than the header.
    """
    with open_regular(path, what, error, faults=FAULTS) as file:
        rows = [row for row in read_rows(file) if any(map(str.strip, row.fields))]
    names = column_names(rows[0].fields) if rows else []
    missing = [name for name in needed if name not in names]
    if missing:
        raise error(
            f"{path}: has no column `{missing[0]}`; expected commas between "
            f"{', '.join(needed)}; got {', '.join(names) or 'an empty file'}."
        )
    with about(path, error, DataError):
        for name in (*needed, *optional):
            find_column(names, (name,))
        check_spelling(names, (*needed, *optional))
    for row in rows:
        if len(row.fields) != len(names):
            cells = counted(len(row.fields), "cell")
            raise error(
                f"{path}: line {row.line}: has {cells}; expected {len(names)}, {', '.join(names)}."
            )
    return [
        TableRow(dict(zip(names, row.fields, strict=True)), f"{path}: line {row.line}")
        for row in rows[1:]
    ]


def write_table(path: str | os.PathLike[str], columns: Mapping[str, Sequence[Any]]) -> Path:
    """Write equally long columns as CSV, atomically.

    Cells stand as they are given: see `bspml.files.cells` for text from elsewhere.

    Args:
        path: the file.
        columns: {name: the cells below it}, from left to right.

    Returns:
        `path`.

    Raises:
        RunError: the file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    try:
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    except csv.Error as err:  # Python 3.10 writes no NUL
        raise RunError(f"{path}: cannot be written ({err}). Take NUL out of the labels.") from None
    return atomic_write(path, text.getvalue())
