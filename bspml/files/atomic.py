"""Writing files so that each is either complete or not there.

A run can be killed, and a disk can fill up, in the middle of any write.  Every file of a run is
therefore written beside its final name first and moved over it in one step.

Folders travel, and a link in one of them may point at any file of whoever goes on with it.  A
symbolic link is therefore never written through, neither as a file nor as a folder below the one
that the user named; that one may be a link, such as `runs` to another disk.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from bspml.errors import InputError, RunError
from bspml.files.opening import is_special, reason

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

Content = bytes | str | Callable[[BinaryIO], None]


def atomic_write(path: str | os.PathLike[str], content: Content) -> Path:
    """Write `content` to `path` so that a reader sees the old file or the new one, never a part.

    The bytes go to a hidden file in the same folder, reach the disk (fsync), and replace `path`
    in one step.  When anything fails, Ctrl-C included, the hidden file is removed and `path` stays
    as it was.

    Args:
        path: the file to write; its folder must exist.
        content: bytes, text (UTF-8), or a function that writes to the open binary file.

    Returns:
        `path`.

    Raises:
        RunError: the file cannot be written (no folder, no permission, disk full), or `path` is a
            link, a pipe or a device, which a file must not replace; names `path`.
    """
    path = Path(path)
    if is_special(path):
        raise RunError(f"{path}: is a pipe or a device; nothing was written. Name a file.")
    refuse_link(path)
    # Not tempfile: its files are private (0600), and a run folder is there to be shared.
    guard: _Guard | None = None
    try:
        with out_of_sight(path.parent, lambda new: new.touch(exist_ok=False)) as temporary:
            with temporary.open("r+b") as file:
                guard = _Guard(file)
                _fill(guard, content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)  # of a link made meanwhile, the link
    except OSError as err:
        raise _cannot_write(path, err) from err
    except Exception as err:
        # A writer in C++ (torch.save) hides the disk's error behind one of its own.
        if guard is not None and guard.failure is not None:
            raise _cannot_write(path, guard.failure) from err
        raise
    _sync_folder(path.parent)
    return path


def refuse_link(path: str | os.PathLike[str]) -> None:
    """Raise a RunError if `path` is a symbolic link, to whatever it may lead."""
    if os.path.islink(path):  # noqa: PTH114  (Path.is_symlink raises on long names)
        raise RunError(
            f"{path}: is a symbolic link, and bspml never writes through one. Remove it, or name "
            "what it points to."
        )


def make_folder_in(parent: Path, name: str) -> Path:
    """Make a folder below one that the user named, unless it is there.

    Args:
        parent: is there.
        name: of the folder in it.

    Raises:
        RunError: a link has that name.
        OSError: it cannot be made.
    """
    folder = parent / name
    refuse_link(folder)
    folder.mkdir(exist_ok=True)
    return folder


@contextlib.contextmanager
def changed_in_place(path: Path, mode: str) -> Iterator[io.FileIO]:
    """Open a file that grows or shrinks where it is, which `atomic_write` would copy each time.

    Args:
        path: the file.
        mode: as of `open`, for bytes.

    Yields:
        The file, unbuffered: a failed write must not be tried again when it closes.

    Raises:
        RunError: it is a link, of either kind: another name would change with this one.
        OSError: it cannot be opened.
    """
    refuse_link(path)
    with io.FileIO(path, mode, opener=_without_following) as file:
        if os.fstat(file.fileno()).st_nlink > 1:
            raise RunError(
                f"{path}: has another name (a hard link), which would change with it. Put a copy "
                "in its place."
            )
        yield file


def _without_following(path: str | os.PathLike[str], flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def is_leftover(path: Path) -> bool:
    """Return whether `path` is what `atomic_write` left behind when the process was killed."""
    return re.fullmatch(r"\.[0-9a-f]{16}\.tmp", path.name) is not None


@contextlib.contextmanager
def out_of_sight(parent: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """Make a hidden file or folder, and hold it: `remove_leftovers` of other processes leaves it.

    The system lets go when the process dies.  Where it has no locks, nothing is held or removed.

    Args:
        parent: the folder to make it in.
        make: makes it, and raises if it is there.

    Yields:
        Its path; what is still there at the end is removed.  Its name is short, so that a target
        near the file system's limit of 255 bytes still works.
    """
    path, descriptor = parent, None
    try:
        while path == parent or not os.path.lexists(path):  # removed before it was held
            path = parent / f".{secrets.token_hex(8)}.tmp"
            make(path)
            descriptor = None if fcntl is None else _locked(path)
        yield path
    finally:
        if path != parent:
            with contextlib.suppress(OSError):  # a mount for reading only refuses this, too
                _remove(path)
        if descriptor is not None:
            os.close(descriptor)


def check_not_read(path: Path, read: str | os.PathLike[str], option: str = "--output") -> None:
    """Refuse a file to write that is the one that was read.

    Args:
        path: the file to write.
        read: the file or folder that was read.
        option: what the command line calls `path`.

    Raises:
        InputError: both are the same.

    Example:
        >>> check_not_read(Path("new.csv"), "old.csv")
    """
    if path.exists() and Path(read).exists() and path.samefile(read):
        raise InputError(f"{option} {path} is the file that is read; name another.")


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes were making in a folder; what a living one makes stays.

    Args:
        folder: that something is about to be written to; need not exist.
    """
    if fcntl is None:
        return
    with contextlib.suppress(OSError):  # tidying is no reason to fail
        for path in [path for path in folder.iterdir() if is_leftover(path)]:
            with taken_over(path):
                pass


@contextlib.contextmanager
def taken_over(leftover: Path) -> Iterator[bool]:
    """Hold what a killed process was making, and remove it where the block ends well.

    Args:
        leftover: for which `is_leftover` holds.

    Yields:
        Whether it is ours: not where it is gone, a link, or a living process's.
    """
    descriptor = None
    if fcntl is not None and not leftover.is_symlink():
        descriptor = _locked(leftover, fcntl.LOCK_NB)
    try:
        yield descriptor is not None
        if descriptor is not None:
            _remove(leftover)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _locked(path: Path, how: int = 0) -> int | None:
    """A descriptor that locks a file or folder; None where another holds it, or nothing can."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | how)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


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
    if not path.absolute().parent.exists():
        return RunError(f"{path}: there is no folder {path.parent} to write in; make that first.")
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
