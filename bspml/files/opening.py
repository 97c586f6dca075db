"""Opening a file to read it: a regular file, or an error that says what stands there instead."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from bspml.errors import DataError, RunError, UserError

# What the parsers raise on files that are damaged, encrypted, or of another make.
FAULTS = (
    *(ValueError, TypeError, AttributeError, EOFError, KeyError, OverflowError, RuntimeError),
    *(SyntaxError, zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, csv.Error),
)
_UNSAFE = re.compile("weights_only|allow_pickle|unsafe|trust", re.IGNORECASE)
_LONGEST = 200  # characters of somebody else's message


@contextlib.contextmanager
def open_regular(
    path: str | os.PathLike[str],
    what: str,
    error: type[UserError] = DataError,
    *,
    where: str = "",
    missing: str = "",
    remedy: str = "Name another file.",
    faults: tuple[type[BaseException], ...] = (),
) -> Iterator[io.BufferedReader]:
    """Open the regular file `path` for reading bytes, or refuse what is there with a reason.

    Pipes and devices are never opened: they may have no end, or never answer.  Links are followed.

    Args:
        path: the file.
        what: it should hold, with its article, for the messages: "a list".
        error: the class of all errors that are raised here.
        where: what the messages call the file; `path` if empty.
        missing: the message for no such file, after `where`.
        remedy: what to do about a pipe, a folder, or a damaged file, one sentence.
        faults: exceptions that the reader in the block raises on a damaged file.  A `UserError`
            passes through as it is.

    Yields:
        The open file.

    Raises:
        UserError: of the class `error`: missing, a pipe or a device, a folder, no permission, or
            one of `faults`; names the file.

    Example:
        >>> with open_regular("no/list.txt", "a list") as file:
        ...     content = file.read()
        Traceback (most recent call last):
            ...
        bspml.errors.DataError: no/list.txt: no such file; expected a list.
    """
    if not isinstance(path, str | os.PathLike):
        raise error(f"expected the path of {what}; got {type(path).__name__}.")
    where = where or str(path)
    if is_special(path):
        raise error(f"{where}: is a pipe or a device, not {what}. {remedy}")
    try:
        if "\0" in os.fspath(path):
            raise FileNotFoundError("no file has NUL in its name")
        file = Path(path).open("rb")  # noqa: SIM115  (closed below)
    except (FileNotFoundError, NotADirectoryError) as err:
        raise error(f"{where}: {missing or f'no such file; expected {what}.'}") from err
    except IsADirectoryError as err:
        raise error(f"{where}: is a folder, not {what}. {remedy}") from err
    except OSError as err:
        raise error(f"{where}: cannot be read ({reason(err)}).") from err
    damage: tuple[type[BaseException], ...] = (OSError, *faults)
    with file:
        try:
            yield file
        except UserError:
            raise
        except MemoryError as err:
            says = "says that it holds more than fits into memory"
            raise error(f"{where}: {says}. {remedy}") from err
        except damage as err:
            remedy = "Save it as UTF-8." if isinstance(err, UnicodeDecodeError) else remedy
            raise error(f"{where}: cannot be read as {what} ({reason(err)}). {remedy}") from err


@contextlib.contextmanager
def refusals(
    what: str, remedy: str = ".", faults: tuple[type[Exception], ...] = (OSError,)
) -> Iterator[None]:
    """Make a RunError of what the system refuses inside a block.

    Args:
        what: cannot be done; the system's reason follows in brackets.
        remedy: the rest of the sentence, and what to do.
        faults: errors that are the system's; a `UserError` among them has its sentence already.
    """
    try:
        yield
    except UserError:
        raise
    except faults as err:
        raise RunError(f"{what} ({reason(err)}){remedy}") from err


def is_special(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is a pipe, a socket or a device.  Links are followed."""
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):  # ValueError: a name with NUL in it
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def reason(err: BaseException) -> str:
    """Return the system's words for `err`, or the first line of its own, or its kind.

    Other libraries' advice to open a file unsafely is not passed on.

    Example:
        >>> reason(OSError(13, "Permission denied", "a.csv")), reason(EOFError())
        ('Permission denied', 'EOFError')
        >>> reason(ValueError("Set weights_only=False if you trust the file."))
        'it holds more than arrays, numbers and text, which could run code'
    """
    text = getattr(err, "strerror", None) or str(err).strip()
    if _UNSAFE.search(text):
        return "it holds more than arrays, numbers and text, which could run code"
    return text.splitlines()[0][:_LONGEST] if text else type(err).__name__
