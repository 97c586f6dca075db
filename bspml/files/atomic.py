"""Writing files so that each is either complete or not there.

A run can be killed, and a disk can fill up, in the middle of any write.  Every file of a run is
therefore written beside its final name first and moved over it in one step.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from bspml.errors import RunError
from bspml.files.opening import is_special, reason

Content = bytes | str | Callable[[BinaryIO], None]


def atomic_write(path: str | os.PathLike[str], content: Content) -> Path:
    """Write `content` to `path` so that a reader sees the old file or the new one, never a part.

    The bytes go to a hidden file in the same folder, reach the disk (fsync), and replace `path`
    in one step.  When anything fails, Ctrl-C included, the hidden file is removed and `path` stays
    as it was.  A symbolic link at `path` is followed: the file that it names is replaced.

    Args:
        path: the file to write; its folder must exist.
        content: bytes, text (UTF-8), or a function that writes to the open binary file.

    Returns:
        `path`.

    Raises:
        RunError: the file cannot be written (no folder, no permission, disk full), or `path` is a
            pipe or a device, which a file must not replace; names `path`.
    """
    path = Path(path)
    if is_special(path):
        raise RunError(f"{path}: is a pipe or a device; nothing was written. Name a file.")
    target = Path(os.path.realpath(path))
    # Not tempfile: its files are private (0600), and a run folder is there to be shared.
    # A short name, so that a target near the file system's limit of 255 bytes still works.
    temporary = target.parent / f".{secrets.token_hex(8)}.tmp"
    guard: _Guard | None = None
    try:
        with temporary.open("xb") as file:
            guard = _Guard(file)
            _fill(guard, content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as err:
        raise _cannot_write(path, err) from err
    except Exception as err:
        # A writer in C++ (torch.save) hides the disk's error behind one of its own.
        if guard is not None and guard.failure is not None:
            raise _cannot_write(path, guard.failure) from err
        raise
    finally:
        with contextlib.suppress(OSError):  # a mount for reading only refuses this, too
            temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)
    return path


def is_leftover(path: Path) -> bool:
    """Return whether `path` is what `atomic_write` left behind when the process was killed."""
    return re.fullmatch(r"\.[0-9a-f]{16}\.tmp", path.name) is not None


class _Guard:
    """The open file, remembering the first OSError of a write."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self.failure: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        try:
            return self._file.write(data)
        except OSError as err:
            self.failure = self.failure or err
            raise

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)


def _fill(file: _Guard, content: Content) -> None:
    if callable(content):
        content(file)  # type: ignore[arg-type]  # quacks like the BinaryIO inside it
    else:
        # Labels can be file names that are not valid Unicode; they survive the round trip.
        file.write(
            content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        )


def _cannot_write(path: Path, err: OSError) -> RunError:
    return RunError(
        f"{path}: cannot be written ({reason(err)}); an older version of it, if any, is "
        "untouched. Free some space, or choose a folder you may write to."
    )


def _sync_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut, where the system can (not on Windows)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
