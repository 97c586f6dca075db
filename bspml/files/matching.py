"""Samples found by their names in another file, whose paths may start in another folder."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


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
    paths = [_parts(names), _parts(theirs)]
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
    ours, others = _below_common(_parts(names)), _below_common(_parts(theirs))
    return next((row for row, name in enumerate(ours) if name != others[row]), 0)


def as_paths(names: Sequence[str]) -> list[str]:
    """Return names as paths are written: `.\\a\\b.jpg` and `./a/b.jpg` are `a/b.jpg`.

    Args:
        names: of samples.
    """
    return [name.replace("\\", "/").removeprefix("./") for name in names]


_Path = tuple[str, ...]


def _parts(names: Sequence[str]) -> list[_Path]:
    return [(*path.split("/"),) for path in as_paths(names)]


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
