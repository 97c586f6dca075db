"""The command line in forks of this process, which has done the imports; and what became of it."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

SECONDS = 60.0  # of processor time, or of the clock without any, are a hang
_LOOKS = 60  # in that time
_IDLE = 1 / 30  # of a processor is none: threads that look whether others live
_MEMORY = 6 << 30  # bytes of address space beyond what a fork starts with
_INTERRUPT = {signal.SIGINT}


@dataclass
class Result:
    """How a fork ended: its exit code (minus the signal that killed it), and what it said."""

    code: int
    said: str
    hung: bool = False

    @property
    def fault(self) -> str:
        """What no user may see: "hang", "traceback" or "crash"; empty if there is none."""
        if self.hung:
            return "hang"
        if "Traceback (most recent call last)" in self.said or self.code == 1:
            return "traceback"
        return "crash" if self.code < 0 else ""


@dataclass
class Fork:
    """A function in a fork of this process, in its own folder, one thread, bounded memory.

    Args:
        function: its return value is the exit code.
        folder: where it works; what it says goes into `said.txt` beside it.
        environment: more variables.
        name: of the file.
    """

    function: Callable[[], int]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    name: str = "said"

    def __post_init__(self) -> None:
        self.file = self.folder.parent / f"{self.folder.name}.{self.name}.txt"
        self.started = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            self._run()
        self._status: int | None = None

    def _run(self) -> None:
        code = 70
        try:
            os.setpgid(0, 0)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            # An interrupt of these preparations, which take long on a busy machine, is none of the
            # command's.
            signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPT)
            descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            sys.stdout, sys.stderr = (
                os.fdopen(os.dup(n), "w", encoding="utf-8", errors="backslashreplace")
                for n in (1, 2)
            )
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
            os.chdir(self.folder)
            os.environ.update(self.environment)
            # Global generators, which no seed of an experiment sets, start anew in each process.
            random.seed(0)
            np.random.seed(0)  # noqa: NPY002
            torch.manual_seed(0)
            if signal.sigpending() & _INTERRUPT:
                code = 128 + signal.SIGINT
            else:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPT)
                code = self.function()
        except BaseException:
            traceback.print_exc()
            code = 1
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):
                    stream.flush()
            os._exit(code)

    def has_ended(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._status = status if pid else None
        return self._status is not None

    def send(self, number: int) -> None:
        if not self.has_ended():
            os.kill(self.pid, number)

    def wait(self, seconds: float = SECONDS) -> Result:
        """Wait for its end; a hang is killed.

        On a busy machine a healthy command may take any time, so the clock alone proves nothing.
        """
        progress, look, hung = Progress(seconds), 0.0, False
        while not (hung or self.has_ended()):
            time.sleep(0.01)
            if time.monotonic() > look:  # not always: it reads all of /proc
                hung = progress.hangs(time.monotonic(), used_by_group(self.pid))
                look = time.monotonic() + seconds / _LOOKS
        hung = not self.has_ended()
        if hung:
            os.kill(self.pid, signal.SIGKILL)
            _, self._status = os.waitpid(self.pid, 0)
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        said = self.file.read_text("utf-8", "replace") if self.file.exists() else ""
        return Result(code, said, hung)


@dataclass
class Progress:
    """Tell a hang from a slow machine, by the processor time that is used.

    Args:
        seconds: of processor time that are too many, and of the clock that are too many with none.
    """

    seconds: float
    _since: tuple[float, float] | None = None  # the clock, and the time used, at the last progress

    def hangs(self, clock: float, used: float) -> bool:
        """Whether it does.

        Args:
            clock: seconds now.
            used: processor seconds until now.
        """
        if self._since is None or used - self._since[1] > self.seconds * _IDLE:
            self._since = clock, used
        return used > self.seconds or clock - self._since[0] > self.seconds


def used_by_group(group: int) -> float:
    """Processor seconds of all processes of a group, and of their children that have ended."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
            if int(fields[2]) == group:
                ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
    return ticks / os.sysconf("SC_CLK_TCK")


def bspml(arguments: Sequence[str], folder: Path, **options: object) -> Fork:
    """Start `bspml ARGUMENTS` in a folder.

    Args:
        arguments: after `bspml`.
        folder: to work in.
        options: of `Fork`.
    """
    from bspml.cli import main

    return Fork(lambda: main([str(a) for a in arguments]), folder, **options)  # type: ignore[arg-type]
