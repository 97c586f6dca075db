"""Columns of tables: their names, the order of the rows, and what a label may be."""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from unicodedata import category, normalize

import numpy as np

from bspml.errors import DataError
from bspml.files.cells import bare_cell, decimal_number, empty_rows, integers, whole_number
from bspml.words import (
    ID_COLUMNS as ID_COLUMNS,
    INDEX as INDEX,
    LABEL_COLUMNS,
    LONGEST_LABEL,
    NAME_COLUMNS as NAME_COLUMNS,
    PASSED_OVER as PASSED_OVER,
    TEXT_COLUMNS as TEXT_COLUMNS,
    UNNAMED as UNNAMED,
    counted,
    did_you_mean,
    some_of,
)

# Files of labels used to be read by one of the second, tables of images by the first.
_CONTESTED = {"class_name": ("class", "target", "y"), "target": ("y",)}
EMBEDDING_NAMES = ("embeddings", "embedding", "features", "x")

# What a column of numbers holds where nothing was known.
_MISSING = ("nan", "none", "null", "na", "n/a", "<na>", "nat")


class NoColumnError(DataError):
    """A sound file without what was looked for; whoever can do without goes on."""


def column_names(header: Iterable[Any]) -> list[str]:
    """Return names of columns in lower case, without spaces around them."""
    return [str(cell).strip().lower() for cell in header]


def find_column(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Return where the first of `wanted` that is there stands, None without any.

    Args:
        names: of all columns, as `column_names` writes them.
        wanted: names in order of preference.

    Raises:
        DataError: there are two columns of that name.
    """
    name = next((name for name in wanted if name in names), None)
    if name is None:
        return None
    if names.count(name) > 1:
        raise DataError(f"has {names.count(name)} columns `{name}`; keep one.")
    return names.index(name)


def wanted_cells(
    names: Sequence[str], wanted: Iterable[str], cells: Callable[[int], list[str]]
) -> dict[str, list[str]]:
    """Return {name of a column: its N cells}, no cells where it is not wanted.

    Args:
        names: of all columns, as `column_names` writes them.
        wanted: names of columns.
        cells: returns those of the column at a place.

    Raises:
        DataError: there are two columns of a name that is wanted.
    """
    return {name: [] for name in names} | {
        name: cells(place) for name in wanted if (place := find_column(names, (name,))) is not None
    }


def telling_names(columns: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
    """Return the first column of names that tells all samples apart, or else the first of names.

    Numbers of samples (`id`) that tell all apart are names where there is nothing better.

    Args:
        columns: {column: N texts}; None is returned where none is of names.
    """
    found = [(*columns[name],) for name in NAME_COLUMNS if name in columns]
    ids = [(*columns[name],) for name in ID_COLUMNS if name in columns]
    return min(found + [i for i in ids if not has_twins(i)], key=has_twins, default=None)


def has_twins(names: Sequence[str]) -> bool:
    """Return whether two samples share a name.

    Args:
        names: of all samples.
    """
    return len({*names}) < len(names)


def are_names(cells: Sequence[str]) -> bool:
    """Return whether a column without a name holds a name for each sample, and not numbers.

    Args:
        cells: (N,) of it.
    """
    return not has_twins(cells) and all(cell and not is_number(cell) for cell in cells)


def check_spelling(names: Sequence[str], known: Sequence[str]) -> None:
    """Refuse a column that nothing reads where a known one, spelt almost like it, is missing.

    Args:
        names: of all columns.
        known: those that something reads.

    Raises:
        DataError: names both.
    """
    missing = [name for name in known if name not in names]
    for name in names:
        near = "" if name in known else did_you_mean(name, missing, likeness=0.75)
        if near:
            raise DataError(
                f"has a column `{name}`, which nothing reads{near} Rename the column, or remove it."
            )


def order_of_dimensions(names: Sequence[str]) -> list[int]:
    """Return the places of columns by their names, d2 before d10, so that two files fit together.

    Args:
        names: of the columns that would be dimensions.

    Raises:
        DataError: one among numbered ones (d0, d1, ...) whose name is not like theirs; it is more
            likely an age, a price or an identifier.

    Example:
        >>> order_of_dimensions(["d10", "d2", "d0"])
        [2, 1, 0]
    """
    parts = [re.split("0*([0-9]+)", name) for name in names]  # text, digits, text, ...
    keys = [[(len(p), p) if i % 2 else p for i, p in enumerate(each)] for each in parts]
    stems = [name.rstrip("0123456789") if name[-1:].isdecimal() else None for name in names]
    [(stem, count)] = Counter(stems).most_common(1) or [(None, 0)]
    numbered = stem is not None and count > 1 and 2 * count > len(names)
    for name, other in zip(names, stems, strict=True):
        if numbered and other != stem:
            like = [n for n, s in zip(names, stems, strict=True) if s == stem]
            raise DataError(
                f"its column {name!r} is named otherwise than the other {count}, {like[0]!r} to "
                f"{like[-1]!r}: is it a dimension? Number it as these are, or remove it."
            )
    return sorted(range(len(names)), key=keys.__getitem__)


def label_place(names: Sequence[str], where: str | os.PathLike[str] | None = None) -> int:
    """Return where the column of labels stands.

    Args:
        names: of all columns.
        where: they stand, for a warning of others that can be meant; None: no warning.

    Raises:
        DataError: there is none, or two that can be meant.
    """
    place = find_column(names, LABEL_COLUMNS)
    if place is None:
        raise NoColumnError(f"has no column `label`; its columns are {', '.join(names[:8])}.")
    check_uncontested(names[place], names, where)
    return place


def check_uncontested(
    name: str, names: Sequence[str], where: str | os.PathLike[str] | None
) -> None:
    """Refuse a file of labels in which another column than `name` was read once.

    Args:
        name: of the column chosen.
        names: of all.
        where: see `label_place`.

    Raises:
        DataError: there is such a column.
    """
    for other in _CONTESTED.get(name, ()):
        if other in names:
            raise DataError(
                f"has two columns that can be its labels, `{name}` and `{other}`. Call the one "
                "that is meant `label`."
            )
    if where is not None:
        warn_of_rivals(name, names, LABEL_COLUMNS, where)


def warn_of_rivals(
    name: str, names: Sequence[str], known: Sequence[str], where: str | os.PathLike[str]
) -> None:
    """Say which column was taken, where another one could be meant.

    Args:
        name: of the column chosen.
        names: of all.
        known: those in place of which it was chosen.
        where: they stand, for the message.
    """
    others = [f"`{other}`" for other in known if other in names and other != name]
    if others:
        warnings.warn(
            f"{where}: `{name}` is read, and {', '.join(others)} passed over, which could be "
            "meant, too. If that is wrong, rename or remove columns.",
            stacklevel=2,
        )


def row_order(index: Sequence[str] | None, n: int) -> np.ndarray:
    """Return the rows in the order of their cells of a column `index`.

    Args:
        index: (n,) the cells, or None: the rows stay as they stand.
        n: number of rows.

    Returns:
        (n,) int64, the row of each sample.

    Raises:
        DataError: it does not hold 0 to n - 1, each once.
    """
    if index is None:
        return np.arange(n)
    numbers = integers(index)
    if numbers is None or not np.array_equal(np.sort(numbers), np.arange(n)):
        missing = sorted(set(range(n)) - {whole_number(cell) for cell in index})
        hint = [f", and a row has {cell[:20]!r}" for cell in index if whole_number(cell) is None]
        raise DataError(
            f"the column `index` must hold 0 to {n - 1}, each once; {some_of(missing)} missing"
            f"{''.join(hint[:1])}. Restore the rows, or rename a column that is no index."
        )
    return np.argsort(numbers)


def labels_in(cells: Sequence[str], protected: bool = True) -> np.ndarray:
    """Read labels: integers if every cell is a whole number, else text.

    Args:
        cells: (N,) of a CSV, or lines of a text file.
        protected: they follow the spreadsheets' convention; False takes them as they stand.

    Returns:
        (N,) int64, uint64 where only that holds them, or text.

    Raises:
        DataError: an empty label, one with NUL, or a column of numbers with something missing.
    """
    texts = [bare_cell(cell) for cell in cells] if protected else cells
    check_texts(texts)
    numbers = integers(cells)
    if numbers is not None:
        return numbers
    _check_numbers(cells)
    return np.array(texts, dtype=str)


def check_texts(labels: Sequence[str]) -> None:
    """Refuse a label that is empty, too long, or holds NUL; warn of one of several lines.

    It names the row, counted from 1.
    """
    empty = empty_rows(labels)
    long = next((row for row, label in enumerate(labels) if len(label) > LONGEST_LABEL), None)
    if long is not None:
        raise DataError(
            f"row {long + 1} has a label of {len(labels[long])} characters; the name of a class "
            f"has at most {LONGEST_LABEL}. Is it another column that holds the labels?"
        )
    if empty:
        raise DataError(f"row {empty[0] + 1} has an empty label ({len(empty)} such rows).")
    if any("\0" in label for label in labels):
        raise DataError("a label holds the character NUL, which numpy cuts off the end of text.")
    several = [label for label in labels if "\n" in label or "\r" in label]
    if several:
        warnings.warn(
            f"{counted(len(several), 'label runs', 'labels run')} over several lines, the first is "
            f"{several[0]!r:.60}. In a table a quote may have been left open, and rows lost.",
            stacklevel=2,
        )


def warn_of_twins(labels: Iterable[str], where: str | os.PathLike[str]) -> None:
    """Warn of labels that differ in what nobody sees; they stay two classes.

    That is white space, characters without a form of their own such as a joiner or a mark of
    direction, or the form of Unicode (é as one character or as two).

    Args:
        labels: of all samples, or of all classes.
        where: they stand, for the message.
    """
    forms: dict[str, str] = {}
    for label in sorted(set(labels)):
        seen = "".join(letter for letter in normalize("NFC", label) if category(letter) != "Cf")
        other = forms.setdefault(" ".join(seen.split()), label)
        if other != label:
            warnings.warn(
                f"{where}: the labels {ascii(other)[:60]} and {ascii(label)[:60]} are two classes, "
                "but differ only in spaces, unseen characters or how a letter is encoded. If they "
                "are one, write them alike.",
                stacklevel=2,
            )


def _check_numbers(cells: Sequence[str]) -> None:
    missing = [i for i, cell in enumerate(cells) if cell.strip().lower() in _MISSING]
    rest = set(range(len(cells))) - set(missing) if missing else set()
    if rest and all(is_number(cells[i]) for i in rest):
        raise DataError(
            f"row {missing[0] + 1} has the label {cells[missing[0]]!r} where all others are "
            f"numbers ({len(missing)} such rows). Fill it in, or drop the row."
        )


def is_number(cell: str) -> bool:
    """Return whether `decimal_number` reads it."""
    return decimal_number(cell) is not None


def numbers_in(cells: Sequence[str], name: str) -> list[float]:
    """Read N numbers as `decimal_number` does.

    Args:
        cells: of a column.
        name: of the column, for messages.

    Raises:
        DataError: a cell holds none; names its row, counted from 1.
    """
    numbers = [decimal_number(cell) for cell in cells]
    bad = next((row for row, number in enumerate(numbers) if number is None), None)
    if bad is not None:
        raise DataError(
            f"a cell is not a number: column {name!r} has {cells[bad][:40]!r} in row {bad + 1}."
        )
    return [number for number in numbers if number is not None]


def as_floats(table: np.ndarray) -> np.ndarray:
    """Return float64 (N, D) as float32, unless some of it is too large or too small for that."""
    size = np.abs(table[np.isfinite(table) & (table != 0)])
    limits = np.finfo(np.float32)
    fits = size.size == 0 or (size.max() <= limits.max and size.min() >= limits.tiny)
    return table.astype(np.float32) if fits else table
