"""Hugging Face data sets of images or features that lie on the disk.

`datasets.save_to_disk(FOLDER)` wrote the folder, or FOLDER is a .parquet file.  Taken are

- the column of labels (label, labels, class_name, class, target, y), names where it has some;
- of images: the one column of pictures, encoded, as `datasets.Image` or a parquet table holds them;
- of features: a column of lists (embeddings, embedding, features, x);
- splits called train and test, or train, query and gallery, or a column `split`; else the first
  half of the classes trains.

Images are unpacked once, as the files that they were, into the user's cache folder; from there
they are read like any other photographs.  Images and tables that the data set only names are read
where they lie in its folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bspml.data.images import SUFFIXES
from bspml.data.retrieval import NAMES, RetrievalData, RetrievalSplit
from bspml.data.sets.path_table import by_split, left_out
from bspml.errors import DataError, RunError, import_optional
from bspml.files.columns import (
    EMBEDDING_NAMES,
    LABEL_COLUMNS,
    check_texts,
    warn_of_rivals,
    warn_of_twins,
)
from bspml.files.folders import cache_dir, file_in, new_folder
from bspml.words import some_of

SOURCE = "Name the folder that `save_to_disk` wrote, or a .parquet file of images."

_IMAGE_COLUMNS = ("image", "img")
_MARKS = ("dataset_info.json", "dataset_dict.json")  # of a folder that `save_to_disk` wrote


def is_saved(root: Path) -> bool:
    """Say whether `save_to_disk` wrote this folder."""
    return any((root / mark).is_file() for mark in _MARKS)


def read_saved_images(
    root: str | os.PathLike[str],
    label_column: str | None = None,
    content: str = "photo",
    cache: str | os.PathLike[str] | None = None,
) -> RetrievalData:
    """Read the images of a saved data set.

    Args:
        root: the folder, or a .parquet file.
        label_column: its name, where there are several; None takes the first that is known.
        content: what the images show, see `bspml.data.transforms.standard_view`.
        cache: folder to unpack the images into; None: the user's cache folder.

    Raises:
        DataError: no such data set, or columns or splits that are not there.
        MissingDependencyError: datasets is not installed.
    """
    path = Path(root)
    everything, splits, notes = _all_images(path, label_column, content, cache)
    return _noted(by_split("huggingface", everything, splits, path), notes)


def read_saved_photos(root: str | os.PathLike[str]) -> tuple[RetrievalSplit, tuple[str, ...]]:
    """Read the images of a saved data set as one split, for an audit, and what is to be said.

    Args:
        root: the folder, or a .parquet file.

    Raises:
        DataError: no such data set, or columns that are not there.
        MissingDependencyError: datasets is not installed.
    """
    everything, _, notes = _all_images(Path(root), None, "photo", None)
    return everything, notes


def read_saved_features(path: Path) -> RetrievalData:
    """Read the features of a saved data set.

    Raises:
        DataError: no such data set, columns or splits that are not there, or features of different
            lengths.
        MissingDependencyError: datasets is not installed.
    """
    rows, splits, notes = _opened(path)
    column = next((name for name in EMBEDDING_NAMES if name in rows.column_names), None)
    if column is None:
        raise _no_column(rows, EMBEDDING_NAMES, "features", path)
    warn_of_rivals(column, rows.column_names, EMBEDDING_NAMES, path)
    try:
        features = torch.from_numpy(np.asarray(rows.with_format("numpy")[column][:], np.float32))
    except (TypeError, ValueError) as err:
        raise DataError(f"{path}: `{column}` holds no lists of numbers of one length.") from err
    if features.ndim != 2 or not bool(features.isfinite().all()):
        raise DataError(
            f"{path}: `{column}` must hold one list of finite numbers per row, (N, F); got "
            f"{tuple(features.shape)}, with {int((~features.isfinite()).sum())} not finite."
        )
    everything = RetrievalSplit("train", _labels(rows, None, path), features=features)
    return _noted(by_split("features", everything, splits, path), notes)


def _opened(path: Path) -> tuple[Any, list[str] | None, tuple[str, ...]]:
    """All rows, the split of each or None, and what is to be said."""
    library = import_optional(
        "datasets",
        "reading a Hugging Face data set needs datasets: `pip install 'bspml[huggingface]'`.",
    )
    if path.is_dir() and not is_saved(path):
        raise DataError(f"{path}: is no data set that `save_to_disk` wrote. {SOURCE}")
    if not path.is_dir() and (path.suffix.lower() != ".parquet" or not path.is_file()):
        raise DataError(f"{path}: no such data set. {SOURCE}")
    try:
        if path.is_dir():
            for name in _tables(path):
                if file_in(path, name) is None and (path / name).exists():
                    raise _outside(f"{path}: one of its tables", name)
            loaded = library.load_from_disk(str(path))
        else:
            loaded = library.Dataset.from_parquet(str(path))
    except DataError:
        raise
    except Exception as err:  # of its many libraries: pyarrow's, json's, its own
        reason = " ".join(f"{type(err).__name__}: {err}".split())[:200]
        raise DataError(f"{path}: cannot be read ({reason}). Save it anew.") from err
    if not isinstance(loaded, dict):
        splits = loaded["split"][:] if "split" in loaded.column_names else None
        return loaded, None if splits is None else [str(split) for split in splits], ()
    known = {name: rows for name, rows in loaded.items() if name in NAMES}
    if not known:
        raise DataError(f"{path}: its splits are {', '.join(loaded)}; expected {', '.join(NAMES)}.")
    notes = left_out(set(loaded) - set(known))
    splits = [name for name, rows in known.items() for _ in range(len(rows))]
    return library.concatenate_datasets(list(known.values())), splits, notes


def _tables(folder: Path) -> Iterator[str]:
    """The files that `load_from_disk` opens, as the data set names them."""
    whole = folder / _MARKS[1]
    for part in json.loads(whole.read_bytes())["splits"] if whole.is_file() else [""]:
        yield os.fspath(Path(part, "state.json"))
        for table in json.loads((folder / part / "state.json").read_bytes())["_data_files"]:
            yield os.fspath(Path(part, table["filename"]))


def _outside(what: str, name: str) -> DataError:
    return DataError(
        f"{what} is {name[:120]!r}, which is not a path inside the data set's folder; nothing "
        "outside it is read. Save the data set anew, with all that it needs."
    )


def _all_images(
    path: Path, label_column: str | None, content: str, cache: Any
) -> tuple[RetrievalSplit, list[str] | None, tuple[str, ...]]:
    """Images and labels, the split of each or None, and what is to be said."""
    rows, splits, notes = _opened(path)
    labels = _labels(rows, label_column, path)
    folder, paths = _unpacked(rows, _image_column(rows, path), path, cache)
    split = RetrievalSplit("train", labels, root=folder, paths=paths, content=content)
    return split, splits, notes


def _noted(data: RetrievalData, notes: tuple[str, ...]) -> RetrievalData:
    return RetrievalData.of(data.name, data.splits, data.ks, notes)


def _no_column(rows: Any, wanted: Iterable[str], what: str, path: Path) -> DataError:
    return DataError(
        f"{path}: has no column of {what} ({', '.join(wanted)}); its columns are "
        f"{', '.join(rows.column_names)}."
    )


def _labels(rows: Any, column: str | None, path: Path) -> np.ndarray:
    wanted = LABEL_COLUMNS if column is None else (column,)
    name = next((name for name in wanted if name in rows.column_names), None)
    if name is None:
        raise _no_column(rows, wanted, "labels", path)
    warn_of_rivals(name, rows.column_names, wanted, path)
    values, classes = rows[name][:], getattr(rows.features[name], "names", None)
    missing = [i for i, value in enumerate(values) if value is None or (classes and value < 0)]
    if missing:
        raise DataError(f"{path}: `{name}` is empty in rows {some_of(missing)}. Leave them out.")
    texts = [str(value if classes is None else classes[value]) for value in values]
    check_texts(texts)
    warn_of_twins(texts, path)
    return np.array(texts, dtype=str)


def _image_column(rows: Any, path: Path) -> str:
    kinds = {name: type(feature).__name__ for name, feature in rows.features.items()}
    found = [name for name, kind in kinds.items() if kind == "Image"]
    found = found or [name for name in _IMAGE_COLUMNS if name in kinds]
    if len(found) > 1:
        raise DataError(
            f"{path}: has several columns of images, {', '.join(found)}. Keep one "
            "(`remove_columns`)."
        )
    if not found:
        raise _no_column(rows, _IMAGE_COLUMNS, "images", path)
    return found[0]


def _unpacked(rows: Any, column: str, path: Path, cache: Any) -> tuple[Path, tuple[str, ...]]:
    """The folder of the images as files, and their paths in it; made unless it is there."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    states = [(os.fspath(f.relative_to(path)), f.stat()) for f in files if f.is_file()]
    key = hashlib.blake2b(digest_size=12)
    for name, state in states:
        key.update(f"{name}\0{state.st_size}\0{state.st_mtime_ns}\0".encode(errors="replace"))
    folder = cache_dir(cache) / "datasets" / key.hexdigest()
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            with new_folder(folder) as made:
                _write_images(rows, column, made, path)
        except RunError:
            if not folder.is_dir():  # else another process was faster
                raise
    return folder, tuple(sorted(file.name for file in folder.iterdir()))


def _write_images(rows: Any, column: str, folder: Path, path: Path) -> None:
    library = import_optional("datasets", "")
    encoded = rows.select_columns(column).cast_column(column, library.Image(decode=False))
    base = path if path.is_dir() else path.parent
    for i, row in enumerate(encoded):
        image = row[column] or {"bytes": None, "path": None}
        content, name = image["bytes"], image["path"] or ""
        if content is None:
            source = file_in(base, name)
            if source is None and os.path.isfile(base / name):  # noqa: PTH113  (of odd names, too)
                raise _outside(f"{path}: the image of row {i}", name)
            if source is None:
                raise DataError(f"{path}: row {i} has no image. Leave it out.")
            content = source.read_bytes()
        suffix = Path(name).suffix.lower()
        suffix = suffix if suffix in SUFFIXES else ".png"
        (folder / f"{i:08d}{suffix}").write_bytes(content)
