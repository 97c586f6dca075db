"""The losses of a training's steps, read without making an accelerator wait.

    step k-1   queued ....... computed, loss copied
    step k              queued ............ computed, loss copied
    reader                                  ^ reads k-1, when k is queued

Reading a loss at once would wait until the device has nothing left to do, at every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bspml.errors import InputError

Read = Callable[[], float]


def start_reading(loss: Any) -> Read | None:
    """Queue the copy of a scalar from its CUDA device to pinned memory.

    Returns:
        What waits for that copy and gives the number; None for a loss that is no CUDA tensor, which
        is best read at once.
    """
    if not (isinstance(loss, Tensor) and loss.is_cuda):
        return None
    copied = torch.empty_like(loss, device="cpu", pin_memory=True, requires_grad=False)
    copied.copy_(loss.detach(), non_blocking=True)
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(loss.device))

    def read() -> float:
        event.synchronize()
        return float(copied)

    return read


class LossReader:
    """Sum of the losses of a round, read at once on a CPU and one step late on a CUDA device.

    The sum is that of reading each loss at once, bit for bit: the same numbers in the same order.
    A loss that is not finite is noticed when it is read, so on a device one step after its own,
    which has been taken too by then; the error names the step whose loss it was.

    Args:
        start: starts to read a loss; see `start_reading`.

    Example:
        >>> reader = LossReader()
        >>> reader.add(torch.tensor(0.5), 1, 1)
        0.5
        >>> reader.add(torch.tensor(0.25), 1, 2), reader.total()
        (0.25, 0.75)
    """

    def __init__(self, start: Callable[[Any], Read | None] = start_reading) -> None:
        self._start = start
        self._sum = 0.0
        self._last: float | None = None
        self._waiting: tuple[Read, int, int] | None = None

    def add(self, loss: Any, number: int, step: int) -> float:
        """Take the loss of a step just queued, and give the last value known.

        Only where none is known yet, after a start, is this very loss waited for.

        Args:
            loss: a scalar.
            number: of the round, 1-based, for the message.
            step: of the round, 1-based, likewise.

        Raises:
            InputError: a loss that is not finite.
        """
        read = self._start(loss)
        self._flush()
        if read is None:
            self._add(float(loss.detach() if isinstance(loss, Tensor) else loss), number, step)
        else:
            self._waiting = (read, number, step)
        if self._last is None:
            self._flush()
        assert self._last is not None
        return self._last

    def total(self) -> float:
        """Sum of all losses since `restart`; waits for the one that is under way.

        Raises:
            InputError: that one is not finite.
        """
        self._flush()
        return self._sum

    def restart(self, total: float = 0.0) -> None:
        """Go on from this sum; what is under way is forgotten."""
        self._sum, self._waiting = total, None

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            read, number, step = waiting
            self._add(read(), number, step)

    def _add(self, loss: float, number: int, step: int) -> None:
        if not math.isfinite(loss):
            raise InputError(
                f"the training loss became {loss} in round {number}, step {step}. Lower the "
                "learning rate, or look for NaN in the inputs."
            )
        self._sum += loss
        self._last = loss
