"""One rank fails: all end, with its message, once.

A rank that waits in a collective for one that will never come must learn why.  So the rank that
fails first leaves its error in the store that all ranks share beside the group, then closes its
connections.  The others' collectives break at once; each looks into the store and raises that very
error.  Nothing in the store means that a rank died without a word: those still alive answer a roll
call, and the others are named.

Rank 0 speaks for all.  A rank whose error rank 0 does not take up (it is busy outside the group,
or waits for a GPU that will not answer) speaks itself after `_PATIENCE` seconds.
"""

from __future__ import annotations

import pickle
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Any

from torch import distributed
from torch.distributed.distributed_c10d import Store

from bspml.errors import BspmlError, LostRankError

_PATIENCE = 10.0  # seconds for rank 0 to take up an error
_ROLL_CALL = 3.0  # seconds for the living to answer
_TO_PRINT = 1.0  # seconds that rank 0 gets before torchrun, seeing an exit, stops it

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
            with _sigterm_raises():
                yield
        except (KeyboardInterrupt, GeneratorExit):
            raise  # the terminal interrupts every rank
        except BaseException as err:
            ours = self._agreed(err)
            if ours is err:
                raise
            raise ours from err

    def _agreed(self, err: BaseException) -> BaseException:
        if _is_loss(err):
            with suppress(RuntimeError):
                _close()  # the ranks that wait for this one break off, too
            return self._told() or self._lost(isinstance(err, _StoppedError))
        if getattr(err, "said_elsewhere", False):
            return err  # every rank raised it already
        return self._tell(err)

    # -- the failing rank --------------------------------------------------------------------

    def _tell(self, err: BaseException) -> BaseException:
        """Leave the error where the others find it; returns what this rank is to raise."""
        try:
            first = self.store.add("failures", 1) == 1
            if first:
                self.store.set("failure", pickle.dumps((self.rank, portable(err))))
        except RuntimeError:  # the store's process is gone
            return err
        _close()
        if not first:
            return self._told() or err
        if self.rank == 0:
            return err
        # A fault of ours is printed where the traceback is.
        if self._wait_for("heard 0", _PATIENCE) and isinstance(err, BspmlError):
            _say_elsewhere(err)
        time.sleep(_TO_PRINT)
        return err

    # -- the others --------------------------------------------------------------------------

    def _told(self) -> BaseException | None:
        """The error that a rank left, or None."""
        if not self._wait_for("failure", _ROLL_CALL):
            return None
        origin, err = pickle.loads(self.store.get("failure"))
        if not isinstance(err, BspmlError):
            err = _say_elsewhere(RankFailedError(f"rank {origin} failed: {err}"))
        elif self.rank != 0:
            _say_elsewhere(err)
        self.store.set(f"heard {self.rank}", "1")
        if self.rank != 0:
            time.sleep(_TO_PRINT)
        return err

    def _lost(self, stopped: bool) -> BaseException:
        """Call the roll: who does not answer is gone."""
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
            what = f"rank {names} of {self.size} is gone (killed, or out of memory?)"
        elif stopped:
            what = "the run was stopped from outside (SIGTERM)"
        else:
            what = f"the {self.size} ranks lost each other, or one did not come in time"
        err = LostRankError(
            f"{what}. A run that was training goes on with --resume, on any number of processes."
        )
        speaker = min((r for r in range(self.size) if r not in missing), default=0)
        if self.rank != speaker:
            _say_elsewhere(err)
            time.sleep(_TO_PRINT)
        return err

    def _wait_for(self, key: str, seconds: float) -> bool:
        """Whether somebody sets this key in time."""
        try:
            self.store.wait([key], timedelta(seconds=seconds))
        except RuntimeError:  # torch's DistStoreError among them
            return False
        return True


def _say_elsewhere(err: BspmlError) -> BspmlError:
    """Mark an error that another rank prints."""
    err.said_elsewhere = True
    return err


def portable(err: BaseException) -> BaseException:
    """The error if it can travel between processes, else its text."""
    try:
        pickle.loads(pickle.dumps(err))
    except Exception:  # whatever a foreign exception's constructor does
        return RuntimeError(f"{type(err).__name__}: {err}")
    return err


def _is_loss(err: BaseException) -> bool:
    """Whether this is a collective that broke, or torchrun's signal that another rank did."""
    if isinstance(err, _StoppedError | distributed.DistError):
        return True
    return type(err) is RuntimeError and _BROKEN.search(str(err)) is not None


def _close() -> None:
    """Close this rank's connections: whoever waits for it breaks off."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


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
