"""Annotation lists of published data sets: text files with one image a line, read with care.

Lists come from strangers and are edited by hand.  A path in one must stay inside the data set's
folder; every error names the file and the line.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bspml.errors import DataError
from bspml.files.cells import decimal_number
from bspml.files.delimited import LINE_END, Row
from bspml.files.opening import open_regular
from bspml.words import counted

# Absolute, with a drive, with a part "..", or with NUL in it, or half a character, which no system
# can look up (the halves from U+DC80 to U+DCFF stand for bytes of a name).
_LEAVES = re.compile(r"/|[A-Za-z]:|(.*/)?\.\.(/|$)|.*[\0\ud800-\udc7f\udd00-\udfff]", re.DOTALL)


_LONGEST_PATH = 4096  # characters, on any system
_LONGEST_LINE = 2 * _LONGEST_PATH
_NAMED = 5  # entries of a folder that a message names


def read_rows(path: Path, columns: Sequence[str], skip: int = 0) -> list[Row]:
    """Read a list of `columns` separated by spaces, the last of which may hold spaces itself.

    Windows line ends, a byte order mark, blanks at either end of a line, and empty lines are fine.

    Args:
        path: the file.
        columns: their names, for messages.
        skip: header lines, empty ones not counted.

    Raises:
        DataError: missing or not text, or a line with fewer columns.
    """
    rows = []
    filled = [(n, line) for n, line in enumerate(read_lines(path), 1) if line.strip()]
    for number, line in filled[skip:]:
        fields = tuple(line.strip().split(None, len(columns) - 1))
        if len(fields) != len(columns) or len(line) > _LONGEST_LINE:
            raise DataError(
                f"{path}, line {number}: expected {' '.join(columns)}; got {line.strip()[:80]!r}. "
                "Unpack the file again."
            )
        rows.append(Row(fields, number))
    return rows


def read_lines(path: Path) -> list[str]:
    """Read the lines of a text file, without line ends, of whatever system.

    Raises:
        DataError: missing, a pipe or a device, or not text.
    """
    with open_regular(path, "a list", missing="is missing.") as file:
        content = file.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise DataError(f"{path}: is not text ({err.reason} at byte {err.start}).") from err
    return LINE_END.split(text)


def column(
    rows: Sequence[Row], at: int, path: Path, what: str, kind: Callable[[str], Any] = int
) -> list[Any]:
    """Return one field of every row as a number.

    Args:
        rows: of a list.
        at: which field.
        path: of the list, for messages.
        what: the number is, for messages.
        kind: int for whole numbers, float for any.

    Raises:
        DataError: a field that is no such number; names the line.
    """
    parse = _whole if kind is int else _decimal if kind is float else kind
    values = []
    for fields, line in rows:
        try:
            values.append(parse(fields[at]))
        except ValueError:
            number = "a whole number" if kind is int else "a number"
            raise DataError(
                f"{path}, line {line}: {what} must be {number}; got {fields[at][:40]!r}."
            ) from None
    return values


def _whole(text: str) -> int:
    """An integer that an array can hold."""
    value = int(text)
    if abs(value) >= 2**62 or decimal_number(text) is None:  # int takes 1_0 and other scripts
        raise ValueError("too large, or no plain number")
    return value


def _decimal(text: str) -> float:
    number = decimal_number(text)
    if number is None:
        raise ValueError("no plain number")
    return number


def refuse_repeats(paths: Sequence[str], source: Path, remedy: str = "Get the file again.") -> None:
    """Raise a DataError if an image is listed twice: it would find itself.

    Args:
        paths: of all images of one list.
        source: the list.
        remedy: what to do about it, a sentence.
    """
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise DataError(
            f"{source}: lists {counted(len(twice), 'image')} more than once, such as "
            f"{twice[0][:120]}. {remedy}"
        )


def safe_paths(rows: Sequence[Row], at: int, path: Path) -> tuple[str, ...]:
    """Return one field of every row as a relative path that stays in its folder.

    Args:
        rows: of a list.
        at: which field.
        path: of the list, for messages.

    Returns:
        The paths, with forward slashes.

    Raises:
        DataError: one is absolute, has a part "..", a drive, NUL or half a character in it, or is
            empty.
    """
    paths = []
    for fields, line in rows:
        text = fields[at].replace("\\", "/")
        relative = "/".join(part for part in text.split("/") if part not in ("", "."))
        if _LEAVES.match(text) or not relative or len(text) > _LONGEST_PATH:
            raise DataError(
                f"{path}, line {line}: {fields[at][:120]!r} is not a path inside the data set's "
                "folder; nothing outside it is read. Correct the line."
            )
        paths.append(relative)
    return tuple(paths)


def locate(
    root: str | os.PathLike[str], folders: Sequence[str], files: Sequence[str], source: str
) -> Path:
    """Return the folder that holds all `files`.

    Args:
        root: where to look.
        folders: below `root`, in order of preference; "" is `root` itself.
        files: names of files or folders.
        source: where to get them, a sentence for the message.

    Raises:
        DataError: `root` is no folder, or no folder has them; lists those that are missing where
            some are there, and `source`, where to get them.
    """
    base = Path(root)
    if not base.is_dir():
        raise DataError(
            f"{root}: no such folder, in which {' and '.join(files)} should be."
            f"{holding(base.parent)} {source}"
        )
    best, lacking = base, list(files)
    for folder in folders:
        missing = [name for name in files if not (base / folder / name).exists()]
        if not missing:
            return base / folder
        if len(missing) < len(lacking):
            best, lacking = base / folder, missing
    have = "are" if len(lacking) > 1 else "is"
    raise DataError(f"{best}: {', '.join(lacking)} {have} missing there.{holding(best)} {source}")


def holding(folder: Path) -> str:
    """Return ' FOLDER holds a, b.' for the end of a message; '' where there is no folder."""
    try:
        names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return ""
    more = f", ... ({len(names)} in all)" if len(names) > _NAMED else ""
    place = "The current folder" if folder == Path() else folder
    return f" {place} holds {', '.join(names[:_NAMED]) or 'nothing'}{more}."


def image_root(root: Path, folders: Sequence[str], paths: Sequence[str]) -> Path:
    """Return the folder that paths in a list start in; copies of a data set nest differently.

    Which images are missing is found out later, and by name.

    Args:
        root: where to look.
        folders: below `root`, in order of preference; "" is `root` itself.
        paths: of the images.

    Returns:
        The first of `folders` in which any top folder of `paths` lies, else the first.
    """
    tops = {path.split("/")[0] for path in paths}
    for folder in folders:
        if any((root / folder / top).exists() for top in tops):
            return root / folder
    return root / folders[0]
