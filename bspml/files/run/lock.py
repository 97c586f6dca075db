"""One process at a time in a run folder: two would cut and append each other's records."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from bspml.errors import BusyRunError
from bspml.files.atomic import refuse_link
from bspml.files.opening import refusals

try:
    import fcntl
except ImportError:  # Windows: no advisory locks, so two processes are not kept apart there
    fcntl = None  # type: ignore[assignment]

NO_PERMISSION = (
    ". Give yourself write permission to the run folder, or copy it to where you have it."
)
_held: set[int] = set()  # descriptors of this process's locks


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; the system lets go when the process dies.

    The file is removed afterwards; one that a killed process left is no lock.

    Raises:
        BusyRunError: another process holds it.
        RunError: the file cannot be made, or is a link.
    """
    if fcntl is None:
        yield
        return
    descriptor = _take(path)
    _held.add(descriptor)
    try:
        yield
    finally:
        # Removed before it is let go, or another's lock would be.
        with contextlib.suppress(OSError):  # the lock is the descriptor, not the name
            path.unlink(missing_ok=True)
        _held.discard(descriptor)
        os.close(descriptor)


def _take(path: Path) -> int:
    refuse_link(path)
    with refusals(f"{path}: cannot be written", NO_PERMISSION):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The holder before us may have removed the file between our opening and locking it.
        is_ours = os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        is_ours = False
    except OSError as err:
        # Some network file systems have no locks; then nothing keeps two processes apart.
        is_ours = err.errno not in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES)
    if not is_ours:
        os.close(descriptor)
        raise BusyRunError(
            f"{path.parent}: another process is training this run; wait until it ends, or stop it."
        )
    return descriptor


def _forget() -> None:
    """Close the locks in a forked worker, whose copies would hold them after this process ends."""
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
