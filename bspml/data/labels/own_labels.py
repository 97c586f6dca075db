"""What the user corrected in their own data, brought to the samples that a training has of them.

An audit looks at a whole folder, a training at the classes that are not held out for the
evaluation, so sample 7 of one need not be sample 7 of the other.  Names tell them apart; where a
file has none, its rows count the whole (`RetrievalSplit.origin`) or the training samples,
whichever they fit.

Corrections are put into the whole, before it is parted: a photograph that the user moved from a
class that trains to one that is held out goes there with its label.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bspml.data.labels.decision_words import note_on_new_classes
from bspml.data.labels.decisions import (
    CorrectedLabels,
    Decision,
    apply_decisions,
    is_corrected,
    read_corrected,
    read_decisions,
    says_label,
)
from bspml.data.labels.sides import corrected_sides
from bspml.data.retrieval import Origin, RetrievalData, RetrievalSplit
from bspml.errors import DataError, InputError
from bspml.files.matching import as_paths
from bspml.files.tables import fitting_names, read_labels, read_texts
from bspml.words import counted, shown

_TRUTH = ("true_label", "true_labels", "is_noisy")  # columns that `bspml noise` writes


@dataclass(frozen=True)
class OwnLabels:
    """A data set after its owner corrected labels.

    Attributes:
        data: with the corrected labels; samples of another class are in the split of that.
        decided: what the user said of the N training samples, or None for labels alone.
        notes: what was passed over or moved, in sentences.
    """

    data: RetrievalData
    decided: CorrectedLabels | None
    notes: tuple[str, ...]


def own_labels(
    data: RetrievalData, labels_file: str | None = None, decisions_file: str | None = None
) -> OwnLabels:
    """Give `data` the labels of a file, and the user's decisions on single ones.

    Args:
        data: of a folder, a table or features.
        labels_file: labels, or corrected labels from `bspml audit --apply`, or None.
        decisions_file: verdicts saved from a page, or None.

    Raises:
        DataError: files damaged, or of other data.
    """
    origin = data.train.origin
    notes: list[str] = []
    result = CorrectedLabels(
        origin.labels, np.ones(len(origin.labels)), np.full(len(origin.labels), "", dtype="<U6")
    )
    if labels_file is not None:
        refuse_planted(labels_file, "corrections of those that the data have")
        result, notes = placed(as_read(labels_file), labels_file, data.train)
        notes += note_on_new_classes(origin.labels, result)
    if decisions_file is not None:
        # The labels that the decisions are about, where `labels_file` gave other ones.
        about = replace(origin, labels=result.labels)
        decisions, passed_notes = located(read_decisions(decisions_file), about, data.train.rows)
        notes += passed_notes
        result = apply_decisions(result.labels, decisions, result.weights)
        notes += note_on_new_classes(about.labels, result)
    sides, side_notes = corrected_sides(data, result)
    decided = result.taken(sides.train.rows) if (result.decisions != "").any() else None
    return OwnLabels(sides, decided, (*notes, *side_notes))


# --- files ----------------------------------------------------------------------------------------


def as_read(file: str) -> CorrectedLabels:
    """Read a file of labels, with or without decisions, and with the names that it has.

    Args:
        file: a table or an array.
    """
    if is_corrected(file):
        return read_corrected(file)
    labels = read_labels(file)
    blank = np.full(len(labels), "", dtype="<U6")
    return CorrectedLabels(labels, np.ones(len(labels)), blank, fitting_names(file, len(labels)))


def refuse_planted(file: str | os.PathLike[str], what: str) -> None:
    """Refuse labels that have wrong ones among them, as `bspml noise` writes them.

    Args:
        file: a table or an archive.
        what: they would be taken for.

    Raises:
        InputError: a column says so.
    """
    # Of an .npz, names come without their final s.
    if known := [name for name in read_texts(file, ()) if name in _TRUTH]:
        raise InputError(
            f"{file}: has the column `{known[0]}`, so its labels have wrong ones among them, and "
            f"are not {what}. Name the file of the true labels (in a training noise.kind plants "
            f"wrong ones); or, if these are to be held true, remove {' and '.join(known)}."
        )


def held_labels(file: str | os.PathLike[str]) -> np.ndarray:
    """Read a file of labels, (N,), each of which its sample is held to have.

    Args:
        file: a table or an array.

    Raises:
        DataError: it is damaged, or some of its labels were decided to be wrong.
    """
    if is_corrected(file) and (count := int(read_corrected(file).dropped.sum())):
        raise DataError(
            f"{file}: {counted(count, 'label was', 'labels were')} decided to be "
            "wrong, and no right one is known. Take such samples out, here and in the data; "
            "or give the file beside the labels as they were, as `bspml audit --decisions` or "
            "`noise.labels_file`."
        )
    return read_labels(file)


def placed(
    corrected: CorrectedLabels, file: str, train: RetrievalSplit
) -> tuple[CorrectedLabels, list[str]]:
    """Give all samples the labels of a file; those that it does not name keep theirs.

    Args:
        corrected: what was read of it, see `as_read`.
        file: its name, for messages.
        train: samples, of which all in its origin are looked for.

    Returns:
        The labels of all in the origin, and notes.

    Raises:
        DataError: of other data.
    """
    origin, n, m = train.origin, len(corrected.labels), len(train.origin.labels)
    rows = rows_by_name(corrected.names, origin)
    notes = []
    if rows is not None:
        if (rows < 0).all():
            raise DataError(
                f"{file}: names no sample of these data; its first is {corrected.names[0]!r}, "  # type: ignore[index]
                f"theirs {origin.names[0]!r}. Are these labels of other data?"  # type: ignore[index]
            )
        if (rows < 0).any():
            strange = int((rows < 0).sum())
            name = "names" if strange == 1 else "name"
            notes.append(f"{file}: {strange} of its {n} rows {name} no sample of these data")
        if len(np.unique(rows[rows >= 0])) < (rows >= 0).sum():
            raise DataError(f"{file}: names a sample twice. Keep one row of each.")
        num_unnamed = m - int((rows >= 0).sum())
        if num_unnamed:
            words = "sample, which keeps its label", "samples, which keep their labels"
            notes.append(f"{file}: does not name {counted(num_unnamed, *words)}")
    elif n in (m, len(train)):
        rows = np.arange(m) if n == m else train.rows
        _refuse_other_names(corrected.names or (), rows, origin, [file] * n)
    else:
        raise DataError(
            f"{file}: has {counted(n, 'label')} and no names; the data have "
            f"{counted(m, 'sample')}, of which {len(train)} train. Give one label for each of "
            "either, in the order of their paths, or add a column `name`."
        )
    refuse_other_pictures(corrected.pictures or (), rows, origin, [file] * n)
    labels = origin.labels.astype(object)  # no fixed width, which would cut longer names off
    weights, decisions = np.ones(m), np.full(m, "", dtype="<U6")
    known_rows = rows >= 0
    if corrected.given is not None:
        now, said = origin.labels[rows], corrected.labels.astype(str)
        changed = known_rows & (now != corrected.given.astype(str)) & (now != said)
        moved = np.flatnonzero(changed & (corrected.decisions != ""))
        if len(moved) and (corrected.names is None or origin.names is None):
            was, there = shown(str(corrected.given[moved[0]])), shown(str(now[moved[0]]))
            raise DataError(
                f"{file}: row {moved[0] + 1} is a decision on a sample with the label {was}; there "
                f"the data have {there}. Are they in another order? Give names, beside both."
            )
        if changed.any():
            told = counted(int(changed.sum()), "label was", "labels were")
            notes.append(f"{file}: {told} changed in these data since; those of the file count")
    labels[rows[known_rows]] = corrected.labels.astype(str)[known_rows]
    weights[rows[known_rows]] = corrected.weights[known_rows]
    decisions[rows[known_rows]] = corrected.decisions[known_rows]
    return CorrectedLabels(labels.astype(str), weights, decisions, given=origin.labels), notes


# --- which sample ---------------------------------------------------------------------------------


def located(
    decisions: Sequence[Decision], origin: Origin, rows: np.ndarray | None = None
) -> tuple[list[Decision], list[str]]:
    """Find the samples that decisions are about.

    Args:
        decisions: of `read_decisions`.
        origin: M samples.
        rows: those of them that train; all if None.

    Returns:
        The decisions with their rows in `origin` as index; and notes on those passed over.

    Raises:
        DataError: they are about other data or other pictures, or their rows can be read in two
            ways.
    """
    train_rows = np.arange(len(origin.labels)) if rows is None else rows
    if not decisions:
        return [], []
    names = [decision.name for decision in decisions]
    places = rows_by_name(names, origin)
    if places is None:
        by_index = _rows_by_index(decisions, origin, train_rows)
        _refuse_other_names(names, by_index, origin, [decision.where for decision in decisions])
        return at_rows(decisions, by_index, origin), []
    absent = np.flatnonzero(places < 0)
    if len(absent) == len(places):
        raise DataError(
            f"{decisions[0].where}: there is no sample {names[0]!r} in these data, nor any other "
            f"that is decided on; their first is {origin.names[0]!r}. Are these decisions "  # type: ignore[index]
            "about other data, or about a test in a folder of its own, which keeps its labels?"
        )
    notes = []
    if len(absent):
        kept = "" if rows is None else " (a test in a folder of its own keeps its labels)"
        notes.append(
            f"{decisions[absent[0]].where}: "
            f"{counted(len(absent), 'decision is', 'decisions are')} about samples that are not in "
            f"these data, the first is {names[absent[0]]!r}{kept}"
        )
    placed = [d for d, row in zip(decisions, places, strict=True) if row >= 0]
    return at_rows(placed, places[places >= 0], origin), notes


def at_rows(decisions: Sequence[Decision], rows: np.ndarray, origin: Origin) -> list[Decision]:
    """Return the decisions with other indices.

    Args:
        decisions: D of them.
        rows: (D,) rows in `origin`.
        origin: the samples.

    Raises:
        DataError: the photo of a row is another one than that decided on; names it.
    """
    pictures, places = [made.picture for made in decisions], [made.where for made in decisions]
    refuse_other_pictures(pictures, rows, origin, places)
    return [replace(d, index=row) for d, row in zip(decisions, rows.tolist(), strict=True)]


def rows_by_name(names: Sequence[str] | None, origin: Origin) -> np.ndarray | None:
    """Find samples by their names.

    Args:
        names: one a sample, as a file gives them, or None.
        origin: the samples to find them among.

    Returns:
        The row in `origin` of each name, -1 for none; None where names do not tell samples apart.
    """
    own_names = origin.numbers if origin.names is None else origin.names
    if names is None or not all(names) or len(set(own_names)) < len(own_names):
        return None
    paths = as_paths(own_names)
    # Names that are one path in two spellings are told apart by these alone.
    is_path = len(set(paths)) == len(paths)
    place = {name: row for row, name in enumerate(paths if is_path else own_names)}
    for spelling in _spellings(names) if is_path else [names]:
        rows = np.array([place.get(name, -1) for name in spelling], dtype=np.int64)
        if (rows >= 0).any():
            break
    return None if origin.names is None and (rows < 0).all() else rows


def _refuse_other_names(
    names: Sequence[str], rows: np.ndarray, origin: Origin, places: Sequence[str]
) -> None:
    """Refuse names, perhaps of some lines alone, that samples taken by their rows do not have."""
    for name, row, place in zip(names, rows.tolist(), places, strict=False):
        own = origin.names[row] if origin.names else ""
        if name and own and all(as_paths([own]) != spelt for spelt in _spellings([name])):
            raise DataError(
                f"{place}: names {name!r}, but row {row} of these data is {own!r}; where a line or "
                "a sample has no name of its own, all go by their rows. Give each its name."
            )


def are_other_pictures(pictures: Sequence[str], rows: np.ndarray, origin: Origin) -> np.ndarray:
    """Return where the photo of a row is not the one decided on, (P,) bool; others are not read.

    Args:
        pictures: P digests of the photos decided on, '' where it is not known.
        rows: (P,) rows of the samples in `origin`; others are none.
        origin: the samples, with the photos at hand or without.

    Raises:
        DataError: a photo cannot be read; names it.
    """
    is_other, n = np.zeros(len(pictures), dtype=bool), len(origin.labels)
    asked = [i for i, said in enumerate(pictures) if said and 0 <= rows[i] < n]
    found = [""] * n if origin.pictures is None else origin.pictures(rows[asked].tolist())
    is_other[asked] = [key not in ("", pictures[i]) for i, key in zip(asked, found, strict=False)]
    return is_other


def refuse_other_pictures(
    pictures: Sequence[str], rows: np.ndarray, origin: Origin, places: Sequence[str]
) -> None:
    """Refuse decisions on other photos than those that stand there now.

    Args:
        pictures, rows, origin: see `are_other_pictures`.
        places: P places in files, for the message.

    Raises:
        DataError: there is such a decision; names the first.
    """
    others = np.flatnonzero(are_other_pictures(pictures, rows, origin)).tolist()
    if others:
        row, more = int(rows[others[0]]), f", and {len(others) - 1} more" * (len(others) > 1)
        name = origin.names[row] if origin.names else f"sample {row}"
        raise DataError(
            f"{places[others[0]]}: {name!r} is another picture here than was decided on{more}: "
            "another photo of that name, or the same one saved again or turned since. Take such "
            "lines out and decide anew; or, if all show what they showed, delete the column "
            "`picture`: then names alone count."
        )


def _spellings(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the names as written, then with and without the training split's folder `train/`."""
    paths = as_paths(names)
    yield paths
    yield [f"train/{name}" for name in paths]
    yield [name.removeprefix("train/") for name in paths]


def _rows_by_index(
    decisions: Sequence[Decision], origin: Origin, train_rows: np.ndarray
) -> np.ndarray:
    """Rows of the whole, or of the training samples: whichever range and labels allow."""
    labels, n = origin.labels, len(train_rows)
    last = max(decisions, key=lambda decision: decision.index)
    if last.index >= len(labels):
        raise DataError(
            f"{last.where}: there is no sample {last.index}; the data have {len(labels)} "
            f"samples, of which {n} train. Are these decisions about other data?"
        )
    index = np.array([decision.index for decision in decisions], dtype=np.int64)
    readings = [index]
    if last.index < n and not np.array_equal(train_rows[index], index):
        readings.append(train_rows[index])
    classes = set(labels.tolist())
    fitting = [
        rows
        for rows in readings
        if all(
            says_label(decision.label, labels[row], classes)
            for decision, row in zip(decisions, rows, strict=True)
        )
    ]
    if len(fitting) == 2:
        raise DataError(
            f"{last.where}: its rows can be those of all {len(labels)} samples or of the {n} that "
            "train. Add a column `name`, which the pages save, or `label`, the label decided on."
        )
    # Where neither fits, whoever applies them names the line.
    return fitting[0] if fitting else readings[-1]
