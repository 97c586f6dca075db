"""Hyper-parameters of a method: their defaults, what they mean, and what values they take."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bspml.errors import InputError
from bspml.tensors.checks import check_choice, check_number, check_whole


@dataclass(frozen=True)
class Hyper:
    """One hyper-parameter.

    Attributes:
        default: used where nothing is said.
        says: what it is, for a table.
        check: takes a value and its name in messages, returns the value to use or raises.
        printed: the default stands in [Zhang 2023]; else it is another paper's or our choice.
    """

    default: Any
    says: str
    check: Callable[[Any, str], Any]
    printed: bool = False


def positive(default: float, says: str, printed: bool = False) -> Hyper:
    """A number above 0."""
    return Hyper(default, says, lambda v, n: check_number(v, n, 0, open_low=True), printed)


def at_least_0(default: float, says: str, printed: bool = False) -> Hyper:
    """A number of at least 0."""
    return Hyper(default, says, lambda v, n: check_number(v, n, 0), printed)


def number(default: float, says: str, printed: bool = False) -> Hyper:
    """Any finite number."""
    return Hyper(default, says, check_number, printed)


def fraction(default: float | None, says: str, printed: bool = False) -> Hyper:
    """A number in [0, 1]."""
    return Hyper(default, says, lambda v, n: check_number(v, n, 0, 1), printed)


def whole(default: int | None, says: str, low: int = 1, printed: bool = False) -> Hyper:
    """A whole number of at least `low`."""
    return Hyper(default, says, lambda v, n: check_whole(v, n, low), printed)


def choice(default: str | None, says: str, *choices: str) -> Hyper:
    """One of some words."""
    return Hyper(default, says, lambda v, n: check_choice(v, n, choices))


def flag(default: bool | None, says: str) -> Hyper:
    """True or false."""
    return Hyper(default, says, _check_flag)


def optional(inner: Hyper) -> Hyper:
    """The same, or None for "not set"."""

    def check(value: Any, name: str) -> Any:
        return None if value is None else inner.check(value, name)

    return Hyper(inner.default, inner.says, check, inner.printed)


def resolve(known: Mapping[str, Hyper], given: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Every hyper-parameter with its checked value, given or default.

    Raises:
        InputError: one that the method does not have, or a value it does not take.
    """
    for key in given:
        if key not in known:
            takes = f"It takes {', '.join(known)}." if known else "It takes none."
            raise InputError(
                f"`hyper.{key}` is no hyper-parameter of {method}{nearest(key, known)}. {takes}"
            )
    return {
        key: hyper.check(given[key], f"hyper.{key}") if key in given else hyper.default
        for key, hyper in known.items()
    }


def nearest(name: Any, names: Iterable[str]) -> str:
    """'; did you mean `x`?' for the nearest of `names`, or nothing."""
    found = difflib.get_close_matches(str(name)[:100].lower(), list(names), n=1)
    return f"; did you mean `{found[0]}`?" if found else ""


def _check_flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"`{name}` must be true or false; got {value!r:.40}.")
    return value
