"""Printing where the reader may be gone: neither the work nor the exit code depends on it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["note", "put"]


def put(text: str) -> None:
    """Print the result; a reader that went away (head, less) gets no more of it."""
    try:
        print(text)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # Python would complain once more while closing it


def note(text: str) -> None:
    """Print to stderr if there is one; nothing depends on it."""
    if sys.stderr is None:  # print would take stdout
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # closed, full, or nobody reads
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (for what follows)
