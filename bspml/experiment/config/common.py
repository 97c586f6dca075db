"""What the sections of every kind of experiment share: types of values, names, label noise."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field, model_validator

from bspml.observers.names import NAMES
from bspml.trainers.settings import Fraction, Section


def _folder_name(value: str) -> str:
    # The name becomes a folder under runs/: no separators, no hidden or parent folders.
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]{0,99}", value):
        raise ValueError(
            "must be letters, digits and _ . + = - (at most 100, no leading dot or hyphen), "
            f"since folders and files are called after it; got {value[:40]!r}"
        )
    return value


def _known_device(value: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d{1,3})?", value):
        raise ValueError(f"must be auto, cpu, cuda, cuda:N or mps; got {value[:40]!r}")
    return value


Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
FilePath = Annotated[str, Field(min_length=1), AfterValidator(os.path.expanduser)]
RunName = Annotated[str, AfterValidator(_folder_name)]
DeviceName = Annotated[str, AfterValidator(_known_device)]
Width = Annotated[int, Field(ge=1, le=65_536)]
Threads = Annotated[int, Field(ge=1, le=1024)]
AtLeast2 = Annotated[int, Field(ge=2, le=65_536)]


class UnknownNameError(ValueError):
    """A name that no registry knows; `names` are the ones that exist."""

    def __init__(self, value: str, names: tuple[str, ...]):
        super().__init__(f"must be one of {', '.join(names)}; got {value[:60]!r}")
        self.value, self.names = value, names


def check_name(value: str, names: tuple[str, ...]) -> str:
    """Refuse a `value` outside `names`; pydantic turns the ValueError into a finding.

    Args:
        value: what came.
        names: what exists.
    """
    if value not in names:
        raise UnknownNameError(value, names)
    return value


def one_of(*names: str) -> AfterValidator:
    """Return the check that a value is one of the names, for `Annotated[str, one_of(...)]`."""
    return AfterValidator(lambda value: check_name(value, tuple(dict.fromkeys(names))))


def _each_once(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"names {twice} more than once; keep one")
    return names


Observers = Annotated[
    tuple[Annotated[str, one_of(*NAMES)], ...], Field(strict=False), AfterValidator(_each_once)
]


class PlantedNoise(Section):
    """Wrong labels put into the training split, or a file that holds the labels to train on."""

    label_files: ClassVar[tuple[str, ...]] = ()  # keys that name a file of labels

    kind: str = "symmetric"
    rate: Fraction  # share of labels changed
    # round(rate * N_c) samples of each class instead of round(rate * N) overall.
    per_class: bool = False

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, tree: Any) -> Any:
        """Plant nothing into labels from a file, and let no noise have no rate."""
        if not isinstance(tree, Mapping):
            return tree
        filled = dict(tree)
        if any(filled.get(file) is not None for file in cls.label_files):
            filled.setdefault("kind", "none")
        if filled.get("kind") == "none":
            filled.setdefault("rate", 0.0)
        return filled

    @model_validator(mode="after")
    def _one_source(self) -> PlantedNoise:
        if self.kind == "none" and self.rate > 0:
            raise ValueError(
                f"`rate` is {self.rate:g}, but `kind` is none; set `rate` to 0, or name a kind of "
                "noise"
            )
        files = [name for name in self.label_files if getattr(self, name) is not None]
        if len(files) > 1:
            raise ValueError(
                f"{' and '.join(f'`{name}`' for name in files)} both give the labels; set one to "
                "null"
            )
        if files and self.kind != "none":
            raise ValueError(
                f"`{files[0]}` already gives the labels; `kind` {self.kind} would change them "
                "once more; set `kind` to none"
            )
        return self
