"""What one weight update did, in numbers for tables and for the user."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class CurriculumRecord:
    """Hold the numbers of one weight update; None: not of this preset, or truth not known.

    Attributes:
        round: number of updates so far, this one included.
        phase: what the update did: "weights", "features", "half A", "half B" or "repair"; with
            ", waiting" behind it no label was judged in this round.
        maw: mean over classes of the class mean weight, [Zhang 2023] eq. (14).
        sdaw: population standard deviation of the class mean weights, eq. (14).
        changed: samples whose weight crossed 0.5.
        age: the paper's lambda that this update used.
        age_next: the age the next update will use.
        objective_before: eq. (6) at the old weights and this age.
        objective_after: eq. (6) at the new weights and this age.
        stationarity: largest move any weight still wants, units of weights.
        status: the solver's word on its result; None where nothing was solved, as under the
            automatic preset's threshold rule; "not judged" where the embeddings do not tell the
            classes apart, so that all labels are kept.
        message: the status in a sentence, with what to change or that nothing needs to be.
        noise_rate: estimated share of labels wrong at random, held from the first honest estimate.
        noise_interval: its 95 % interval (low, high).
        total_rate: estimated share of wrong labels, confusions included, held likewise: the share
            that is left out.  None where `noise_rate` is, for want of more.
        total_interval: its 95 % interval (low, high).
        num_repaired: samples that are trained under another label than the given one.
        num_untestable: samples whose class has no other sample of positive weight.
        detection_auroc, detection_precision, detection_recall: of "weight below 0.5" as a
            detector of wrong labels, where the truth is known; outliers left out.
        false_alarm_rate: share of right labels with weight below 0.5, where the truth is known.
        score_auroc: AUROC of the p-values behind the weights, where both are known.
        outlier_auroc: AUROC of telling outliers, which belong to no class that a label names, from
            right labels, by the p-values or, without any, the weights; None without outliers.
        outlier_recall: share of the outliers with weight below 0.5.
        reset_model: the caller must now re-initialise the network and its optimiser.
        seconds_statistics: time of the pair statistics.
        seconds_solve: time of everything after them.
    """

    round: int
    phase: str
    maw: float
    sdaw: float
    changed: int
    age: float | None = None
    age_next: float | None = None
    objective_before: float | None = None
    objective_after: float | None = None
    stationarity: float | None = None
    status: str | None = None
    message: str | None = None
    noise_rate: float | None = None
    noise_interval: tuple[float, float] | None = None
    total_rate: float | None = None
    total_interval: tuple[float, float] | None = None
    num_repaired: int | None = None
    num_untestable: int | None = None
    detection_auroc: float | None = None
    detection_precision: float | None = None
    detection_recall: float | None = None
    false_alarm_rate: float | None = None
    score_auroc: float | None = None
    outlier_auroc: float | None = None
    outlier_recall: float | None = None
    reset_model: bool = False
    seconds_statistics: float = 0.0
    seconds_solve: float = 0.0

    @property
    def held(self) -> tuple[float | None, tuple[float, float] | None]:
        """Return the rate of wrong labels that is held, with its interval."""
        if self.total_rate is not None:
            return self.total_rate, self.total_interval
        return self.noise_rate, self.noise_interval

    def figures(self) -> dict[str, float]:
        """Return what a training's log shows: `maw`, `sdaw`, and the rates once there are some."""
        named = {name: getattr(self, name) for name in ("maw", "sdaw", "noise_rate", "total_rate")}
        return {name: value for name, value in named.items() if value is not None}

    def as_dict(self) -> dict[str, Any]:
        """Return {field: plain Python value}, for JSON."""
        return dataclasses.asdict(self)
