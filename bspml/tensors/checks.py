"""Check the arguments of public functions: every message says expected, got, where, and what to do.

Public functions check once with these and then trust their input.  Nothing here changes state,
so a refused argument leaves everything as it was.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bspml.errors import InputError
from bspml.tensors.class_ids import integral
from bspml.tensors.row_index import as_array, check_dimension_names, check_in_order, index_of
from bspml.tensors.scalars import (
    as_device as as_device,
    check_choice as check_choice,
    check_device as check_device,
    check_number as check_number,
    check_whole as check_whole,
    describe as describe,
)
from bspml.words import (  # readers without torch take it from there
    LONGEST_LABEL,
    MISSING_WORDS,
    some_of as some_of,
)

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # dtypes that compute


def as_numbers(value: Any, name: str, expected: str, remedy: str) -> Tensor:
    """Return `value` as a dense tensor of integers, floats or bools; shape and range are open.

    Args:
        value: a tensor, an array or series, a number, or a (nested) list of numbers.
        name: the caller's argument name, for the message.
        expected: what it must be, for the message.
        remedy: what to do, for the message; one sentence.

    Raises:
        InputError: strings, None, lists of different lengths and whatever else holds no numbers;
            complex numbers; sparse, quantized and meta tensors.
    """
    if not isinstance(value, Tensor):
        check_in_order(value, name)
    try:
        tensor = value if isinstance(value, Tensor) else _read_numbers(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as err:
        columns = _columns_of_text(value)
        if columns:
            remedy = f"Columns without numbers: {columns}. Drop them."
        raise InputError(f"`{name}` must be {expected}; got {describe(value)}. {remedy}") from err
    is_dense = tensor.layout == torch.strided and not tensor.is_nested
    if not is_dense or tensor.is_quantized or tensor.device.type == "meta":
        raise InputError(
            f"`{name}` must be a dense tensor with data; got {describe(value)}. "
            "Call `.to_dense()` or `.dequantize()`."
        )
    if tensor.is_complex():
        raise InputError(f"`{name}` must be {expected}; got {tensor.dtype}. {remedy}")
    return tensor


def _columns_of_text(value: Any) -> str:
    """Name the columns of a pandas table that hold no numbers."""
    if index_of(value) is None or not hasattr(value, "columns"):
        return ""
    kinds = zip(value.columns, value.dtypes, strict=True)
    return ", ".join(repr(name) for name, dtype in kinds if dtype.kind not in "iufb")


def _read_numbers(value: Any) -> Tensor:
    if isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value):
        return torch.as_tensor(value)  # scalars, maybe of an accelerator
    array = as_array(value)  # lists through numpy too: torch would read floats as float32
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # long double, unknown to torch
        array = array.astype(np.float64)
    # torch takes neither the other byte order nor a reversed view, and warns of what is read-only.
    copy = not array.flags.writeable or any(s < 0 for s in array.strides)
    array = array.astype(array.dtype.newbyteorder("="), copy=copy)
    return torch.as_tensor(array, device="cpu")


def check_embeddings(embeddings: Any, name: str = "embeddings") -> Tensor:
    """Return `embeddings` as a finite floating tensor (N, D), or raise naming the rows at fault.

    Zero rows pass: see `zero_rows`.

    Args:
        embeddings: (N, D) tensor, array or nested list of numbers.
        name: the caller's argument name, for messages.

    Raises:
        InputError: no numbers, another shape, no columns, NaN or infinity, or a DataFrame with
            columns that are no dimensions by their names.
    """
    expected, remedy = "a float array of shape (N, D)", "Stack the vectors into one array."
    given, embeddings = embeddings, as_numbers(embeddings, name, expected, remedy)
    check_dimension_names(given, name)
    if embeddings.ndim != 2:
        raise InputError(
            f"`{name}` must be (N, D), one row per sample; got shape {tuple(embeddings.shape)}. "
            "Flatten or pool the other dimensions first."
        )
    if embeddings.dtype == torch.bool:
        raise InputError(f"`{name}` must be real floats; got {embeddings.dtype}.")
    if embeddings.dtype not in FLOATS:  # integers, and the 8-bit floats, which only convert
        embeddings = embeddings.float()
    if embeddings.shape[1] == 0:
        raise InputError(f"`{name}` must have at least one column; got {tuple(embeddings.shape)}.")
    if not torch.isfinite(embeddings.detach().sum()):  # no copy; a sum may overflow
        check_finite(embeddings, name, "Drop these rows or look for a diverged model.")
    return embeddings


def check_finite(embeddings: Tensor, name: str, remedy: str) -> None:
    """Refuse rows that hold NaN or infinity.

    Args:
        embeddings: (N, D).
        name: of the caller's argument, for the message.
        remedy: what to do, likewise.
    """
    bad = (~torch.isfinite(embeddings)).any(1).nonzero()[:, 0]
    if len(bad):
        raise InputError(
            f"`{name}` must be finite; rows {some_of(bad)} hold NaN or infinity. {remedy}"
        )


def zero_rows(embeddings: Tensor) -> Tensor:
    """Find the rows of norm 0, as int64 indices: they have no direction, so no cosine."""
    return (embeddings == 0).all(1).nonzero()[:, 0]


def normalize_rows(embeddings: Tensor) -> Tensor:
    """Scale rows to norm 1; a zero row stays zero, so that its similarities are 0."""
    # Two steps, so that rows of norm 1e30 or 1e-30 neither overflow nor vanish when squared.
    peak = torch.maximum(embeddings.amax(1, keepdim=True), -embeddings.amin(1, keepdim=True))
    scaled = embeddings / torch.where(peak > 0, peak, 1)
    norm = scaled.norm(dim=1, keepdim=True).clamp_min(1)  # below 1 of zero rows alone
    return scaled / norm if scaled.requires_grad else scaled.div_(norm)


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
        """Count the samples of each class, (C,), each at least 1."""
        return torch.bincount(self.codes, minlength=len(self.classes))


def encode_labels(
    labels: Any, n: int | None = None, name: str = "labels", warn: bool = True
) -> Labels:
    """Map labels to codes 0..C-1; strings, negative and non-contiguous integers are fine.

    Text as programs write what is missing (nan, None) is a class, and warned of.  Floats are
    refused unless integral (a label 2.5 is a bug upstream) and exact (below 2**24 in float32), NaN
    and None always, and so is whatever numpy would make one class of two: 0 beside '0', text with
    NUL, numbers that do not fit int64, entries behind a mask.

    Args:
        labels: (N,) tensor, array or list of integers, integral floats, bools or strings; or
            `Labels`, which are returned as they are.
        n: the length it must have, if known.
        name: the caller's argument name, for messages.
        warn: of names that stand for what is missing.

    Returns:
        `Labels` with codes on the CPU.

    Raises:
        InputError: wrong length or shape, NaN, None, fractional values, or a mix of text and
            numbers.

    Example:
        >>> labels = encode_labels(["dog", "cat", "dog"])
        >>> labels.codes, labels.classes.tolist()
        (tensor([1, 0, 1]), ['cat', 'dog'])
    """
    if isinstance(labels, Labels):
        _check_length(len(labels.codes), n, name)
        return labels
    array = _label_array(labels, name)
    if array.ndim != 1:
        hint = " Use `.squeeze(1)`." if array.ndim == 2 and array.shape[1] == 1 else ""
        raise InputError(
            f"`{name}` must be one label per sample, shape (N,); got "
            f"{array.shape if array.ndim else describe(labels)}.{hint}"
        )
    _check_length(len(array), n, name)
    if array.dtype.kind == "O":
        array = _label_objects(array, name)
    if array.dtype.kind == "f":
        array = integral(labels if isinstance(labels, Tensor) else array, name)
    if array.dtype.kind not in "iubU":
        raise InputError(f"`{name}` must be integers or strings; got dtype {array.dtype}.")
    if array.dtype.kind == "U" and array.dtype.itemsize > 4 * LONGEST_LABEL:
        _check_widths(np.char.str_len(array).tolist(), name)
    classes, codes = np.unique(array, return_inverse=True)
    if warn:
        warn_of_missing(classes, codes.reshape(-1), f"`{name}`")
    return Labels(torch.from_numpy(codes.reshape(-1).astype(np.int64)), classes)


def warn_of_missing(classes: np.ndarray, codes: Any, where: str) -> None:
    """Warn of text as programs write a missing value; it stays a class of that name.

    Args:
        classes: (C,) names of classes.
        codes: (N,) int64, the class of each sample; or what else picks the samples of `classes`.
        where: the labels stand, for the message.
    """
    if classes.dtype.kind == "U" and np.isin(classes, MISSING_WORDS).any():
        rows = np.flatnonzero(np.isin(classes, MISSING_WORDS)[codes])
        warnings.warn(
            f"{where}: rows {some_of(rows)}, counted from 0, have the label "
            f"{str(classes[codes][rows[0]])!r}, as programs write a missing one; it counts as a "
            "class of that name. If nothing is known of these samples, leave them out.",
            stacklevel=1,  # once, though several steps encode the same labels
        )


def _check_length(length: int, n: int | None, name: str) -> None:
    if n is not None and length != n:
        raise InputError(f"`{name}` must have one entry per embedding, ({n},); got ({length},).")


def _label_array(labels: Any, name: str) -> np.ndarray:
    if isinstance(labels, Tensor):
        labels = as_numbers(labels, name, "integers or strings", "Cast class ids to int.").detach()
        labels = (labels.double() if labels.is_floating_point() else labels).cpu().numpy()
    check_in_order(labels, name)
    try:
        if isinstance(labels, list | tuple) and not any(
            isinstance(v, list | tuple | np.ndarray | Tensor) for v in labels
        ):
            # As objects: in one dtype, 0 beside '0' would become text and 2**63 beside -1 a float.
            array = np.empty(len(labels), dtype=object)
            array[:] = labels
            return array
        array = np.asarray(labels)
        return array.astype(object) if array.dtype.kind == "T" else array  # of numpy 2's strings
    except (TypeError, ValueError, RuntimeError) as err:
        raise InputError(
            f"`{name}` must be one label per sample, shape (N,); got {describe(labels)}. "
            "Each sample has exactly one label."
        ) from err


def _label_objects(array: np.ndarray, name: str) -> np.ndarray:
    """Return Python objects as strings or int64."""
    values = array.tolist()
    kinds = {type(v) for v in values}
    if kinds and all(issubclass(kind, str) for kind in kinds):
        if any("\0" in v for v in values):
            raise InputError(f"`{name}` must not hold the character NUL: numpy's text ends there.")
        _check_widths([len(value) for value in values], name)
        return np.array([str.__str__(v) for v in values])  # numpy asks an enum's own `__str__`
    if not all(
        issubclass(kind, int | float | np.integer | np.floating | np.bool_)
        and not issubclass(kind, np.timedelta64)
        for kind in kinds
    ):
        raise InputError(
            f"`{name}` must be all strings or all integers; got a mix of "
            f"{', '.join(sorted(k.__name__ for k in kinds))}. Empty cells read as None or NaN."
        )
    for kind in (k for k in kinds if issubclass(k, float | np.floating)):
        floats = [v if type(v) is kind else 0 for v in values]
        integral(np.array(floats, kind if issubclass(kind, np.floating) else float), name)
    try:
        return np.array([int(v) for v in values], dtype=np.int64)
    except OverflowError as err:
        bits = max(int(v).bit_length() for v in values)
        raise InputError(
            f"`{name}` must fit 64 bits, with sign; got a number of {bits}. Pass it as strings."
        ) from err


def _check_widths(lengths: list[int], name: str) -> None:
    if max(lengths, default=0) > LONGEST_LABEL:
        row = next(row for row, length in enumerate(lengths) if length > LONGEST_LABEL)
        raise InputError(
            f"`{name}` must be names of classes, of at most {LONGEST_LABEL} characters; got "
            f"{lengths[row]} at row {row}. Are these texts?"
        )


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor; the way to an accelerator is not waited for, the way back is.

    Args:
        tensor: any tensor.
        device: where it goes.
    """
    return tensor.to(device, non_blocking=device.type != "cpu")
