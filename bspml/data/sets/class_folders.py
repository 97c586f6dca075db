"""Your own images, in a folder per class.

Either `train/CLASS/...` beside `test/CLASS/...` (or beside `query/` and `gallery/`), or one folder
of classes, of which the first half trains and the other half tests.  Folders beside the splits are
left out, with a note.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bspml.data.images import find_images, folders_inside
from bspml.data.retrieval import COMBINATIONS, NAMES, RetrievalData, RetrievalSplit
from bspml.data.sets.path_table import VALIDATION, by_split, left_out
from bspml.errors import DataError
from bspml.files.columns import warn_of_twins
from bspml.words import counted

SOURCE = "Name the folder whose sub-folders are the classes, each with its images."

_LIKE_SPLITS = ("training", "testing", *VALIDATION)


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
    folders = sorted(path.name for path in base.glob("[!.]*") if path.is_dir())
    # In whatever case, as in a column of splits.
    found = {name: [f for f in folders if f.lower() == name] for name in NAMES}
    names = [name for name in NAMES if found[name]]
    if folders and all(folder.lower() in _LIKE_SPLITS for folder in folders):
        raise DataError(
            f"{root}: has {', '.join(folders)}, which are splits by their names, not classes. "
            "Call them train and test, with a folder per class in each."
        )
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
    twice = next((" and ".join(those) for those in found.values() if len(those) > 1), None)
    if twice:
        raise DataError(f"{root}: has {twice}, the same split twice. Put them together.")
    splits = [_read_split(base, f"{found[name][0]}/", name, content) for name in names]
    others = [folder for folder in folders if folder.lower() not in NAMES]
    return RetrievalData.of("folder", splits, notes=left_out(others))


def refuse_splits(root: str | os.PathLike[str], folders: Iterable[str]) -> None:
    """Refuse a folder of splits where the folders in it are to be classes.

    Args:
        root: the folder, for the message.
        folders: the names of all folders in it.

    Raises:
        DataError: all are splits by their names, or those are that training reads as such.

    Example:
        >>> refuse_splits("pets", ["cat", "train"])
    """
    among = {name: name.lower() for name in sorted(folders)}
    splits = [name for name in among if among[name] in (*NAMES, *_LIKE_SPLITS)]
    are_read = [name for name in NAMES if name in among.values()] in COMBINATIONS
    if are_read or 1 < len(splits) == len(among):
        raise DataError(
            f"{root}: {' and '.join(splits)} are splits, not classes: the labels are the folders "
            f"inside them. Name one of them, such as {Path(root) / splits[-1]}."
        )


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
    warn_of_twins(labels.tolist(), folder)
    from_base = tuple(f"{prefix}{path}" for path in paths)
    return RetrievalSplit(name, labels, root=base, paths=from_base, content=content)
