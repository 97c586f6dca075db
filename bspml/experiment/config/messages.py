"""Pydantic's list of findings as the one line a person can act on."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from bspml.experiment.config.common import UnknownNameError
from bspml.experiment.config.schema import OPEN_SECTIONS, Config

Location = tuple[int | str, ...]

# Stops early: YAML aliases let a small file describe a value of astronomical size.
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring = 2, 60

# Pydantic's error type -> what was expected.  `{...}` is filled from the error's context.
_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list such as [1, 2, 4]",
    "too_short": "at least {min_length} value",
    "string_too_short": "at least {min_length} character",
    "invalid_key": "names as keys",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "model_type": "a section of `key: value` lines",
    "model_attributes_type": "a section of `key: value` lines",
}


def describe(
    error: ValidationError,
    source: str,
    origin: Mapping[str, str],
    root: type[BaseModel] = Config,
) -> str:
    """The first finding as 'source: what is wrong', and how many more there are.

    Unknown keys come first: a misspelt key is often why something else is missing.

    Args:
        error: what pydantic found.
        source: the file read.
        origin: {dotted key: source} for keys that did not come from the file.
        root: the kind of experiment.
    """
    findings = sorted(error.errors(include_url=False), key=lambda f: f["type"] != "extra_forbidden")
    sentence = _sentence(findings[0], root)
    # The key at fault is the first one that the sentence quotes.
    key = re.search(r"`([^`]*)`", sentence)
    where = source if key is None else origin.get(key[1], source)
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{where}: {sentence}{more}".replace("\n", " ")


def _sentence(finding: Any, root: type[BaseModel]) -> str:
    location: Location = finding["loc"]
    key = f"`{_dotted(location)}`"
    kind, context, value = finding["type"], finding.get("ctx", {}), finding["input"]
    if kind == "extra_forbidden":
        return unknown_key(location, root)
    if kind == "value_error":
        cause = context["error"]
        # Checks across keys name the keys themselves.
        text = str(cause) if str(cause).startswith("`") else f"{key} {cause}"
        near = nearest(cause.value, cause.names) if isinstance(cause, UnknownNameError) else ""
        return text + near
    if kind == "literal_error":
        names = _choices(location, root)
        near = nearest(value, names)
        return f"{key} must be one of {', '.join(names)}; got {shown(value)}{near}"
    expected = _EXPECTED.get(kind)
    bounds = {k: f"{v:g}" if isinstance(v, float) else v for k, v in context.items()}
    expected = expected.format(**bounds) if expected else finding["msg"]
    return f"{key}: expected {expected}; got {shown(value)}{_hint(kind, value, location)}"


def unknown_key(location: Sequence[int | str], root: type[BaseModel] = Config) -> str:
    """'unknown key `loss.marign`; did you mean `margin`?', or where that key lives."""
    *parents, last = (str(part) for part in location)
    valid = list(valid_keys(parents, root))
    text = f"unknown key `{_dotted(location)}`"
    close = nearest(last, valid)
    if close:
        return text + close
    homes = [dotted for dotted in _all_keys(root) if dotted.split(".")[-1] == last]
    if homes:
        return f"{text}; did you mean `{homes[0]}`?"
    if not valid and parents[0] not in valid_keys((), root):
        sections = [
            name
            for name in valid_keys((), root)
            if valid_keys((name,), root) or name in OPEN_SECTIONS
        ]
        listed = nearest(parents[0], sections) or f"; sections are {', '.join(sections)}"
        return f"{text}: no section `{parents[0][:60]}`{listed}"
    if not valid:
        return f"{text}; `{'.'.join(parents)}` holds a single value"
    return f"{text}; valid here: {', '.join(valid)}"


def nearest(value: Any, names: Sequence[str]) -> str:
    """'; did you mean `x`?' for the nearest of `names`, or nothing."""
    found = difflib.get_close_matches(str(value)[:100].lower(), names, n=1)
    return f"; did you mean `{found[0]}`?" if found else ""


def shown(value: Any) -> str:
    """`value` as YAML would say it, short, however large or deeply nested it is."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    text = _SHORT.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _hint(kind: str, value: Any, location: Location) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return f"; put it in quotes: {location[-1]}: '{value}'"
    if kind.startswith("int_") and isinstance(value, float) and value.is_integer():
        return f"; write {value:.0f}"
    if kind == "tuple_type" and isinstance(value, int):
        return f"; write [{value}]"
    if kind == "bool_type" and isinstance(value, str) and value.lower() in ("yes", "on", "1"):
        return "; write true"
    if kind == "bool_type" and isinstance(value, str) and value.lower() in ("no", "off", "0"):
        return "; write false"
    return ""


def _dotted(location: Sequence[int | str]) -> str:
    return ".".join(str(part)[:60] for part in location) or "the config"


def _model(parents: Sequence[str], root: type[BaseModel]) -> type[BaseModel] | None:
    """The section named by `parents`; the whole experiment for none."""
    if not parents:
        return root
    field = root.model_fields.get(parents[0])
    default = None if field is None or len(parents) > 1 else field.default
    return type(default) if isinstance(default, BaseModel) else None


def valid_keys(parents: Sequence[str], root: type[BaseModel] = Config) -> Sequence[str]:
    """The keys of the section `parents`; of the experiment for (); none for a single value."""
    model = _model(parents, root)
    return () if model is None else tuple(model.model_fields)


def _all_keys(root: type[BaseModel]) -> list[str]:
    sections = valid_keys((), root)
    return [f"{section}.{key}" for section in sections for key in valid_keys((section,), root)] + [
        *sections
    ]


def _choices(location: Location, root: type[BaseModel]) -> list[str]:
    """The names a Literal field allows."""
    *parents, key = (str(part) for part in location)
    model = _model(parents, root)
    assert model is not None
    return _literals(model.model_fields[key].annotation)


def _literals(annotation: Any) -> list[str]:
    arguments = getattr(annotation, "__args__", ())
    names = [a for a in arguments if isinstance(a, str)]
    return names or [name for a in arguments for name in _literals(a)]
