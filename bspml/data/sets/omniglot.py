"""Omniglot [Lake 2015]: 1,623 handwritten characters of 50 alphabets, 20 drawings of each.

Background (964 characters, 19,280 drawings) trains, evaluation (659 and 13,180) tests, as its
authors split it by alphabets.  Black ink on white, 105 pixels, one bit.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bspml.data.annotations import locate
from bspml.data.images import find_images
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.data.sets.path_table import read_path_table
from bspml.errors import DataError

COUNTS = {"train": (19_280, 964), "test": (13_180, 659)}
SOURCE = (
    "Get python/images_background.zip and python/images_evaluation.zip from "
    "github.com/brendenlake/omniglot and unpack both into one folder."
)

_FOLDERS = {"train": "images_background", "test": "images_evaluation"}
_TABLE = "labels.csv"
# Where the folders lie in `root`: right there, or as others unpack them; each also in the folder
# of this data set among others.
_NESTED = (
    "", "omniglot-py", "python", "omniglot", "omniglot/omniglot-py", "omniglot/python",
)  # fmt: skip


def read_omniglot(root: str | os.PathLike[str]) -> RetrievalData:
    """Read the two unpacked folders, or a `labels.csv` (path, class, split); counts are not
    checked.

    `root` holds them, or a folder `omniglot` that does.
    In the folders a class is alphabet/character, in the table what its column of classes says.

    Raises:
        DataError: neither is there, or a drawing lies outside a character's folder.
    """
    for table in (Path(root) / _TABLE, Path(root) / "omniglot" / _TABLE):
        if table.is_file():
            data = read_path_table(table, content="character")
            return RetrievalData("omniglot", data.train, data.test, notes=data.notes)
    base = locate(root, _NESTED, tuple(_FOLDERS.values()), SOURCE)
    train, test = (_read_split(base, name) for name in _FOLDERS)
    return RetrievalData("omniglot", train, test)


def _read_split(base: Path, name: str) -> RetrievalSplit:
    top = base / _FOLDERS[name]
    if (top / _FOLDERS[name]).is_dir():  # unpacked into a folder of the archive's name
        top = top / _FOLDERS[name]
    paths = find_images(top)
    stray = [path for path in paths if path.count("/") != 2]
    if stray or not paths:
        fault = f"holds {stray[0]}" if stray else "holds no image"
        raise DataError(f"{top}: {fault}; expected ALPHABET/CHARACTER/DRAWING.png. {SOURCE}")
    labels = np.array([path.rpartition("/")[0] for path in paths], dtype=str)
    prefix = top.relative_to(base).as_posix()
    from_base = tuple(f"{prefix}/{path}" for path in paths)
    return RetrievalSplit(name, labels, root=base, paths=from_base, content="character")
