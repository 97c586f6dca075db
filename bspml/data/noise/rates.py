"""Rates as people mean them: the decimal that is printed, not the binary fraction nearest to it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor


def as_decimal(rate: Any) -> Fraction:
    """Return the rate as the decimal it prints as: float32's .1 is 1/10, not .100000001."""
    if isinstance(rate, Tensor):
        rate = rate.detach().cpu()
        if rate.dtype == torch.bfloat16 or rate.element_size() == 1:
            return _shortest_decimal(rate)  # numpy has no such floats to print
        rate = rate.numpy()
    if isinstance(rate, np.ndarray):
        rate = rate.reshape(())[()]
    return Fraction(str(rate if isinstance(rate, np.generic) else float(rate)))


def _shortest_decimal(rate: Tensor) -> Fraction:
    """The decimal of fewest digits that rounds to `rate`."""
    value = float(rate)
    decimals = (f"{value:.{digits}g}" for digits in range(1, 18))
    exact = (d for d in decimals if torch.tensor(float(d)).to(rate.dtype).double() == value)
    return Fraction(next(exact))
