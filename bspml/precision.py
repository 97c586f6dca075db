"""Enough precision for statistics, whatever training allows itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def full_precision() -> Iterator[None]:
    """float32 products inside are computed in float32.

    `torch.set_float32_matmul_precision("high")` makes training faster and products off by some
    1e-3.  In the exponent of a statistic, times beta = 50, that is 5 % of a term.
    """
    places = _settings()
    if not places:  # torch before 2.9
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)
        return
    kept = [place.fp32_precision for place in places]
    try:
        for place in places:
            place.fp32_precision = "ieee"
        yield
    finally:
        for place, value in zip(places, kept, strict=True):
            place.fp32_precision = value


def float64_device(values: Tensor) -> Tensor:
    """`values` where float64 exists: Apple's MPS has none, so from there they move to the CPU."""
    return values.cpu() if values.device.type == "mps" else values


def _settings() -> list[Any]:
    """Where torch keeps the precision of matrix products, by kind of device."""
    backends = (torch.backends.cuda, torch.backends.mkldnn)
    places = [getattr(backend, "matmul", None) for backend in backends]
    return [place for place in places if hasattr(place, "fp32_precision")]
