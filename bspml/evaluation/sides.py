"""Check what the two sides of a search, queries and gallery, must agree on: K, labels and rows.

Copies.  Rows are copies if they are equal after normalisation, but for the rounding of the coarser
type that they came in.  A copy is the nearest neighbour of its source, so that a query whose copy
is searched finds it and says nothing about the embedding.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bspml.errors import InputError
from bspml.shapes import Float, Int, Tensor
from bspml.tensors.checks import Labels, check_whole, encode_labels
from bspml.tensors.copies import first_copies, near_digests, own_rows, row_digests
from bspml.tensors.row_index import check_in_order
from bspml.words import did_you_mean, shown, some_of


def flat(metrics: Any, at: str) -> dict[str, Any]:
    """Return metrics ready for JSON: one entry for each K, NaN as None, tuples as their length.

    Args:
        metrics: a dataclass of them.
        at: name of the field that holds one for each K, without the final "k": "recall_at_".
    """
    values = {f"{at}{k}": v for k, v in getattr(metrics, f"{at}k").items()}
    for name in metrics.__dataclass_fields__:
        value = getattr(metrics, name)
        if isinstance(value, tuple):
            values[f"num_{name}"] = len(value)
        elif name != f"{at}k":
            values[name] = value
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in values.items()}


def check_columns(queries: Float[Tensor, "N D"], gallery: Float[Tensor, "R E"]) -> None:
    """Refuse rows of different lengths.

    Args:
        queries: (N, D).
        gallery: (R, E).

    Raises:
        InputError: E is not D.
    """
    if gallery.shape[1] != queries.shape[1]:
        raise InputError(
            f"`gallery` must have the queries' {queries.shape[1]} columns; got "
            f"{gallery.shape[1]}. Were both embedded by the same network?"
        )


def check_ks(ks: Any) -> tuple[int, ...]:
    """Return the K, one or several, as ascending numbers, or refuse them."""
    try:
        if isinstance(ks, bytes | bytearray):  # whose entries are the numbers of its characters
            raise TypeError("no numbers")
        if isinstance(ks, Mapping | np.ma.MaskedArray):  # of keys, or of what nobody sees
            check_in_order(ks, "ks")
        values = (ks,) if isinstance(ks, (int, np.integer)) else list(ks)
    except TypeError as err:
        raise InputError(
            f"`ks` must be whole numbers, the K of Recall@K; got {ks!r:.40}. Use ks=(1, 10)."
        ) from err
    checked = sorted({check_whole(k, "ks") for k in values})
    if not checked:
        raise InputError("`ks` must name at least one K; got none. Use ks=(1,).")
    return tuple(checked)


def check_reach(
    ks: tuple[int, ...], available: int, alone: bool, of: str, by_default: bool = False
) -> tuple[int, ...]:
    """Return the K, of which none is beyond what a query is compared with.

    Args:
        ks: from `check_ks`.
        available: how many a query is compared with.
        alone: the gallery has the query itself, which is left out.
        of: what the gallery has, in the plural, for the message.
        by_default: nobody chose these: a warning names those that do not fit, which are left out.

    Raises:
        InputError: a K that was chosen, or every K, is above `available`, or that is 0.
    """
    fitting = tuple(k for k in ks if k <= available)
    if fitting == ks:
        return ks
    less = " (the query itself not counted)" if alone else ""
    if available < 1:
        raise InputError(f"the gallery has no {of} to be found{less}; give it at least two {of}.")
    if by_default and fitting:
        left_out = ", ".join(str(k) for k in ks[len(fitting) :])
        warnings.warn(
            f"of the usual `ks`, {left_out} are left out: the gallery has {available} {of}{less}.",
            stacklevel=3,
        )
        return fitting
    raise InputError(
        f"`ks` asks for the {ks[-1]} nearest, but the gallery has {available} {of}{less}. "
        f"Use ks up to {available}."
    )


def is_ignored(labels: Labels, ignore: Any, rows_of: str = "") -> np.ndarray:
    """Return which samples have a label that is to count nowhere, (N,) bool.

    Args:
        labels: of N samples.
        ignore: such labels, one or several, of the labels' kind.
        rows_of: the argument whose rows these are, if some must be left.

    Raises:
        InputError: text among numbers, or the other way round; no row of `rows_of` would be left.

    Example:
        >>> is_ignored(encode_labels([-1, 5, -1]), ignore=(-1,)).tolist()
        [True, False, True]
    """
    values = several(ignore)
    if not values:
        return np.zeros(len(labels.codes), dtype=bool)
    unwanted = encode_labels(values, name="ignore", warn=False).classes
    if (unwanted.dtype.kind == "U") != (labels.classes.dtype.kind == "U"):
        raise InputError(
            f"`ignore` must be of the labels' kind, {labels.classes.dtype}; got {unwanted.dtype}: "
            "no text equals a number. Convert it."
        )
    ignored = np.isin(labels.classes, unwanted)[labels.codes.numpy()]
    if rows_of and ignored.all():
        raise InputError(
            f"`ignore` names the labels of all rows of `{rows_of}`; none would be left."
        )
    return ignored


def several(ignore: Any) -> list[Any]:
    """Return labels as a list, of which one may have come alone."""
    check_in_order(ignore, "ignore")
    ignore = ignore.tolist() if isinstance(ignore, torch.Tensor) else ignore  # Python's booleans
    if isinstance(ignore, bool | np.bool_):
        raise InputError(
            f"`ignore` must be labels that count nowhere, such as (-1,); got {ignore}."
        )
    one = isinstance(ignore, str | bytes) or not hasattr(ignore, "__iter__")
    one |= getattr(ignore, "ndim", 1) == 0
    return [ignore] if one else list(ignore)


def check_ignored(ignore: Any, *sides: Labels) -> None:
    """Refuse a label to ignore that no sample has: it would be counted under its right spelling.

    Args:
        ignore: such labels, one or several.
        *sides: the labels of all samples.

    Raises:
        InputError: names it and the nearest label that there is.
    """
    encode_labels(several(ignore), name="ignore", warn=False)  # not lists of them
    for value in several(ignore):
        if not any(is_ignored(labels, value).any() for labels in sides):
            # Numbers that look alike are no misspellings.
            names = [name for labels in sides for name in labels.classes if isinstance(name, str)]
            hint = did_you_mean(value, names) or "; leave it out."
            raise InputError(f"`ignore` names {shown(value)}, a label that no row has{hint}")


def own_gallery_rows(
    rows: Sequence[Float[Tensor, "_ D"]],
    codes: Sequence[Int[Tensor, " _"]],
    tolerance: float,
    numbers: np.ndarray,
    of: str,
) -> Int[Tensor, " N"]:
    """Return the row of the gallery that each query is: its copy under the same label.

    An equal row before one within the rounding, which in half precision is often another sample.

    Args:
        rows: (N, D) and (R, D) of queries and gallery, from `grid_unit_rows`.
        codes: (N,) and (R,) their labels, of one coding.
        tolerance: distance of two rows that count as equal.
        numbers: (N,) what the caller calls the queries.
        of: what the two have, in the plural, for the message.

    Raises:
        InputError: a query is not in the gallery.
    """
    labels = [own.cpu().numpy().astype("S20") for own in codes]
    near = near_digests(rows, tolerance)
    own, every = np.full(len(labels[0]), -1), np.arange(len(labels[1]))
    for digests, only_free in ((map(row_digests, rows), False), (near, True), (near, False)):
        ours, theirs = map(np.char.add, digests, labels)
        absent = np.flatnonzero(own < 0)
        among = np.setdiff1d(every, own) if only_free else every
        found = own_rows(ours[absent], theirs[among])
        own[absent[found >= 0]] = among[found[found >= 0]]
    absent = np.flatnonzero(own < 0)
    if len(absent):
        raise InputError(
            f"`query_in_gallery` is true, but `gallery` has no copy under the same label of the "
            f"query {of} {some_of(numbers[absent])} ({len(absent)} of {len(own)}). Take both from "
            "the same embeddings, or leave it false."
        )
    return torch.from_numpy(own)


def warn_of_copies(
    sides: Sequence[tuple[Tensor, np.ndarray, np.ndarray]],
    tolerance: float,
    classes: int,
    name: str,
    of: str,
    stacklevel: int = 3,
) -> int:
    """Warn of copies that are searched, and return how many there are.

    Not where rows are no more than their class, as those of a perfect embedding.

    Args:
        sides: rows from `grid_unit_rows`, which of them have norm 1, and what the caller calls
            them: of the gallery, and, where no query is one of it, of the queries.
        tolerance: distance of two rows that count as equal.
        classes: how many the gallery has.
        name: of the caller's argument that is the gallery.
        of: what it has, in the plural.
        stacklevel: whose line the warning names, 2 that of the caller.
    """
    each = zip(near_digests([rows for rows, *_ in sides], tolerance), sides, strict=True)
    told = [(near[points], numbers[points]) for near, (_, points, numbers) in each]
    (digests, numbers), *queries = told
    if len(np.unique(digests)) <= classes:
        return 0
    if queries:
        (ours, searching), word = queries[0], "as"
        rows = own_rows(ours, digests)
        found = np.flatnonzero(rows >= 0)
        remark = "where each finds itself. Leave every query's own one out with "
        remark += "`query_in_gallery=True`, or drop the copies."
        what = f"{len(found)} of {len(rows)} query {of} are in `gallery` too"
    else:
        rows, searching, word = first_copies(digests), numbers, "of"
        found = np.flatnonzero(rows != np.arange(len(rows)))
        remark = "and a copy finds its source. If a sampler repeated them, as DistributedSampler "
        remark += "does to fill its last batch, drop them."
        what = f"`{name}`: {len(found)} of {len(rows)} {of} are exact copies of others"
    if len(found):
        pairs = [f"{searching[row]} {word} {numbers[rows[row]]}" for row in found[:2]]
        text = f"{what} ({of} {' and '.join(pairs)}), {remark}"
        warnings.warn(text, stacklevel=stacklevel)
    return len(found)


def encode_jointly(
    ours: Any, n: int, theirs: Any, rows: int, name: str = "labels"
) -> tuple[Int[Tensor, " N"], Int[Tensor, " R"]]:
    """Return the codes of both sides over the union of their labels; no text equals a number.

    Args:
        ours: (N,) labels of the queries.
        n: N.
        theirs: (R,) labels of the gallery.
        rows: R.
        name: of the queries' argument, for messages; the gallery's begins with "gallery_".

    Raises:
        InputError: as `encode_labels`, or one side is text and the other numbers.
    """
    sides = encode_labels(ours, n, name), encode_labels(theirs, rows, f"gallery_{name}")
    kinds = [side.classes.dtype for side in sides]
    if (kinds[0].kind == "U") != (kinds[1].kind == "U"):
        raise InputError(
            f"`{name}` and `gallery_{name}` must be of one kind; got {kinds[0]} and {kinds[1]}: "
            "no text equals a number. Convert one of them."
        )
    # As Python integers where the types differ: numpy joins int64 and uint64 as float64.
    same = kinds[0] == kinds[1] or kinds[0].kind == "U"
    parts = [side.classes if same else side.classes.astype(object) for side in sides]
    union = np.unique(np.concatenate(parts))
    place = [torch.from_numpy(np.searchsorted(union, part)) for part in parts]
    return place[0][sides[0].codes], place[1][sides[1].codes]
