"""CARS-98N [Liu 2021]: web photographs of the 98 training classes of Cars196, many of them wrong.

Collected from Pinterest by the names of the classes, and nobody has looked at which labels are
wrong.  The test is that of Cars196, classes 99 to 196.

Its authors publish a list of addresses with a script that fetches the pictures into a folder for
each class; pictures vanish from the web, so copies differ in size, and no number is held to.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bspml.data.annotations import holding
from bspml.data.images import find_images
from bspml.data.retrieval import RetrievalSplit
from bspml.errors import DataError

COUNTS = {"train": (None, 98), "test": (8_131, 98)}
SOURCE = (
    "Fetch the pictures with prepare_CARS_98N of github.com/alibaba-edu/"
    "Ranking-based-Instance-Selection, and put them into the folder CARS_98N, a folder for each "
    "class, beside a copy of Cars196, whose classes 99 to 196 are the test."
)
FOLDERS = ("CARS_98N", "CARS-98N", "Cars98N", "cars98n")


def read_web_cars(root: str | os.PathLike[str]) -> RetrievalSplit:
    """Find the images that train, below `root`/CARS_98N; the class is the folder an image lies in.

    Raises:
        DataError: no such folder, or an image outside a class folder.
    """
    base = Path(root)
    folder = next((base / name for name in FOLDERS if (base / name).is_dir()), None)
    if folder is None:
        raise DataError(
            f"{root}: has no folder CARS_98N of the web photographs.{holding(base)} {SOURCE}"
        )
    paths = find_images(folder)
    loose = [path for path in paths if "/" not in path]
    if loose or not paths:
        fault = f"{loose[0]} lies in no class folder" if loose else "holds no image"
        raise DataError(f"{folder}: {fault}; expected CLASS/IMAGE.jpg. {SOURCE}")
    labels = np.array([path.split("/")[-2] for path in paths], dtype=str)
    return RetrievalSplit("train", labels, root=folder, paths=tuple(paths))
