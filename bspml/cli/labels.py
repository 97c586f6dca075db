"""Labels beside embeddings: in a file of their own, or inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bspml.data.labels.own_labels import rows_by_name
from bspml.data.retrieval import Origin
from bspml.errors import DataError, InputError
from bspml.files.tables import fitting_names, read_labels, read_texts
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
        return in_order_of(fitting_names(what, len(found)), found, labels, what)
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
    return list(in_order_of(fitting_names(what, n), np.array(splits), labels, what))


def in_order_of(
    names: Sequence[str] | None, found: np.ndarray, labels: str, what: str
) -> np.ndarray:
    """Return labels in the order of the samples, where both name them; else as they stand.

    Args:
        names: of the samples, in their order; None where they have none.
        found: (N,) labels as read.
        labels: the file they were read from, whose names are read here.
        what: what the samples were read from, for the message.

    Raises:
        DataError: the same number of names, but others, or one twice in another order.
    """
    theirs = fitting_names(labels, len(found))
    if names is None or theirs is None or len(names) != len(found):
        return found
    agree = agreeing(names, theirs)
    if agree.all():
        return found
    depth = _telling_depth(names)
    for part in (str, lambda name: "/".join(_parts(name)[-depth:])):
        ours, others = tuple(map(part, names)), tuple(map(part, theirs))
        rows = rows_by_name(others, Origin(found, ours))
        if rows is not None and np.array_equal(np.sort(rows), np.arange(len(found))):
            return found[np.argsort(rows)]
    row = int(np.argmin(agree))
    raise DataError(
        f"{labels}: names other samples than {what}: sample {row} is {shown(theirs[row])} there "
        f"and {shown(names[row])} here, and they cannot be matched by name. Give the labels of "
        "these samples, each name once."
    )


def agreeing(names: Sequence[str], theirs: Sequence[str]) -> np.ndarray:
    """Return (N,) bool, where two names may be those of one sample: a path in one list may start
    in another folder than in the other.

    They end alike, by as many parts as tell `names` apart, or by all of the shorter one.

    Args:
        names: N of them.
        theirs: N others.

    Example:
        >>> agreeing(["ant/0.png", "bee/0.png"], ["photos/ant/0.png", "photos/cat/0.png"]).tolist()
        [True, False]
    """
    depth = _telling_depth(names)
    pairs = [(_parts(a)[-depth:], _parts(b)[-depth:]) for a, b in zip(names, theirs, strict=True)]
    return np.array([a[-len(b) :] == b[-len(a) :] for a, b in pairs], dtype=bool)


def _telling_depth(names: Sequence[str]) -> int:
    """How many of the last parts of paths tell them apart; all, where nothing does."""
    paths = [_parts(name) for name in names]
    deepest = max(map(len, paths), default=1)
    return next(
        (d for d in range(1, deepest) if len({(*p[-d:],) for p in paths}) == len(paths)), deepest
    )


def _parts(name: str) -> list[str]:
    return name.replace("\\", "/").removeprefix("./").split("/")
