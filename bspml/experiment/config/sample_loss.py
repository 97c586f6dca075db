"""The section that names the loss of a sample, and which settings each loss reads."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from bspml.experiment.config.common import (
    Fraction,
    NotNegative,
    Positive,
    Section,
    Whole,
    check_name,
)
from bspml.experiment.config.names import CLASS_LOSSES, VALUE_LOSSES

__all__ = ["SampleLossConfig"]

# The settings each loss reads; the others must stay at their defaults.
_READS: dict[str, tuple[str, ...]] = {
    "ce": (),
    "mae": (),
    "mse": (),
    "smooth-l1": (),
    "gce": ("q",),
    "truncated-gce": ("q", "k", "truncate_after"),
    "imae": ("T",),
    "gr": ("beta", "lam", "g"),
    "superloss": ("base", "lam", "tau", "momentum"),
}
_FLOAT32_MAX = (2 - 2.0**-23) * 2.0**127
_DEFAULT_LAM = {"gr": 0.5, "superloss": 0.25}


class SampleLossConfig(Section):
    """The loss of a sample, by name, and its settings; see `bspml.functional`."""

    name: str = "superloss"
    base: str | None = None  # of superloss: ce, mse or smooth-l1; null: ce, or mse in regression
    lam: NotNegative | None = None  # lambda of superloss (null: 0.25) and of gr (null: 0.5)
    tau: Literal["ema", "mean", "log-classes"] | float = "ema"  # superloss; a number is constant
    momentum: float = Field(default=0.9, ge=0, lt=1)  # of tau ema
    q: Fraction = 0.7  # gce and truncated-gce
    k: Annotated[float, Field(gt=0, lt=1)] = 0.5  # truncated-gce: no gradient up to this p
    truncate_after: Whole = 5  # truncated-gce: epochs of plain gce first, as p starts below k
    T: Positive = 8.0  # imae
    beta: NotNegative = 8.0  # gr
    g: Literal["exp", "identity"] = "exp"  # gr

    @field_validator("name")
    @classmethod
    def _known(cls, value: str) -> str:
        return check_name(value, tuple(dict.fromkeys(CLASS_LOSSES + VALUE_LOSSES)))

    @field_validator("tau", mode="before")
    @classmethod
    def _number_or_name(cls, value: Any) -> Any:
        names = ("ema", "mean", "log-classes")
        if isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if (isinstance(value, float) and math.isfinite(value)) or value in names:
            return value
        raise ValueError(f"must be {', '.join(names)} or a number; got {str(value)[:40]!r}")

    @model_validator(mode="after")
    def _consistent(self) -> SampleLossConfig:
        for key, field in SampleLossConfig.model_fields.items():
            if key == "name" or key in _READS[self.name]:
                continue
            value = getattr(self, key)
            if value != field.default:
                readers = [name for name, keys in _READS.items() if key in keys]
                default = "null" if field.default is None else field.default
                raise ValueError(
                    f"`loss.{key}` is {value}, but `loss.name` {self.name} does not read it "
                    f"({' and '.join(readers)} would); leave it at {default}"
                )
        if self.name == "superloss" and self.lam == 0:
            raise ValueError("`loss.lam` of superloss must be more than 0; got 0")
        self._check_float32()
        if self.name == "superloss" and self.tau != "ema" and self.momentum != 0.9:
            raise ValueError(
                f"`loss.momentum` is {self.momentum:g}, but only `loss.tau` ema reads it; leave it "
                "at 0.9"
            )
        return self

    def _check_float32(self) -> None:
        """Refuse what the training, in float32, could not compute with."""
        if isinstance(self.tau, float) and abs(self.tau) > _FLOAT32_MAX:
            raise ValueError(
                f"`loss.tau` is {self.tau:g}, which float32 cannot hold; use a smaller number"
            )
        if self.name not in ("imae", "gr"):
            return
        key, beta, lam, g = "beta", self.beta, self.strength, self.g
        if self.name == "imae":
            key, beta, lam, g = "T", self.T, 1.0, "exp"
        focus = lam / (1 + lam)
        largest = beta * focus**lam * (1 - focus)
        if largest > (math.log(_FLOAT32_MAX) if g == "exp" else _FLOAT32_MAX):
            raise ValueError(
                f"`loss.{key}` is {beta:g}, which gives weights of up to "
                f"{'exp of ' if g == 'exp' else ''}{largest:.4g}, beyond float32; choose a smaller "
                "one, the papers use up to 24"
            )

    @property
    def strength(self) -> float:
        """`lam`, or the default of this loss."""
        return _DEFAULT_LAM.get(self.name, 0.0) if self.lam is None else self.lam
