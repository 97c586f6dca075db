"""Check the tensors that losses and weights written as formulas (`bspml.functional`) take.

Values on the CPU are looked at; on an accelerator only shapes and dtypes are, because looking
would make every step wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bspml.errors import InputError
from bspml.shapes import Float, Tensor
from bspml.tensors.checks import FLOATS, describe, some_of

_HALVES = (torch.float16, torch.bfloat16)


def at_least_float32(values: Any, name: str) -> Float[Tensor, "*S"]:
    """Return a floating tensor, half precision as float32; the gradient passes through.

    Args:
        values: a tensor of any shape.
        name: the caller's argument name, for messages.

    Raises:
        InputError: not a tensor, or integers, bools, complex numbers or 8-bit floats.
    """
    if not isinstance(values, Tensor):
        raise InputError(
            f"`{name}` must be a tensor of floats; got {type(values).__name__}. "
            "Wrap it in torch.as_tensor(..., dtype=torch.float32)."
        )
    if values.layout != torch.strided or values.is_nested:
        raise InputError(f"`{name}` must be a dense tensor; got {describe(values)}.")
    if values.dtype not in FLOATS:
        raise InputError(f"`{name}` must be floats; got {values.dtype}. Cast with `.float()`.")
    return values.float() if values.dtype in _HALVES else values


def unreduced(losses: Any, name: str = "losses") -> Float[Tensor, "*S"]:
    """Return one loss per element, in float32 at least.

    Args:
        losses: a floating tensor with at least one dimension.
        name: the caller's argument name, for messages.

    Raises:
        InputError: as `at_least_float32`, or a single number: the mean of a batch has no elements
            left to tell apart.
    """
    losses = at_least_float32(losses, name)
    if losses.ndim == 0:
        raise InputError(
            f"`{name}` must hold one loss per element, (B,); got a single number, already "
            "reduced. Compute the loss with reduction='none'."
        )
    return losses


def refuse_negative(values: Tensor, name: str, remedy: str) -> None:
    """Raise, on the CPU, if a value lies below 0; NaN passes.

    Args:
        values: what was given.
        name: the caller's argument name.
        remedy: one sentence.
    """
    refuse_outside(values, lambda v: ~(v < 0), name, "be at least 0", remedy)


def refuse_outside(
    values: Tensor, inside: Callable[[Tensor], Tensor], name: str, expected: str, remedy: str
) -> None:
    """Raise, on the CPU, if `inside` is not true everywhere, naming the first value and the rows.

    Args:
        values: what was given.
        inside: `values` to a bool tensor of their shape; written so that NaN is outside.  Not
            called on an accelerator, where nobody would look at what it costs to compute.
        name: the caller's argument name.
        expected: what the values must be.
        remedy: one sentence.
    """
    if values.device.type != "cpu":
        return
    fits = inside(values)
    if bool(fits.all()):
        return
    rows = (~fits.flatten()).nonzero()[:, 0]
    first = float(values.detach().flatten()[rows[0]])
    raise InputError(
        f"`{name}` must {expected}; got {first:g} (flat positions {some_of(rows)}). {remedy}"
    )


def check_kind(value: Any, name: str, kind: Any, must: str) -> None:
    """Refuse a part of another kind where it is handed over, not where it is first used.

    Args:
        value: any.
        name: of the caller's argument.
        kind: a class, or several: an instance is wanted, not the class.
        must: what it must be, such as "a function or None".

    Raises:
        InputError: another kind.

    Example:
        >>> check_kind(print, "hook", Callable, "a function")
    """
    if not isinstance(value, kind) or (isinstance(value, type) and kind is not Callable):
        got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise InputError(f"`{name}` must be {must}; got {got}.")


def check_flags(**flags: Any) -> None:
    """Refuse what is neither True nor False: a list of flags, or 0, would count as one of them.

    Args:
        **flags: by the caller's argument names.

    Raises:
        InputError: anything but a bool, Python's or numpy's.

    Example:
        >>> check_flags(exact=True)
    """
    for name, value in flags.items():
        if not isinstance(value, bool | np.bool_):
            raise InputError(f"`{name}` must be True or False; got {describe(value)}.")
