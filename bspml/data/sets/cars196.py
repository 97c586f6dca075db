"""Cars196 [Krause 2013]: 16,185 photographs of 196 models of cars, with boxes.

Retrieval trains on classes 1 to 98 (8,054 images) and tests on 99 to 196 (8,131), both with images
of the official training and test sets of classification.  Class numbers are the devkit's, which are
not in the order of the names.  Three layouts are read:

- devkit: `cars_train_annos.mat`, `cars_test_annos_withlabels.mat` and `cars_meta.mat`, in devkit/
  or beside the folders `cars_train` and `cars_test`, which both number their files from 00001.jpg;
- annos: `cars_annos.mat`, and the folder `car_ims` beside it;
- csv: `anno_train.csv`, `anno_test.csv` and `names.csv` of the copy on Kaggle that has a folder per
  class, in car_data/car_data/train and test.  A slash in a name is a dash in its folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bspml.data.annotations import column, image_root, read_lines, refuse_repeats, safe_paths
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.errors import DataError
from bspml.files.delimited import Row, read_rows
from bspml.files.matlab import read_variable
from bspml.files.opening import FAULTS, open_regular
from bspml.tensors.checks import check_choice

COUNTS = {"train": (8_054, 98), "test": (8_131, 98)}
SOURCE = (
    "The page of its authors (ai.stanford.edu/~jkrause/cars/car_dataset.html) no longer serves the "
    "files; search Kaggle for 'Stanford Cars', and take a copy with cars_train, cars_test and "
    "cars_test_annos_withlabels.mat, or with cars_annos.mat and car_ims, or with anno_train.csv."
)
LAYOUTS = ("devkit", "annos", "csv")

_NUM_CLASSES = 196
_TRAIN_CLASSES = 98
_TEST_ANNOS = ("cars_test_annos_withlabels.mat", "cars_test_annos.mat")


class _Image(NamedTuple):
    path: str
    box: tuple[float, float, float, float]  # left, top, right, bottom
    class_number: int  # from 1


def read_cars196(root: str | os.PathLike[str], layout: str = "auto") -> RetrievalData:
    """Read the annotations in any of the three layouts; counts and images are not checked.

    Args:
        root: the folder.
        layout: "devkit", "annos" or "csv"; "auto" takes the first of these that is there.

    Raises:
        DataError: annotations missing, damaged, or without classes.
    """
    base = Path(root)
    check_choice(layout, "layout", ("auto", *LAYOUTS))
    if not base.is_dir():
        raise DataError(f"{root}: no such folder. {SOURCE}")
    readers = {"devkit": _devkit, "annos": _annos, "csv": _csv}
    for name in LAYOUTS if layout == "auto" else (layout,):
        content = readers[name](base)
        if content is not None:
            return _assemble(*content)
    if any((base / folder / _TEST_ANNOS[1]).exists() for folder in ("devkit", "")):
        raise DataError(
            f"{root}: cars_test_annos.mat holds no classes, and half of the images are in it. Add "
            f"cars_test_annos_withlabels.mat. {SOURCE}"
        )
    raise DataError(f"{root}: holds no annotations of Cars196. {SOURCE}")


# What a layout gives: folder of the images, the images, and the class names, if known.
_Found = tuple[Path, list[_Image], list[str] | None]


def _assemble(root: Path, images: list[_Image], names: list[str] | None) -> RetrievalData:
    numbers = np.array([image.class_number for image in images], dtype=np.int64)
    called = [f"{n:03d}" for n in range(1, _NUM_CLASSES + 1)] if names is None else names
    everything = RetrievalSplit(
        "train",
        np.array([called[n - 1] for n in numbers], dtype=str),
        root=root,
        paths=tuple(image.path for image in images),
        boxes=np.array([image.box for image in images], dtype=np.float64).reshape(-1, 4),
    )
    train, test = everything.halves(numbers <= _TRAIN_CLASSES)
    notes = () if names else ("cars_meta.mat is not there: classes are called by their numbers.",)
    return RetrievalData("cars196", train, test, notes=notes)


# --- MATLAB files ---------------------------------------------------------------------------------


def _devkit(base: Path) -> _Found | None:
    folder = next(
        (
            base / f
            for f in ("devkit", "car_devkit/devkit", "")
            if (base / f / "cars_train_annos.mat").exists() and (base / f / _TEST_ANNOS[0]).exists()
        ),
        None,
    )
    if folder is None:
        return None
    images: list[_Image] = []
    for name, annos in (("cars_train", "cars_train_annos.mat"), ("cars_test", _TEST_ANNOS[0])):
        # Some copies unpack into cars_train/cars_train.
        nested = (base / name / name).is_dir()
        images += _annotations(folder / annos, "fname", f"{name}/{name}/" if nested else f"{name}/")
    meta = folder / "cars_meta.mat"
    return base, images, _read_names(meta) if meta.exists() else None


def _annos(base: Path) -> _Found | None:
    path = next((p for f in ("", "devkit") if (p := base / f / "cars_annos.mat").exists()), None)
    if path is None:
        return None
    return base, _annotations(path, "relative_im_path", ""), _read_names(path)


def _annotations(path: Path, name_field: str, prefix: str) -> list[_Image]:
    table = _matlab(path, "annotations")
    fields = table if isinstance(table, dict) else ()
    lacking = [f for f in ("bbox_x1", "class", name_field) if f not in fields]
    if lacking:
        raise DataError(
            f"{path}: its annotations have no field {lacking[0]}; they have {', '.join(fields)}."
        )
    # Boxes are uint8 or uint16, row by row: as Python integers, their differences cannot overflow.
    # MATLAB counts from 1 and includes the last pixel.
    try:
        corners = [
            [_whole(cell) for cell in table[f"bbox_{at}"]] for at in ("x1", "y1", "x2", "y2")
        ]
        classes = [_whole(cell) for cell in table["class"]]
        names = [_text(cell) for cell in table[name_field]]
    except (IndexError, KeyError, ValueError, TypeError, OverflowError) as err:
        raise DataError(f"{path}: its annotations cannot be read ({err}).") from err
    rows = [Row((name,), line) for line, name in enumerate(names, 1)]
    paths = [prefix + name for name in safe_paths(rows, 0, path)]
    refuse_repeats(paths, path)
    return _images(paths, corners, classes, path)


def _images(
    paths: Sequence[str], corners: Sequence[Sequence[float]], classes: Sequence[int], source: Path
) -> list[_Image]:
    for line, value in enumerate(classes, 1):
        if not 1 <= value <= _NUM_CLASSES:
            raise DataError(
                f"{source}, row {line}: the class must be 1 to {_NUM_CLASSES}; got {value}. "
                "Classes are numbered from 1."
            )
    return [
        _Image(path, (x1 - 1, y1 - 1, x2, y2), class_number)
        for path, x1, y1, x2, y2, class_number in zip(paths, *corners, classes, strict=True)
    ]


def _whole(cell: Any) -> int:
    """The number in an array of one."""
    number = np.asarray(cell).reshape(-1)[0]
    if number != int(number):
        raise ValueError(f"{number} where a whole number should be")
    return int(number)


def _text(cell: Any) -> str:
    if not isinstance(cell, str):
        raise TypeError("a name is no text")
    return cell


def _read_names(path: Path) -> list[str]:
    cells = _matlab(path, "class_names")
    if not isinstance(cells, list):
        raise DataError(f"{path}: its class_names are no cell array. Get it again.")
    return _check_names([cell if isinstance(cell, str) else "" for cell in cells], path)


def _check_names(names: Sequence[str], path: Path) -> list[str]:
    if len(names) != _NUM_CLASSES or len(set(names)) != _NUM_CLASSES:
        raise DataError(
            f"{path}: has {len(set(names))} class names; expected {_NUM_CLASSES}. Get it again."
        )
    return list(names)


def _matlab(path: Path, variable: str) -> Any:
    with open_regular(path, "a MATLAB file", remedy="Get it again.", faults=FAULTS) as file:
        try:
            return read_variable(file, variable)
        except KeyError as err:
            raise DataError(f"{path}: holds no variable {variable}.") from err
        except NotImplementedError as err:
            raise DataError(
                f"{path}: is in MATLAB's format 7.3 (HDF5), which is not read; the published file "
                "is of an older one. Get that, or save this with `save -v7`."
            ) from err


# --- the copy in CSV ------------------------------------------------------------------------------


def _csv(base: Path) -> _Found | None:
    files = [base / name for name in ("anno_train.csv", "anno_test.csv", "names.csv")]
    if not any(file.exists() for file in files):
        return None
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise DataError(
            f"{base}: {', '.join(missing)} missing, while others of its kind are there."
        )
    lines = [line.strip().strip('"') for line in read_lines(files[2])]
    names = _check_names([line for line in lines if line], files[2])
    images = [
        image
        for split, file in (("train", files[0]), ("test", files[1]))
        for image in _csv_images(file, split, names)
    ]
    tops = ("car_data/car_data", "car_data", "")
    return image_root(base, tops, [image.path for image in images]), images, names


def _csv_images(path: Path, split: str, names: list[str]) -> list[_Image]:
    """Rows without header: file, left, top, right, bottom, class."""
    with open_regular(path, "a table of commas", remedy="Get it again.", faults=FAULTS) as file:
        rows = [row for row in read_rows(file) if row.fields]
    for row in rows:
        if len(row.fields) != 6:
            raise DataError(f"{path}, line {row.line}: expected 6 columns; got {len(row.fields)}.")
    corners = [column(rows, at, path, "a box", float) for at in range(1, 5)]
    classes = column(rows, 5, path, "the class")
    images = _images(safe_paths(rows, 0, path), corners, classes, path)
    folders = [name.replace("/", "-") for name in names]
    images_in_folders = [
        image._replace(path=f"{split}/{folders[image.class_number - 1]}/{image.path}")
        for image in images
    ]
    refuse_repeats([image.path for image in images_in_folders], path)
    return images_in_folders
