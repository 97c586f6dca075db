"""--root of the benchmarks: the folder that has the data sets' folders, or one of these."""

from __future__ import annotations

import csv
from pathlib import Path

from bspml.data.annotations import holding
from bspml.data.sets.omniglot import read_omniglot
from bspml.errors import DataError

# What lies right in a data set's own folder: Omniglot as it was unpacked, others by their table.
_MARKS = ("labels.csv", "labels.tsv", "labels.parquet", "images_background", "images_evaluation")
_NESTED = ("python", "omniglot-py")  # Omniglot inside what others unpack it into


def data_folder(root: Path, name: str) -> Path:
    """`root/name`, or `root` where the data set lies right in it; the first if it is nowhere."""
    below = root / name
    if below.is_dir():
        return below
    inside = [root, *(root / folder for folder in _NESTED)]
    own = any((folder / mark).exists() for folder in inside for mark in _MARKS)
    return root if own else below


def read_rows(root: Path, name: str) -> tuple[Path, list[dict[str, str]]]:
    """The folder of a data set and the rows of its labels.csv.

    Omniglot needs none: its folders say the same.

    Raises:
        DataError: neither layout is there; says which were looked for and what was found.
    """
    folder = data_folder(root, name)
    table = folder / "labels.csv"
    if table.is_file():
        with table.open(newline="", encoding="utf-8") as file:
            return folder, list(csv.DictReader(file))
    if name == "omniglot" and folder.is_dir():
        return _omniglot_rows(folder)
    raise DataError(
        f"--root {root}: expected {name}/labels.csv in it, or labels.csv itself (path, class, "
        f"split).{holding(root)}"
    )


def _omniglot_rows(folder: Path) -> tuple[Path, list[dict[str, str]]]:
    """The rows of a labels.csv, from the folders: classes numbered by name, background first."""
    rows: list[dict[str, str]] = []
    data = read_omniglot(folder)
    first = 0
    for split in (data.train, data.test):
        number = {label: str(first + i) for i, label in enumerate(split.classes.tolist())}
        first += len(number)
        rows += [
            {
                "path": path,
                "class": number[label],
                "class_name": label,
                "alphabet": label.partition("/")[0],
                "split": split.name,
            }
            for path, label in zip(split.paths, split.labels.tolist(), strict=True)
        ]
    return Path(data.train.root), rows
