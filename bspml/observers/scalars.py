"""The record of a round as named numbers, as trackers want them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any


def scalars_of(record: Any) -> dict[str, float]:
    """Return the finite numbers of a round's record under names such as "metrics/map_at_r".

    What stands in the record itself is under "training/", the weight step's under "curriculum/",
    what `evaluate` returned under "metrics/".  A pair of numbers, an interval, becomes NAME_low and
    NAME_high; {k: value} of `recall_at_k` becomes recall_at_1, recall_at_2, ...  Texts, longer
    lists and what is not finite are left out.

    Args:
        record: a dataclass, such as `bspml.trainers.RoundRecord`.

    Example:
        >>> from bspml.trainers import RoundRecord
        >>> metrics = {"recall_at_k": {1: 0.5}, "notes": ("a word",)}
        >>> scalars = scalars_of(RoundRecord(1, 0.5, 10, 0.25, 1.0, 0.0, None, metrics, 2.0, 1.0))
        >>> scalars["training/loss"], scalars["metrics/recall_at_1"]
        (0.25, 0.5)
    """
    return dict(_named(dataclasses.asdict(record), ""))


def _named(values: Mapping[Any, Any], group: str) -> Iterator[tuple[str, float]]:
    prefix = group or "training/"
    for key, value in values.items():
        if isinstance(value, Mapping):
            if key == "recall_at_k":
                value, inner = {f"recall_at_{k}": v for k, v in value.items()}, prefix
            else:
                inner = group if key == "extra" else f"{group}{key}/"
            yield from _named(value, inner)
        elif isinstance(value, tuple | list) and len(value) == 2 and all(map(_is_number, value)):
            yield f"{prefix}{key}_low", float(value[0])
            yield f"{prefix}{key}_high", float(value[1])
        elif _is_number(value):
            yield f"{prefix}{key}", float(value)


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)
