"""The noisy training lists that PRISM [Liu 2021] published for CUB, Cars196 and SOP.

Each is a `.csv` or `.csv.gz` of `path,label` without header, with the paths of its authors' disk.
Rows are found in a split by the last two parts of the path, the truth is the split's, and the
labels are brought to the split's class names.  What the lists do on the way is tolerated and
stated in `notes`:

- labels of CUB count from 1, but noise was drawn up to 101: one wrong label belongs to no class;
- the numbers of Cars196 follow the names in alphabetical order, not the devkit;
- where two images of one class had one number in Cars196, the second is called NNNNN_2.jpg;
- in lists of small-cluster noise the numbers are those of the clusters that are left, from 0;
- the share of wrong labels is near the one in the file's name, not equal to it.

A list's numbers are read in the way that makes most labels agree with the truth; at half of them
wrong, the right way still agrees on half, and any other on next to none.
"""

from __future__ import annotations

import gzip
import io
import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bspml.data.retrieval import RetrievalSplit
from bspml.errors import DataError, InputError
from bspml.files.delimited import read_rows
from bspml.files.opening import FAULTS, open_regular

_LEAST_AGREEMENT = 0.25  # below it, no numbering is believed
_LEAST_FIT = 0.4  # the same of clusters, which agree by fitting: some with any numbers
_LARGEST = 256 * 2**20  # bytes that a list may unpack to
_DIGITS = 12  # of the largest number that is believed to be one of a class
_NOMINAL = re.compile(r"_(0?\.\d+)")
_Numbers = dict[str, int]  # the number that a list gives to each image, by `folder/file`


@dataclass(frozen=True, eq=False)
class NoiseList:
    """Published noisy labels, row for row of the split.

    Attributes:
        labels: (N,) text, class names of the split; a label of no class keeps its number.
        true_labels: (N,) text, the split's own labels.
        is_noisy: (N,) bool, where the two differ.
        nominal_rate: the rate in the file's name, or None.
        rate: the share of wrong labels that it contains.
        numbering: how its numbers were read: "class numbers", "by name, from 1", "by name, from 0"
            or "clusters".
        notes: what is odd about it, in sentences.
    """

    labels: np.ndarray
    true_labels: np.ndarray
    is_noisy: np.ndarray
    nominal_rate: float | None
    rate: float
    numbering: str
    notes: tuple[str, ...]


def read_noise_list(path: str | os.PathLike[str], split: RetrievalSplit) -> NoiseList:
    """Read a list and put its labels into the order of `split`.

    Args:
        path: a .csv or .csv.gz file.
        split: the training split of the data set that the list is for; of a subset, the list's
            other rows are passed over.

    Raises:
        InputError: a split without paths.
        DataError: missing or damaged; an image of the split that the list lacks; numbers that fit
            no numbering of the classes.

    Example:
        >>> noisy = read_noise_list("CUB_0.2noised_train.csv.gz", cub.train)  # doctest: +SKIP
        >>> noisy.nominal_rate, round(noisy.rate, 3)  # doctest: +SKIP
        (0.2, 0.202)
    """
    path = Path(path)
    numbers = _read_numbers(path)
    if split.paths is None:
        raise InputError("`split` must have paths: a noise list names its images by file.")
    keys, notes = _list_keys(split, numbers, path)
    rows = np.array([numbers[key] for key in keys], dtype=np.int64)
    numbering, names = _numbering(rows, split.labels, _listed(numbers, keys, split.labels), path)
    labels = np.array([names.get(row, f"{row}") for row in rows.tolist()], dtype=str)
    is_noisy = labels != split.labels
    nominal = nominal_rate(path)
    notes += _oddities(rows, names, numbering, numbers, keys)
    rate = float(is_noisy.mean())
    if nominal is not None:
        notes.append(f"Its name says {nominal:.0%} noise; it contains {rate:.2%}.")
    return NoiseList(labels, split.labels.copy(), is_noisy, nominal, rate, numbering, tuple(notes))


# --- rows -----------------------------------------------------------------------------------------


def _read_numbers(path: Path) -> _Numbers:
    """Return {folder/file: number} of a list, in its order."""
    missing = "no such list of noisy labels (.csv or .csv.gz)."
    with open_regular(
        path, "a list", where=f"{path!s:.200}", missing=missing, faults=FAULTS
    ) as file:
        packed = path.suffix.lower() == ".gz"
        content = (gzip.GzipFile(fileobj=file) if packed else file).read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise DataError(f"{path}: unpacks to more than {_LARGEST >> 20} MiB; it is no list.")
        rows = list(read_rows(io.BytesIO(content)))
    numbers: _Numbers = {}
    for cells, line in rows:
        if not cells or (line == 1 and not _is_number(cells[-1])):
            continue  # blank, or a header
        if len(cells) < 2 or not _is_number(cells[-1]):
            text = ",".join(cells)
            raise DataError(f"{path}, line {line}: expected path,label; got {text!r:.120}.")
        if len(cells[-1].strip()) > _DIGITS:
            raise DataError(f"{path}, line {line}: {cells[-1].strip()[:20]}... is no class number.")
        key = _last_two(",".join(cells[:-1]))  # a file name may hold a comma
        if key in numbers:
            raise DataError(f"{path}, line {line}: {key} comes up twice.")
        numbers[key] = int(cells[-1])
    if not numbers:
        raise DataError(f"{path}: holds no rows.")
    return numbers


def _is_number(cell: str) -> bool:
    return cell.isascii() and cell.strip().isdecimal()


def _last_two(path: str) -> str:
    return "/".join(path.strip().replace("\\", "/").split("/")[-2:])


def _list_keys(split: RetrievalSplit, numbers: _Numbers, path: Path) -> tuple[list[str], list[str]]:
    """Return the list's key of each image of the split, by the naming that fits most."""
    assert split.paths is not None
    paths = [_last_two(name) for name in split.paths]
    car_names = _names_of_cars(split, numbers)
    # Each way counts the rows it finds once: two images must not share one.
    keys = max((paths, car_names), key=lambda way: len(numbers.keys() & set(way)))
    unlisted = [split.paths[i] for i, key in enumerate(keys) if key not in numbers]
    if unlisted:
        raise DataError(
            f"{path}: has no row for {len(unlisted):,} of the {len(split):,} images of the split, "
            f"the first is {unlisted[0]}. Is it the list of another data set, or of its test split?"
        )
    shared = next((key for key, count in Counter(keys).items() if count > 1), None)
    if shared is not None:
        raise DataError(
            f"{path}: several images of the split end in {shared}, and a list names each by the "
            "last two parts of its path. Give them paths that differ there."
        )
    notes = []
    if keys is car_names and keys != paths:
        doubles = sum(key.endswith("_2.jpg") for key in keys)
        if doubles:
            notes.append(
                f"{doubles} images share class and number with another one and are called _2 in "
                "the list: taken to be those of cars_test. Both of a pair are of one class, so "
                "only the two noisy labels could be exchanged."
            )
    return keys, notes


def _names_of_cars(split: RetrievalSplit, numbers: _Numbers) -> list[str]:
    """Keys `<class name>/<number>.jpg`, the second of two equal ones `<number>_2.jpg`."""
    assert split.paths is not None
    keys: list[str] = []
    seen: set[str] = set()
    for label, name in zip(split.labels.tolist(), split.paths, strict=True):
        key = f"{label.replace('/', '-')}/{name.rpartition('/')[2]}"
        if key in seen:
            stem, dot, suffix = key.rpartition(".")
            key = f"{stem}_2{dot}{suffix}"
        seen.add(key)
        keys.append(key)
    return keys


# --- numbers --------------------------------------------------------------------------------------


def _listed(numbers: _Numbers, keys: Sequence[str], truth: np.ndarray) -> list[str]:
    """Return the classes that the list counts, by name: its folders, where these are classes.

    Of a part of a data set the list has more of them than the split.
    """
    pairs = {(key.split("/")[0], label) for key, label in zip(keys, truth.tolist(), strict=True)}
    label_of = dict(pairs)
    if len(pairs) > len(set(label_of.values())):
        return sorted(set(truth.tolist()))
    return sorted({label_of.get(f, f) for f in {key.split("/")[0] for key in numbers}})


def _numbering(
    rows: np.ndarray, truth: np.ndarray, listed: list[str], path: Path
) -> tuple[str, dict[int, str]]:
    """Find how the list numbers the classes: the way's name, and {number: class name}."""
    classes = np.unique(truth).tolist()
    ways = {"class numbers": _own_numbers(classes)}
    for first in (1, 0):
        by_name = {n: name for n, name in enumerate(listed, first) if name in classes}
        ways[f"by name, from {first}"] = by_name
    agreements = {way: _agreement(rows, names, truth) for way, names in ways.items()}
    best = max(agreements, key=agreements.__getitem__)
    if agreements[best] >= _LEAST_AGREEMENT:
        return best, ways[best]
    # Only now: clusters are fitted to the labels, and so agree with any list of small classes.
    clusters = _majorities(rows, truth)
    agreement = _agreement(rows, clusters, truth)
    if agreement < _LEAST_FIT:
        raise DataError(
            f"{path}: its numbers agree with the classes on at most {agreement:.0%} of the images, "
            "however they are read. Is it the list of another data set?"
        )
    return "clusters", clusters


def _agreement(rows: np.ndarray, names: dict[int, str], truth: np.ndarray) -> float:
    labels = np.array([names.get(row, "") for row in rows.tolist()], dtype=str)
    return float(np.mean(labels == truth))


def _own_numbers(classes: Sequence[str]) -> dict[int, str]:
    """The number in a class's name: 001.Black_footed_Albatross, bicycle/00001, 17."""
    class_names: dict[int, str] = {}
    for name in classes:
        digits = re.match(r"(\d+)(?:\D|$)", name) or re.search(r"(?:^|/)(\d+)$", name)
        if digits is not None:
            class_names[int(digits[1])] = name
    return class_names


def _majorities(rows: np.ndarray, truth: np.ndarray) -> dict[int, str]:
    """Read each number as the class of most of its samples; a class goes to one number only."""
    counts = Counter(zip(rows.tolist(), truth.tolist(), strict=True))
    class_names: dict[int, str] = {}
    used_names: set[str] = set()
    for (number, name), _ in counts.most_common():
        if number not in class_names and name not in used_names:
            class_names[number] = name
            used_names.add(name)
    return class_names


# --- notes ----------------------------------------------------------------------------------------


def _oddities(
    rows: np.ndarray, names: dict[int, str], numbering: str, numbers: _Numbers, keys: list[str]
) -> list[str]:
    notes = []
    if numbering == "by name, from 1":
        notes.append("Its numbers follow the class names in alphabetical order.")
    if numbering == "clusters":
        notes.append(
            f"Its numbers are those of {len(np.unique(rows))} clusters, each read as the class "
            "that most of its samples are of."
        )
    oddities = Counter(row for row in rows.tolist() if row not in names)
    if oddities:
        is_whole = len(keys) == len(numbers)
        why = "its noise was drawn past the last class" if is_whole else "the split is a part"
        examples = ", ".join(str(row) for row in sorted(oddities)[:5])
        notes.append(
            f"{sum(oddities.values())} labels ({examples}) are numbers of no class of this split "
            f"({why}). They are wrong labels that keep their number."
        )
    if len(numbers) > len(keys):
        notes.append(f"{len(numbers) - len(keys):,} of its rows are of images not in this split.")
    return notes


def nominal_rate(path: str | os.PathLike[str]) -> float | None:
    """Read the rate in a name: 0.25 of CUB_0.25smallclusternoised_train.csv; None of a name without
    a rate."""
    match = _NOMINAL.search(Path(path).name)
    return float(match[1]) if match else None
