"""A table of images: one row each, with its path, its label and, if you like, split and box.

Columns, by name, in any order and case; others are passed over:

- `path` (or image, file, filename), relative to the table's folder;
- `label` (or labels, class_name, class, target, y), in that order of preference;
- `split`: train, test, query or gallery; without it the first half of the classes trains.  Rows of
  a validation set, and of an empty cell, are left out, with a note;
- boxes: `x1, y1, x2, y2`, or `bbox_x, bbox_y, bbox_w, bbox_h`, in pixels of the image; numbers as
  `bspml.files.cells.decimal_number` reads them.

A parquet table says what the CSV file of the same frame says.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bspml.data.annotations import Row, holding, refuse_repeats, safe_paths
from bspml.data.retrieval import COMBINATIONS, NAMES, RetrievalData, RetrievalSplit, half_of_classes
from bspml.errors import DataError, about
from bspml.files.cells import empty_rows
from bspml.files.columns import LABEL_COLUMNS, labels_in, numbers_in, warn_of_rivals, warn_of_twins
from bspml.files.tables import read_texts

SOURCE = "Name the table of your images (.csv, .tsv, .parquet) or its folder."

PATH_COLUMNS = ("path", "image", "file", "filename")

# What a data set may hold beside its splits; an empty cell is of none.
VALIDATION = ("val", "valid", "validation", "dev")
_NO_SPLIT = "(no split)"

_TABLES = ("labels.csv", "labels.tsv", "labels.parquet")
_CORNERS = ("x1", "y1", "x2", "y2")
_SIZES = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")


def read_path_table(
    root: str | os.PathLike[str],
    label_column: str | None = None,
    split_column: str = "split",
    content: str = "photo",
) -> RetrievalData:
    """Read the table `root`, or the `labels.csv`, `.tsv` or `.parquet` in the folder `root`.

    Args:
        root: table, or folder of it.
        label_column: its name, where the table has several; None takes the first that is known.
        split_column: the column of splits.
        content: what the images show, see `bspml.data.transforms.standard_view`.

    Raises:
        DataError: no such table or columns, or one of them twice; an empty label or path, an
            unknown split, a path that leaves the table's folder, an image listed twice.
    """
    path = _table(Path(root))
    candidates = LABEL_COLUMNS if label_column is None else (label_column.lower(),)
    wanted = (*PATH_COLUMNS, *candidates, split_column.lower(), *_CORNERS, *_SIZES)
    columns = read_texts(path, wanted, "paths of photos")
    column = _column(columns, PATH_COLUMNS, path, "paths")
    pathless = empty_rows(column)
    if pathless:
        raise DataError(f"{path}: row {pathless[0] + 1} has no path ({len(pathless)} such rows).")
    cells = _column(columns, candidates, path, "labels")
    warn_of_rivals(next(c for c in candidates if c in columns), list(columns), candidates, path)
    with about(path):
        labels = labels_in(cells, protected=False).astype(str)  # " 0" is "0", as in other files
    warn_of_twins(labels.tolist(), path)
    paths = safe_paths([Row((text,), line) for line, text in enumerate(column, 2)], 0, path)
    boxes = _boxes(columns, path)
    # An image may show several things; the same one twice would find itself.
    shown = paths if boxes is None else [f"{p} {b}" for p, b in zip(paths, boxes, strict=True)]
    refuse_repeats(shown, path, "Keep one row of each.")
    everything = RetrievalSplit(
        "train", labels, root=path.parent, paths=paths, boxes=boxes, content=content
    )
    splits = columns.get(split_column.lower())
    if splits is None and split_column != "split":
        raise DataError(f"{path}: has no column `{split_column}`; it has {', '.join(columns)}.")
    return by_split("table", everything, splits, path)


def by_split(
    name: str, everything: RetrievalSplit, splits: list[str] | None, path: Path
) -> RetrievalData:
    """Part `everything` by the split of each row, or by classes where there is none.

    Args:
        name: of the data set.
        everything: all rows of the table.
        splits: the split of each row, or None.
        path: of the table, for messages.

    Raises:
        DataError: an unknown split, a part without rows, or queries without a gallery.
    """
    if splits is None:
        trains = half_of_classes(everything.labels)
        parts = {"train": trains, "test": ~trains}
    else:
        parts = rows_of_splits(splits, path)
    names = [name for name in NAMES if name in parts and parts[name].any()]
    if names not in COMBINATIONS:
        raise DataError(
            f"{path}: its rows are of {', '.join(parts) or _NO_SPLIT}; expected train and test, "
            "or train, query and gallery, or no column of splits and at least two classes."
        )
    splits_of_it = [everything.part(part, parts[part]) for part in names]
    data = RetrievalData.of(name, splits_of_it, notes=left_out(set(parts) - set(names)))
    return replace(data, halved=splits is None)


def rows_of_splits(splits: list[str], path: Path) -> dict[str, np.ndarray]:
    """Return {split: (N,) bool, its rows} of those that have any, in the order of `NAMES`.

    Behind them those of no use to a training or a test: a validation set, and empty cells.

    Args:
        splits: the split of each row, in whatever case.
        path: of the table, for messages.

    Raises:
        DataError: an unknown split.
    """
    split_names = [text.strip().lower() or _NO_SPLIT for text in splits]
    known = (*NAMES, *VALIDATION, _NO_SPLIT)
    strangers = sorted(set(split_names) - set(known))
    if strangers:
        raise DataError(
            f"{path}: the split must be one of {', '.join(NAMES)}; got {strangers[0][:40]!r} "
            f"in {split_names.count(strangers[0])} rows. Rename it or remove these rows."
        )
    return {
        name: np.array([split == name for split in split_names])
        for name in known
        if name in split_names
    }


def left_out(names: Iterable[str]) -> tuple[str, ...]:
    """Return what is to be said of parts beside the splits, such as a validation set; () for none.

    Example:
        >>> left_out(["val"])
        ('Left out of this data set: val.',)
    """
    others = sorted(names)
    more = f", ... ({len(others)} in all)" if len(others) > 5 else ""
    return (f"Left out of this data set: {', '.join(others[:5])}{more}.",) if others else ()


def _table(root: Path) -> Path:
    if not root.is_dir():
        return root  # the reader says what is wrong with it
    for name in _TABLES:
        if (root / name).is_file():
            return root / name
    raise DataError(f"{root}: has none of {', '.join(_TABLES)}.{holding(root)} {SOURCE}")


def _column(columns: dict[str, list[str]], candidates: Any, path: Path, what: str) -> list[str]:
    for name in candidates:
        if name in columns:
            return columns[name]
    raise DataError(
        f"{path}: has no column of {what} ({', '.join(candidates)}); it has {', '.join(columns)}."
    )


def _boxes(columns: dict[str, list[str]], path: Path) -> np.ndarray | None:
    names = next((n for n in (_CORNERS, _SIZES) if all(name in columns for name in n)), None)
    if names is None:
        return None
    try:
        boxes = np.array([numbers_in(columns[name], name) for name in names]).T
    except DataError as err:
        raise DataError(f"{path}: {err} A box is four numbers.") from err
    odd = np.flatnonzero(~np.isfinite(boxes).all(axis=1)).tolist()
    if odd:
        raise DataError(f"{path}: row {odd[0] + 1} has no box ({len(odd)} such rows): nan or inf.")
    if names is _SIZES:
        boxes[:, 2:] += boxes[:, :2]
    return np.ascontiguousarray(boxes)
