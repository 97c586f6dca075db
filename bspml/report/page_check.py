"""Whether a page read from files that a person may have edited holds what a page needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bspml.errors import RunError

__all__ = ["check_page"]

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _number_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, int | float))


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


_SAMPLE: dict[str, Check] = {
    "index": _whole, "label": _text, "image": _text_or_none, "text": _text_or_none,
}  # fmt: skip
_SUSPECT: dict[str, Check] = {
    **_SAMPLE,
    "name": _text_or_none, "suggested": _text_or_none, "margin": _number_or_none,
    "p": _number_or_none, "q": _number_or_none, "weight": _number_or_none,
    "own": lambda v: not _all(v, _SAMPLE), "other": lambda v: not _all(v, _SAMPLE),
}  # fmt: skip
_CLASS: dict[str, Check] = {
    "label": _text, "support": _whole, "mean_weight": _number_or_none,
    "share_flagged": _number_or_none, "looks_like_two": _flag, "looks_like": _text_or_none,
}  # fmt: skip
_PAIR: dict[str, Check] = {
    "a": _whole, "b": _whole, "label_a": _text, "label_b": _text, "similarity": _number_or_none,
    "image_a": _text_or_none, "image_b": _text_or_none,
}  # fmt: skip
_HISTOGRAM: dict[str, Check] = {
    "counts": lambda v: isinstance(v, list) and len(v) > 0 and all(map(_whole, v)),
    "null_level": _number,
}


def check_page(values: Mapping[str, Any], path: Any) -> None:
    """Raise a RunError that names the file and the entry if one is not what the page takes.

    Args:
        values: fields of `bspml.report.page.PageData`, as JSON gives them; curves are not looked
            at.
        path: the file they came from.
    """
    facts = values.get("facts", [])
    wrong = next((n for n in ("title", "sentence") if not _text(values.get(n, ""))), "")
    if not wrong and not (
        isinstance(facts, Sequence)
        and all(isinstance(f, list | tuple) and len(f) == 2 and all(map(_text, f)) for f in facts)
    ):
        wrong = "facts"
    if not wrong and not _flag(values.get("integer_labels", False)):
        wrong = "integer_labels"
    if not wrong and values.get("histogram") is not None:
        wrong = _entry(values["histogram"], _HISTOGRAM)
        wrong = wrong and f"histogram{wrong}"
    for name, fields in (("suspects", _SUSPECT), ("classes", _CLASS), ("duplicates", _PAIR)):
        if not wrong:
            wrong = _all(values.get(name, []), fields)
            wrong = wrong and f"{name}{wrong}"
    if wrong:
        raise RunError(
            f"{path}: {wrong} is not what a page holds. Was the file edited? Make it again."
        )


def _all(entries: Any, fields: Mapping[str, Check]) -> str:
    """Where the first entry at fault stands, '' for none."""
    if not isinstance(entries, list | tuple):
        return " "
    for place, entry in enumerate(entries):
        found = _entry(entry, fields)
        if found:
            return f"[{place}]{found}"
    return ""


def _entry(entry: Any, fields: Mapping[str, Check]) -> str:
    if not isinstance(entry, Mapping):
        return " "
    wrong = next((name for name, check in fields.items() if not check(entry.get(name))), "")
    return f".{wrong}" if wrong else ""
