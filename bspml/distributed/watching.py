"""Say which rank the others wait for.

A rank that is stopped, or hangs, keeps its connections: the others wait in a collective and say
nothing.  So each counts upwards in the store that all share, beside its work, and the first of them
that lives looks whose number stands still.  It is a warning only: the rank may go on.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed.distributed_c10d import Store

from bspml.words import counted

_BEAT, _SILENT = 2.0, 30.0  # seconds; a long call of a library holds a rank's threads, too
_LOOKING = 2  # ranks that look: the first, and one for when that is the one that stands still


@contextmanager
def watched(store: Store | None, rank: int, size: int, gives_up: float) -> Iterator[None]:
    """Warn of ranks that stand still while the block runs.

    Args:
        store: shared by all ranks, used by nobody else; None watches nothing.
        rank: of this process.
        size: number of ranks.
        gives_up: seconds after which a rank is no longer waited for.
    """
    over = threading.Event()
    arguments = (store, rank, size, gives_up, over)
    thread = threading.Thread(target=_watch, args=arguments, daemon=True)
    if store is not None:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.is_alive():
            thread.join(1.0)  # not for ever: it may itself wait for the store


def _watch(store: Store, rank: int, size: int, gives_up: float, over: threading.Event) -> None:
    moved = {other: (0, time.monotonic()) for other in range(size)}
    told: list[int] = []
    try:
        while not over.wait(_BEAT):
            store.add(f"beat {rank}", 1)
            if rank >= _LOOKING:
                continue
            now = time.monotonic()
            for other, (count, _) in moved.items():
                beat = store.add(f"beat {other}", 0)
                if beat != count:
                    moved[other] = beat, now
            silent = [other for other, (_, at) in moved.items() if now - at > _SILENT]
            if silent and silent != told and rank == min(set(range(size)) - set(silent)):
                _warn(silent, gives_up)
            told = silent
    except RuntimeError:
        return  # the store is gone, which the ranks notice by themselves


def _warn(silent: list[int], gives_up: float) -> None:
    names = f"rank{'s' * (len(silent) > 1)} {', '.join(map(str, silent))}"
    warnings.warn(
        f"waiting for {names}: no sign of life for {_SILENT:.0f} s (stopped, or in a long call?). "
        f"The others go on when it does, and give up after {counted(round(gives_up), 'second')} "
        "in one place (BSPML_RANK_TIMEOUT).",
        stacklevel=2,
    )
