"""Settings of the curricula as sections: keys, defaults, what they mean, and what values they take.

One section serves the YAML of an experiment, the keywords of `SelfPacedCurriculum` and the
hyper-parameters of a method alike, so that every default stands once.  Nothing here imports torch:
reading a configuration must not.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from bspml.errors import InputError


def _rising(values: tuple[int, ...]) -> tuple[int, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError(f"must rise without repeats; got {list(values)}")
    return values


Fraction = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
# Every number has bounds, so that none is beyond float32, an int64 or anybody's patience.
Number = Annotated[float, Field(ge=-1e9, le=1e9)]
Positive = Annotated[float, Field(ge=1e-9, le=1e9)]
NotNegative = Annotated[float, Field(ge=0, le=1e9)]
Whole = Annotated[int, Field(ge=0, le=1_000_000_000)]
Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
Epochs = Annotated[int, Field(ge=1, le=1_000_000)]
Growth = Annotated[float, Field(ge=1, le=1000)]
Rising = AfterValidator(_rising)
Ceiling = Annotated[float, Field(gt=0, allow_inf_nan=True)]  # more than 0 is not NaN either
Rule = Literal["threshold", "quadratic"]
Warmup = Literal["features", "cross-fit"]
Statistics = Literal["unweighted", "weighted"]
Solver = Literal["coordinate", "doubly-stochastic"]
RepairRule = Literal["none", "confident"]
Search = Literal["auto", "exact", "neighbours"]
COLLECTED_EVERY = 16  # judge_every where embeddings are collected, to save time
RHO = "similarity at which a pair's term is 1, rho"


def key(default: Any, says: str, printed: bool = False) -> Any:
    """Return the default of a key with what a table says about it.

    Args:
        default: used where nothing is said.
        says: what the key is, in a few words.
        printed: the default stands in [Zhang 2023]; else it is another paper's or our choice.
    """
    return Field(default, description=says, json_schema_extra={"printed": printed})


@dataclass(frozen=True)
class ReadBy:
    """Mark a key that is read only where another key of its section says so.

    Attributes:
        key: the other key.
        values: what it must be; empty: anything but null.
        remedy: what to do where there are no values; empty: to give the other key.
    """

    key: str
    values: tuple[str | bool, ...] = ()
    remedy: str = ""

    def check(self, section: Section, marked: str, default: Any) -> None:
        """Refuse a value that nothing reads: whoever sets it believes that it does something.

        Args:
            section: the section with both keys.
            marked: the key that carries this mark.
            default: its default, which may always stand.

        Raises:
            ValueError: says which value, why nothing reads it, and what would.
        """
        if fault := self.fault(section, marked, default):
            raise ValueError(fault)

    def fault(self, section: Section, marked: str, default: Any) -> str:
        """Say what `check` would, "" where something reads the value.

        Args:
            section, marked, default: as in `check`.
        """
        value, other = getattr(section, marked), getattr(section, self.key)
        if value == default or (other in self.values if self.values else other is not None):
            return ""
        remedy = self.remedy or f"give `{self.key}`"
        if self.values:
            *most, last = map(as_yaml, self.values)
            remedy = f"set `{self.key}` to {', '.join(most)}{' or ' * bool(most)}{last}"
        return (
            f"`{marked}` is {as_yaml(value)}, but nothing reads it while `{self.key}` is "
            f"{as_yaml(other)}; leave it at {as_yaml(default)}, or {remedy}"
        )


class Section(BaseModel):
    """Group keys: frozen, no unknown keys, no silent conversions (true is not 1).

    Messages about several keys name them without the section, which does not know where it stands:
    `qualified` puts it before them.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True
    )

    @model_validator(mode="after")
    def _refuse_unread(self) -> Section:
        for name, field in type(self).model_fields.items():
            for mark in field.metadata:
                if isinstance(mark, ReadBy):
                    mark.check(self, name, field.default)
        return self


AnySection = TypeVar("AnySection", bound=Section)


class Scales(Section):
    """The scales of the multi-similarity exponents and of the pair statistics, as printed."""

    alpha: Positive = key(2.0, "scale of the positives' exponent", printed=True)
    beta: Positive = key(50.0, "scale of the negatives' exponent", printed=True)
    base: Number = key(1.0, RHO, printed=True)


class PresetSettings(Section):
    """What both presets of the curriculum read."""

    balance: NotNegative = key(1.0, "weight of the balance term, mu")
    search: Search = key("auto", "statistics: exact, or nearly linear with a proved error")
    statistics_error: Positive | None = key(None, "by neighbours: largest error of a statistic")


class AutoSettings(PresetSettings):
    """What the automatic preset reads beside that."""

    rule: Rule = key("threshold", "how p-values become weights")
    warmup: Warmup = key("features", "what judges the labels first")
    warmup_rounds: Count = key(2, "rounds on each half, cross-fitted")
    reset: bool = key(True, "start the network afresh after the warm-up")
    judge_every: Count = key(3, "rounds to a judgement of the labels once weights rest")
    repair: RepairRule = key(
        "none", "train suspects under the class a network believes that never saw them"
    )
    statistics_error: Annotated[float, Field(ge=1e-9, le=2)] | None = key(
        None, "by neighbours: largest error of a soft mean, which lies in [-1, 1]"
    )


class PaperSettings(PresetSettings, Scales):
    """What the paper's preset reads beside that; [Zhang 2023] prints the scales only."""

    age: Positive | None = key(None, "first age, lambda")
    age_growth: Growth = key(1.1, "its multiplier, c")
    age_max: Ceiling | None = key(None, "its maximum, lambda_inf")
    target_maw: Fraction | None = key(None, "in place of an age: mean class weight to hold")
    statistics: Statistics = key("unweighted", "pair statistics")
    solver: Solver = key("coordinate", "of the weights")
    solver_options: dict[str, Any] = key({}, "further keywords of `solve_weights`")

    @model_validator(mode="after")
    def _one_pace(self) -> PaperSettings:
        if self.age is not None and self.target_maw is not None:
            raise ValueError(
                "`age` and `target_maw` exclude each other (the target sets the age); give "
                "exactly one of them"
            )
        if self.age is not None and self.age_max is not None and self.age_max < self.age:
            raise ValueError(
                f"`age_max` must be at least `age`, {self.age:g}; got {self.age_max:g}"
            )
        return self

    def check_pace(self) -> None:
        """Refuse settings without an age and without a mean weight to aim at.

        Raises:
            InputError: says what to give.
        """
        if self.age is None and self.target_maw is None:
            raise InputError(
                "`preset` paper needs exactly one of `age` and `target_maw`: the paper does not "
                "print its age. Give an age (a typical pair statistic, about 1 to 5), or a "
                "target_maw (the mean weight to keep; 0.7 suits 30 % wrong labels)."
            )


_BY_HALVES = ReadBy("warmup", ("cross-fit",))
_BY_NEIGHBOURS = ReadBy("search", ("auto", "neighbours"))
BY_AGE = ReadBy("age", remedy="give `age` in place of `target_maw`")
# Of each preset, as no marks: a run that was begun may hold them, and goes on.
READ_BY = {
    "auto": {
        "warmup_rounds": _BY_HALVES,
        "reset": _BY_HALVES,
        "balance": ReadBy("rule", ("quadratic",)),
        "statistics_error": _BY_NEIGHBOURS,
    },
    "paper": {"age_growth": BY_AGE, "age_max": BY_AGE, "statistics_error": _BY_NEIGHBOURS},
}


def keywords_of(kind: type[Section], settings: Section) -> dict[str, Any]:
    """Return the keys of the section `kind` that other settings hold, as keywords.

    Args:
        kind: which keys.
        settings: their values; null is left out, as the default that it stands for.
    """
    return {k: v for k, v in settings if k in kind.model_fields and v is not None}


def section_of(kind: type[AnySection], keywords: Mapping[str, Any], prefix: str = "") -> AnySection:
    """Build a section from keywords of a caller; None stands for the default.

    Args:
        kind: the section.
        keywords: {key: value}; numbers of numpy and torch, and whole floats, are welcome.
        prefix: what stands before a key in messages, such as "hyper.".

    Raises:
        InputError: a value that its key does not take, or that nothing reads.

    Example:
        >>> section_of(AutoSettings, {"rule": "quadratic", "reset": None}).reset
        True
    """
    values = {name: _plain(value) for name, value in keywords.items() if value is not None}
    try:
        return kind.model_validate(values)
    except ValidationError as err:
        finding = err.errors(include_url=False)[0]
    if not finding["loc"]:
        raise InputError(qualified(f"{finding['ctx']['error']}.", kind, prefix))
    name, must = str(finding["loc"][0]), takes(kind, str(finding["loc"][0]))
    if finding["type"] == "float_type" and must.startswith("in "):
        must = f"a number {must}"
    got = " ".join(f"{finding['input']!r:.40}".split())
    raise InputError(f"`{prefix}{name}` must be {must}; got {got}.")


def _plain(value: Any) -> Any:
    """Return a number of numpy or torch as Python's, and a whole float as an int."""
    if getattr(value, "ndim", None) == 0 and not hasattr(value, "mask"):
        value = value.item()
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if whole else value


def qualified(text: str, kind: type[BaseModel], prefix: str) -> str:
    """Put `prefix` before every key of the section that the text quotes.

    Args:
        text: a message that quotes keys in backticks.
        kind: the section.
        prefix: such as "curriculum."; empty: nothing changes.

    Example:
        >>> qualified("`age` excludes `target_maw`", PaperSettings, "hyper.")
        '`hyper.age` excludes `hyper.target_maw`'
    """
    keys = kind.model_fields
    return re.sub(r"`(\w+)`", lambda m: f"`{prefix * (m[1] in keys)}{m[1]}`", text)


def takes(kind: type[BaseModel], name: str) -> str:
    """Say what values a key takes.

    Args:
        kind: the section.
        name: the key.

    Example:
        >>> takes(AutoSettings, "rule"), takes(PaperSettings, "target_maw")
        ('one of threshold, quadratic', 'in [0, 1]')
    """
    return " or ".join(map(_takes, _kinds(kind, name)))


def takes_each(kind: type[BaseModel], name: str) -> str:
    """Say what values the entries of a key that holds a list take.

    Args:
        kind: the section.
        name: the key.
    """
    return " or ".join(_takes(schema.get("items", schema)) for schema in _kinds(kind, name))


@cache
def _properties(kind: type[BaseModel]) -> dict[str, Any]:
    return kind.model_json_schema()["properties"]


def _kinds(kind: type[BaseModel], name: str) -> list[Mapping[str, Any]]:
    schema = _properties(kind)[name]
    return [s for s in schema.get("anyOf", [schema]) if s.get("type") != "null"]


def _takes(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f"one of {', '.join(map(as_yaml, schema['enum']))}"
    if schema["type"] == "integer":
        low, high = schema["minimum"], schema.get("maximum", schema.get("exclusiveMaximum", 0) - 1)
        return f"a whole number from {low} to {high}"
    if schema["type"] != "number":
        words = {"boolean": "true or false", "array": "a list of whole numbers that rise"}
        return words.get(schema["type"], f"an {schema['type']}")
    low, high = schema.get("minimum"), schema.get("maximum")
    above = schema.get("exclusiveMinimum", -math.inf)
    below = schema.get("exclusiveMaximum", math.inf)
    if (low, high, above, below) == (None, None, -math.inf, math.inf):
        return "a finite number"
    left = f"({above:g}" if low is None else f"[{low:g}"
    return f"in {left}, {f'{below:g})' if high is None else f'{high:g}]'}"


def as_yaml(value: Any) -> str:
    """Return a value as it stands in a configuration: true, null, [1, 2], 0.5, text unquoted."""
    return value if isinstance(value, str) else json.dumps(value)
