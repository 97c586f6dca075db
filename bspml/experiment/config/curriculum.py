"""The section of an experiment that says how the sample weights follow the network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bspml.experiment.config.common import Count, Fraction, NotNegative, Positive, Section

__all__ = ["CurriculumConfig"]


class CurriculumConfig(Section):
    """How the sample weights follow the network."""

    preset: Literal["auto", "paper"] = "auto"
    age: Positive | None = None  # the paper's lambda at the start
    age_growth: Annotated[float, Field(ge=1)] = 1.1  # its multiplier c; our choice
    age_max: float | None = None  # lambda_inf; null: no limit
    balance: NotNegative = 1.0  # the paper's mu; our choice
    statistics: Literal["unweighted", "weighted"] = "unweighted"  # xi as printed, or under weights
    target_maw: Fraction | None = None  # in place of an age: mean class weight to hold
    rule: Literal["threshold", "quadratic"] = "threshold"
    warmup: Literal["features", "cross-fit"] | None = None  # null: by whether weights are given
    warmup_epochs: Count = 2  # on each half, where the warm-up is cross-fitted
    reset: bool = True  # start the network afresh after the warm-up
    solver: Literal["coordinate", "doubly-stochastic"] = "coordinate"
    embeddings: Literal["fresh", "collected"] = "fresh"
    search: Literal["auto", "exact", "neighbours"] = "auto"  # auto: exact below 200,000 samples
    statistics_error: Positive | None = None  # by neighbours: largest error; null: 1e-3 or 2e-2

    @model_validator(mode="after")
    def _consistent(self) -> CurriculumConfig:
        (_check_paper if self.preset == "paper" else _check_auto)(self)
        return self


def _check_paper(curriculum: CurriculumConfig) -> None:
    """The paper prints no first age, so the user gives one, or the mean weight to aim at."""
    if curriculum.age is None and curriculum.target_maw is None:
        raise ValueError(
            "`curriculum.preset` paper needs `curriculum.age` or `curriculum.target_maw`: the "
            "paper prints neither; curriculum.target_maw=0.7 suits 30 % wrong labels"
        )
    if curriculum.age is not None and curriculum.target_maw is not None:
        raise ValueError(
            "`curriculum.age` and `curriculum.target_maw` exclude each other (the target sets the "
            "age); leave one of them null"
        )
    _refuse_unused(curriculum, ("rule", "warmup", "warmup_epochs", "reset"), "preset auto")
    if curriculum.target_maw is not None:
        _refuse_unused(curriculum, ("age_growth", "age_max"), "a given `curriculum.age`")
    if None not in (curriculum.age, curriculum.age_max) and curriculum.age_max < curriculum.age:  # type: ignore[operator]
        raise ValueError(
            f"`curriculum.age_max` must be at least `curriculum.age`, {curriculum.age:g}; "
            f"got {curriculum.age_max:g}"
        )


def _check_auto(curriculum: CurriculumConfig) -> None:
    _refuse_unused(
        curriculum, ("age", "age_growth", "age_max", "target_maw", "statistics"), "preset paper"
    )


def _refuse_unused(curriculum: CurriculumConfig, keys: tuple[str, ...], used_by: str) -> None:
    """A value other than the default that nothing would read is refused."""
    for key in keys:
        value, default = getattr(curriculum, key), CurriculumConfig.model_fields[key].default
        if value != default:
            value, default = (
                "null" if v is None else str(v).lower() if isinstance(v, bool) else v
                for v in (value, default)
            )
            raise ValueError(
                f"`curriculum.{key}` is {value}, but only {used_by} reads it; "
                f"leave it at {default}, or change what it depends on"
            )
