"""Columns of an audit's tables, and the arrays that hold them in its archive, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from io import BufferedIOBase
from typing import Any

import numpy as np
import pandas as pd

from bspml.errors import DataError, InputError
from bspml.files.arrays import Archive, packed_texts, text_objects, unpacked_texts
from bspml.files.cells import fitting_integers
from bspml.tensors.row_index import check_in_order

KEPT_Q = 0.05  # labels with a q-value below it are called fitting
ARRAYS = (
    "labels", "names", "p_values", "q_values", "weights", "margins", "wrong_probability",
    "suggested_labels", "suggestion_probability", "other_labels", "outlier_score", "outlier_p",
    "testable", "own_neighbours", "other_neighbours",
)  # fmt: skip
SOMETIMES = ("decided", "given_labels", "picture_keys")  # of decisions made before, of photos
_NUMBERS = (
    "p_values", "q_values", "weights", "margins", "wrong_probability", "suggestion_probability",
    "outlier_score", "outlier_p", "embedding_map",
)  # fmt: skip
_SHARES = (
    "p_values", "q_values", "weights", "wrong_probability", "suggestion_probability", "outlier_p",
)  # fmt: skip
# Tables, and a column that each must have.
_TABLES = {
    "classes": "looks_like",
    "duplicates": "different_label",
    "groups": "placeholder",
    "photo_checks": "problem",
}
_LATER = ("photo_checks", "groups")  # tables that an audit may lack
_LATER_ARRAYS = ("wrong_probability", "suggestion_probability", "outlier_score", "outlier_p")


def column(values: Any) -> pd.Series:
    """Return a table's column; text as Python objects.

    pandas' own text columns hold UTF-8, and names of files may hold lone surrogates.
    """
    values = np.asarray(values)
    return pd.Series(values, dtype=object if values.dtype.kind == "U" else values.dtype)


def texts_of_rows(texts: Any, name: str, n: int) -> np.ndarray:
    """Return N texts as Python objects; '' for None.

    Args:
        texts: N, or None.
        name: the caller's argument, for messages.
        n: N.

    Raises:
        InputError: another number, or what has no order, or a text that is missing or bytes.
    """
    if texts is None:
        return np.full(n, "")
    no_list = isinstance(texts, str | bytes | Mapping) or getattr(texts, "ndim", 1) == 0
    no_list |= getattr(getattr(texts, "dtype", None), "names", None) is not None  # rows of fields
    count = None if no_list else getattr(texts, "__len__", lambda: None)()
    if count != n:
        kind = "a single text" if isinstance(texts, str) else type(texts).__name__
        raise InputError(
            f"`{name}` must be one text per sample, {n}; got {kind if count is None else count}."
        )
    check_in_order(texts, name)
    shape = getattr(texts, "shape", (n,))
    if len(shape) != 1:
        raise InputError(f"`{name}` must be one text per sample, ({n},); got {tuple(shape)}.")
    missing = (i for i, t in enumerate(texts) if not isinstance(t, str) and pd.isna(t) is True)
    row = next(missing, None)
    binary = next((i for i, t in enumerate(texts) if isinstance(t, bytes)), None)
    if binary is not None:
        raise InputError(
            f"`{name}` must be one text per sample; got bytes at row {binary}. Use `.decode()`."
        )
    if row is not None:
        raise InputError(
            f"`{name}` must be one text per sample; got none at row {row}. Give '' for it."
        )
    return text_objects(texts)


def table_arrays(prefix: str, table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return a table's columns as arrays for an archive.

    Args:
        prefix: of the arrays' names: 'classes' or 'duplicates'.
        table: with text, numbers and bools.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, values in table.items():
        key = f"{prefix}.{name}"
        is_plain = values.dtype.kind in "iufb"
        arrays |= {key: values.to_numpy()} if is_plain else packed_texts(key, values)
    return arrays


def index_arrays(index: pd.Index | None) -> dict[str, np.ndarray]:
    """Return an index as arrays for an archive; {} where it is of another kind, or there is none.

    Args:
        index: of an audit's samples.
    """
    if index is None or isinstance(index, pd.MultiIndex) or index.hasnans:
        return {}
    numbers = fitting_integers(index.tolist()) if index.inferred_type == "integer" else None
    if numbers is not None:  # of any dtype, objects among them
        return {"index": numbers}
    is_text = all(isinstance(entry, str) for entry in index)
    return packed_texts("index", index) if is_text else {}


def read_arrays(file: BufferedIOBase) -> tuple[str, dict[str, Any]]:
    """Read the archive of an audit.

    Returns:
        The audit's identity, and {field of `AuditReport`: its array or table}.

    Raises:
        ValueError: an array is missing, or not of N samples; damage; so may whatever `Archive`
            raises.
    """
    try:
        archive = Archive(file)
        arrays = unpacked_texts({name: archive.read(name) for name in archive.names})
    except DataError as err:
        raise ValueError(str(err)) from err
    n = len(arrays.get("labels", ()))
    # An earlier audit has none of these: nothing is known of them.
    arrays = {name: np.full(n, np.nan) for name in _LATER_ARRAYS} | arrays
    absent_names = [name for name in ARRAYS if name not in arrays]
    if absent_names:
        raise ValueError(f"it lacks `{absent_names[0]}`")
    fields: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
    fields |= {name: arrays.get(name) for name in ("texts", *SOMETIMES, "embedding_map")}
    _check_shapes(fields | {"index": arrays.get("index")})
    if "index" in arrays:
        fields["index"] = pd.Index(column(arrays["index"]))
    for prefix, needed in _TABLES.items():
        of_table = {n.partition(".")[2]: a for n, a in arrays.items() if n.startswith(f"{prefix}.")}
        if not of_table and prefix in _LATER:
            continue
        if needed not in of_table:
            raise ValueError(f"the table of {prefix} lacks the column `{needed}`")
        fields[prefix] = pd.DataFrame({name: column(array) for name, array in of_table.items()})
    return str(arrays.get("audit", "")), fields


def _check_shapes(fields: Mapping[str, np.ndarray | None]) -> None:
    n = len(fields["labels"])  # type: ignore[arg-type]
    for name, values in fields.items():
        is_wide = name.endswith(("_neighbours", "_map"))
        if values is None:
            continue
        if values.ndim != 1 + is_wide or len(values) != n:
            raise ValueError(f"`{name}` has the shape {values.shape}, for {n} samples")
        if name in _NUMBERS and values.dtype.kind != "f":
            raise ValueError(f"`{name}` holds no numbers")
        if name in _SHARES and ((values < 0) | (values > 1)).any():
            raise ValueError(f"`{name}` holds numbers outside 0 to 1")
        if name == "weights" and np.isnan(values).any():
            raise ValueError("`weights` holds NaN")
        if name == "testable" and values.dtype.kind != "b":
            raise ValueError("`testable` holds something else than true and false")
        if name.endswith("labels") and values.dtype.kind not in "iuUO":
            raise ValueError(f"`{name}` holds neither whole numbers nor text")
        if name == "embedding_map" and (values.shape[1] != 2 or not np.isfinite(values).all()):
            raise ValueError(f"`{name}` holds no places in the plane")
        if name.endswith("_neighbours") and (
            values.dtype.kind != "i" or not ((values >= -1) & (values < n)).all()
        ):
            raise ValueError(f"`{name}` names samples that do not exist")
