"""CUB-200-2011 [Wah 2011]: 11,788 photographs of 200 species of birds, with boxes.

Retrieval trains on classes 1 to 100 (5,864 images) and tests on 101 to 200 (5,924); the split in
`train_test_split.txt` is that of classification and is not used.  Rows keep the order of
`images.txt`, which is not sorted by name inside a class; class names are those of the folders,
which differ in case from the file names.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bspml.data.annotations import Row, column, locate, read_rows, refuse_repeats, safe_paths
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.errors import DataError

COUNTS = {"train": (5_864, 100), "test": (5_924, 100)}  # images, classes
SOURCE = (
    "Get CUB_200_2011.tgz from Caltech's page of CUB-200-2011 "
    "(www.vision.caltech.edu/datasets/cub_200_2011) and unpack it: `tar xzf CUB_200_2011.tgz`."
)

_TRAIN_CLASSES = 100
_BOXES = "bounding_boxes.txt"


def read_cub(root: str | os.PathLike[str]) -> RetrievalData:
    """Read the lists under `root` or `root`/CUB_200_2011; counts and images are not checked.

    Boxes are read if `bounding_boxes.txt` is there.

    Raises:
        DataError: lists missing, damaged, or not of each other.
    """
    base = locate(
        root, ("", "CUB_200_2011"), ("images.txt", "image_class_labels.txt", "images"), SOURCE
    )
    images = read_rows(base / "images.txt", ("image_id", "path"))
    ids = column(images, 0, base / "images.txt", "image_id")
    paths = safe_paths(images, 1, base / "images.txt")
    refuse_repeats(paths, base / "images.txt")
    refuse_repeats([f"image {number}" for number in ids], base / "images.txt")
    numbers = _class_numbers(base / "image_class_labels.txt", ids)
    everything = RetrievalSplit(
        "train",
        _class_names(paths, base / "images.txt"),
        root=base / "images",
        paths=paths,
        boxes=_boxes(base / _BOXES, ids),
    )
    _check_names(everything.labels, numbers, base)
    train, test = everything.halves(numbers <= _TRAIN_CLASSES)
    notes = () if everything.boxes is not None else (f"{_BOXES} is not there: no boxes.",)
    return RetrievalData("cub", train, test, notes=notes)


def _class_names(paths: tuple[str, ...], source: Path) -> np.ndarray:
    """(N,) the folder of each image."""
    loose = [path for path in paths if "/" not in path]
    if loose:
        raise DataError(f"{source}: {loose[0]!r} lies in no class folder.")
    return np.array([path.split("/")[0] for path in paths], dtype=str)


def _class_numbers(path: Path, ids: list[int]) -> np.ndarray:
    """(N,) class number of each image, from 1."""
    rows = read_rows(path, ("image_id", "class_id"))
    return np.array(column(_by_id(path, rows, ids), 1, path, "class_id"), dtype=np.int64)


def _by_id(path: Path, rows: list[Row], ids: list[int]) -> list[Row]:
    """The rows in the order of `ids`; rows of other images are passed over."""
    by_id = dict(zip(column(rows, 0, path, "image_id"), rows, strict=True))
    unlisted = [image for image in ids if image not in by_id]
    if unlisted:
        raise DataError(
            f"{path}: has no line for {len(unlisted)} of the {len(ids)} images, the first is image "
            f"{unlisted[0]}. Unpack the file again."
        )
    return [by_id[image] for image in ids]


def _check_names(names: np.ndarray, numbers: np.ndarray, base: Path) -> None:
    """Folders are called 001.Black_footed_Albatross: their number must be the listed one."""
    for i, (name, number) in enumerate(zip(names.tolist(), numbers.tolist(), strict=True)):
        prefix = name.split(".")[0]
        if not prefix.isdecimal() or int(prefix) != number:
            raise DataError(
                f"{base / 'image_class_labels.txt'}: image in row {i + 1} of images.txt has class "
                f"{number}, but lies in folder {name}. The two files are not of one data set."
            )


def _boxes(path: Path, ids: list[int]) -> np.ndarray | None:
    """(N, 4) left, top, right, bottom, from left, top, width, height; None without the file."""
    if not path.exists():
        return None
    rows = read_rows(path, ("image_id", "x", "y", "width", "height"))
    ordered_rows = _by_id(path, rows, ids)
    boxes = np.array([column(ordered_rows, at, path, "a box", float) for at in range(1, 5)]).T
    boxes[:, 2:] += boxes[:, :2]
    return boxes
