"""What of a data set is there: published numbers against listed ones, lists against the disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from bspml.data.retrieval import RetrievalData, RetrievalSplit, half_of_classes

# split -> (images, classes), as published; None: no number is held to
Counts = Mapping[str, tuple[int | None, int]]


def count_faults(data: RetrievalData, counts: Counts | None) -> list[str]:
    """Return what differs from the published numbers, in words.

    Args:
        data: as its lists say.
        counts: {split: (images, classes)} as published, or None: nothing can differ then.

    Returns:
        A clause per difference, [] if there is none.
    """
    faults = []
    for split in data.splits if counts is not None else ():
        images, classes = (counts or {})[split.name]
        for listed, expected, what in (
            (len(split), images, "images"),
            (len(split.classes), classes, "classes"),
        ):
            if expected is not None and listed != expected:
                faults.append(
                    f"the {split.name} split lists {listed:,} {what} instead of {expected:,}"
                )
    return faults


def missing_paths(split: RetrievalSplit) -> list[str]:
    """Return the listed files that are not there."""
    if split.paths is None or split.root is None:
        return []
    # A folder at a time: a hundred thousand questions for one file each are slow over a network.
    parts = [path.rpartition("/") for path in split.paths]
    names_in = {folder: _files_in(split.root / folder) for folder in {part[0] for part in parts}}
    return [
        path
        for path, (folder, _, name) in zip(split.paths, parts, strict=True)
        if name not in names_in[folder]
    ]


def _files_in(folder: Path) -> set[str]:
    """Names of what is there and no folder; a link that leads nowhere is not there."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if _is_there(entry)}
    except OSError:
        return set()


def _is_there(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file() or not (entry.is_symlink() or entry.is_dir())
    except OSError:  # a link to itself: nothing to read, and no reason to miss its neighbours
        return False


def present(data: RetrievalData) -> RetrievalData:
    """Return `data` without the images that are not there, which a note counts."""
    parts, lost = [], 0
    for split in data.splits:
        missing = set(missing_paths(split))
        lost += len(missing)
        keep = np.array([path not in missing for path in split.paths or ()], dtype=bool)
        parts.append(split.take(keep) if missing else split)
    notes = data.notes
    if lost:
        notes = (*notes, f"A subset: {lost:,} listed images are not there.")
    train, test, *gallery = parts
    return replace(
        data, train=train, test=test, gallery=gallery[0] if gallery else None, notes=notes
    )


def halves(data: RetrievalData) -> RetrievalData:
    """Put train and test together and part them anew, at half of the classes by name."""
    everything = data.train.joined(data.test)
    train, test = everything.halves(half_of_classes(everything.labels))
    note = "Not the official split: the first half of the classes that are there trains."
    return replace(data, train=train, test=test, notes=(*data.notes, note))
