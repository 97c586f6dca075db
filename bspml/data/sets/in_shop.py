"""In-shop Clothes Retrieval, a benchmark of DeepFashion [Liu 2016]: 52,712 pictures of clothes.

`list_eval_partition.txt` says what trains (25,882 images of 3,997 items), what is searched for
(14,218 queries) and where (a gallery of 12,612); queries and gallery show the same 3,985 items.
The class is the item number alone: 99 items lie under two folders.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bspml.data.annotations import (
    Row,
    column,
    image_root,
    locate,
    read_rows,
    refuse_repeats,
    safe_paths,
)
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.errors import DataError

COUNTS = {"train": (25_882, 3_997), "query": (14_218, 3_985), "gallery": (12_612, 3_985)}
# [Zhang 2023, table 1], and the customary 10, 20, 30, 40, 50.
KS = (1, 2, 4, 8, 10, 16, 20, 30, 32, 40, 50)
SOURCE = (
    "Get Img/img.zip, Eval/list_eval_partition.txt and, for boxes, Anno/list_bbox_inshop.txt from "
    "the In-shop Clothes Retrieval page of DeepFashion "
    "(mmlab.ie.cuhk.edu.hk/projects/DeepFashion/InShopRetrieval.html); the archive's password "
    "comes with their agreement."
)

_LIST = "list_eval_partition.txt"
_BOXES = "list_bbox_inshop.txt"
_STATUSES = ("train", "query", "gallery")


def read_in_shop(root: str | os.PathLike[str]) -> RetrievalData:
    """Read the lists under `root`, its Eval/ and Anno/; counts and images are not checked.

    Images lie in `root`/img or `root`/Img/img.  Boxes are read if `list_bbox_inshop.txt` is there.

    Raises:
        DataError: lists missing or damaged, an unknown status, queries without a gallery.
    """
    base = Path(root)
    path = locate(root, ("Eval", "", "In-shop/Eval", "In-shop"), (_LIST,), SOURCE) / _LIST
    if path.is_relative_to(base / "In-shop"):
        base = base / "In-shop"
    rows = _counted_rows(path, ("image_name", "item_id", "evaluation_status"))
    paths = safe_paths(rows, 0, path)
    refuse_repeats(paths, path)
    statuses = _statuses(rows, path)
    everything = RetrievalSplit(
        "train",
        np.array([row.fields[1] for row in rows], dtype=str),
        root=image_root(base, ("", "Img"), paths),
        paths=paths,
        boxes=_boxes(base, paths),
    )
    train, query, gallery = (everything.part(name, statuses == name) for name in _STATUSES)
    _check_items(train, query, gallery, path)
    notes = () if everything.boxes is not None else (f"{_BOXES} is not there: no boxes.",)
    return RetrievalData("in-shop", train, query, gallery, KS, notes)


def _counted_rows(path: Path, columns: tuple[str, ...]) -> list[Row]:
    """The rows after two lines of header, as many as the first of these says."""
    # The fields are padded with blanks to fixed widths, the last one too.
    rows = read_rows(path, columns, skip=2)
    count = sum(column(read_rows(path, ("number",))[:1], 0, path, "the number of images"))
    if count != len(rows):
        raise DataError(
            f"{path}: is {'truncated' if count > len(rows) else 'too long'}: line 1 says {count:,} "
            f"images, and {len(rows):,} follow. Get the file again."
        )
    return rows


def _statuses(rows: list[Row], path: Path) -> np.ndarray:
    """(N,) what each image is for."""
    for fields, line in rows:
        if fields[2] not in _STATUSES:
            raise DataError(
                f"{path}, line {line}: the status must be one of {', '.join(_STATUSES)}; got "
                f"{fields[2][:40]!r}."
            )
    return np.array([row.fields[2] for row in rows], dtype=str)


def _check_items(
    train: RetrievalSplit, query: RetrievalSplit, gallery: RetrievalSplit, path: Path
) -> None:
    items = sorted(set(query.labels) ^ set(gallery.labels))
    if items:
        raise DataError(
            f"{path}: {len(items)} items are only in the query or only in the gallery, such as "
            f"{items[0]}. Get the file again."
        )
    items = sorted(set(train.labels) & set(query.labels))
    if items:
        raise DataError(f"{path}: {len(items)} items train and test, such as {items[0]}.")


def _boxes(base: Path, paths: tuple[str, ...]) -> np.ndarray | None:
    """(N, 4) left, top, right, bottom of each image; None without the file."""
    path = next((base / f / _BOXES for f in ("Anno", "") if (base / f / _BOXES).exists()), None)
    if path is None:
        return None
    columns = ("image_name", "clothes_type", "pose_type", "x_1", "y_1", "x_2", "y_2")
    rows = _counted_rows(path, columns)
    corners = np.array([column(rows, at, path, "a box", float) for at in range(3, 7)]).T
    corners_of = {row.fields[0]: corner for row, corner in zip(rows, corners, strict=True)}
    names = [name for name in paths if name not in corners_of]
    if names:
        raise DataError(
            f"{path}: has no box for {len(names)} of {len(paths)} images, the first is {names[0]}."
        )
    return np.array([corners_of[name] for name in paths], dtype=np.float64).reshape(-1, 4)
