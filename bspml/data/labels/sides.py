"""The splits of a data set after corrections: what changes sides, and what counts no more."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np

from bspml.data.labels.decisions import CorrectedLabels
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.words import counted


def corrected_sides(
    data: RetrievalData, corrected: CorrectedLabels
) -> tuple[RetrievalData, list[str]]:
    """Give the splits their corrected labels, and keep each class on its side.

    What the training loses to the other side goes to the gallery, where there is one.

    Args:
        data: splits; those that are parts of one whole are corrected together.
        corrected: labels and decisions of all samples of the training's origin.

    Returns:
        The data, and what was moved or left out, in sentences.
    """
    train, *tests = data.splits
    notes, counts = _without_part(data, corrected)
    if any(split.origin is not train.origin for split in tests):
        relabelled = _relabelled(train.take(counts[train.rows]), corrected)
        return _of(data, [relabelled, *tests]), [
            *notes,
            "the evaluation keeps the labels it was given: it lies in files of its own, and what "
            "trains alone takes the corrected ones",
        ]
    tested = np.unique(np.concatenate([split.labels for split in tests]))
    everything = reduce(RetrievalSplit.joined, data.splits)
    everything = everything.take(counts[everything.rows])
    everything = _relabelled(everything.take(np.argsort(everything.rows)), corrected)
    is_train = to_train = np.isin(everything.rows, train.rows)
    to_test = ~is_train
    if not np.isin(train.classes, tested).any():
        to_train, to_test = (np.isin(everything.labels, side) for side in (train.classes, tested))
        # A class that nobody had before stays where it is.
        is_new = ~np.isin(everything.labels, train.origin.labels)
        to_train, to_test = to_train | (is_new & is_train), to_test | (is_new & ~is_train)
    is_wrong = to_test & corrected.dropped[everything.rows]
    moves = int((to_train & ~is_train).sum() + (to_test & is_train).sum())
    parts = [everything.part("train", to_train)]
    for split in tests:
        is_here = np.isin(everything.rows, split.rows) | (is_train & (split is tests[-1]))
        parts.append(everything.part(split.name, to_test & ~is_wrong & is_here))
    if moves:
        notes.append(
            f"{counted(moves, 'sample changes', 'samples change')} sides: the corrected label is a "
            "class of the other one"
        )
    if is_wrong.any():
        words = counted(int(is_wrong.sum()), "sample")
        notes.append(f"left out of the evaluation: {words} decided to be wrong")
    return _of(data, parts), notes


def _of(data: RetrievalData, splits: list[RetrievalSplit]) -> RetrievalData:
    """Return `data` with other splits; whether they share classes is noted anew."""
    return RetrievalData.of(data.name, splits, data.ks, data.notes)


def _without_part(data: RetrievalData, corrected: CorrectedLabels) -> tuple[list[str], np.ndarray]:
    """Notes on decisions that cannot be followed; and (M,) bool, the labels that count somewhere.

    Labels of the origin that no split has left, by `data.ignore` or `data.subset`, count nowhere.
    """
    origin, splits = data.train.origin, data.splits
    known = np.concatenate([split.labels for split in splits])
    counts = np.isin(corrected.labels, known) | ~np.isin(corrected.labels, origin.labels)
    absent = np.ones(len(origin.labels), dtype=bool)
    for split in splits:
        if split.origin is origin:
            absent[split.rows] = False
    asked = (corrected.decisions != "") | (corrected.labels != origin.labels)
    notes = []
    for rows, told in (
        (absent & asked, "decided on, but of no split here (their label is left out, for one)"),
        (~absent & ~counts, "left out, as the corrected label is one that is left out"),
    ):
        if rows.any():
            notes.append(f"{counted(int(rows.sum()), 'sample')} {told}")
    return notes, counts


def _relabelled(split: RetrievalSplit, corrected: CorrectedLabels) -> RetrievalSplit:
    return replace(split, labels=corrected.labels[split.rows].astype(str))
