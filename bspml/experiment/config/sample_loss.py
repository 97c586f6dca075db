"""The section that names the loss of a sample, and which settings each loss reads."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from bspml.experiment.config.common import one_of
from bspml.experiment.config.names import CLASS_LOSSES, VALUE_LOSSES
from bspml.trainers.settings import Fraction, NotNegative, Positive, ReadBy, Section, Whole

Tau = Literal["ema", "mean", "log-classes"]
_FLOAT32_MAX = (2 - 2.0**-23) * 2.0**127
_LARGEST_TAU, _LEAST_LAM = 1e9, 1e-9
_DEFAULT_LAM = {"gr": 0.5, "superloss": 0.25}


def _by(*losses: str) -> ReadBy:
    return ReadBy("name", losses)


class SampleLossConfig(Section):
    """The loss of a sample, by name, and its settings; see `bspml.functional`."""

    name: Annotated[str, one_of(*CLASS_LOSSES, *VALUE_LOSSES)] = "superloss"
    base: Annotated[str | None, _by("superloss")] = None  # ce, mse or smooth-l1; null: ce, or mse
    # The paper's lambda; null: 0.25 of superloss, 0.5 of gr.
    lam: Annotated[NotNegative | None, _by("gr", "superloss")] = None
    tau: Annotated[Tau | float, _by("superloss")] = "ema"  # a number is constant
    momentum: Annotated[float, Field(ge=0, lt=1), ReadBy("tau", ("ema",)), _by("superloss")] = 0.9
    q: Annotated[Fraction, _by("gce", "truncated-gce")] = 0.7
    # No gradient up to this p.
    k: Annotated[float, Field(gt=0, lt=1), _by("truncated-gce")] = 0.5
    # Epochs of plain gce first, as p starts below k.
    truncate_after: Annotated[Whole, _by("truncated-gce")] = 5
    T: Annotated[Positive, _by("imae")] = 8.0
    beta: Annotated[NotNegative, _by("gr")] = 8.0
    g: Annotated[Literal["exp", "identity"], _by("gr")] = "exp"

    @field_validator("tau", mode="before")
    @classmethod
    def _number_or_name(cls, value: Any) -> Any:
        names = get_args(Tau)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and abs(value) <= _LARGEST_TAU:
            return float(value)
        if isinstance(value, str) and value in names:
            return value
        raise ValueError(
            f"must be {', '.join(names)} or a number in [{-_LARGEST_TAU:g}, {_LARGEST_TAU:g}]; got "
            f"{str(value)[:40]!r}"
        )

    @model_validator(mode="after")
    def _consistent(self) -> SampleLossConfig:
        if self.name == "superloss" and self.strength < _LEAST_LAM:
            raise ValueError(
                f"`lam` of superloss must be at least {_LEAST_LAM:g}; got {self.lam:g}"
            )
        self._check_float32()
        return self

    def _check_float32(self) -> None:
        """Refuse what the training, in float32, could not compute with."""
        if self.name not in ("imae", "gr"):
            return
        key, beta, lam, g = "beta", self.beta, self.strength, self.g
        if self.name == "imae":
            key, beta, lam, g = "T", self.T, 1.0, "exp"
        focus = lam / (1 + lam)
        largest = beta * focus**lam * (1 - focus)
        if largest > (math.log(_FLOAT32_MAX) if g == "exp" else _FLOAT32_MAX):
            raise ValueError(
                f"`{key}` is {beta:g}, which gives weights of up to "
                f"{'exp of ' if g == 'exp' else ''}{largest:.4g}, beyond float32; choose a smaller "
                "one, the papers use up to 24"
            )

    @property
    def strength(self) -> float:
        """Return `lam`, or the default of this loss."""
        return _DEFAULT_LAM.get(self.name, 0.0) if self.lam is None else self.lam
