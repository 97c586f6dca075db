"""What an error becomes: one line on stderr and an exit code.

0 done; 1 a fault of ours; 2 the user's mistake; 3 the audit found more than --fail-above allows;
130 interrupted.  Needs no torch.
"""

from __future__ import annotations

import _thread
import contextlib
import errno
import gc
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bspml.errors import LostRankError, UserError

MISTAKE = 2
EXCEEDED = 3
INTERRUPTED = 130  # 128 + SIGINT, as shells count
_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC))
# Memory, processes, open files; ENOENT without a name: no folder for temporary files has room.
_EXHAUSTED = (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOENT)
_NO_MEMORY = re.compile("can't allocate memory|out of memory|failed to map segment", re.IGNORECASE)


class InterruptedRun(Exception):  # noqa: N818  (not an error: typer would swallow KeyboardInterrupt)
    """Ctrl-C in the middle of work that can go on; the text says how."""


def note(text: str) -> None:
    """Print to stderr if there is one; nothing depends on it."""
    if sys.stderr is None:  # print would take stdout
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # closed, full, or nobody reads
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (for what follows)


class _Interrupt:
    """Whether Ctrl-C struck: a library's C code may make an error of its own of it."""

    struck = False


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Let Ctrl-C end the block even where it strikes inside a callback of a C library.

    Python prints what is raised there and goes on; so it is sent once more, a moment later.  Where
    the library raises an error of its own instead, `exit_code` knows what it was.  Objects whose
    `__init__` an interrupt broke off are removed here: what they then miss is nobody's fault.
    """
    broken_off: set[Any] = set()

    def noted(number: int, frame: Any) -> None:
        _Interrupt.struck = True
        codes = [at.f_code for at, _ in traceback.walk_stack(frame)]
        broken_off.update(code for code in codes if code.co_name == "__init__")
        signal.default_int_handler(number, frame)

    def again(ignored: Any) -> None:
        maker = getattr(type(getattr(ignored.exc_value, "obj", None)), "__init__", None)
        if ignored.exc_type is AttributeError and getattr(maker, "__code__", None) in broken_off:
            return
        if ignored.exc_type is not KeyboardInterrupt:
            return before(ignored)
        timer = threading.Timer(0.1, _thread.interrupt_main)
        timer.daemon = True
        timer.start()

    before, sys.unraisablehook = sys.unraisablehook, again
    _Interrupt.struck = False
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    is_heard = is_default and threading.current_thread() is threading.main_thread()
    try:
        if is_heard:
            signal.signal(signal.SIGINT, noted)
        yield
    except BaseException as err:
        if _Interrupt.struck:
            _forget_locals(err)
        raise
    finally:
        sys.unraisablehook = before
        if is_heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _forget_locals(err: BaseException | None) -> None:
    """Remove what only the frames that an error ended still hold."""
    while err is not None:
        traceback.clear_frames(err.__traceback__)
        err = err.__context__
    gc.collect()


def exit_code(err: BaseException) -> int:
    """Say on stderr what went wrong and return the exit code of it."""
    if getattr(err, "said_elsewhere", False):  # by another process of the group
        return MISTAKE if isinstance(err, UserError) else 1
    if isinstance(err, LostRankError):
        return complain(_one_line(str(err)), 1)
    if isinstance(err, UserError):
        return complain(_one_line(str(err)), MISTAKE)
    if isinstance(err, InterruptedRun | KeyboardInterrupt) or type(err).__name__ == "Abort":
        if not _is_main_process():  # all are interrupted, one says so
            return INTERRUPTED
        return complain(str(err) or "interrupted", INTERRUPTED)
    if isinstance(err, BrokenPipeError) or isinstance(err.__context__, BrokenPipeError):
        # Raised by us, or by click, which makes an exit of it.
        # The reader (head, less) went away; Python would complain once more while closing stdout.
        sys.stdout = None
        return 0
    if isinstance(err, SystemExit) or type(err).__name__ == "Exit":
        code = getattr(err, "exit_code", getattr(err, "code", 0))
        return code if isinstance(code, int) else 1
    if type(err).__name__ == "NoArgsIsHelpError":
        note(err.format_message())  # type: ignore[attr-defined]
        return MISTAKE
    if hasattr(err, "format_message"):  # click's usage errors
        if not _is_main_process():  # all got the same arguments
            return MISTAKE
        return complain(f"{_one_line(err.format_message())} (see `bspml --help`)", MISTAKE)
    if isinstance(err, OSError) and err.filename is None and err.errno in _NO_ROOM:
        sys.stdout = None
        return complain(f"the output cannot be written ({err.strerror})", MISTAKE)
    if isinstance(err, OSError) and err.errno is not None and err.filename is not None:
        where = f"{err.filename}: {err.strerror}"
        return complain(f"{where}. Is it there, and may you read and write it?", MISTAKE)
    if isinstance(err, OSError) and err.errno in _EXHAUSTED:
        return complain(f"the system gives no more ({err.strerror})", MISTAKE)
    if isinstance(err, MemoryError) or _NO_MEMORY.search(str(err)):  # torch's is a RuntimeError
        return complain(
            f"there is too little memory ({_one_line(str(err))[:120]}). Close other programs, or "
            "take fewer samples or smaller batches",
            MISTAKE,
        )
    if _Interrupt.struck:
        return complain("interrupted", INTERRUPTED)
    traceback.print_exception(err)
    return complain("this is a fault of bspml, not yours; please report the lines above", 1)


def _is_main_process() -> bool:
    """False for the processes of torchrun that leave the talking to the first; needs no torch."""
    return os.environ.get("RANK", "0") == "0"


def complain(text: str, code: int) -> int:
    """Print `text` on stderr as a line of bspml and return `code`.

    Args:
        text: one line.
        code: the exit code.
    """
    note(f"bspml: {text}")
    return code


def _one_line(text: str) -> str:
    return " ".join(text.split())


def warning_printer() -> Callable[..., None]:
    """Return what prints warnings for the user: no file, no line of ours, from one process of many.

    Each is said once: every evaluation of a run would say it again.
    """
    said: set[str] = set()

    def show(message: Warning | str, *_where: Any) -> None:
        line = f"bspml: warning: {_one_line(str(message))}"
        if _is_main_process() and line not in said:
            said.add(line)
            note(line)

    return show
