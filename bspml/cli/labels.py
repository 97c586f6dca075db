"""Labels beside embeddings: in a file of their own, or inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bspml.errors import DataError, InputError
from bspml.files.columns import NAME_COLUMNS, has_twins
from bspml.files.tables import read_labels, read_texts
from bspml.words import shown


def labels_of(what: str, labels: str | None, option: str) -> np.ndarray:
    """Return (N,) labels of the embeddings in the file `what`.

    Args:
        what: the file of embeddings.
        labels: the file of labels, or None: they are inside.
        option: what the command line calls that file.

    Raises:
        InputError: `what` can hold no labels.
        DataError: it could and does not, a file is damaged, or both name their samples and mean
            different ones.
    """
    if labels is not None:
        found = read_labels(labels)
        return in_order_of(name_columns(what, len(found)), found, labels, what)
    if Path(what).suffix.lower() == ".npy":
        raise InputError(
            f"{option} is missing: {what} holds embeddings only. Name a file of labels, or give a "
            ".npz, .csv or .parquet file with both."
        )
    try:
        return read_labels(what)
    except DataError as err:
        raise DataError(f"{err} Or give {option} as a file of their own.") from err


def splits_of(what: str, labels: str | None, n: int) -> list[str] | None:
    """Return the n splits of the rows of `what`, from it or else from the file of labels.

    Args:
        what: the file of embeddings.
        labels: the file of labels, or None.
        n: rows of both.

    Raises:
        DataError: as `in_order_of`.
    """
    splits = read_texts(what, ("split",)).get("split")
    if splits or labels is None:
        return splits
    splits = read_texts(labels, ("split",)).get("split")
    if not splits:
        return None
    return list(in_order_of(name_columns(what, n), np.array(splits), labels, what))


def name_columns(path: str, n: int) -> list[Sequence[str]]:
    """Return all columns of names of a file, those first that tell its samples apart.

    Args:
        path: the file.
        n: number of its samples.

    Raises:
        DataError: as `read_texts`.
    """
    if Path(path).suffix.lower() == ".txt":  # whose lines are the labels
        return []
    columns = read_texts(path, NAME_COLUMNS)
    found = [columns[name] for name in NAME_COLUMNS if len(columns.get(name, ())) == n]
    return sorted(found, key=has_twins)


def in_order_of(
    names: Sequence[Sequence[str]], found: np.ndarray, labels: str, what: str
) -> np.ndarray:
    """Return labels in the order of the samples, where both name them; else as they stand.

    Any column of names of the one side may be matched by any of the other.  Those that tell no
    samples apart, such as a column of products, count where a side has no better one.

    Args:
        names: of the samples, in their order, as `name_columns` returns them; empty for none.
        found: (N,) labels as read.
        labels: the file they were read from, whose names are read here.
        what: what the samples were read from, for the message.

    Raises:
        DataError: the same number of names, but others, or one twice in another order.
    """
    pairs = [(a, b) for a in names for b in name_columns(labels, len(found)) if len(a) == len(b)]
    telling = [pair for pair in pairs if not any(map(has_twins, pair))]
    for ours, theirs in telling or pairs:
        rows = rows_in(theirs, ours)
        if rows is not None:
            return found[rows]
    if not pairs:
        return found
    ours, theirs = pairs[0]
    row = first_other(ours, theirs)
    raise DataError(
        f"{labels}: names other samples than {what}: sample {row} is {shown(theirs[row])} there "
        f"and {shown(ours[row])} here, and they cannot be matched by name. Give the labels of "
        "these samples, each name once."
    )


def rows_in(theirs: Sequence[str], names: Sequence[str]) -> np.ndarray | None:
    """Find the samples of one list in another, whose paths may start in another folder.

    Names are compared as they are; as paths below the folder that all of a list lie in; by as many
    of their last parts as tell the samples of both lists apart.  The first of these that finds each
    sample once counts.  Names of files that tell no samples apart fit only as they stand.

    Args:
        theirs: N names of a file.
        names: N names of the samples.

    Returns:
        (N,) the row in `theirs` of each sample; None where they are not these samples.

    Example:
        >>> rows_in(["photos/bee/0.png", "photos/ant/0.png"], ["ant/0.png", "bee/0.png"]).tolist()
        [1, 0]
        >>> rows_in(["photos/cat/0.png", "photos/ant/0.png"], ["ant/0.png", "bee/0.png"]) is None
        True
    """
    paths = [_paths(names), _paths(theirs)]
    depth = max(map(_telling_depth, paths))
    readings: list[Sequence[Sequence[object]]] = [
        [names, theirs],
        [_below_common(some) for some in paths],
        [[path[-depth:] for path in some] for some in paths],
    ]
    if any(all(len(path) == 1 for path in some) for some in paths):
        files = [[path[-1] for path in some] for some in paths]
        readings += [files] * (files[0] == files[1])
    for ours, others in readings:
        if list(ours) == list(others):
            return np.arange(len(names))
        place = {name: row for row, name in enumerate(others)}
        if len(place) == len(names) and place.keys() == {*ours}:
            return np.array([place[name] for name in ours])
    return None


def first_other(names: Sequence[str], theirs: Sequence[str]) -> int:
    """Return the first row where two lists of names differ, wherever their paths start.

    Args:
        names: N of them.
        theirs: N others.
    """
    ours, others = _below_common(_paths(names)), _below_common(_paths(theirs))
    return next((row for row, name in enumerate(ours) if name != others[row]), 0)


_Path = tuple[str, ...]


def _paths(names: Sequence[str]) -> list[_Path]:
    return [(*name.replace("\\", "/").removeprefix("./").split("/"),) for name in names]


def _telling_depth(paths: Sequence[_Path]) -> int:
    """How many of the last parts of paths tell them apart; all, where nothing does."""
    deepest = max(map(len, paths), default=1)
    return next(
        (d for d in range(1, deepest) if len({p[-d:] for p in paths}) == len(paths)), deepest
    )


def _below_common(paths: Sequence[_Path]) -> list[_Path]:
    """The paths without the folders that all of them start with."""
    first, last = min(paths, default=()), max(paths, default=())
    pairs = enumerate(zip(first[:-1], last[:-1], strict=False))
    common = next((i for i, (a, b) in pairs if a != b), min(len(first), len(last)) - 1)
    return [path[common:] for path in paths]
