"""Row-wise arguments that carry a pandas index: rows of another index are other rows.

The one rule of the package: arrays, tensors and lists go by position; pandas objects that meet
must have the same index in the same order.  Nothing is aligned behind the caller's back.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np

from bspml.errors import InputError
from bspml.words import PASSED_OVER


def index_of(value: Any) -> Any | None:
    """Return the index of a pandas Series or DataFrame; None for anything else."""
    pandas = sys.modules.get("pandas")  # who has an object of it has imported it
    if pandas is None or not isinstance(value, pandas.Series | pandas.DataFrame):
        return None
    return value.index


def check_in_order(value: Any, name: str) -> None:
    """Refuse what has no order of rows, or hides some of them, and would be read all the same.

    Args:
        value: one entry per row, of any kind.
        name: the caller's argument.

    Raises:
        InputError: a dict, a set or a generator; or entries behind a mask.

    Example:
        >>> check_in_order(["a", "b"], "labels")
    """
    if isinstance(value, Mapping | Set | Iterator):
        raise InputError(
            f"`{name}` must be a list or an array, in the order of the rows; got a "
            f"{type(value).__name__}. Make a list of it, in that order."
        )
    parts = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
        raise InputError(f"`{name}` has masked entries; drop these samples or fill the mask.")


def as_array(value: Any) -> np.ndarray:
    """Return a numpy array, also of a pandas table whose columns are nullable or Arrow's.

    numpy sees objects in these; here they are float64, and what is missing is NaN.  With nothing
    missing, truth values and signed integers stay what they are.
    """
    array = np.asarray(value)
    if array.dtype.kind != "O" or index_of(value) is None:
        return array
    dtypes = np.atleast_1d(np.asarray(value.dtypes, dtype=object))
    kinds = {dtype.kind for dtype in dtypes}
    if not kinds <= set("iufb"):
        return array  # text stays text: "1" is no number
    if len(kinds & set("ib")) == len(kinds) == 1 and not value.isna().to_numpy().any():
        return value.to_numpy(bool if kinds == {"b"} else np.int64)
    return value.to_numpy(np.float64, na_value=np.nan)


def check_same_rows(known: tuple[str, Any] | None = None, /, **values: Any) -> Any | None:
    """Refuse pandas objects whose indices differ; return the index that they share.

    Args:
        known: what an index met earlier belongs to, and that index; or None, and then its rows are
            0 to N - 1.
        **values: row-wise arguments by the caller's names, of any kind.

    Returns:
        The index, or None where no argument has one.

    Raises:
        InputError: as many rows under another index, or in another order, such as that of
            `AuditReport.table` beside rows without an index, or a column of a DataFrame that is the
            labels.  Other numbers of rows are for the caller to refuse.

    Example:
        >>> import pandas
        >>> labels = pandas.Series(["a", "b"], index=[7, 3])
        >>> check_same_rows(embeddings=[[1.0], [2.0]], labels=labels).tolist()
        [7, 3]
    """
    indices = [(f"`{name}`", index_of(value)) for name, value in values.items()]
    for name, index in indices if known and known[1] is None else ():
        if index is not None and _is_shuffled(index):
            assert known is not None
            raise InputError(
                f"{known[0]} have no pandas index, so their rows are 0 to {len(index) - 1}; {name} "
                f"has these in another order. Pass `{_bare(name)}.sort_index()`, or, if its rows "
                "go by position, `.reset_index(drop=True)`."
            )
    found = [pair for pair in ([known] if known else []) + indices if pair[1] is not None]
    for name, index in found[1:]:
        first_name, first = found[0]
        if len(index) == len(first) and not index.equals(first):
            raise InputError(_sentence(first_name, first, name, index))
    for name, frame in values.items():
        for other in values if _is_frame(frame) else ():
            if other.endswith("labels"):
                _refuse_label_column(frame, name, values[other], other)
    return found[0][1] if found else None


def _is_shuffled(index: Any) -> bool:
    if index.dtype.kind not in "iu" or index.is_monotonic_increasing:
        return False
    return np.array_equal(np.sort(index.to_numpy()), np.arange(len(index)))


def _refuse_label_column(frame: Any, name: str, labels: Any, other: str) -> None:
    """Refuse a table whose rows would be found by the very labels that they are to judge."""
    same = []
    with contextlib.suppress(TypeError, ValueError, RuntimeError):  # refused where they are read
        given = np.asarray(labels)
        if len(given) > 9 and len(np.unique(given)) > 1:  # in fewer rows, by chance
            same = [c for c, v in frame.items() if np.array_equal(v.to_numpy(), given)]
    if same:
        raise InputError(f"`{name}` holds `{other}` as its column {same[0]!r}.{_drop(name, same)}")


def check_dimension_names(value: Any, name: str) -> None:
    """Refuse embeddings in a DataFrame with columns that a file of them would pass over.

    Args:
        value: a DataFrame, or anything else, which has no names.
        name: the caller's argument.

    Raises:
        InputError: columns named like labels, names, texts or numbers of rows.
    """
    columns = value.columns if _is_frame(value) else ()
    known = [c for c in columns if isinstance(c, str) and c.strip().lower() in PASSED_OVER]
    if known:
        listed = ", ".join(map(repr, known[:5]))
        raise InputError(
            f"`{name}` must hold dimensions only; {listed} is no dimension by its name."
            f"{_drop(name, known)}"
        )


def _drop(name: str, columns: list[Any]) -> str:
    return f" Pass `{name}.drop(columns={columns[:5]!r})`, or, if it is one, `{name}.to_numpy()`."


def _is_frame(value: Any) -> bool:
    return index_of(value) is not None and hasattr(value, "columns")


def check_same_columns(**values: Any) -> None:
    """Refuse two DataFrames that have the same columns in another order.

    Args:
        **values: two arguments by the caller's names, of any kind.

    Raises:
        InputError: as said; other names of columns are nobody's business.
    """
    found = {name: list(v.columns) for name, v in values.items() if _is_frame(v)}
    if len(found) < 2:
        return
    (first_name, first), (name, columns) = found.items()
    if first != columns and len(first) == len(columns) and set(first) == set(columns):
        raise InputError(
            f"`{first_name}` and `{name}` must have their columns in the same order; got "
            f"{_shown(first[0])} first in the one and {_shown(columns[0])} in the other. "
            f"Pass `{name}[{first_name}.columns]`."
        )


def check_class_order(value: Any, name: str, classes: np.ndarray) -> None:
    """Refuse a pandas object of one row (or column) a class whose index names another order.

    Args:
        value: a Series, a DataFrame, or anything else, which goes by position.
        name: the caller's argument.
        classes: (C,) sorted.

    Raises:
        InputError: an index or columns that are neither 0..C-1 nor the classes in their order.
    """
    if index_of(value) is None:
        return
    for entries in map(list, value.axes):
        plain = entries == list(range(len(entries)))
        if not plain and len(entries) == len(classes) and entries != classes.tolist():
            raise InputError(
                f"`{name}` goes by class in sorted order, but its index has "
                f"{_shown(entries[0])} where {_shown(classes[0])} is first. Bring it into the "
                f"order of the classes with `.loc[]`, or pass `.to_numpy()`."
            )


def _sentence(first_name: str, first: Any, name: str, index: Any) -> str:
    ours, theirs = list(first), list(index)
    off = [row for row in range(len(ours)) if ours[row] != theirs[row]] or [0]
    if set(ours) == set(theirs):
        how = f"in order only. Bring one into the other's order (`.loc[{_bare(first_name)}.index]`)"
    else:
        how = "in what they name. Choose the same rows of both by `.loc[]`"
    return (
        f"{first_name} and {name} must have the same pandas index, row by row; the indices differ "
        f"at {len(off)} of {len(ours)} rows, first at position {off[0]} "
        f"({_shown(ours[off[0]])} and {_shown(theirs[off[0]])}), {how}; or, if the rows go by "
        "position, pass both after `.reset_index(drop=True)`."
    )


def _bare(name: str) -> str:
    return name.strip("`") if name.startswith("`") else "labels"


def _shown(entry: Any) -> str:
    return repr(entry.item() if isinstance(entry, np.generic) else entry)[:40]
