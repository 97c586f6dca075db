"""Labels, embeddings and texts of .parquet files."""

from __future__ import annotations

from io import BufferedIOBase
from typing import Any

import numpy as np

from bspml.errors import DataError
from bspml.files.columns import (
    EMBEDDING_NAMES,
    INDEX,
    PASSED_OVER,
    as_floats,
    column_names,
    find_column,
    label_place,
    row_order,
)


def _frame(file: BufferedIOBase) -> tuple[Any, list[str]]:
    """The frame, its rows in the order of a column or an index called `index`, and its names."""
    import pandas as pd

    frame = pd.read_parquet(file)
    if frame.index.name is not None:
        frame = frame.reset_index()
    names = column_names(frame.columns)
    column = find_column(names, (INDEX,))
    if column is not None:
        frame = frame.iloc[row_order([str(i) for i in frame.iloc[:, column]], len(frame))]
    return frame, names


def parquet_labels(file: BufferedIOBase) -> np.ndarray:
    """Read (N,) labels."""
    frame, names = _frame(file)
    values = frame.iloc[:, label_place(names)]
    if values.isna().any():
        row = int(values.isna().to_numpy().argmax())
        raise DataError(f"{int(values.isna().sum())} labels are empty, the first in row {row + 1}.")
    return values.to_numpy()


def parquet_embeddings(file: BufferedIOBase) -> np.ndarray:
    """Read (N, D): of one column of lists, or of all columns that are dimensions."""
    frame, names = _frame(file)
    lists = {n for n, kind in zip(names, frame.dtypes, strict=True) if kind.kind == "O"}
    column = find_column(names, [n for n in EMBEDDING_NAMES if n in lists])
    if column is not None:
        return np.stack(frame.iloc[:, column].to_numpy())
    keep = [i for i, name in enumerate(names) if name not in PASSED_OVER]
    textual = [str(frame.columns[i]) for i in keep if frame.dtypes.iloc[i].kind not in "iuf"]
    if textual:
        more = f" and {len(textual) - 5} more" if len(textual) > 5 else ""
        raise DataError(
            f"its columns {', '.join(map(repr, textual[:5]))}{more} hold no numbers. Convert them, "
            "or leave them out."
        )
    kinds = [frame.dtypes.iloc[i] for i in keep]
    table = frame.iloc[:, keep].to_numpy(dtype=np.float64, na_value=np.nan)
    single = all(kind.kind == "f" and kind.itemsize <= 4 for kind in kinds)
    return table.astype(np.float32) if single else as_floats(table)


def parquet_texts(file: BufferedIOBase) -> dict[str, list[str]]:
    """Read {name of a column: its N texts}."""
    frame, names = _frame(file)
    columns = {name: frame.iloc[:, i] for i, name in enumerate(names)}
    return {n: c.astype(str).tolist() for n, c in columns.items() if c.dtype.kind in "OT"}
