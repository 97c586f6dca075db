"""What the sections of every kind of experiment are made of: types, names, and shared checks."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _folder_name(value: str) -> str:
    # The name becomes a folder under runs/: no separators, no hidden or parent folders.
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,99}", value):
        raise ValueError(
            "must be letters, digits and _ . + = - (at most 100, no leading dot or hyphen), "
            f"since it names the run's folder; got {value[:40]!r}"
        )
    return value


def _known_device(value: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", value):
        raise ValueError(f"must be auto, cpu, cuda, cuda:N or mps; got {value[:40]!r}")
    return value


Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Whole = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
FilePath = Annotated[str, Field(min_length=1), AfterValidator(os.path.expanduser)]
RunName = Annotated[str, AfterValidator(_folder_name)]
DeviceName = Annotated[str, AfterValidator(_known_device)]


class Section(BaseModel):
    """A group of keys: frozen, no unknown keys, no silent conversions (true is not 1)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
    )


class UnknownNameError(ValueError):
    """A name that no registry knows; `names` are the ones that exist."""

    def __init__(self, value: str, names: tuple[str, ...]):
        super().__init__(f"must be one of {', '.join(names)}; got {value[:60]!r}")
        self.value, self.names = value, names


def check_name(value: str, names: tuple[str, ...]) -> str:
    """Refuse a `value` outside `names`; pydantic turns the ValueError into a finding."""
    if value not in names:
        raise UnknownNameError(value, names)
    return value


def fill_noise(given: Any, files: Sequence[str]) -> Any:
    """What a section of noise leaves open: labels from a file are not planted, none has no rate."""
    if not isinstance(given, Mapping):
        return given
    filled = dict(given)
    if any(filled.get(file) is not None for file in files):
        filled.setdefault("kind", "none")
    if filled.get("kind") == "none":
        filled.setdefault("rate", 0.0)
    return filled


def check_planted(kind: str, rate: float, files: Mapping[str, str | None]) -> None:
    """Refuse a rate without a kind of noise, and labels from more than one source."""
    if kind == "none" and rate > 0:
        raise ValueError(
            f"`noise.rate` is {rate:g}, but `noise.kind` is none; "
            "set noise.rate to 0, or name a kind of noise"
        )
    given = [name for name, file in files.items() if file is not None]
    if len(given) > 1:
        raise ValueError(
            f"{' and '.join(f'`noise.{name}`' for name in given)} both give the labels; set one "
            "to null"
        )
    if given and kind != "none":
        raise ValueError(
            f"`noise.{given[0]}` already gives the labels; `noise.kind` {kind} would "
            "change them once more; set noise.kind to none"
        )
