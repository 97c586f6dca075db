"""Check what the two sides of a search, queries and gallery, must agree on: K and labels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from bspml.errors import InputError
from bspml.shapes import Float, Int, Tensor
from bspml.tensors.checks import check_whole, encode_labels


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
    values = (ks,) if isinstance(ks, (int, np.integer)) else ks
    checked = sorted({check_whole(k, "ks") for k in values})
    if not checked:
        raise InputError("`ks` must name at least one K; got none. Use ks=(1,).")
    return tuple(checked)


def check_reach(ks: tuple[int, ...], available: int, alone: bool, of: str) -> None:
    """Refuse a K beyond what a query is compared with.

    Args:
        ks: from `check_ks`.
        available: how many a query is compared with.
        alone: the gallery is the queries, each without itself.
        of: what the gallery has, in the plural, for the message.

    Raises:
        InputError: the largest K is above `available`.
    """
    if ks[-1] > available:
        less = " (the query itself not counted)" if alone else ""
        raise InputError(
            f"`ks` asks for the {ks[-1]} nearest, but the gallery has {available} {of}{less}. "
            f"Use ks up to {available}."
        )


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
