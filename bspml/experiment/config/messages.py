"""Turn pydantic's list of findings into the one line that tells the user what to change."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from bspml.experiment.config.common import UnknownNameError
from bspml.experiment.config.schema import OPEN_SECTIONS, Config
from bspml.trainers.settings import qualified, takes, takes_each
from bspml.words import did_you_mean

Location = tuple[int | str, ...]

# Stops early: YAML aliases let a small file describe a value of astronomical size.
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring = 2, 60

# Pydantic's error type -> what was expected.  `{...}` is filled from the error's context.
_EXPECTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list such as [1, 2, 4]",
    "too_short": "at least {min_length} value",
    "string_too_short": "at least {min_length} character",
    "invalid_key": "names as keys",
    "dict_type": "`key: value` lines",
    "model_type": "a section of `key: value` lines",
    "model_attributes_type": "a section of `key: value` lines",
}
_OF_NUMBERS = ("int_", "float_", "finite_number", "greater_", "less_")
# What other formats write for true and false.
_TRUTH = {"yes": "true", "on": "true", "1": "true", "no": "false", "off": "false", "0": "false"}


def describe(
    error: ValidationError, source: str, origin: Mapping[str, str], root: type[BaseModel] = Config
) -> str:
    """Return the first finding as 'source: what is wrong', and how many more there are.

    Unknown keys come first: a misspelt key is often why something else is missing.

    Args:
        error: what pydantic found.
        source: the file read.
        origin: {dotted key: source} for keys that did not come from the file.
        root: the kind of experiment.
    """
    # Where one of several kinds may stand, each objects; the value is at fault once.
    found = [f | {"loc": _without_kind(f["loc"])} for f in error.errors(include_url=False)]
    findings = list({_value(f["loc"]) or f["loc"]: f for f in reversed(found)}.values())[::-1]
    entries = [f["loc"] for f in findings if f["loc"] and isinstance(f["loc"][-1], int)]
    lists = {entry[:-1] for entry in entries}  # too short for want of these alone
    findings = [f for f in findings if f["type"] != "too_short" or f["loc"] not in lists]
    findings.sort(key=lambda f: f["type"] != "extra_forbidden")
    sentence = _sentence(findings[0], root)
    # The key at fault is the first one that the sentence quotes.
    key = re.search(r"`([^`]*)`", sentence)
    where = source if key is None else _origin(key[1], origin, source)
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return f"{where}: {sentence}{more}".replace("\n", " ")


def _origin(key: str, origin: Mapping[str, str], source: str) -> str:
    """Where a key comes from, or the list that it stands in, or what stands in an open section."""
    above = (key.rsplit(".", up)[0] for up in range(key.count(".") + 1))
    is_open = key.split(".")[0] in OPEN_SECTIONS
    below = (inside for inside in origin if is_open and inside.startswith(f"{key}."))
    return next((origin[name] for name in (*above, *below) if name in origin), source)


def _without_kind(location: Location) -> Location:
    """The place of an entry of a list, without which of several kinds it was taken for."""
    is_kind = location[-1:] in (("str",), ("int",)) and isinstance(location[-2:][0], int)
    return location[:-1] if is_kind else location


def _value(location: Location) -> Location:
    """The place of a value in an open section; () for anything else."""
    return location[:3] if len(location) > 3 and location[0] in OPEN_SECTIONS else ()


def _sentence(finding: Any, root: type[BaseModel]) -> str:
    location: Location = finding["loc"]
    if _value(location):
        key, wants = f"`{_dotted(_value(location))}`", "a finite number, true, false or text"
        return f"{key}: expected {wants}; got {shown(finding['input'])}"
    key = f"`{_dotted(location)}`"
    if location[-1:] == ("[key]",):  # pydantic's mark: not the value there, but its key
        key = f"a key of `{_dotted(location[:-2])}`"
    kind, context, value = finding["type"], finding.get("ctx", {}), finding["input"]
    if kind == "extra_forbidden":
        return unknown_key(location, root)
    if kind == "missing":
        return f"{key} is missing; got {shown(value)}"
    if kind == "value_error":
        cause, text = context["error"], str(context["error"]).removesuffix(".")
        section = _model([str(part) for part in location], root)
        # Checks across keys name the keys themselves.
        if section is not None and location:
            return qualified(text, section, f"{_dotted(location)}.")
        near = did_you_mean(cause.value, cause.names) if isinstance(cause, UnknownNameError) else ""
        return (text if text.startswith("`") else f"{key} {text}") + near
    if kind == "literal_error":
        section = _model([str(part) for part in location[:-1]], root)
        assert section is not None
        must = takes(section, str(location[-1]))
        near = did_you_mean(value, must.removeprefix("one of ").split(", "))
        return f"{key} must be {must}; got {shown(value)}{near}"
    expected = (_EXPECTED.get(kind) or finding["msg"]).format(**context)
    if kind == "tuple_type" and isinstance(value, str):
        expected = f"a list such as [{value:.40}]"
    if kind.startswith(_OF_NUMBERS):
        expected = _bounds(location, root) or expected
    return f"{key}: expected {expected}; got {shown(value)}{_hint(kind, value)}"


def _bounds(location: Location, root: type[BaseModel]) -> str:
    """Say what numbers stand at a key, or in its list; empty where any does."""
    *parents, last = location
    one_of_many = isinstance(last, int)
    if one_of_many:
        *parents, last = parents
    section = _model([str(part) for part in parents], root)
    if section is None or last not in section.model_fields:
        return ""
    must = (takes_each if one_of_many else takes)(section, str(last))
    return f"a number {must}" if must.startswith("in ") else must


def unknown_key(location: Sequence[int | str], root: type[BaseModel] = Config) -> str:
    """Return 'unknown key `loss.marign`', and the nearest key, or where that key lives.

    Args:
        location: the key's path.
        root: the kind of experiment.

    Example:
        >>> unknown_key(["loss", "alhpa"])
        'unknown key `loss.alhpa`; did you mean `alpha`?'
    """
    *parents, last = (str(part) for part in location)
    valid = list(valid_keys(parents, root))
    text = f"unknown key `{_dotted(location)}`"
    homes = [dotted for dotted in _all_keys(root) if dotted.split(".")[-1] == last]
    near = did_you_mean(last, valid) or did_you_mean(".".join(homes[:1]), homes)
    if near:
        return text + near
    if not valid and parents[0] not in valid_keys((), root):
        tops = valid_keys((), root)
        sections = [top for top in tops if valid_keys((top,), root) or top in OPEN_SECTIONS]
        listed = did_you_mean(parents[0], sections) or f"; sections are {', '.join(sections)}"
        return f"{text}: no section `{parents[0][:60]}`{listed}"
    if not valid:
        return f"{text}; `{'.'.join(parents)}` holds a single value"
    return f"{text}; valid here: {', '.join(valid)}"


def shown(value: Any) -> str:
    """Return `value` as YAML would say it, short, however large or deeply nested it is."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    text = _SHORT.repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _hint(kind: str, value: Any) -> str:
    if kind == "string_type" and isinstance(value, int | float):
        return "; put it in quotes, as you wrote it"  # 1e3, of which the value is 1000.0
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e9
    if is_whole and kind.startswith("int_"):
        return f"; write {value:.0f}"
    if kind == "tuple_type" and isinstance(value, int):
        return f"; write [{value}]"
    if kind == "bool_type" and isinstance(value, str) and value.lower() in _TRUTH:
        return f"; write {_TRUTH[value.lower()]}"
    return ""


def _dotted(location: Sequence[int | str]) -> str:
    return ".".join(str(part)[:60] for part in location) or "the config"


def _model(parents: Sequence[str], root: type[BaseModel]) -> type[BaseModel] | None:
    """The section at a path; `root` for none.  Of many sections, one is at its number or name."""
    if not parents:
        return root
    field, *below = parents
    if field not in root.model_fields:
        return None
    info = root.model_fields[field]
    if isinstance(info.default, BaseModel):
        return None if below else type(info.default)
    for kind in get_args(info.annotation):  # of a tuple or a mapping
        if below and isinstance(kind, type) and issubclass(kind, BaseModel):
            return _model(below[1:], kind)
    return None


def valid_keys(parents: Sequence[str], root: type[BaseModel] = Config) -> Sequence[str]:
    """Return the keys of a section, none for a single value.

    Args:
        parents: the path of the section; () is the experiment itself.
        root: the kind of experiment.
    """
    model = _model(parents, root)
    return () if model is None else tuple(model.model_fields)


def _all_keys(root: type[BaseModel]) -> list[str]:
    sections = valid_keys((), root)
    return [f"{top}.{key}" for top in sections for key in valid_keys((top,), root)] + [*sections]
