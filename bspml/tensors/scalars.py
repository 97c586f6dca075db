"""Check single values: numbers, choices, devices; and say in a few words what came instead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bspml.errors import InputError
from bspml.words import shown


def describe(value: Any) -> str:
    """Return an argument in a few words, for a message."""
    if isinstance(value, list | tuple):
        kinds = sorted({type(v).__name__ for v in value})
        ragged = len({len(v) for v in value if isinstance(v, list | tuple)}) > 1
        return f"a {type(value).__name__} of {', '.join(kinds)}" + " of different lengths" * ragged
    if isinstance(value, Tensor):
        return f"a tensor of {value.dtype}, {value.layout}, on {value.device}"
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    return f"{value!r:.40}" if isinstance(value, str | bool | None) else type(value).__name__


def _is_no_number(value: Any) -> bool:
    """Whether Python would make a number of a truth value, a complex one or what a mask hides."""
    dtype = getattr(value, "dtype", None)
    is_complex = getattr(dtype, "is_complex", getattr(dtype, "kind", "") == "c")
    return (
        isinstance(value, bool) or dtype in (torch.bool, np.bool_) or is_complex or _masked(value)
    )


def _masked(value: Any) -> bool:
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def check_number(
    value: Any,
    name: str,
    low: float | int = -math.inf,
    high: float | int = math.inf,
    open_low: bool = False,
    allow_infinite: bool = False,
) -> float:
    """Return `value` as a float within bounds.

    Args:
        value: a number; no text and no truth value.
        name: the caller's argument name, for messages.
        low: the least it may be.
        high: the most it may be.
        open_low: whether it must be above `low`.
        allow_infinite: whether infinity passes, where it lies within the bounds.

    Raises:
        InputError: no number, NaN, or outside the bounds.

    Example:
        >>> check_number(3, "age", low=0)
        3.0
    """
    try:
        if isinstance(value, str | bytes):
            raise TypeError("text is not read as a number")
        if _is_no_number(value):
            raise TypeError("nor what is none, though Python converts it")
        number = float(value)
    except OverflowError:
        number = math.inf if value > 0 else -math.inf  # an integer beyond float64
    except (TypeError, ValueError, RuntimeError) as err:
        raise InputError(f"`{name}` must be a number; got {describe(value)}. Pass one.") from err
    # Finite wherever the range has no end of its own.
    if not allow_infinite and number in (math.inf, -math.inf) and low <= number <= high:
        raise InputError(f"`{name}` must be finite; got {number:g}. Choose a large number instead.")
    inside = (low < number if open_low else low <= number) and number <= high
    if not inside:  # NaN compares false
        left = "(" if open_low or (low == -math.inf and not allow_infinite) else "["
        right = ")" if high == math.inf and not allow_infinite else "]"
        raise InputError(f"`{name}` must be in {left}{low:g}, {high:g}{right}; got {number:g}.")
    return number


def check_whole(value: Any, name: str, low: int = 1, high: int = 2**63 - 1) -> int:
    """Return `value` as an int of at least `low`.

    Args:
        value: a whole number; 2.0 passes, True does not.
        name: the caller's argument name, for messages.
        low: the least it may be.
        high: the most it may be, such as what fits into memory.
    """
    try:
        whole = not _is_no_number(value) and int(value) == value and low <= value <= high
    except (TypeError, ValueError, OverflowError, RuntimeError):
        whole = False
    if not whole:
        least = f"{low}, at most {high:,}" if isinstance(value, int) and value > high else f"{low}"
        raise InputError(
            f"`{name}` must be a whole number of at least {least}; got {shown(value)}."
        )
    return int(value)


def check_choice(value: Any, name: str, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`.

    Args:
        value: what was chosen.
        name: the caller's argument name, for messages.
        choices: what there is to choose from.

    Raises:
        InputError: `value` is none of them; the message lists them.
    """
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"`{name}` must be one of {', '.join(choices)}; got {shown(value)}.")
    return value


def as_device(device: Any, name: str = "device", more: str = "") -> torch.device:
    """Return the device of a name that torch knows, whether this machine has it or not.

    Args:
        device: a torch.device, or its name.
        name: the caller's argument name, for messages.
        more: names that the caller takes besides.

    Raises:
        InputError: no such kind of device.
    """
    try:
        return torch.device(device)
    except (RuntimeError, TypeError, ValueError) as err:
        raise InputError(
            f"`{name}` must be {more}cpu, cuda, cuda:N or mps; got {shown(device)}."
        ) from err


def check_device(device: Any, name: str = "device") -> torch.device:
    """Return the device of a name.

    Args:
        device: auto, cpu, cuda, cuda:N or mps; auto is CUDA where there is one, else the CPU.
        name: the caller's argument name, for messages.

    Raises:
        InputError: no such kind of device, or none of it on this machine.
    """
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    chosen = as_device(device, name, "auto, ")
    available = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (chosen.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not available.get(chosen.type, False):
        raise InputError(f"`{name}`: {device} is not available here; use auto or cpu.")
    return chosen
