"""Stanford Online Products [Oh Song 2016]: 120,053 photographs of 22,634 products in 12 groups.

`Ebay_train.txt` lists 59,551 images of 11,318 products, `Ebay_test.txt` 60,502 of 11,316.  Image
and class numbers run on from one list to the other.  Files end in .JPG.  Class names here are the
group and the class number: bicycle/00001.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bspml.data.annotations import column, locate, read_rows, refuse_repeats, safe_paths
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.errors import DataError

COUNTS = {"train": (59_551, 11_318), "test": (60_502, 11_316)}
# [Zhang 2023, table 1], and the customary 10, 100, 1000.
KS = (1, 8, 10, 16, 32, 64, 100, 128, 1000)
SOURCE = (
    "Get Stanford_Online_Products.zip from the page of the lifted structured feature embedding at "
    "Stanford (cvgl.stanford.edu/projects/lifted_struct) and unpack it."
)

_COLUMNS = ("image_id", "class_id", "super_class_id", "path")
_LISTS = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}


def read_sop(root: str | os.PathLike[str]) -> RetrievalData:
    """Read the lists under `root` or `root`/Stanford_Online_Products; images are not checked.

    Raises:
        DataError: lists missing or damaged, an image or a class in both.
    """
    base = locate(root, ("", "Stanford_Online_Products"), tuple(_LISTS.values()), SOURCE)
    splits = {name: _read_split(base, name) for name in _LISTS}
    (train, train_ids), (test, test_ids) = splits.values()
    for what, shared in (
        ("image numbers", train_ids & test_ids),
        ("paths", set(train.paths or ()) & set(test.paths or ())),
        ("classes", set(train.labels) & set(test.labels)),
    ):
        if shared:
            raise DataError(
                f"{base / _LISTS['test']}: {len(shared)} {what} are in {_LISTS['train']} too, such "
                f"as {min(shared)}. One list may be a copy of the other; unpack both again."
            )
    return RetrievalData("sop", train, test, ks=KS)


def _read_split(base: Path, name: str) -> tuple[RetrievalSplit, set[int]]:
    path = base / _LISTS[name]
    rows = read_rows(path, _COLUMNS)
    if rows and rows[0].fields == _COLUMNS:
        del rows[0]
    paths = safe_paths(rows, 3, path)
    numbers = column(rows, 1, path, "class_id")
    ids = set(column(rows, 0, path, "image_id"))
    if len(ids) != len(rows):
        raise DataError(f"{path}: {len(rows) - len(ids)} image numbers come up more than once.")
    refuse_repeats(paths, path)
    labels = [
        f"{file.split('/')[0].removesuffix('_final')}/{number:05d}"
        for file, number in zip(paths, numbers, strict=True)
    ]
    return RetrievalSplit(name, np.array(labels, dtype=str), root=base, paths=paths), ids
