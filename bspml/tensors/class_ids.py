"""Class ids that came as floats: whole, and so small that no two of them can have become one."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from bspml.errors import InputError


def integral(values: np.ndarray | Tensor, name: str) -> np.ndarray:
    """Return float class ids as int64, on the CPU.

    Args:
        values: (N,) floats without a fraction, in the type that they came in.
        name: the caller's argument name, for messages.

    Raises:
        InputError: NaN, infinity or a fraction; or a number from which on the type leaves whole
            numbers out, so that the ids of two classes may be one.

    Example:
        >>> integral(np.array([3.0, -1.0]), "labels")
        array([ 3, -1])
    """
    info = torch.finfo(values.dtype) if isinstance(values, Tensor) else np.finfo(values.dtype)
    if isinstance(values, Tensor):
        values = values.detach().double().cpu().numpy()
    values = values.astype(np.result_type(values, np.float64), copy=False)
    end = 2 / float(info.eps)  # 2**24 of float32, 2**53 of float64
    off = ~(np.abs(values) < 2.0**63) | (values != np.round(values))  # NaN compares false
    far = np.abs(values) >= end
    if not (off | far).any():
        return values.astype(np.int64)
    row = int(np.flatnonzero(off if off.any() else far)[0])
    got = f"`{name}` must be integers or strings; got {values[row].item()!r} at row {row}"
    if off.any():
        raise InputError(f"{got}. Cast class ids to int; do not pass scores.")
    raise InputError(
        f"{got}, where {info.dtype} leaves whole numbers out from 2**{math.log2(end):.0f} on, so "
        "that two classes may be one already. Make the ids integers or strings where they are "
        "first read."
    )


def by_code(codes: np.ndarray) -> dict[int, np.ndarray]:
    """Return {code: its positions}, both ascending; negative codes are left out.

    Args:
        codes: (N,) integers.

    Example:
        >>> by_code(np.array([2, -1, 0, 2]))
        {0: array([2]), 2: array([0, 3])}
    """
    order = np.argsort(codes, kind="stable")
    if len(order) == 0:
        return {}
    distinct, starts = np.unique(codes[order], return_index=True)
    parts = np.split(order, starts[1:])
    return {int(c): rows for c, rows in zip(distinct, parts, strict=True) if c >= 0}
