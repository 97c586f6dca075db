"""The life of a process group: who is there, joining it, and ending together.

`torchrun` starts W processes and tells each its rank through the environment.  They meet in a
process group: gloo for tensors on the CPU, NCCL for those on GPUs.  One process alone is a group
of one, so nothing that is written for many processes needs another branch.
"""

from __future__ import annotations

import datetime
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store

from bspml.distributed.failure import Failures
from bspml.distributed.watching import watched
from bspml.errors import ConfigError

_TIMEOUT = "BSPML_RANK_TIMEOUT", 1800  # seconds: torch's own for gloo
_MEETING = 40.0  # seconds for all ranks to come, once the first is there
_ANSWERING = 10.0  # and for what listens to answer
_REMEDY = (
    "Start with `torchrun --nproc-per-node N -m bspml train ...`, or unset RANK and WORLD_SIZE."
)
_current: list[Failures] = []  # of the `joined` block this process is in


def ranks() -> int:
    """Return how many processes work together; 1 without a process group."""
    return distributed.get_world_size() if _started() else 1


def rank() -> int:
    """Return which of them this one is, 0 to `ranks()` - 1."""
    return distributed.get_rank() if _started() else 0


def is_main() -> bool:
    """Return whether this is rank 0, the one that prints and writes."""
    return rank() == 0


@contextmanager
def joined(timeout: datetime.timedelta | None = None) -> Iterator[None]:
    """Work in the process group that torchrun describes while the block runs.

    Without torchrun, or inside a group that was started already, the block runs as it is.  An
    error of one rank ends the block on every rank; see `bspml.distributed.failure`.

    Args:
        timeout: how long a rank waits for another that lives but does not come; None: the seconds
            in the environment's BSPML_RANK_TIMEOUT, or 1800.  After half a minute a warning names
            it.  One that died is noticed at once.

    Raises:
        ConfigError: the environment describes a group that cannot be met.
        LostRankError: another rank was killed, or does not answer.
    """
    size = _wanted_size()
    if size == 1 or _started():
        yield
        return
    timeout = timeout or _timeout()
    store, clone = _join(timeout)
    own = distributed.get_rank()
    failures = Failures(store, own, size)
    _current.append(failures)
    try:
        with failures.shared(), watched(clone, own, size, timeout.total_seconds()):
            yield
            wait_for_all()  # nobody leaves while another still works: its error is everyone's
    finally:
        _current.pop()
        with suppress(RuntimeError):
            distributed.destroy_process_group()


@contextmanager
def explained() -> Iterator[None]:
    """Raise, in place of a broken collective of the block, the error of the rank that broke it.

    `joined` does so in the end; around a part of its block, this lets that part clean up after a
    mistake, whichever rank found it.
    """
    with _current[-1].explained() if _current else nullcontext():
        yield


def wait_for_all() -> None:
    """Return when every rank has come here."""
    if ranks() > 1:
        distributed.all_reduce(torch.zeros(1, device=message_device()))


def message_device() -> torch.device:
    """Return where small tensors must lie to be exchanged: the CPU unless the group only knows
    GPUs."""
    only_gpus = _started() and distributed.get_backend() == "nccl"
    return torch.device("cuda" if only_gpus else "cpu")


def check_rank_device(device: torch.device) -> None:
    """Refuse a GPU that another rank of this machine uses: each needs one of its own.

    Raises:
        ConfigError: two ranks would share a GPU.
    """
    if ranks() == 1 or device.type != "cuda":
        return
    local, num_gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if device.index is not None and local > 1:
        raise ConfigError(
            f"`device` is {device}, the same GPU for all {local} processes of this machine. Use "
            "device=cuda: each then takes its own."
        )
    if local > num_gpus:
        raise ConfigError(
            f"{local} processes on this machine, but {num_gpus} GPU(s). Start torchrun with "
            f"--nproc-per-node {num_gpus}, or use device=cpu."
        )


def _started() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _wanted_size() -> int:
    if "RANK" not in os.environ or not distributed.is_available():
        return 1
    numbers = []
    for name in ("RANK", "WORLD_SIZE"):
        try:
            numbers.append(int(os.environ.get(name, "1")))
        except ValueError as err:
            raise ConfigError(f"the environment variable {name} must be a number; {err}.") from None
    own, size = numbers
    if size > 1 and not 0 <= own < size:
        raise ConfigError(
            f"RANK is {own} and WORLD_SIZE {size} in the environment, but ranks are 0 to "
            f"{size - 1}. {_REMEDY}"
        )
    return size


def _timeout() -> datetime.timedelta:
    name, default = _TIMEOUT
    text = os.environ.get(name, f"{default}")
    if not re.fullmatch("[1-9][0-9]{0,6}", text):
        raise ConfigError(
            f"the environment variable {name} must be whole seconds, at least 1; got {text!r:.40}. "
            f"Unset it for {default}."
        )
    return datetime.timedelta(seconds=int(text))


def _join(timeout: datetime.timedelta) -> tuple[Store, Store | None]:
    """Join; return a store that the ranks share beside the group, and after it broke, and another
    for threads of their own, where this torch can make one."""
    backend = "gloo"
    if torch.cuda.is_available() and distributed.is_nccl_available():
        backend = "cpu:gloo,cuda:nccl"
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if local < torch.cuda.device_count():
            torch.cuda.set_device(local)
    try:
        store, own, size = _meet()
        store.set_timeout(timeout)
        clone = store.clone() if hasattr(store, "clone") else None
        distributed.init_process_group(
            backend,
            store=PrefixStore("bspml group", store),
            rank=own,
            world_size=size,
            timeout=timeout,
        )
    except (ValueError, RuntimeError, TimeoutError) as err:
        reason = " ".join(str(err).split())[:200]
        raise ConfigError(f"the process group cannot be started ({reason}). {_REMEDY}") from err
    beats = None if clone is None else PrefixStore("bspml beats", clone)
    return PrefixStore("bspml failures", store), beats


def _meet() -> tuple[Store, int, int]:
    """Return the store of the ranks, this one's number and theirs; give up when nobody comes.

    Raises:
        TimeoutError: in `_MEETING` seconds there was no other rank, or no store but some other
            program where it should be.
    """
    _wait_for_listener()
    met: list[Any] = []

    def meet() -> None:
        limit = datetime.timedelta(seconds=_MEETING)
        try:
            met.extend(next(iter(distributed.rendezvous("env://", timeout=limit))))
        except (ValueError, RuntimeError) as err:
            met.append(err)

    # In a thread of its own: torch waits for ever for what accepts a connection and says nothing.
    thread = threading.Thread(target=meet, daemon=True)
    thread.start()
    thread.join(_MEETING + _ANSWERING)
    if not met:
        raise TimeoutError(f"{_place()} answers, but is no store of torch; take another port")
    if len(met) == 1:
        raise met[0]
    store, own, size = met
    return store, own, size


def _wait_for_listener() -> None:
    """Wait until something listens where the store should be; torch's own waiting is noisy."""
    is_server = os.environ["RANK"] == "0" and not os.environ.get("TORCHELASTIC_USE_AGENT_STORE")
    deadline = time.monotonic() + _MEETING
    while not is_server and "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        try:
            port = int(os.environ["MASTER_PORT"])
            with socket.create_connection((os.environ["MASTER_ADDR"], port), timeout=5):
                return
        except (OSError, OverflowError) as err:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"rank 0 is not at {_place()}, after {_MEETING:.0f} s: {err}"
                ) from None
            time.sleep(0.1)


def _place() -> str:
    return f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
