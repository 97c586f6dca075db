"""Which epoch a result is taken from: the last, the best, or the one that validation selects.

Papers that print the best epoch have chosen it on the test classes: an oracle nobody has, and the
larger the noisier the curve.  So the three are named apart everywhere.

The untrained network, epoch 0, is a candidate like every other.  A network of a warm-up that the
curriculum throws away afterwards is none: nobody could have it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bspml.errors import InputError
from bspml.files.run import EpochRecord
from bspml.words import did_you_mean

# How each was chosen, as a table says it.
CHOSEN_BY = {
    "last": "last epoch",
    "best": "best epoch, chosen on the test classes (an oracle)",
    "selected": "epoch selected on validation classes",
}
_PLAIN = ("map_at_r", "r_precision", "nmi", "ami")
_TITLES = {"map_at_r": "MAP@R", "r_precision": "R-precision", "nmi": "NMI", "ami": "AMI"}


@dataclass(frozen=True)
class SelectedEpoch:
    """A number on the test classes, and where it comes from.

    Attributes:
        epoch: passes over the data done.
        value: of the metric on the test classes, a fraction.
        chosen_by: how the epoch was chosen, in words.
        record: everything measured then.
        validation: what was measured on the validation classes, if that is how it was chosen.
    """

    epoch: float
    value: float
    chosen_by: str
    record: EpochRecord
    validation: float | None = None


def select_epochs(
    records: Sequence[EpochRecord],
    metric: str = "recall_at_1",
    validation: Sequence[EpochRecord] | Mapping[float, float] | None = None,
) -> dict[str, SelectedEpoch | None]:
    """Return the test metric at the last epoch, at its best one, and at the one validation selects.

    Only epochs at which the metric was measured count; of equal ones the earliest is taken, by
    validation the one of larger MAP@R there, since a metric of few classes is often equal.  The
    best and the selected one are of networks that stay, and validation does not select one that
    it finds below the untrained network in MAP@R, see `validation_value`.

    Args:
        records: of one method, in order, with the metrics on the test classes.
        metric: "recall_at_K", "map_at_r", "r_precision", "nmi" or "ami"; larger is better.
        validation: the metric on classes held out of the training classes: records of the same
            epochs, or {epoch: value}.  None: what the records hold under
            `extra["validation"][metric]`; if that is nothing, "selected" is None.

    Returns:
        {"last": ..., "best": ..., "selected": ...}.

    Raises:
        InputError: no such metric, records of several methods or none with the metric, or a
            validation that shares no epoch with them.

    Example:
        >>> curve = {1: 0.50, 2: 0.62, 3: 0.58}
        >>> records = [EpochRecord("ms", e, recall_at_k={1: r}) for e, r in curve.items()]
        >>> found = select_epochs(records, validation={1: 0.4, 2: 0.5, 3: 0.55})
        >>> {name: (s.epoch, s.value) for name, s in found.items()}
        {'last': (3, 0.58), 'best': (2, 0.62), 'selected': (3, 0.58)}
    """
    _check_metric(metric)
    methods = list(dict.fromkeys(record.method for record in records))
    if len(methods) > 1:
        raise InputError(
            f"`records` must be of one method; got {', '.join(methods)}. Select those of one "
            "method at a time."
        )
    candidates = [(record, metric_of(record, metric)) for record in records]
    measurements = [(record, value) for record, value in candidates if value is not None]
    last = measurements[-1:]
    measurements = [pair for pair in measurements if not pair[0].is_temporary] or measurements
    if not measurements:
        raise InputError(
            f"`records`: none of {len(records)} holds `{metric}`. Was it evaluated, and for this K?"
        )
    best = max(measurements, key=lambda pair: pair[1])  # `max` takes the first of equal ones
    return {
        "last": _selected("last", *last[0]),
        "best": _selected("best", *best),
        "selected": _by_validation(measurements, metric, validation),
    }


def selection_columns(
    selected: Mapping[str, SelectedEpoch | None], metric: str = "recall_at_1"
) -> dict[str, float | None]:
    """Return columns of a results table, in %: each names how its epoch was chosen.

    Beside each stands the MAP@R of that epoch, where it was measured.  Without validation nothing
    stands for it, not even an empty column.

    Args:
        selected: what `select_epochs` returned.
        metric: the one it selected by.

    Example:
        >>> record = EpochRecord("ms", 3, recall_at_k={1: 0.58})
        >>> for column, value in selection_columns(select_epochs([record])).items():
        ...     print(column, value)
        last epoch: Recall@1 % 58.0
        best epoch, chosen on the test classes (an oracle): Recall@1 % 58.0
    """
    _check_metric(metric)
    title = _TITLES.get(metric, f"Recall@{metric.rpartition('_')[2]}")
    columns: dict[str, float | None] = {}
    for selection in selected.values():
        if selection is not None:
            columns[f"{selection.chosen_by}: {title} %"] = round(100 * selection.value, 10)
            if selection.record.map_at_r is not None and metric != "map_at_r":
                columns[f"{selection.chosen_by}: MAP@R"] = selection.record.map_at_r
    return columns


def validation_value(
    measured: Mapping[str, float | None], metric: str, untrained: Mapping[str, float | None]
) -> float:
    """Return what an epoch is selected by, NaN where it cannot be.

    That is the metric on the validation classes; NaN where MAP@R there is below the untrained
    network's: one metric must not be bought with the other.

    Args:
        measured: {metric: value} on the validation classes.
        metric: that selects.
        untrained: the same of the network before its first step; {} where it was not measured.

    Example:
        >>> trained, untrained = {"recall_at_1": 0.9, "map_at_r": 0.5}, {"map_at_r": 0.6}
        >>> validation_value(trained, "recall_at_1", {}), validation_value(
        ...     trained, "recall_at_1", untrained
        ... )
        (0.9, nan)
    """
    value, floor = measured.get(metric), untrained.get("map_at_r")
    map_at_r = measured.get("map_at_r")
    below = floor is not None and map_at_r is not None and map_at_r < floor
    return math.nan if value is None or below else float(value)


def tie_broken(value: float, measured: Mapping[str, float | None]) -> float:
    """Return a validation value with a millionth of MAP@R added, which decides between equal ones.

    Args:
        value: of `validation_value`, a share of fewer than a million queries.
        measured: {metric: value} on the validation classes.

    Example:
        >>> tie_broken(1.0, {"map_at_r": 0.6}) > tie_broken(1.0, {"map_at_r": 0.5})
        True
    """
    return value + 1e-6 * (measured.get("map_at_r") or 0.0)


def metric_of(record: EpochRecord, metric: str) -> float | None:
    """Return the metric of one record, None where it was not measured or is not finite.

    Args:
        record: of one epoch.
        metric: "recall_at_K" for a number K, or another metric's name.
    """
    _check_metric(metric)
    match = re.fullmatch(r"recall_at_(\d+)", metric)
    value = record.recall_at_k.get(int(match[1])) if match else getattr(record, metric)
    return None if value is None or not math.isfinite(value) else float(value)


def _by_validation(
    measurements: list[tuple[EpochRecord, float]], metric: str, validation: Any
) -> SelectedEpoch | None:
    held_out = _held_out([record for record, _ in measurements], metric, validation)
    untrained = held_out.get(0, {})
    shared = [
        (r, v, held_out[r.epoch])
        for r, v in measurements
        if math.isfinite(validation_value(held_out.get(r.epoch, {}), metric, {}))
    ]
    if not shared and validation is not None:
        raise InputError(
            f"`validation` holds `{metric}` at none of the epochs of `records`. Both must come "
            "from one run."
        )
    judged = [(r, v, validation_value(m, metric, untrained), m) for r, v, m in shared]
    judged = [entry for entry in judged if math.isfinite(entry[2])]
    if not judged:
        return None
    record, value, by, _ = max(judged, key=lambda entry: tie_broken(entry[2], entry[3]))
    return _selected("selected", record, value, by)


def _held_out(
    records: list[EpochRecord], metric: str, validation: Any
) -> dict[float, Mapping[str, float | None]]:
    """Return the validation as {epoch: {metric: value}}."""
    if validation is None:
        return {r.epoch: r.extra.get("validation") or {} for r in records}
    if isinstance(validation, Mapping):
        return {epoch: {metric: value} for epoch, value in validation.items()}
    return {r.epoch: {"map_at_r": r.map_at_r, metric: metric_of(r, metric)} for r in validation}


def _selected(
    kind: str, record: EpochRecord, value: float, validation: float | None = None
) -> SelectedEpoch:
    return SelectedEpoch(record.epoch, value, CHOSEN_BY[kind], record, validation)


def _check_metric(metric: str) -> None:
    if metric in _PLAIN or re.fullmatch(r"recall_at_[1-9]\d*", metric):
        return
    hint = did_you_mean(metric, [*_PLAIN, "recall_at_1"]) or "."
    raise InputError(
        f"`metric` must be recall_at_K, {', '.join(_PLAIN[:-1])} or {_PLAIN[-1]}; got "
        f"{metric!r:.40}{hint}"
    )
