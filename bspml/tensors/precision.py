"""Compute statistics in enough precision, whatever training allows itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# The setting is the process's, not the thread's: who comes first changes it, who leaves last
# puts it back.
_lock = threading.Lock()
_inside = 0
_kept: list[Any] = []


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute float32 products in float32 inside the `with` block, in every thread.

    `torch.set_float32_matmul_precision("high")` makes training faster and products off by some
    1e-3.  In the exponent of a statistic, times beta = 50, that is 5 % of a term.  Autocast is off
    inside, the default device is the CPU, where helpers of tensors on others are to be made, and
    numbers may underflow, whatever numpy was told to raise for.
    """
    global _inside
    with _lock:
        if _inside == 0:
            _kept[:] = _raise_precision()
        _inside += 1
    try:
        host = nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
        off, quiet = torch.autocast, np.errstate(under="ignore")
        with host, off("cpu", enabled=False), off("cuda", enabled=False), quiet:
            yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                _put_back(_kept)


def _raise_precision() -> list[Any]:
    """Ask for full products; return the settings before."""
    places = _holders()
    if not places:  # torch before 2.9
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        return [before]
    values = [place.fp32_precision for place in places]
    for place in places:
        place.fp32_precision = "ieee"
    return values


def _put_back(values: list[Any]) -> None:
    places = _holders()
    if not places:
        torch.set_float32_matmul_precision(*values)
        return
    for place, value in zip(places, values, strict=True):
        place.fp32_precision = value


def float64_device(values: Tensor) -> Tensor:
    """Return `values` where float64 exists: from Apple's MPS, which has none, on the CPU."""
    return values.cpu() if values.device.type == "mps" else values


class KeepsDigits(nn.Module):
    """A module whose buffers follow `.to(device)` and `.double()`, but stay under `.half()`.

    Weights, averages and memories are kept over a whole training: one whose network computes in
    half precision moves the losses in it, and an average of 8 bits stands still.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Any:
        buffers = dict(self.named_buffers(recurse=False))
        super()._apply(fn, *args, **kwargs)
        for name, buffer in buffers.items():
            moved = getattr(self, name)
            loses = torch.promote_types(moved.dtype, buffer.dtype) != moved.dtype
            if loses and moved.device.type not in ("meta", "mps"):
                setattr(self, name, buffer.to(moved.device))
        return self


def _holders() -> list[Any]:
    """Return the objects in which torch keeps the precision of products, by kind of device."""
    backends = (torch.backends.cuda, torch.backends.mkldnn)
    places = [getattr(backend, "matmul", None) for backend in backends]
    return [place for place in places if hasattr(place, "fp32_precision")]
