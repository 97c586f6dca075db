"""Food-101N [Lee 2018]: 310,009 web photographs of 101 dishes, about a fifth under a wrong name.

Retrieval as in [Liu 2021] trains on the first 50 classes, by name, with their labels as collected,
and tests on the other 51 in Food-101 [Bossard 2014], 1,000 images each.

`meta/imagelist.tsv` lists all images, CLASS/KEY.jpg in images/.  `meta/verified_train.tsv` and
`meta/verified_val.tsv` hold a person's verdict on some of them, 1: the class is right.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from bspml.data.annotations import Row, column, locate, read_rows, refuse_repeats, safe_paths
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.errors import DataError

COUNTS = {"train": (None, 50), "test": (51_000, 51)}
SOURCE = (
    "Get Food-101N from kuanghuei.github.io/Food-101N and Food-101 from "
    "data.vision.ee.ethz.ch/cvl/datasets_extra/food-101, and unpack both into one folder, as "
    "Food-101N_release and food-101."
)
IMAGES = 310_009  # in the list, as published

_TRAIN_CLASSES = 50
_LIST = "meta/imagelist.tsv"
_VERDICTS = ("meta/verified_train.tsv", "meta/verified_val.tsv")
_TEST_LISTS = ("meta/train.txt", "meta/test.txt")  # the split of classification, joined here
_HEAD = "class_name/key"


def read_food101n(root: str | os.PathLike[str]) -> RetrievalData:
    """Read the lists of both data sets; images are not checked.

    A note says what share of the verified training labels is wrong, if the verdicts are there.

    Raises:
        DataError: lists missing or damaged, or an image in none of the classes of the other set.
    """
    noisy = locate(root, ("Food-101N_release", "Food-101N", "Food101N", ""), (_LIST,), SOURCE)
    clean = locate(root, ("food-101", "Food-101", "food101", ""), _TEST_LISTS, SOURCE)
    everything = _listed(noisy, (_LIST,), "")
    tested = _listed(clean, _TEST_LISTS, ".jpg")
    classes = sorted({*everything.labels.tolist(), *tested.labels.tolist()})
    trains = classes[:_TRAIN_CLASSES]
    train = everything.part("train", np.isin(everything.labels, trains))
    test = tested.part("test", ~np.isin(tested.labels, trains))
    for split, where in ((train, noisy / _LIST), (test, clean / _TEST_LISTS[0])):
        if not len(split):
            raise DataError(
                f"{where}: lists no image of the {split.name} classes, the "
                f"{'first' if split is train else 'last'} by name of {len(classes)}. {SOURCE}"
            )
    notes = _verdict_notes(noisy, set(train.paths or ()))
    if len(everything) != IMAGES:
        told = f"{_LIST} lists {len(everything):,} images in place of the published {IMAGES:,}."
        notes = (*notes, told)
    return RetrievalData("food101n", train, test, notes=notes)


def _listed(base: Path, lists: tuple[str, ...], suffix: str) -> RetrievalSplit:
    """All images of these lists, CLASS/KEY a line; the class is the folder."""
    paths: list[str] = []
    for name in lists:
        rows = [row for row in read_rows(base / name, (_HEAD,)) if row.fields != (_HEAD,)]
        keys = safe_paths(rows, 0, base / name)
        _check_keys(keys, rows, base / name)
        paths += [f"images/{key}{suffix}" for key in keys]
    refuse_repeats(paths, base / lists[0])
    labels = np.array([path.split("/")[1] for path in paths], dtype=str)
    return RetrievalSplit("train", labels, root=base, paths=tuple(paths))


def _check_keys(keys: tuple[str, ...], rows: list[Row], path: Path) -> None:
    for key, row in zip(keys, rows, strict=True):
        if key.count("/") != 1:
            raise DataError(
                f"{path}, line {row.line}: expected CLASS/IMAGE; got {key[:80]!r}. Unpack the file "
                "again."
            )


def _verdict_notes(base: Path, trained: set[str]) -> tuple[str, ...]:
    """What people found of the labels that train, in a sentence; () where no list is there."""
    verdicts: list[int] = []
    for name in _VERDICTS:
        path = base / name
        if path.exists():
            rows = read_rows(path, (_HEAD, "verification_label"))
            rows = [row for row in rows if row.fields[0] != _HEAD]
            keys = safe_paths(rows, 0, path)
            right = column(rows, 1, path, "verification_label")
            of_key = zip(keys, right, strict=True)
            verdicts += [verdict for key, verdict in of_key if f"images/{key}" in trained]
    if not verdicts:
        return ()
    wrong = verdicts.count(0) / len(verdicts)
    return (f"Of {len(verdicts):,} training labels that people verified, {wrong:.1%} are wrong.",)
