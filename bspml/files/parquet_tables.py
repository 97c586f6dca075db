"""Labels, embeddings and texts of .parquet files."""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections.abc import Sequence
from io import BufferedIOBase
from typing import Any

import numpy as np

from bspml.errors import DataError
from bspml.files.cells import protected_cell
from bspml.files.columns import (
    EMBEDDING_NAMES,
    INDEX,
    PASSED_OVER,
    UNNAMED,
    are_names,
    as_floats,
    column_names,
    find_column,
    label_place,
    order_of_dimensions,
    row_order,
    wanted_cells,
    warn_of_rivals,
)

_MANY, _TIGHTEST = 2**24, 50  # cells, and cells a byte above that


def check_declared(file: BufferedIOBase) -> None:
    """Refuse a few kilobytes that declare more rows than memory holds: equal ones pack to nothing.

    Raises:
        DataError: they do, or there are two columns of one name, which pandas cannot tell apart.
    """
    import pyarrow.parquet as pq

    size = file.seek(0, io.SEEK_END)
    parquet = pq.ParquetFile(file)
    table, names = parquet.metadata, parquet.schema_arrow.names
    for name in names if len(set(names)) < len(names) else ():
        find_column(names, (name,))
    cells = table.num_rows * table.num_columns
    if cells > _MANY and cells > _TIGHTEST * size:
        raise DataError(
            f"says that it holds {table.num_rows} rows of {table.num_columns} columns, in {size} "
            "bytes. If that is right, give it as .csv."
        )
    file.seek(0)


def _frame(file: BufferedIOBase) -> tuple[Any, list[str]]:
    """The frame, its rows in the order of a column or an index called `index`, and its names."""
    import pandas as pd

    check_declared(file)
    frame = pd.read_parquet(file)
    is_nameless, there = frame.index.names == [None], column_names(frame.columns)
    holds_names = _holds_text(frame.index) and are_names([*map(str, frame.index)])
    if is_nameless and holds_names and "name" not in there:
        frame.index.name = "name"
    elif is_nameless and UNNAMED not in there and not isinstance(frame.index, pd.RangeIndex):
        frame.index.name = UNNAMED
    if any(name is not None for name in frame.index.names):
        index = column_names(name for name in frame.index.names if name is not None)
        twice = sorted(set(index) & set(column_names(frame.columns)))
        if twice:
            raise DataError(f"has 2 columns `{twice[0]}`, one of them as its index; keep one.")
        frame = frame.reset_index()
    names = column_names(frame.columns)
    column = find_column(names, (INDEX,))
    if column is not None:
        frame = frame.iloc[row_order([str(i) for i in frame.iloc[:, column]], len(frame))]
    return frame, names


def parquet_labels(file: BufferedIOBase, where: str | os.PathLike[str] | None = None) -> np.ndarray:
    """Read (N,) labels.

    Args:
        file: open for reading bytes.
        where: see `bspml.files.columns.label_place`.
    """
    frame, names = _frame(file)
    values = frame.iloc[:, label_place(names, where)]
    if values.isna().any():
        row = int(values.isna().to_numpy().argmax())
        raise DataError(f"{int(values.isna().sum())} labels are empty, the first in row {row + 1}.")
    return values.to_numpy()


def parquet_embeddings(file: BufferedIOBase, where: str | os.PathLike[str]) -> np.ndarray:
    """Read (N, D): of one column of lists, or of all columns that are dimensions.

    Args:
        file: open for reading bytes.
        where: it stands, for a warning of other columns that can be meant.
    """
    frame, names = _frame(file)
    lists = {n for n, kind in zip(names, frame.dtypes, strict=True) if kind.kind == "O"}
    column = find_column(names, [n for n in EMBEDDING_NAMES if n in lists])
    if column is not None:
        warn_of_rivals(names[column], sorted(lists), EMBEDDING_NAMES, where)
        return np.stack(frame.iloc[:, column].to_numpy())
    keep = [i for i, name in enumerate(names) if name not in PASSED_OVER]
    textual = [str(frame.columns[i]) for i in keep if frame.dtypes.iloc[i].kind not in "iuf"]
    if textual:
        more = f" and {len(textual) - 5} more" if len(textual) > 5 else ""
        raise DataError(
            f"its columns {', '.join(map(repr, textual[:5]))}{more} hold no numbers. Convert them, "
            "or leave them out."
        )
    keep = [keep[i] for i in order_of_dimensions([names[i] for i in keep])]
    kinds = [frame.dtypes.iloc[i] for i in keep]
    table = frame.iloc[:, keep].to_numpy(dtype=np.float64, na_value=np.nan)
    single = all(kind.kind == "f" and kind.itemsize <= 4 for kind in kinds)
    return table.astype(np.float32) if single else as_floats(table)


def parquet_texts(file: BufferedIOBase, wanted: Sequence[str]) -> dict[str, list[str]]:
    """Read {name of a column: its N cells}, no cells where it is not wanted.

    The cells are those of the CSV file of the same table: '' where nothing is known.

    Args:
        file: open for reading bytes.
        wanted: names of columns.

    Raises:
        DataError: a wanted column is there twice, or holds lists.
    """
    frame, names = _frame(file)
    return wanted_cells(names, wanted, lambda i: _cells(frame.iloc[:, i], names[i]))


def parquet_beside(file: BufferedIOBase) -> dict[str, list[str]]:
    """Return the cells of all columns but the labels, the index and those that hold lists.

    Args:
        file: open for reading bytes.
    """
    frame, names = _frame(file)
    label, columns = label_place(names), dict[str, list[str]]()
    for place, name in enumerate(names):
        if place != label and name not in ("", INDEX):
            with contextlib.suppress(DataError):  # lists, which no cell holds
                values = frame.iloc[:, place]
                cells, is_text = _cells(values, name), _holds_text(values)
                columns[name] = [c and protected_cell(c) for c in cells] if is_text else cells
    return columns


def _cells(values: Any, name: str) -> list[str]:
    """A column as `DataFrame.to_csv` writes it; text needs none of its quotes."""
    if not _holds_text(values):
        text = io.StringIO(values.to_csv(index=False, header=False), newline="")
        return [row[0] for row in csv.reader(text)]
    absent = values.isna().tolist()
    return [
        "" if missing else _text(value, name)
        for value, missing in zip(values.tolist(), absent, strict=True)
    ]


def _holds_text(values: Any) -> bool:
    return getattr(values.dtype, "categories", values).dtype.kind in "OTU"


def _text(value: Any, name: str) -> str:
    if isinstance(value, list | tuple | dict | set | np.ndarray):
        raise DataError(f"its column `{name}` holds lists or tables; expected one text a row.")
    # Some writers do not say that their bytes are text.
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)
