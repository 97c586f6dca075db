"""Checks at the public doors: every message says expected, got, where, and what to do.

Public functions check once with these and then trust their input.  Nothing here changes state,
so a refused argument leaves everything as it was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bspml.errors import InputError, SampleIndexError

_SHOWN = 5  # how many offending rows a message lists


def some_of(rows: Any) -> str:
    """The first few of `rows` as text: '3, 17, 40, ... (12 in all)'."""
    rows = [int(r) for r in rows]
    text = ", ".join(str(r) for r in rows[:_SHOWN])
    return text if len(rows) <= _SHOWN else f"{text}, ... ({len(rows)} in all)"


def check_embeddings(embeddings: Any, name: str = "embeddings") -> Tensor:
    """Return `embeddings` as a finite floating tensor (N, D), or raise naming the rows at fault.

    Arrays and nested lists are accepted.  Zero rows pass: see `zero_rows`.
    """
    if not isinstance(embeddings, Tensor):
        try:
            embeddings = torch.as_tensor(np.asarray(embeddings))
        except (TypeError, ValueError) as err:
            raise InputError(
                f"`{name}` must be a float array of shape (N, D); got {type(embeddings).__name__} "
                f"({err}). Stack the vectors into one array."
            ) from err
    if embeddings.ndim != 2:
        raise InputError(
            f"`{name}` must be (N, D), one row per sample; got shape {tuple(embeddings.shape)}. "
            "Flatten or pool the other dimensions first."
        )
    if not embeddings.is_floating_point():
        if embeddings.is_complex() or embeddings.dtype == torch.bool:
            raise InputError(f"`{name}` must be real floats; got {embeddings.dtype}.")
        embeddings = embeddings.float()
    if embeddings.shape[1] == 0:
        raise InputError(f"`{name}` must have at least one column; got {tuple(embeddings.shape)}.")
    bad = (~torch.isfinite(embeddings)).any(1)
    if bad.any():
        raise InputError(
            f"`{name}` must be finite; rows {some_of(bad.nonzero()[:, 0])} hold NaN or infinity. "
            "Drop these rows or look for a diverged model."
        )
    return embeddings


def zero_rows(embeddings: Tensor) -> Tensor:
    """Rows of norm 0, as int64 indices: they have no direction, so no cosine similarity."""
    return (embeddings == 0).all(1).nonzero()[:, 0]


def normalize_rows(embeddings: Tensor) -> Tensor:
    """Rows scaled to norm 1; a zero row stays zero, so that its similarities are 0."""
    # Two steps, so that rows of norm 1e30 or 1e-30 neither overflow nor vanish when squared.
    peak = embeddings.abs().amax(1, keepdim=True)
    scaled = embeddings / torch.where(peak > 0, peak, 1)
    norm = scaled.norm(dim=1, keepdim=True)
    return scaled / torch.where(norm > 0, norm, 1)


@dataclass(frozen=True)
class Labels:
    """Labels of any kind as codes 0..C-1.

    Attributes:
        codes: (N,) int64, position in `classes`.
        classes: (C,) the distinct original labels, sorted (numbers by value, strings by text).
    """

    codes: Tensor
    classes: np.ndarray

    @property
    def counts(self) -> Tensor:
        """(C,) samples per class, each at least 1."""
        return torch.bincount(self.codes, minlength=len(self.classes))


def encode_labels(labels: Any, n: int | None = None, name: str = "labels") -> Labels:
    """Map labels to codes 0..C-1; strings, negative and non-contiguous integers are fine.

    Floats are refused unless integral (a label 2.5 is a bug upstream), NaN and None always.

    Args:
        labels: (N,) tensor, array or list of integers, integral floats, bools or strings.
        n: the length it must have, if known.
        name: the caller's argument name, for messages.

    Returns:
        `Labels` with codes on the CPU.

    Raises:
        InputError: wrong length or shape, NaN, None, or fractional values.
    """
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.ndim != 1:
        hint = " Use `.squeeze(1)`." if array.ndim == 2 and array.shape[1] == 1 else ""
        raise InputError(
            f"`{name}` must be one label per sample, shape (N,); got {array.shape}.{hint}"
        )
    if n is not None and len(array) != n:
        raise InputError(
            f"`{name}` must have one entry per embedding, ({n},); got ({len(array)},)."
        )
    if array.dtype.kind == "O":
        kinds = {type(v) for v in array.tolist()}
        if not kinds <= {str} and not kinds <= {int, bool}:
            raise InputError(
                f"`{name}` must be all strings or all integers; got a mix of "
                f"{', '.join(sorted(k.__name__ for k in kinds))}. Empty cells read as None or NaN."
            )
        array = array.astype(str) if kinds <= {str} else array.astype(np.int64)
    if array.dtype.kind == "f":
        off = ~np.isfinite(array) | (array != np.round(array))
        if off.any():
            row = int(np.flatnonzero(off)[0])
            raise InputError(
                f"`{name}` must be integers or strings; got {array[row]!r} at row {row}. "
                "Cast class ids to int; do not pass scores."
            )
        array = array.astype(np.int64)
    if array.dtype.kind not in "iubU":
        raise InputError(f"`{name}` must be integers or strings; got dtype {array.dtype}.")
    classes, codes = np.unique(array, return_inverse=True)
    return Labels(torch.from_numpy(codes.reshape(-1).astype(np.int64)), classes)


def check_sample_index(sample_index: Any, n: int, rows: int | None, name: str) -> Tensor:
    """Return `sample_index` as int64 (B,), every entry in [0, n), of length `rows` if given."""
    index = torch.as_tensor(sample_index)
    if index.is_floating_point() or index.dtype == torch.bool or index.is_complex():
        raise InputError(f"`{name}` must be integers; got {index.dtype}.")
    if index.ndim != 1:
        raise InputError(
            f"`{name}` must be (B,), one data-set index per row; got "
            f"{tuple(index.shape)}. Use `.flatten()`."
        )
    if rows is not None and len(index) != rows:
        raise InputError(
            f"`{name}` must be (B,) = ({rows},) like the embeddings; got ({len(index)},). "
            "Pass the indices of exactly these rows (a subset miner drops rows)."
        )
    # On an accelerator the range check would synchronise each step; the lookup itself checks there.
    if index.device.type == "cpu" and len(index):
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= n:
            raise SampleIndexError(
                f"`{name}` must lie in [0, {n}); got {low if low < 0 else high}. "
                "Are these rows of the data set the weights were made for?"
            )
    return index.long()


def check_number(
    value: Any,
    name: str,
    low: float | int = -math.inf,
    high: float | int = math.inf,
    open_low: bool = False,
) -> float:
    """Return `value` as a float in [low, high] (or (low, high] if `open_low`); NaN is refused."""
    try:
        number = float(value)
    except (TypeError, ValueError) as err:
        raise InputError(f"`{name}` must be a number; got {value!r}.") from err
    inside = (low < number if open_low else low <= number) and number <= high
    if math.isnan(number) or not inside:
        bracket = "(" if open_low else "["
        raise InputError(f"`{name}` must be in {bracket}{low:g}, {high:g}]; got {number:g}.")
    return number


def check_whole(value: Any, name: str, low: int = 1) -> int:
    """Return `value` as an int of at least `low`."""
    try:
        whole = not isinstance(value, bool) and int(value) == value and value >= low
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole:
        raise InputError(f"`{name}` must be a whole number of at least {low}; got {value!r}.")
    return int(value)


def check_choice(value: Any, name: str, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`."""
    if value not in choices:
        raise InputError(f"`{name}` must be one of {', '.join(choices)}; got {value!r}.")
    return value


def check_device(device: Any, name: str = "device") -> torch.device:
    """The device of that name; "auto" is CUDA where there is one, else the CPU.

    Raises:
        InputError: no such kind of device, or none of it on this machine.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as err:
        raise InputError(
            f"`{name}` must be auto, cpu, cuda, cuda:N or mps; got {device!r}."
        ) from err
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (found.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(found.type, False):
        raise InputError(f"`{name}`: {device} is not available here; use auto or cpu.")
    return found
