"""Earlier decisions, carried over to data that grew since: found by name, and not asked again.

What was decided holds as long as the sample still has the label that was decided on, or already has
the one that it was given: a photo that has been moved by hand to a third class is asked about anew.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bspml.data.labels.decision_words import counts_of_decisions
from bspml.data.labels.decisions import (
    Decision,
    apply_decisions,
    is_corrected,
    read_corrected,
    read_decisions,
    says_label,
)
from bspml.data.labels.own_labels import are_other_pictures, rows_by_name
from bspml.data.retrieval import Origin
from bspml.errors import DataError
from bspml.words import counted

_ANOTHER = "not what was decided on (only saved again, or turned? Delete the column `picture`)"


@dataclass(frozen=True)
class CarriedDecisions:
    """What earlier decisions say of N samples.

    Attributes:
        labels: (N,) as given, the decided ones in place.
        decided: (N,) text: "right", "wrong", or '' where nothing is decided.
        is_dropped: (N,) bool, the label is wrong and no better one is known.
        sentence: how many were carried over, and why not all.
        given: (N,) as given, or None: `labels` are.
        pictures: N digests of the photos decided on, '' where there is none; or None.
    """

    labels: np.ndarray
    decided: np.ndarray
    is_dropped: np.ndarray
    sentence: str
    given: np.ndarray | None = None
    pictures: tuple[str, ...] | None = None


def carry_over(
    path: str | os.PathLike[str],
    labels: np.ndarray,
    names: Sequence[str] | None,
    pictures: Callable[[Sequence[int]], Sequence[str]] | None = None,
) -> CarriedDecisions:
    """Find the samples of earlier decisions and put their labels in place.

    Args:
        path: decisions of a page, or corrected labels, which hold the decisions of all rounds.
        labels: (N,) as given now.
        names: N names, or None.
        pictures: see `Origin`.

    Raises:
        DataError: a file that cannot be read, without names, of other data, or with two decisions
            on one sample that differ; or data without names that tell the samples apart.
    """
    decisions = _read(path)
    own_names = None if names is None else tuple(map(str, names))
    origin = Origin(labels.astype(str), own_names, pictures)
    rows = rows_by_name([made.name for made in decisions], origin)
    if rows is None:
        raise DataError(
            f"{path}: earlier decisions find their samples by name, and "
            f"{_without_names(decisions, origin)}. Decide anew, or add a column `name`."
        )
    if len(rows) and (rows < 0).all():
        raise DataError(
            f"{path}: there is no sample {decisions[0].name!r} in these data, nor any other that "
            "is decided on. Are these decisions about other data?"
        )
    others = are_other_pictures([made.picture for made in decisions], rows, origin)
    classes = set(origin.labels.tolist())
    standing: list[Decision] = []
    passed: Counter[str] = Counter()
    for made, row, is_other in zip(decisions, rows.tolist(), others.tolist(), strict=True):
        why = "absent" if row < 0 else _why_open(made, str(origin.labels[row]), classes)
        why = "another" if is_other else why
        if why:
            passed[why] += 1
            continue
        standing.append(_as_it_stands(replace(made, index=row), str(origin.labels[row]), classes))
    corrected = apply_decisions(labels, standing)
    parts = [
        f"{len(decisions) - passed.total()} of {counted(len(decisions), 'earlier decision')} "
        f"carried over ({counts_of_decisions(corrected)})"
    ]
    for why, one, several in (
        ("absent", "name is not in these data", "names are not in these data"),
        ("another", f"picture is {_ANOTHER}", f"pictures are {_ANOTHER}"),
        ("changed", "label is not the one decided on", "labels are not those decided on"),
        ("unknown", "label decided on is not in the file", "labels decided on are not in the file"),
        ("unsure", "was unsure", "were unsure"),
    ):
        if passed[why]:
            parts.append(counted(passed[why], one, several))
    return CarriedDecisions(
        corrected.labels,
        corrected.decisions,
        corrected.dropped,
        "; ".join(parts) + ".",
        corrected.given,
        corrected.pictures,
    )


def _read(path: str | os.PathLike[str]) -> list[Decision]:
    """Read decisions as the page saves them, or those that went into corrected labels.

    A row of these is what all rounds came to: from the label that the data gave to the last one.
    Files of before have no label that was given; the new one stands for it, so that it is asked
    anew about data that do not have that yet.
    """
    if not is_corrected(path):
        return read_decisions(path)
    corrected = read_corrected(path)
    names = corrected.names or [""] * len(corrected.labels)
    given = corrected.labels if corrected.given is None else corrected.given
    decisions = []
    for i in np.flatnonzero(corrected.decisions != "").tolist():
        label, about, verdict = (str(x[i]) for x in (corrected.labels, given, corrected.decisions))
        is_known = corrected.given is not None or verdict == "right"
        if verdict != "unsure" and corrected.weights[i] > 0:
            verdict = "right" if label == about and is_known else "wrong"
        else:
            label = ""
        new_label = label if verdict == "wrong" else ""
        where = f"{path}: sample {i}"
        picture = corrected.pictures[i] if corrected.pictures else ""
        decisions.append(Decision(i, verdict, new_label, about, where, names[i], picture))
    return decisions


def _without_names(decisions: Sequence[Decision], origin: Origin) -> str:
    if origin.names is None or not any(origin.names):
        return "these data have none"
    nameless = next((made for made in decisions if not made.name), None)
    if nameless is not None:
        return f"sample {nameless.index} of the file has none"
    return "two samples of these data share one"


def _why_open(made: Decision, given: str, classes: set[str]) -> str:
    """Why a decision does not hold for a sample of the label `given`; '' if it does."""
    if made.verdict == "unsure":
        return "unsure"
    is_new = bool(made.new_label) and says_label(made.new_label, given, classes)
    if is_new or says_label(made.label, given, classes):
        return ""
    return "unknown" if made.new_label and made.new_label == made.label else "changed"


def _as_it_stands(made: Decision, given: str, classes: set[str]) -> Decision:
    """A label that has been corrected in the data is right by now."""
    if made.new_label and says_label(made.new_label, given, classes):
        return replace(made, verdict="right", new_label="", label="")
    return made
