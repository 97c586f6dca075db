"""A folder of images: one sub-folder per class, or all in one place."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bspml.data.images import SUFFIXES, find_images
from bspml.data.retrieval import RetrievalSplit
from bspml.errors import DataError
from bspml.files.columns import warn_of_twins


def read_folder(root: str | os.PathLike[str], content: str = "photo") -> RetrievalSplit:
    """Find the images of a folder to look at, in sorted order, with what can be said of labels.

    Hidden files (`._x.jpg`, `.DS_Store`) and hidden folders are passed over; upper-case suffixes
    count.

    Args:
        root: the folder.
        content: what the images show, see `bspml.data.transforms.standard_view`.

    Returns:
        A split called "test" whose paths are relative to `root`, with forward slashes; labels are
        the names of the top sub-folders, '' for images right in `root`.

    Raises:
        DataError: no such folder, or no image in it.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise DataError(f"{root}: no such folder of images.")
    paths = find_images(folder)
    if not paths:
        raise DataError(f"{root}: holds no image ({', '.join(SUFFIXES[:4])}, ...).")
    labels = np.array([p.split("/")[0] if "/" in p else "" for p in paths], dtype=str)
    warn_of_twins(labels.tolist(), root)
    return RetrievalSplit("test", labels, root=folder, paths=tuple(paths), content=content)
