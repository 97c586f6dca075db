"""The labels, texts and numbers in .csv, .tsv and .txt files of the user's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import BufferedIOBase

import numpy as np

from bspml.errors import DataError
from bspml.files.cells import bare_cell, whole_number
from bspml.files.columns import (
    INDEX,
    LABEL_COLUMNS,
    PASSED_OVER,
    UNNAMED,
    are_names,
    as_floats,
    column_names,
    find_column,
    is_number,
    label_place,
    labels_in,
    numbers_in,
    order_of_dimensions,
    row_order,
    wanted_cells,
)
from bspml.files.delimited import LINE_END, MARK, read_rows

Rows = list[tuple[str, ...]]


def lines(file: BufferedIOBase) -> list[str]:
    """Read lines without their ends; empty ones at the end of the file are left out."""
    # Not str.splitlines, which would also cut names at U+2028 or a form feed.
    texts = LINE_END.split(file.read().decode("utf-8-sig", "surrogatepass"))
    joined = next((row for row, text in enumerate(texts, 1) if MARK in text), None)
    if joined is not None:
        raise DataError(
            f"line {joined} has a byte order mark inside: were files joined? Take it out."
        )
    while texts and not texts[-1]:
        texts.pop()
    return texts


def text_labels(file: BufferedIOBase) -> np.ndarray:
    """Read (N,) labels, one a line."""
    return labels_in(_below_header(lines(file)), protected=False)


def _below_header(column: list[str]) -> list[str]:
    """A file's only column without its name, where the first cell must be one."""
    head, cells = column_names(column[:1]), column[1:]
    known = head[0] in LABEL_COLUMNS and column[0] not in cells if head else False
    # 007 and +1 are labels; numpy writes `# label`.
    named = bool(cells) and head[0].lstrip("# '\"_")[:1].isalpha() and all(map(_is_whole, cells))
    return cells if known or named else column


def csv_rows(file: BufferedIOBase, delimiter: str = ",") -> Rows:
    """Read rows of equal length, the header included.

    Args:
        file: open for reading bytes.
        delimiter: between cells.

    Raises:
        DataError: rows of different lengths, or another delimiter.
    """
    rows = [row.fields for row in read_rows(file, delimiter)]
    while rows and not rows[-1]:
        rows.pop()
    if not rows:
        return []
    # A blank line is an empty label in a file of one column, and nothing in any other.
    single = max(map(len, rows)) == 1
    rows = [row or ("",) for row in rows] if single else [row for row in rows if row]
    bad = next((i for i, row in enumerate(rows, 1) if len(row) != len(rows[0])), None)
    other = next((mark for mark in ";\t," if mark != delimiter and mark in rows[0][0]), None)
    if other is not None and len(rows[0]) == 1:
        raise DataError(
            f"its columns seem to be separated by {other!r}, not {delimiter!r}. Save it with "
            "commas (.csv) or tabs (.tsv); if it is one column of labels, name that `label`."
        )
    if bad is not None:
        raise DataError(f"row {bad} has {len(rows[bad - 1])} cells, the first has {len(rows[0])}.")
    return rows


def _is_whole(cell: str) -> bool:
    return whole_number(cell) is not None


def _order(table: Rows) -> np.ndarray:
    """The rows below the header, in the order of a column of indices."""
    names, rows = column_names(table[0]), table[1:]
    heads = (i for i, row in enumerate(rows, 2) if row[0].strip().lower() == names[0])
    again = next((i for i in heads if column_names(rows[i - 2]) == names), None)
    if again is not None:
        raise DataError(
            f"row {again} says the names of the columns again: were two files joined? Take it out. "
            "If the first row names nothing, put one above it that does, such as `label`."
        )
    column = find_column(names, (INDEX,))
    return row_order(None if column is None else [row[column] for row in rows], len(rows))


def _header(rows: Rows) -> list[str]:
    """Names of columns; the nameless index that pandas writes first is `name` if it holds names."""
    names = column_names(rows[0])
    if not names[0] and "name" not in names and are_names([row[0] for row in rows[1:]]):
        names[0] = "name"
    elif UNNAMED not in names:
        names[0] = names[0] or UNNAMED
    return names


def label_column(rows: Rows, where: str | os.PathLike[str] | None = None) -> np.ndarray:
    """Return (N,) labels of the column of labels, or of the only column.

    Args:
        rows: of a table, the header first.
        where: see `bspml.files.columns.label_place`.
    """
    if not rows:
        return np.empty(0)
    names = column_names(rows[0])
    if len(names) == 1:
        return labels_in(_below_header([row[0] for row in rows]))
    column = label_place(names, where)
    order = _order(rows)
    return labels_in([row[column] for row in rows[1:]])[order]


def text_columns(rows: Rows, wanted: Sequence[str]) -> dict[str, list[str]]:
    """Return {name of a column: its N cells}, no cells where it is not wanted.

    A nameless first column that holds a text of its own for each row is the column `name`, else
    `UNNAMED`.

    Args:
        rows: of a table, the header first.
        wanted: names of columns.

    Raises:
        DataError: a wanted column is there twice.
    """
    if not rows:
        return {}
    names, cells = _header(rows), [rows[1 + i] for i in _order(rows)]
    return wanted_cells(names, wanted, lambda place: [bare_cell(row[place]) for row in cells])


def columns_beside(rows: Rows) -> dict[str, list[str]]:
    """Return the cells, as they stand, of all columns but the labels and the index.

    Args:
        rows: of a table of labels, the header first.
    """
    names = _header(rows) if rows else []
    if len(names) < 2:
        return {}
    label, cells = label_place(names), [rows[1 + i] for i in _order(rows)]
    kept = [i for i, name in enumerate(names) if i != label and name not in ("", INDEX)]
    return {rows[0][i].strip() or names[i]: [row[i] for row in cells] for i in kept}


def numeric_columns(rows: Rows) -> np.ndarray:
    """Return (N, D) of the columns that are dimensions."""
    if not rows:
        return np.empty((0, 0))
    names, cells = [f"{i}" for i in range(1, len(rows[0]) + 1)], rows
    keep, order = list(range(len(names))), np.arange(len(rows))
    if not all(is_number(cell) for cell in rows[0]):
        names, cells = column_names(rows[0]), rows[1:]
        # The nameless first column is the index that pandas writes.
        keep = [i for i in keep if names[i] not in PASSED_OVER and (i or names[i])]
        keep = [keep[i] for i in order_of_dimensions([names[i] for i in keep])]
        order = _order(rows)
    elif len(keep) > 1 and rows[0] == tuple(map(str, keep)) and not all(map(_is_whole, rows[-1])):
        raise DataError(
            f"its first row is {', '.join(rows[0][:4])}{', ...' * (len(keep) > 4)}: are these "
            "names of columns, or a sample? Name the columns d0, d1, ..., or remove the row."
        )
    try:
        columns = [numbers_in([row[i] for row in cells], names[i]) for i in keep]
    except DataError as err:
        raise DataError(f"{err} Remove the column, or correct it.") from err
    table = np.array(columns, dtype=np.float64).reshape(len(keep), len(cells)).T
    return as_floats(np.ascontiguousarray(table)[order])
