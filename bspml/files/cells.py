"""Labels in the cells of a CSV file that may be opened in a spreadsheet.

A spreadsheet runs a cell that starts with = + - or @ as a formula, and rewrites text that looks
like a number (007 becomes 7), a date, a time or a fraction (the ages 10-12 become 12 October).  A
label that is text and starts like that, or is made of digits and their signs alone, therefore gets
a leading apostrophe when it is written, the spreadsheets' own mark for 'this is text'.  When it is
read, one apostrophe goes again where the text behind it needs one: '=1 is =1, while 'tis stays as
it is.  Dates with the names of months, which differ from language to language, stand as they are.

What needs the mark is spelled out character by character, as the page writes the same cells from
JavaScript (`report/csv.js`), where white space, digits and capitals of other scripts are others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

# The full-width forms too: spreadsheets in East Asian locales take them for the narrow ones.
_FORMULA = re.compile(r"[=+\-@'\t\r\n＝＋－＠]")
_SPACE = r"[\t-\r\x1c-\x20\x85\xa0\u1680\u180e\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]*"
# Decimal digits of every script below U+10000; newer ones above it are no numbers to a spreadsheet.
_DIGIT = r"(?:(?![\U00010000-\U0010ffff])\d)"
_NUMBER = re.compile(
    rf"{_SPACE}{_DIGIT}(?:{_DIGIT}|[.,_/:%\-]| (?=%|{_DIGIT}))*(?:[eE][+\-]?{_DIGIT}*)?{_SPACE}"
    rf"|{_SPACE}\.{_DIGIT}[\s\S]*"
    r"|[nN][aA][nN]|[iI][nN][fF]|[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]"
)
# As Python writes a whole number.  007, 1_0, -0 and the digits of other scripts are text: read as
# numbers, they would be one class with 7, 10 and 0.
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_MOST_DIGITS = 4000  # Python refuses to read longer numbers
_INT64, _UINT64 = np.iinfo(np.int64), np.iinfo(np.uint64)


def protected_cell(text: str) -> str:
    """Return `text`, after an apostrophe if a spreadsheet would run or rewrite it.

    Example:
        >>> protected_cell("=1+1"), protected_cell("007"), protected_cell("sparrow")
        ("'=1+1", "'007", 'sparrow')
    """
    return f"'{text}" if _is_risky(text) else text


def bare_cell(cell: str) -> str:
    """Return the text behind `protected_cell`.

    Example:
        >>> bare_cell("'=1+1"), bare_cell("'tis"), bare_cell("''tis")
        ('=1+1', "'tis", "'tis")
    """
    return cell[1:] if cell.startswith("'") and _is_risky(cell[1:]) else cell


def _is_risky(text: str) -> bool:
    return bool(not text or _FORMULA.match(text.lstrip(" ")) or _NUMBER.fullmatch(text))


def label_cells(labels: np.ndarray) -> list[str]:
    """Return (N,) labels as CSV cells, protected where a spreadsheet would change the text."""
    if labels.dtype.kind in "iub":
        return [str(int(label)) for label in labels]
    if labels.dtype.kind == "f":  # of a regression: numbers, and to remain numbers
        return [f"{label:.6g}" for label in labels]
    return [protected_cell(str(label)) for label in labels]


def plain_labels(labels: np.ndarray) -> np.ndarray:
    """Return (N,) labels in the one form that files hold: int64, uint64 beyond it, or text.

    Booleans become 0 and 1; every other kind is returned as it is.
    """
    if labels.dtype.kind not in "biu":
        return labels.astype(labels.dtype.newbyteorder("="), copy=False)
    beyond = labels.dtype.kind == "u" and len(labels) > 0 and int(labels.max()) > _INT64.max
    return labels.astype(np.uint64 if beyond else np.int64)


def parse_labels(cells: Sequence[str]) -> np.ndarray:
    """Return (N,) integers if every cell is a whole number as Python writes it, else text, bare."""
    numbers = integers(cells)
    return np.array([bare_cell(cell) for cell in cells], dtype=str) if numbers is None else numbers


def integers(cells: Sequence[str]) -> np.ndarray | None:
    """Return (N,) int64 if every cell, spaces around it aside, is a whole number; else None.

    uint64 where a number is beyond int64 and none is negative.
    """
    parts = [whole_number(cell) for cell in cells]
    numbers = [number for number in parts if number is not None]
    return None if len(numbers) < len(parts) else fitting_integers(numbers)


def whole_number(cell: str) -> int | None:
    """Return the whole number in a cell, spaces and tabs around it aside; None if there is none."""
    bare = cell.strip(" \t")
    return int(bare) if len(bare) <= _MOST_DIGITS and _INTEGER.fullmatch(bare) else None


def decimal_number(cell: str) -> float | None:
    """Return the number in a cell, spaces around it aside; None if there is none.

    A number is digits 0 to 9, perhaps with a sign, a point and an exponent; or nan or inf, which
    programs write.  1_0 and the digits of other scripts, which Python takes too, are text.

    Example:
        >>> [decimal_number(cell) for cell in (" -.5 ", "1e3", "1_0", "\u0661", "1,5", "")]
        [-0.5, 1000.0, None, None, None, None]
    """
    try:
        return float(cell) if cell.isascii() and "_" not in cell else None
    except ValueError:
        return None


def fitting_integers(numbers: Sequence[Any]) -> np.ndarray | None:
    """Return (N,) int64, uint64 if only that holds all of `numbers`, None if neither does."""
    low, high = min(numbers, default=0), max(numbers, default=0)
    if low >= _INT64.min and high <= _INT64.max:
        return np.array(numbers, dtype=np.int64)
    return np.array(numbers, dtype=np.uint64) if low >= 0 and high <= _UINT64.max else None


def empty_rows(labels: Sequence[str]) -> list[int]:
    """Return rows whose label is no text at all: empty, or white space."""
    return [i for i, label in enumerate(labels) if not label.strip()]
