"""Values as JSON can hold them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_json(value: Any, indent: int | None = None) -> str:
    """Return a value as strict JSON; NaN and infinity, which JSON does not know, become null.

    Numpy scalars and arrays and tensors are unpacked, tuples become lists, keys become text.

    Args:
        value: numbers, text, None, lists and mappings of them.
        indent: spaces a level, or None for one line.

    Raises:
        TypeError: something else than numbers, text, None, lists and mappings of them.

    Example:
        >>> to_json({"recall": float("nan"), "ks": (1, 2)})
        '{"recall": null, "ks": [1, 2]}'
    """
    return json.dumps(_json_value(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(inner) for inner in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if hasattr(value, "tolist"):  # numpy and torch, without importing either
        return _json_value(value.tolist())
    raise TypeError(f"a record holds numbers, text, lists and mappings; got {type(value).__name__}")
