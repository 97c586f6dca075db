"""Check what names or weighs samples row by row: indices, choices of rows, weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bspml.errors import InputError, SampleIndexError
from bspml.shapes import Float
from bspml.tensors.checks import FLOATS, as_numbers, some_of, to_device
from bspml.tensors.class_ids import integral

_ONLY_CONVERT = (torch.uint16, torch.uint32, torch.uint64)  # torch compares them with no other type


def check_sample_index(
    sample_index: Any, n: int, rows: int | None, name: str, device: torch.device | None = None
) -> Tensor:
    """Return data-set rows as int64 (B,), or refuse them.

    Args:
        sample_index: (B,) integers in [0, n).
        n: N, how many samples the data set has.
        rows: the length it must have, or None.
        name: the caller's argument name, for messages.
        device: where the indices go; None leaves them where they are.

    Raises:
        InputError: no integers, or not one per row.
        SampleIndexError: an index outside [0, n); on an accelerator nobody looks, because that
            would make every step wait: the lookup itself fails there.

    Example:
        >>> check_sample_index([3, 0, 3], n=4, rows=3, name="sample_index")
        tensor([3, 0, 3])
    """
    index = as_numbers(
        sample_index, name, "integers, (B,)", "Pass the data-set row of each sample."
    )
    # An empty list reads as floats.
    if index.numel() and (index.is_floating_point() or index.dtype == torch.bool):
        remedy = ".nonzero()[:, 0]" if index.dtype == torch.bool else ".long()"
        raise InputError(f"`{name}` must be integers; got {index.dtype}. Take its `{remedy}`.")
    index = index.long()
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
    # Hence it is done on whichever side is the CPU.
    if device is not None and device.type == "cpu":
        index = index.to(device)
    if index.device.type == "cpu" and len(index):
        low, high = (int(bound) for bound in torch.aminmax(index))
        if low < 0 or high >= n:
            raise SampleIndexError(
                f"`{name}` must lie in [0, {n}); got {low if low < 0 else high}. "
                "Are these rows of the data set the weights were made for?"
            )
    return index if device is None else to_device(index, device)


def as_class_ids(labels: Any, name: str = "labels") -> Tensor:
    """Return the labels of a batch as a tensor of numbers; their shape is open.

    Args:
        labels: a tensor, an array, a series or a list of numbers.
        name: the caller's argument name, for messages.

    Raises:
        InputError: text, or whatever else holds no numbers.
    """
    remedy = "Give each class a number: `SampleWeights(labels).codes` holds them for the data set."
    ids = as_numbers(labels, name, "class ids, (B,) integers", remedy)
    if ids.is_floating_point():
        return ids if ids.dtype in FLOATS else ids.float()
    return ids.long() if ids.dtype in _ONLY_CONVERT else ids


def check_class_ids(labels: Any, rows: int, name: str = "labels", of: str = "embeddings") -> Tensor:
    """Return the labels of a batch as int64 (B,), where they are.

    Args:
        labels: (B,) integers, or floats without a fraction, of any kind.
        rows: B.
        name: the caller's argument name, for messages.
        of: the argument that has these rows.

    Raises:
        InputError: no numbers, not one for each row, or a fraction.

    Example:
        >>> check_class_ids([3.0, 0.0], rows=2)
        tensor([3, 0])
    """
    codes = as_class_ids(labels, name)
    if codes.shape != (rows,):
        raise InputError(
            f"`{name}` must be (B,) = ({rows},), one label per row of `{of}`; "
            f"got {tuple(codes.shape)}."
        )
    if codes.is_floating_point():  # rare, so it may wait for the device
        codes = torch.from_numpy(integral(codes, name))
    return codes.long()


def check_reference_weights(
    sample_weights: Any, n: int, name: str = "sample_weights", of: str = "embeddings"
) -> Tensor:
    """Return sample weights as a float64 copy on the CPU; None weighs all 1.

    Args:
        sample_weights: (n,) numbers in [0, 1], or None.
        n: how many there must be.
        name: the caller's argument, for messages.
        of: the argument that has as many rows.

    Raises:
        InputError: another shape, or a weight outside, naming the rows.
    """
    if sample_weights is None:
        return torch.ones(n, dtype=torch.float64)
    weights = as_numbers(
        sample_weights, name, f"(N,) = ({n},) numbers in [0, 1]", "None weighs all 1."
    )
    weights = weights.detach().cpu().double().clone()
    if weights.shape != (n,):
        raise InputError(
            f"`{name}` must be (N,) = ({n},) like the {of}; got {tuple(weights.shape)}."
        )
    off = ~((weights >= 0) & (weights <= 1))
    if off.any():
        rows = off.nonzero()[:, 0]
        raise InputError(
            f"`{name}` must be in [0, 1]; rows {some_of(rows)} are not, the first is "
            f"{float(weights[rows[0]]):g}."
        )
    return weights


def check_rows(rows: Any, n: int) -> Tensor:
    """Return a choice of samples as (R,) int64 row numbers.

    Args:
        rows: (R,) integers, or an (N,) bool mask.
        n: how many samples there are.

    Raises:
        InputError, SampleIndexError: a mask of another length or of 0 and 1, or rows outside
            [0, n).

    Example:
        >>> check_rows([True, False, True], n=3)
        tensor([0, 2])
    """
    expected = "sample indices, (R,), or a bool mask, (N,)"
    chosen = as_numbers(rows, "rows", expected, "Cast them.").detach().cpu()
    if chosen.dtype == torch.bool:
        if chosen.shape != (n,):
            raise InputError(
                f"`rows` must have one flag per sample, ({n},); got {tuple(chosen.shape)}. "
                "Or give sample indices."
            )
        chosen = chosen.nonzero()[:, 0]
    index = check_sample_index(chosen, n, None, "rows")
    if len(index) == n > 3 and int(index.max()) < 2:
        raise InputError(
            f"`rows` holds 0 and 1 alone, for each of {n} samples: a mask must be of bools. Use "
            "`.astype(bool)`, or give sample indices."
        )
    return index


def embedded_rows(found: Any, rows: int) -> Float[Tensor, "B D"]:
    """Return what a network made of a batch as float32, in which all of it must show.

    Args:
        found: (B, D) real numbers of any precision.
        rows: B.

    Raises:
        InputError: another shape, or complex numbers, of which half would be lost.

    Example:
        >>> embedded_rows(torch.ones(1, 2, dtype=torch.bfloat16), 1)
        tensor([[1., 1.]])
    """
    if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != rows:
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InputError(
            f"`model` must map a batch to (B, D) = ({rows}, D); got {got}. Flatten its output."
        )
    if found.is_complex():
        raise InputError(
            f"`model` must map a batch to real numbers; got {found.dtype}. Return "
            "torch.view_as_real(output).flatten(1), or absolute values."
        )
    return found.float()
