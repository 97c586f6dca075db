"""Labels of the samples in a file, and what stands beside them: names, texts and splits.

They are inside that file, or in one of their own whose rows are brought into the order of the
samples once, all columns together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bspml.data.labels.own_labels import held_labels
from bspml.errors import DataError, InputError
from bspml.files.arrays import Archive
from bspml.files.columns import (
    ID_COLUMNS,
    NAME_COLUMNS,
    TEXT_COLUMNS,
    UNNAMED,
    has_twins,
    telling_names,
)
from bspml.files.matching import first_other, rows_in
from bspml.files.opening import FAULTS, open_regular
from bspml.files.tables import read_labels, read_texts
from bspml.words import shown

_MATCHED = (*NAME_COLUMNS, *ID_COLUMNS, UNNAMED)


@dataclass(frozen=True)
class Labelled:
    """What files say of N samples, in the order of the samples.

    Attributes:
        labels: (N,); empty where nobody asked for them.
        columns: {column: N texts} of names, texts and splits.
    """

    labels: np.ndarray
    columns: dict[str, list[str]] = field(default_factory=dict)

    @property
    def names(self) -> Sequence[str] | None:
        """Return N names, see `telling_names`, or None."""
        return telling_names(self.columns)

    @property
    def texts(self) -> Sequence[str] | None:
        """Return N texts to read, or None."""
        return next((self.columns[name] for name in TEXT_COLUMNS if name in self.columns), None)


def labelled(what: str, labels: str | None, option: str) -> Labelled:
    """Read the labels of the embeddings in the file `what`.

    Args:
        what: the file of embeddings; of columns that both files have, its own count.
        labels: the file of labels, or None: they are inside.
        option: what the command line calls that file.

    Raises:
        InputError: `what` can hold no labels.
        DataError: it could and does not, a file is damaged, or both name their samples and mean
            different ones.
    """
    if labels is not None:
        found = held_labels(labels)
        own = columns_of(what, len(found))
        beside = in_order_of(own, Labelled(found, columns_of(labels, len(found))), labels, what)
        return Labelled(beside.labels, beside.columns | own)
    if Path(what).suffix.lower() == ".npy":
        raise InputError(
            f"{option} is missing: {what} holds embeddings only. Name a file of labels, or give a "
            ".npz, .csv or .parquet file with both."
        )
    try:
        found = read_labels(what)
    except DataError as err:
        raise DataError(f"{err} Or give {option} as a file of their own.") from err
    return Labelled(found, columns_of(what, len(found)))


def says_trained_on(file: str) -> bool:
    """Return whether `bspml embed` made a file of samples that its run trained on.

    Args:
        file: of embeddings; no other than .npz says so.
    """
    if Path(file).suffix.lower() != ".npz":
        return False
    with open_regular(file, "embeddings", faults=FAULTS) as opened:
        return "trained_on" in Archive(opened).names


def columns_of(path: str, n: int) -> dict[str, list[str]]:
    """Return the columns of names, texts and splits of a file.

    Args:
        path: the file; the lines of a .txt file are labels.
        n: number of its samples.  Columns of other numbers are those of other rows.

    Raises:
        DataError: as `read_texts`.
    """
    if Path(path).suffix.lower() == ".txt":
        return {}
    columns = read_texts(path, (*_MATCHED, *TEXT_COLUMNS, "split"))
    return {name: cells for name, cells in columns.items() if cells and len(cells) == n}


def in_order_of(own: dict[str, list[str]], beside: Labelled, labels: str, what: str) -> Labelled:
    """Return labels and what stands beside them in the order of samples, where both name them.

    Any column of names of the one side may be matched by any of the other.  Those that tell no
    samples apart, such as a column of products, count where a side has no better one.  Without
    names the columns `id` or `sample_index` are those, of one side or of both, and then the index
    that pandas writes where it is of the same numbers.

    Args:
        own: columns of the samples, in their order, as `columns_of` returns them.
        beside: what was read of the file of labels, in its order.
        labels: that file, for the message.
        what: what the samples were read from, for the message.

    Raises:
        DataError: the same number of names, but others, or one twice in another order.
    """
    sides = own, beside.columns
    pairs = _paired(*(_of(side, NAME_COLUMNS) for side in sides))
    telling = [pair for pair in pairs if not any(map(has_twins, pair))]
    numbers: list[tuple[list[str], list[str]]] = []
    if not pairs:
        pairs = _paired_by(ID_COLUMNS, *sides)
        # Names of the one side may be numbers of the other.
        numbers = _paired(*(_of(side, (*NAME_COLUMNS, *ID_COLUMNS)) for side in sides))
        numbers += [] if pairs else _paired_by((UNNAMED,), *sides)
    for ours, theirs in telling or pairs + numbers:
        rows = rows_in(theirs, ours)
        if rows is not None:
            columns = {key: [cells[row] for row in rows] for key, cells in beside.columns.items()}
            return Labelled(beside.labels[rows], columns)
    if not pairs:
        return beside
    ours, theirs = pairs[0]
    row = first_other(ours, theirs)
    raise DataError(
        f"{labels}: names other samples than {what}: sample {row} is {shown(theirs[row])} there "
        f"and {shown(ours[row])} here, and they cannot be matched by name. Give the labels of "
        "these samples, each name once."
    )


def _of(columns: dict[str, list[str]], wanted: Sequence[str]) -> list[list[str]]:
    """The wanted columns that are there, those first that tell the samples apart."""
    return sorted((columns[name] for name in wanted if name in columns), key=has_twins)


def _paired(ours: list[list[str]], theirs: list[list[str]]) -> list[tuple[list[str], list[str]]]:
    return [(a, b) for a in ours for b in theirs if len(a) == len(b)]


def _paired_by(
    wanted: Sequence[str], own: dict[str, list[str]], beside: dict[str, list[str]]
) -> list[tuple[list[str], list[str]]]:
    """The wanted columns of both sides that tell the samples of each apart."""
    found = [(own[k], beside[k]) for k in wanted if k in own and k in beside]
    return [pair for pair in found if not any(map(has_twins, pair))]
