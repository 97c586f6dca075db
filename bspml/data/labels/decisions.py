"""What a person decided about single labels, and the corrected label file made from it.

Decisions are a CSV file with the columns index, decision (right, wrong or unsure) and, if wanted,
label (the label decided on, as a safeguard), new_label (for a wrong one) and name (of the sample,
which finds it in data where its index is another).  The corrected file has index, label, weight,
decision and, where they are known, name: a right label has weight 1 for good, a wrong one weight
0, or weight 1 for good under its new label; every other sample keeps the weight it had.

Cells follow the spreadsheets' convention, see `bspml.files.cells`.  A label in them is taken as it
stands where it is a class of the data, and without the spaces around it only where it is none and
that is one.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bspml.errors import DataError, InputError
from bspml.files.atomic import atomic_write, is_special
from bspml.files.cells import (
    bare_cell,
    fitting_integers,
    label_cells,
    plain_labels,
    protected_cell,
    whole_number,
)
from bspml.files.columns import labels_in
from bspml.tensors.checks import some_of

__all__ = [
    "CorrectedLabels",
    "Decision",
    "apply_decisions",
    "bare_cell",
    "is_corrected",
    "label_cells",
    "protected_cell",
    "read_corrected",
    "read_decisions",
    "says_label",
    "write_corrected",
]

DECISIONS = ("right", "wrong", "unsure")
_CORRECTED = ("index", "label", "weight", "decision")


@dataclass(frozen=True)
class Decision:
    """One line of a decisions file.

    Attributes:
        index: the sample.
        verdict: "right", "wrong" or "unsure".
        new_label: the right label where the given one is wrong and a person said so, else ''; as
            it stands in the file.
        label: the label decided on, '' if the file does not say; likewise.
        where: file and line, for messages.
        name: of the sample, '' if the file does not say.
    """

    index: int
    verdict: str
    new_label: str
    label: str
    where: str
    name: str = ""


@dataclass(frozen=True)
class CorrectedLabels:
    """Labels to train on, after a person looked at some.

    Attributes:
        labels: (N,) integers or text, new labels in place.
        weights: (N,) float64 in [0, 1].
        decisions: (N,) text: "right", "wrong", "unsure", or '' where nobody decided.
        names: N names of the samples, or None.
        fixed: (N,) bool, the weight is a person's word and must not be learned.
    """

    labels: np.ndarray
    weights: np.ndarray
    decisions: np.ndarray
    names: tuple[str, ...] | None = None

    @property
    def fixed(self) -> np.ndarray:
        """(N,) bool, where the decision is right or wrong."""
        return np.isin(self.decisions, ("right", "wrong"))


# --- decisions ------------------------------------------------------------------------------------


def read_decisions(path: str | os.PathLike[str]) -> list[Decision]:
    """Decisions in order of index, each index once.

    Raises:
        DataError: missing, not such a table, an unknown verdict, a new label for a label that is
            not wrong, or two lines that contradict each other; names file and line.
    """
    decisions: dict[int, Decision] = {}
    for where, row in _rows(Path(path), ("index", "decision")):
        made = _parse(where, row)
        before = decisions.setdefault(made.index, made)
        if (before.verdict, before.new_label) != (made.verdict, made.new_label):
            raise DataError(
                f"{where}: sample {made.index} is {_said(made)}, but {before.where} says "
                f"{_said(before)}. Keep one of the two lines."
            )
        if before.label and made.label and before.label != made.label:
            raise DataError(
                f"{where}: sample {made.index} has the label {made.label!r}, but {before.where} "
                f"says {before.label!r}. Keep one of the two lines."
            )
        if before.name and made.name and before.name != made.name:
            raise DataError(
                f"{where}: sample {made.index} is {made.name!r}, but {before.where} says "
                f"{before.name!r}. Are these decisions about different data?"
            )
        decisions[made.index] = before if before.label else made
    return [decisions[index] for index in sorted(decisions)]


def _parse(where: str, row: dict[str, str]) -> Decision:
    index, verdict = row["index"].strip(), row["decision"].strip().lower()
    number = whole_number(index)
    if number is None:
        raise DataError(f"{where}: `index` must be a whole number; got {index!r}.")
    if verdict not in DECISIONS:
        raise DataError(
            f"{where}: `decision` must be one of {', '.join(DECISIONS)}; got {verdict!r}."
        )
    label, new_label, name = (bare_cell(row.get(key, "")) for key in ("label", "new_label", "name"))
    if "\0" in label + new_label:
        raise DataError(f"{where}: a label holds the character NUL, which no label can hold.")
    if not new_label.strip():
        new_label = ""
    if new_label and verdict != "wrong" and new_label.strip() != label.strip():
        raise DataError(
            f"{where}: sample {index} has the new label {new_label!r}, but its label is "
            f"{verdict}. Say wrong, or empty `new_label`."
        )
    return Decision(number, verdict, new_label if verdict == "wrong" else "", label, where, name)


def _said(decision: Decision) -> str:
    return decision.verdict + (f" ({decision.new_label!r})" if decision.new_label else "")


def apply_decisions(
    labels: Any,
    decisions: list[Decision],
    weights: Any = None,
    names: Sequence[str] | np.ndarray | None = None,
) -> CorrectedLabels:
    """Put decisions into labels and weights.

    Args:
        labels: (N,) integers or text, as given; booleans count as 0 and 1.
        decisions: of `read_decisions`.
        weights: (N,) in [0, 1] of the samples nobody decided on; 1 if None.
        names: N names of the samples, if they have any, to go with the labels.

    Raises:
        InputError: not one weight per label.
        DataError: an index that is not in the data, a decision about another label than the
            sample has, or a new label that is the old one, of another kind, or a number that
            does not fit beside the others; names file and line.
    """
    given = plain_labels(np.asarray(labels))
    n = len(given)
    kept = np.ones(n) if weights is None else np.asarray(weights, np.float64).copy()
    if kept.shape != (n,):
        raise InputError(f"`weights` must be one per label, ({n},); got {kept.shape}.")
    verdicts = np.full(n, "", dtype="<U6")
    as_text = given.dtype.kind not in "iu"
    known = {str(label) for label in np.unique(given)}
    # Python's own values: an array of fixed width would cut a longer label or number off.
    corrected = given.astype(str).tolist() if as_text else given.tolist()
    for made in decisions:
        _check_sample(made, corrected, known)
        new_label = _resolved(made, known, as_text)
        if new_label == corrected[made.index]:
            raise DataError(
                f"{made.where}: sample {made.index} is wrong, but its new label "
                f"{str(new_label)!r} is the old one. Say right, or give another label."
            )
        verdicts[made.index] = made.verdict
        if made.verdict == "right":
            kept[made.index] = 1.0
        elif made.verdict == "wrong":
            kept[made.index] = 0.0 if new_label is None else 1.0
        if new_label is not None:
            corrected[made.index] = new_label
    kept_names = tuple(map(str, names)) if names is not None and any(names) else None
    return CorrectedLabels(_as_array(corrected, decisions, as_text), kept, verdicts, kept_names)


def _check_sample(made: Decision, labels: Sequence[Any], known: set[str]) -> None:
    if not 0 <= made.index < len(labels):
        raise DataError(
            f"{made.where}: there is no sample {made.index}; the data has {len(labels)}, 0 to "
            f"{len(labels) - 1}."
        )
    given, said = str(labels[made.index]), made.label
    if not says_label(said, given, known):
        raise DataError(
            f"{made.where}: sample {made.index} has the label {given!r} here, the decision was "
            f"about {said!r}. Are these decisions about other data?"
        )


def says_label(said: str, given: str, known: Container[str]) -> bool:
    """Whether a decision about the label `said`, '' for any, is about one labelled `given`.

    Whoever writes the file may strip a label, or leave its own leading apostrophe unprotected.
    """
    if not said or said == given:
        return True
    return said not in known and given.strip() in (said.strip(), f"'{said.strip()}")


def _resolved(made: Decision, known: set[str], as_text: bool) -> Any:
    """The new label as the data writes it, None for none."""
    if not made.new_label:
        return None
    bare = made.new_label.strip()
    if as_text:
        return bare if bare in known and made.new_label not in known else made.new_label
    number = whole_number(bare)
    if number is None:
        raise DataError(
            f"{made.where}: the labels are whole numbers; got the new label {made.new_label!r}."
        )
    return number


def _as_array(corrected: list[Any], decisions: list[Decision], as_text: bool) -> np.ndarray:
    if as_text:
        return np.array(corrected, dtype=str)
    whole = fitting_integers(corrected)
    if whole is None:
        far = max((made for made in decisions if made.new_label), key=lambda m: len(m.new_label))
        raise DataError(
            f"{far.where}: the new label {far.new_label[:40]} and the other labels do not fit into "
            "64 bits together. Choose a smaller number."
        )
    return whole


# --- the corrected file ---------------------------------------------------------------------------


def write_corrected(path: str | os.PathLike[str], corrected: CorrectedLabels) -> Path:
    """Write index, label, weight, decision and, where they are known, name, atomically."""
    text = io.StringIO()
    writer = csv.writer(text)
    weights = [repr(float(weight)) for weight in corrected.weights]
    cells = label_cells(corrected.labels)
    columns: list[Sequence[Any]] = [range(len(cells)), cells, weights, corrected.decisions.tolist()]
    if corrected.names is not None:
        columns.append([protected_cell(name) if name else "" for name in corrected.names])
    writer.writerow((*_CORRECTED, "name")[: len(columns)])
    writer.writerows(zip(*columns, strict=True))
    return atomic_write(path, text.getvalue())


def is_corrected(path: str | os.PathLike[str]) -> bool:
    """Whether this is a CSV file with the columns that `write_corrected` writes."""
    path = Path(path)
    if path.suffix.lower() != ".csv" or not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8-sig", errors="surrogatepass", newline="") as file:
            header = {name.strip().lower() for name in next(csv.reader(file), [])}
    except (OSError, UnicodeDecodeError, csv.Error):
        return False  # whoever reads it in earnest says what is wrong
    return header >= set(_CORRECTED)


def read_corrected(path: str | os.PathLike[str]) -> CorrectedLabels:
    """Read what `write_corrected` wrote, in whatever order a person left its rows.

    Raises:
        DataError: missing, damaged, or an index lost or doubled; names the file.
    """
    path = Path(path)
    rows = list(_rows(path, _CORRECTED))
    by_index: dict[int, tuple[str, float, str, str]] = {}
    for where, row in rows:
        try:
            index, weight = int(row["index"]), float(row["weight"])
        except ValueError as err:
            raise DataError(f"{where}: {err}.") from err
        if not 0 <= weight <= 1:
            raise DataError(f"{where}: a weight is in [0, 1]; got {row['weight']}.")
        if row["decision"] not in ("", *DECISIONS):
            raise DataError(
                f"{where}: `decision` must be empty or one of {', '.join(DECISIONS)}; got "
                f"{row['decision']!r}."
            )
        name = bare_cell(row.get("name", ""))
        by_index[index] = (row["label"], weight, row["decision"], name)
    missing = sorted(set(range(len(rows))) - set(by_index))
    if missing:
        raise DataError(
            f"{path}: `index` must hold 0 to {len(rows) - 1}, each once; {some_of(missing)} "
            "missing. Restore the rows."
        )
    cells, weights, verdicts, names = zip(*(by_index[i] for i in range(len(rows))), strict=True)
    return CorrectedLabels(
        _label_column(path, cells),
        np.array(weights, np.float64),
        np.array(verdicts, dtype="<U6"),
        names if any(names) else None,
    )


def _label_column(path: Path, cells: Sequence[str]) -> np.ndarray:
    try:
        return labels_in(cells)
    except DataError as err:
        raise DataError(f"{path}: {err}") from err


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """('file: line n', {column: cell}) of each line; a byte-order mark is passed over."""
    if is_special(path):
        raise DataError(f"{path}: is a pipe or a device, not a CSV file.")
    try:
        with path.open(encoding="utf-8-sig", errors="surrogatepass", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            names = [name.strip().lower() for name in reader.fieldnames or ()]
            missing = [name for name in needed if name not in names]
            if missing:
                raise DataError(
                    f"{path}: has no column `{missing[0]}`; expected {', '.join(needed)}, got "
                    f"{', '.join(names) or 'an empty file'}."
                )
            double = [n for n in (*needed, "label", "new_label", "name") if names.count(n) > 1]
            if double:
                raise DataError(
                    f"{path}: has {names.count(double[0])} columns `{double[0]}`; keep one."
                )
            reader.fieldnames = names
            empty = True
            for row in reader:
                empty = False
                where = f"{path}: line {reader.line_num}"
                if None in row or None in row.values():
                    raise DataError(f"{where}: expected {len(names)} cells, {', '.join(names)}.")
                yield where, row
            if empty and needed == _CORRECTED:
                raise DataError(f"{path}: holds no labels.")
    except OSError as err:
        raise DataError(f"{path}: cannot be read ({err.strerror or err}).") from err
    except (UnicodeDecodeError, csv.Error) as err:
        raise DataError(f"{path}: is not a CSV file in UTF-8 ({err}).") from err
