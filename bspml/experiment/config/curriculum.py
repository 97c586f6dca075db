"""The section of an experiment that says how the sample weights follow the network."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import model_validator

from bspml.trainers.settings import (
    BY_AGE,
    COLLECTED_EVERY,
    AutoSettings,
    Count,
    Fraction,
    Growth,
    NotNegative,
    PaperSettings,
    Positive,
    ReadBy,
    RepairRule,
    Rule,
    Search,
    Section,
    Solver,
    Statistics,
    Warmup,
    keywords_of,
    section_of,
)

_AUTO, _PAPER = AutoSettings(), PaperSettings()
_BY_AUTO, _BY_PAPER = ReadBy("preset", ("auto",)), ReadBy("preset", ("paper",))


class CurriculumConfig(Section):
    """How the sample weights follow the network: the keys of both presets in one list."""

    preset: Literal["auto", "paper"] = "auto"
    age: Annotated[Positive | None, _BY_PAPER] = _PAPER.age  # the paper's lambda at the start
    age_growth: Annotated[Growth, _BY_PAPER] = _PAPER.age_growth  # its multiplier c
    age_max: Annotated[Positive | None, _BY_PAPER] = _PAPER.age_max  # lambda_inf; null: no limit
    balance: NotNegative = _PAPER.balance  # the paper's mu; our choice
    # xi as printed, or under the weights.
    statistics: Annotated[Statistics, _BY_PAPER] = _PAPER.statistics
    # In place of an age: mean class weight to hold.
    target_maw: Annotated[Fraction | None, _BY_PAPER] = _PAPER.target_maw
    rule: Annotated[Rule, _BY_AUTO] = _AUTO.rule
    warmup: Annotated[Warmup | None, _BY_AUTO] = None  # null: by whether weights are given
    # On each half, where the warm-up is cross-fitted.
    warmup_epochs: Annotated[Count, _BY_AUTO] = _AUTO.warmup_rounds
    reset: Annotated[bool, _BY_AUTO] = _AUTO.reset  # start the network afresh after the warm-up
    # Rounds to a judgement of the labels once few weights move; null: 3, collected 16.
    judge_every: Annotated[Count | None, _BY_AUTO] = None
    # Suspects under the class that a network believes which never saw their label.
    repair: Annotated[RepairRule, _BY_AUTO] = _AUTO.repair
    solver: Solver = _PAPER.solver
    embeddings: Literal["fresh", "collected"] = "fresh"
    search: Search = _PAPER.search  # auto: exact below 200,000 samples
    # By neighbours: largest error; null: 1e-3 or 2e-2.
    statistics_error: Positive | None = _PAPER.statistics_error

    @model_validator(mode="after")
    def _consistent(self) -> CurriculumConfig:
        if self.preset == "paper":
            section_of(PaperSettings, self.keywords()).check_pace()
            for pace in ("age_growth", "age_max"):
                BY_AGE.check(self, pace, type(self).model_fields[pace].default)
        return self

    def keywords(self) -> dict[str, Any]:
        """Return what the preset reads, as keywords of `SelfPacedCurriculum`."""
        if self.preset == "paper":
            return keywords_of(PaperSettings, self)
        rests = {"judge_every": COLLECTED_EVERY} if self.embeddings == "collected" else {}
        return rests | keywords_of(AutoSettings, self)
