"""What the user decided about single labels, and the corrected label file made from it.

Decisions are a CSV file with the columns index, decision (right, wrong or unsure) and, if wanted,
label (the label decided on, as a safeguard), new_label (for a wrong one), name (of the sample,
which finds it in data where its index is another) and picture (a digest of its photo, by which
another photo of that name is refused).  The corrected file has index, label, weight, decision and,
where they are known, name, given_label, what the data said before, and picture, of the decided
ones: a right label has weight 1 for good, a wrong one weight 0, or weight 1 for good under its new
label; every other sample keeps the weight it had.

Cells follow the spreadsheets' convention, see `bspml.files.cells`.  A label in them is taken as it
stands where it is a class of the data, and without the spaces around it only where it is none and
that is one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bspml.errors import DataError, InputError, about
from bspml.files.cells import (
    bare_cell,
    fitting_integers,
    label_cells,
    plain_labels,
    protected_cell,
    whole_number,
)
from bspml.files.columns import column_names, is_number, labels_in, row_order
from bspml.files.delimited import TableRow, read_rows, read_table, write_table
from bspml.files.opening import FAULTS, open_regular
from bspml.tensors.row_checks import check_reference_weights
from bspml.tensors.row_index import check_in_order, check_same_rows
from bspml.words import LONGEST_LABEL

DECISIONS = ("right", "wrong", "unsure")
_NEEDED = ("index", "decision")
_CORRECTED = ("index", "label", "weight", "decision")
DECIDED = ("weight", "decision", "given_label", "picture")  # columns about a decision, not a sample
_KIND = "a CSV file in UTF-8"


@dataclass(frozen=True)
class Decision:
    """One line of a decisions file.

    Attributes:
        index: the sample.
        verdict: "right", "wrong" or "unsure".
        new_label: the right label where the given one is wrong and the user said so, else ''; as
            it stands in the file.
        label: the label decided on, '' if the file does not say; likewise.
        where: file and line, for messages.
        name: of the sample, '' if the file does not say.
        picture: digest of its photo, likewise.
    """

    index: int
    verdict: str
    new_label: str
    label: str
    where: str
    name: str = ""
    picture: str = ""


@dataclass(frozen=True)
class CorrectedLabels:
    """Labels to train on, after the user looked at some.

    Attributes:
        labels: (N,) integers or text, new labels in place.
        weights: (N,) float64 in [0, 1].
        decisions: (N,) text: "right", "wrong", "unsure", or '' where nobody decided.
        names: N names of the samples, or None.
        given: (N,) labels of the data before any decision, or None where they are not known.
        pictures: N digests of the photos decided on, '' where there is none; or None.
        fixed: (N,) bool, the weight is the user's word and must not be learned.
    """

    labels: np.ndarray
    weights: np.ndarray
    decisions: np.ndarray
    names: tuple[str, ...] | None = None
    given: np.ndarray | None = None
    pictures: tuple[str, ...] | None = None

    @property
    def fixed(self) -> np.ndarray:
        """(N,) bool, where the decision is right or wrong."""
        return np.isin(self.decisions, ("right", "wrong"))

    @property
    def dropped(self) -> np.ndarray:
        """(N,) bool, where the label is wrong and no better one is known.

        A weight of 0 alone says that an audit flagged the label, which nobody looked at.
        """
        return (self.decisions == "wrong") & (self.weights == 0)

    def taken(self, rows: np.ndarray) -> CorrectedLabels:
        """Return those of some samples.

        Args:
            rows: (N,) bool, or their places.
        """

        def of(values: Any) -> Any:
            if values is None or isinstance(values, np.ndarray):
                return None if values is None else values[rows]
            return tuple(np.array(values, object)[rows])

        return CorrectedLabels(**{name: of(values) for name, values in vars(self).items()})


# --- decisions ------------------------------------------------------------------------------------


def read_decisions(path: str | os.PathLike[str]) -> list[Decision]:
    """Read decisions, in order of index, each index once.

    Raises:
        DataError: missing, not such a table, an unknown verdict, a new label for a label that is
            not wrong, or two lines that contradict each other; names file and line.
    """
    decisions: dict[int, Decision] = {}
    for row in read_table(path, _NEEDED, ("label", "new_label", "name", "picture"), _KIND):
        decision = _parse_row(row)
        where = decision.where
        previous = decisions.setdefault(decision.index, decision)
        if (previous.verdict, previous.new_label) != (decision.verdict, decision.new_label):
            raise DataError(
                f"{where}: sample {decision.index} is {_verdict_words(decision)}, but "
                f"{previous.where} says {_verdict_words(previous)}. Keep one of the two lines."
            )
        for text, previous_text, verb, remedy in (
            (decision.label, previous.label, "has the label", "Keep one of the two lines."),
            (decision.name, previous.name, "is", "Are these decisions about different data?"),
        ):
            if text and previous_text and text != previous_text:
                raise DataError(
                    f"{where}: sample {decision.index} {verb} {text!r}, but {previous.where} says "
                    f"{previous_text!r}. {remedy}"
                )
        decisions[decision.index] = previous if previous.label else decision
    return [decisions[index] for index in sorted(decisions)]


def _parse_row(line: TableRow) -> Decision:
    row, where = line
    index, verdict = row["index"].strip(), row["decision"].strip().lower()
    number = whole_number(index)
    if number is None:
        raise DataError(f"{where}: `index` must be a whole number; got {index!r}.")
    if verdict not in DECISIONS:
        raise DataError(
            f"{where}: `decision` must be one of {', '.join(DECISIONS)}; got {verdict!r}."
        )
    label, new_label, name, picture = (
        bare_cell(row.get(key, "")) for key in ("label", "new_label", "name", "picture")
    )
    if "\0" in label + new_label:
        raise DataError(f"{where}: a label holds the character NUL, which no label can hold.")
    if len(new_label) > LONGEST_LABEL:
        raise DataError(
            f"{where}: the new label has {len(new_label)} characters; the name of a class has at "
            f"most {LONGEST_LABEL}."
        )
    if not new_label.strip():
        new_label = ""
    if new_label and verdict != "wrong" and new_label.strip() != label.strip():
        raise DataError(
            f"{where}: sample {index} has the new label {new_label!r}, but its label is "
            f"{verdict}. Say wrong, or empty `new_label`."
        )
    new_label = new_label if verdict == "wrong" else ""
    return Decision(number, verdict, new_label, label, where, name, picture.strip())


def _verdict_words(decision: Decision) -> str:
    return decision.verdict + (f" ({decision.new_label!r})" if decision.new_label else "")


def apply_decisions(
    labels: Any, decisions: list[Decision], weights: Any = None, names: Any = None
) -> CorrectedLabels:
    """Put decisions into labels and weights.

    Args:
        labels: (N,) integers or text, as given; booleans count as 0 and 1.
        decisions: of `read_decisions`.
        weights: (N,) in [0, 1] of the samples nobody decided on; 1 if None.
        names: N names of the samples, if they have any, to go with the labels.

    Raises:
        InputError: not one weight in [0, 1] or name per label, or pandas objects of different
            indices.
        DataError: an index that is not in the data, a decision about another label than the
            sample has, two on one sample that differ, or a new label that is the old one, of
            another kind, or a number that does not fit beside the others; names file and line.
    """
    rows = {"labels": labels, "weights": weights, "names": names}
    for name, value in rows.items():
        check_in_order(value, name)
    check_same_rows(**rows)
    old_labels = plain_labels(np.asarray(labels))
    n = len(old_labels)
    weights = check_reference_weights(weights, n, "weights", "labels").numpy()
    if names is not None and len(names) != n:
        raise InputError(f"`names` must be one per label, ({n},); got {len(names)}.")
    verdicts = np.full(n, "", dtype="<U6")
    as_text = old_labels.dtype.kind not in "iu"
    classes = {str(label) for label in np.unique(old_labels)}
    # Python's own values: an array of fixed width would cut a longer label or number off.
    values = old_labels.astype(str).tolist() if as_text else old_labels.tolist()
    standing: dict[int, Decision] = {}
    for decision in decisions:
        _check_sample(decision, old_labels, classes)
        before = standing.setdefault(decision.index, decision)
        if (before.verdict, before.new_label) != (decision.verdict, decision.new_label):
            raise DataError(
                f"{decision.where}: decides on {decision.name!r} otherwise than {before.where}. "
                "Keep one of the two lines."
            )
        if before is not decision:
            continue
        new_label = _resolved(decision, classes, as_text)
        if new_label == values[decision.index]:
            raise DataError(
                f"{decision.where}: sample {decision.index} is wrong, but its new label "
                f"{str(new_label)!r} is the old one. Say right, or give another label."
            )
        verdicts[decision.index] = decision.verdict
        if decision.verdict == "right":
            weights[decision.index] = 1.0
        elif decision.verdict == "wrong":
            weights[decision.index] = 0.0 if new_label is None else 1.0
        if new_label is not None:
            values[decision.index] = new_label
    kept_names = tuple(map(str, names)) if names is not None and any(names) else None
    corrected_labels = _label_array(values, decisions, as_text)
    said = {decision.index: decision.picture for decision in decisions if decision.picture}
    pictures = tuple(said.get(i, "") for i in range(n)) if said else None
    return CorrectedLabels(corrected_labels, weights, verdicts, kept_names, old_labels, pictures)


def _check_sample(decision: Decision, labels: np.ndarray, classes: set[str]) -> None:
    if not 0 <= decision.index < len(labels):
        raise DataError(
            f"{decision.where}: there is no sample {decision.index}; the data has {len(labels)}, 0 "
            f"to {len(labels) - 1}."
        )
    label, about = str(labels[decision.index]), decision.label
    if not says_label(about, label, classes):
        raise DataError(
            f"{decision.where}: sample {decision.index} has the label {label!r} here, the decision "
            f"was about {about!r}. Are these decisions about other data?"
        )


def says_label(said: str, given: str, known: Container[str]) -> bool:
    """Return whether a decision is about a sample of this label.

    Whoever writes the file may strip a label, or leave its own leading apostrophe unprotected.

    Args:
        said: the label decided on, '' for any.
        given: the label of the sample.
        known: all labels of the data.
    """
    if not said or said == given:
        return True
    return said not in known and given.strip() in (said.strip(), f"'{said.strip()}")


def _resolved(decision: Decision, classes: set[str], as_text: bool) -> Any:
    """The new label as the data writes it, None for none."""
    text = decision.new_label
    if not text:
        return None
    bare = text.strip()
    if as_text:
        return bare if bare in classes and text not in classes else text
    number = whole_number(bare)
    if number is None:
        raise DataError(
            f"{decision.where}: the labels are whole numbers; got the new label {text!r}."
        )
    return number


def _label_array(labels: list[Any], decisions: list[Decision], as_text: bool) -> np.ndarray:
    if as_text:
        return np.array(labels, dtype=str)
    integers = fitting_integers(labels)
    if integers is None:
        longest = max((d for d in decisions if d.new_label), key=lambda d: len(d.new_label))
        raise DataError(
            f"{longest.where}: the new label {longest.new_label[:40]} and the other labels do not "
            "fit into 64 bits together. Choose a smaller number."
        )
    return integers


# --- the corrected file ---------------------------------------------------------------------------


def write_corrected(path: str | os.PathLike[str], corrected: CorrectedLabels) -> Path:
    """Write index, label, weight, decision and, where known, name, given_label and picture.

    Args:
        path: the file.
        corrected: labels after the decisions.

    Returns:
        `path`.

    Raises:
        RunError: the file cannot be written.
    """
    columns: dict[str, Sequence[Any]] = {
        "index": range(len(corrected.labels)),
        "label": label_cells(corrected.labels),
        "weight": [repr(float(weight)) for weight in corrected.weights],
        "decision": corrected.decisions.tolist(),
    }
    if corrected.names is not None:
        columns["name"] = [protected_cell(name) if name else "" for name in corrected.names]
    if corrected.given is not None:
        columns["given_label"] = label_cells(corrected.given)
    if corrected.pictures is not None:
        columns["picture"] = [protected_cell(key) if key else "" for key in corrected.pictures]
    return write_table(path, columns)


def is_corrected(path: str | os.PathLike[str]) -> bool:
    """Return whether this is a CSV file with the columns that `write_corrected` writes."""
    # Whoever reads it in earnest says what is wrong with it.
    with contextlib.suppress(DataError), open_regular(path, _KIND, faults=FAULTS) as file:
        header = next((row.fields for row in read_rows(file)), ())
        return Path(path).suffix.lower() == ".csv" and set(column_names(header)) >= set(_CORRECTED)
    return False


def read_corrected(path: str | os.PathLike[str]) -> CorrectedLabels:
    """Read what `write_corrected` wrote, in whatever order its rows were left.

    Raises:
        DataError: missing, damaged, or an index lost or doubled; names the file.
    """
    rows = read_table(path, _CORRECTED, ("name", "given_label", "picture"), _KIND)
    if not rows:
        raise DataError(f"{path}: holds no labels.")
    weights = [_weight(row) for row in rows]
    cells = [row.cells for row in rows]
    with about(path):
        order = row_order([row["index"] for row in cells], len(rows))
        labels = labels_in([row["label"] for row in cells])
        has_given = "given_label" in cells[0]
        given = labels_in([row["given_label"] for row in cells])[order] if has_given else None
    names = [bare_cell(row.get("name", "")) for row in cells]
    pictures = [bare_cell(row.get("picture", "")).strip() for row in cells]
    return CorrectedLabels(
        labels[order],
        np.array(weights, np.float64)[order],
        np.array([row["decision"] for row in cells], dtype="<U6")[order],
        tuple(names[row] for row in order) if any(names) else None,
        given,
        tuple(pictures[row] for row in order) if any(pictures) else None,
    )


def _weight(line: TableRow) -> float:
    """The weight in a row of corrected labels, whose decision is looked at too."""
    row, where = line
    if not is_number(row["weight"]) or not 0 <= (weight := float(row["weight"])) <= 1:
        raise DataError(f"{where}: a weight is in [0, 1]; got {row['weight']}.")
    if row["decision"] not in ("", *DECISIONS):
        raise DataError(
            f"{where}: `decision` must be empty or one of {', '.join(DECISIONS)}; got "
            f"{row['decision']!r}."
        )
    return weight
