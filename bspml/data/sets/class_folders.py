"""Your own images, in a folder per class.

Either `train/CLASS/...` beside `test/CLASS/...` (or beside `query/` and `gallery/`), or one folder
of classes, of which the first half trains and the other half tests.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bspml.data.images import find_images, folders_inside
from bspml.data.retrieval import COMBINATIONS, NAMES, RetrievalData, RetrievalSplit
from bspml.data.sets.path_table import by_split
from bspml.errors import DataError
from bspml.words import counted

SOURCE = "Name the folder whose sub-folders are the classes, each with its images."


def read_class_folders(root: str | os.PathLike[str], content: str = "photo") -> RetrievalData:
    """Find images and the names of their class folders; hidden files are passed over.

    A class may have sub-folders of its own: the folder right below the split's is the class.

    Args:
        root: the folder.
        content: what the images show, see `bspml.data.transforms.standard_view`.

    Raises:
        DataError: no such folder, no image, an image outside a class folder, only some of the
            splits, or fewer than two classes in one folder.
    """
    base = Path(root)
    if not base.is_dir():
        raise DataError(f"{root}: no such folder of images.")
    names = [name for name in NAMES if (base / name).is_dir()]
    if not names:
        everything = _read_split(base, "", "train", content)
        if len(everything.classes) < 2:
            raise DataError(
                f"{root}: holds one class, {everything.classes[0]}; retrieval trains on some "
                "classes and tests on others. Add a folder per class."
                f"{folders_inside(root, everything.paths or ())}"
            )
        return by_split("folder", everything, None, base)
    if names not in COMBINATIONS:
        raise DataError(
            f"{root}: has {', '.join(names)}; expected train and test, or train, query and "
            "gallery, or none of these but a folder per class."
        )
    splits = [_read_split(base, f"{name}/", name, content) for name in names]
    return RetrievalData.of("folder", splits)


def _read_split(base: Path, prefix: str, name: str, content: str) -> RetrievalSplit:
    folder = base / prefix
    paths = find_images(folder)
    if not paths:
        raise DataError(f"{folder}: holds no image (.jpg, .png, ...).")
    loose = [path for path in paths if "/" not in path]
    if loose:
        raise DataError(
            f"{folder}: {counted(len(loose), 'image lies', 'images lie')} in no class folder, the "
            f"first is {loose[0]}. Put such images into a folder per class."
        )
    labels = np.array([path.split("/")[0] for path in paths], dtype=str)
    from_base = tuple(f"{prefix}{path}" for path in paths)
    return RetrievalSplit(name, labels, root=base, paths=from_base, content=content)
