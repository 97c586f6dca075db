"""One rank fails: all end, with its message, once.

A rank that waits in a collective for one that will never come must learn why.  So the rank that
fails first leaves its error in the store that all ranks share beside the group, prints it, and
ends, which closes its connections.  The others' collectives break at once (or torchrun stops
them); each looks into the store and raises that very error, silently.  Nothing in the store means
that a rank died without a word: those still alive answer a roll call, and the first of them names
the others.
"""

from __future__ import annotations

import pickle
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from torch import distributed
from torch.distributed.distributed_c10d import Store

from bspml.errors import BspmlError, LostRankError

_TO_READ = 1.0  # seconds for an error that was left before its rank ended to be there
_ROLL_CALL = 3.0  # seconds for the living to answer

_BROKEN = re.compile(
    r"gloo|connection (closed|reset|refused)|broken pipe|nccl|process ?group|timed out waiting",
    re.IGNORECASE,
)


class _StoppedError(BaseException):
    """SIGTERM: torchrun stops the others when one of its processes ended badly."""


class RankFailedError(BspmlError):
    """Another rank failed by a fault of ours, and printed where."""


class Failures:
    """What the ranks tell each other about errors.

    Args:
        store: shared by all ranks, usable when the group is broken.
        rank: of this process.
        size: number of ranks.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Raise on every rank what the block raises on one.

        An error that another process prints has the attribute `said_elsewhere`.

        Raises:
            LostRankError: a rank was killed.
        """
        try:
            with _sigterm_raises(), self.explained():
                yield
        except Exception as err:  # not KeyboardInterrupt: the terminal interrupts every rank
            self._tell(err)
            raise

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise, in place of a collective's failure, the error of the rank that caused it."""
        try:
            yield
        except BaseException as err:
            if not _is_loss(err):
                raise
            late = re.search("timed? ?out", str(err), re.IGNORECASE) is not None
            raise self._told() or self._lost(isinstance(err, _StoppedError), late) from err

    def _tell(self, err: Exception) -> None:
        """Leave the error where the others find it, unless it came from there."""
        if getattr(err, "said_elsewhere", False) or isinstance(err, LostRankError):
            return
        with suppress(RuntimeError):  # the store's process is gone
            if self.store.add("failures", 1) == 1:
                content: Any = pickle.dumps((self.rank, portable(err)))  # bytes are taken, too
                self.store.set("failure", content)
            else:  # all ranks found the same mistake
                err.said_elsewhere = True  # type: ignore[attr-defined]

    def _told(self) -> BspmlError | None:
        """Return the error that a rank left, or None."""
        if not self._wait_for("failure", _TO_READ):
            return None
        origin, err = pickle.loads(self.store.get("failure"))
        if not isinstance(err, BspmlError):
            err = RankFailedError(f"rank {origin} failed: {err}")
        err.said_elsewhere = True
        return err

    def _lost(self, stopped: bool, late: bool) -> LostRankError:
        """Call the roll: who does not answer is gone, or does not move."""
        try:
            self.store.set(f"alive {self.rank}", "1")
            deadline = time.monotonic() + _ROLL_CALL
            missing = [
                r
                for r in range(self.size)
                if not self._wait_for(f"alive {r}", max(deadline - time.monotonic(), 0.05))
            ]
        except RuntimeError:
            missing = []
        if missing:
            names = ", ".join(str(r) for r in missing)
            why = "is gone (killed, or out of memory?)"
            if late:  # its connections are open: nothing closed them
                why = "does not answer (stopped, hanging, or its machine lost?)"
            cause = f"rank {names} of {self.size} {why}"
        elif stopped:
            cause = "the run was stopped from outside (SIGTERM)"
        else:
            cause = f"the {self.size} ranks lost each other, or one did not come in time"
        err = LostRankError(
            f"{cause}. A run that was training goes on with --resume, on any number of processes."
        )
        speaker = min((r for r in range(self.size) if r not in missing), default=0)
        err.said_elsewhere = self.rank != speaker
        return err

    def _wait_for(self, key: str, seconds: float) -> bool:
        """Return whether another rank sets this key in time."""
        deadline = time.monotonic() + seconds
        with suppress(RuntimeError):  # the store is gone
            # Asked again and again: the store's own waiting prints warnings when it ends.
            while not self.store.check([key]):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.05)
            return True
        return False


def portable(err: BaseException) -> BaseException:
    """Return the error if it can travel between processes, else its text."""
    try:
        pickle.loads(pickle.dumps(err))
    except Exception:  # whatever a foreign exception's constructor does
        return RuntimeError(f"{type(err).__name__}: {err}")
    return err


def _is_loss(err: BaseException) -> bool:
    """Return whether a collective broke, or torchrun signals that another rank did."""
    if isinstance(err, _StoppedError | distributed.DistError):
        return True
    return type(err) is RuntimeError and _BROKEN.search(str(err)) is not None


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that there is time for a message."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> Any:
        signal.signal(signal.SIGTERM, before)  # a second one ends it
        raise _StoppedError

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
