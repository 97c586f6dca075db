"""Values as JSON can hold them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

_DEEPEST = 64  # levels


def parse_json(content: str | bytes) -> Any:
    """Return the value of JSON text, in UTF-8 if it comes as bytes.

    Raises:
        ValueError: no JSON, or nested deeper than anything that bspml writes.

    Example:
        >>> parse_json("[" * 100_000)
        Traceback (most recent call last):
            ...
        ValueError: it is nested too deeply
    """
    text = content if isinstance(content, str) else content.decode("utf-8", "surrogatepass")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    check_nesting(value)
    return value


def check_nesting(value: Any, most: int | None = None) -> None:
    """Refuse a value that no recursion gets to the end of: deep, endless, or grown by references.

    Args:
        value: numbers, text, None, lists and mappings of them.
        most: values in it, however often each is referred to; None sets no limit.

    Raises:
        ValueError: it is.
    """
    level, count = [value], 0
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
        count += len(level)
        if most is not None and count > most:
            raise ValueError(f"it holds more than {most} values")
        if not level:
            return
    raise ValueError("it is nested too deeply")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple | set) else ()


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
    text = json.dumps(_json_value(value), indent=indent, ensure_ascii=False, allow_nan=False)
    # Half a character, as of a file's undecodable name, is no UTF-8; JSON writes it like Python.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


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
