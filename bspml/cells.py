"""Labels in the cells of a CSV file that a person may open in a spreadsheet.

A spreadsheet runs a cell that starts with = + - or @ as a formula, and rewrites text that looks
like a number (007 becomes 7).  A label that is text and starts like that, or reads as a number,
therefore gets a leading apostrophe when it is written, the spreadsheets' own mark for 'this is
text'.  When it is read, one apostrophe goes again where the text behind it needs one: '=1 is =1,
while 'tis stays as it is.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

import numpy as np

# The full-width forms too: spreadsheets in East Asian locales take them for the narrow ones.
_FORMULA = re.compile(r"[=+\-@'\t\r\n＝＋－＠]")
_NUMBER = re.compile(r"\s*\d[\d.,_]*([eE][+-]?\d*)?\s*|\s*\.\d.*|(?i:nan|inf|true|false)")
# As Python writes a whole number.  007, 1_0, -0 and the digits of other scripts are text: read as
# numbers, they would be one class with 7, 10 and 0.
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")


def protected_cell(text: str) -> str:
    """`text`, after an apostrophe if a spreadsheet would run or rewrite it.

    Example:
        >>> protected_cell("=1+1"), protected_cell("007"), protected_cell("sparrow")
        ("'=1+1", "'007", 'sparrow')
    """
    return f"'{text}" if _is_risky(text) else text


def bare_cell(cell: str) -> str:
    """The text behind `protected_cell`.

    Example:
        >>> bare_cell("'=1+1"), bare_cell("'tis"), bare_cell("''tis")
        ('=1+1', "'tis", "'tis")
    """
    return cell[1:] if cell.startswith("'") and _is_risky(cell[1:]) else cell


def _is_risky(text: str) -> bool:
    return bool(not text or _FORMULA.match(text.lstrip(" ")) or _NUMBER.fullmatch(text))


def label_cells(labels: np.ndarray) -> list[str]:
    """(N,) labels as CSV cells; text that a spreadsheet would not leave alone is protected."""
    if labels.dtype.kind in "iub":
        return [str(int(label)) for label in labels]
    return [protected_cell(str(label)) for label in labels]


def parse_labels(cells: Sequence[str]) -> np.ndarray:
    """(N,) int64 if every cell is a whole number as Python writes it, else text behind the mark."""
    whole = integers(cells)
    return np.array([bare_cell(cell) for cell in cells], dtype=str) if whole is None else whole


def integers(cells: Sequence[str]) -> np.ndarray | None:
    """(N,) int64 if every cell, spaces around it aside, is a whole number; else None."""
    bare = [cell.strip(" \t") for cell in cells]
    if all(_INTEGER.fullmatch(cell) for cell in bare):
        with contextlib.suppress(OverflowError, ValueError):  # more digits than an int64 has
            return np.array([int(cell) for cell in bare], dtype=np.int64)
    return None
