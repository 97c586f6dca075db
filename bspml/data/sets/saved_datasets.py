"""Hugging Face data sets of images or features that lie on the disk.

`datasets.save_to_disk(FOLDER)` wrote the folder, or FOLDER is a .parquet file.  Taken are

- the column of labels (label, labels, class_name, class, target, y), by names where it has some:
  splits may number them differently;
- of images: the one column of pictures, encoded, as `datasets.Image` or a parquet table holds them;
- of features: a column of lists (embeddings, embedding, features, x), and one of names (name,
  path, file, filename), if there is one;
- splits called train and test, or train, query and gallery, or a column `split`, whose rows of a
  validation set and without a split are left out; else the first half of the classes trains.

Images are unpacked once, as the files that they were, into the user's cache folder, and refused
where one does not open or has no end; from there they are read like any other photographs.  Images
and tables that the data set only names are read where they lie in its folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bspml.data.completeness import missing_paths
from bspml.data.image_checks import look_at
from bspml.data.images import SUFFIXES
from bspml.data.retrieval import NAMES, RetrievalData, RetrievalSplit
from bspml.data.sets.path_table import by_split, left_out
from bspml.errors import DataError, InputError, RunError, about, import_optional
from bspml.files.atomic import atomic_write
from bspml.files.columns import (
    EMBEDDING_NAMES,
    LABEL_COLUMNS,
    NAME_COLUMNS,
    check_texts,
    telling_names,
    warn_of_rivals,
    warn_of_twins,
)
from bspml.files.folders import cache_dir, file_in, new_folder
from bspml.tensors.checks import encode_labels
from bspml.words import counted

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
        DataError: no such data set, columns or splits that are not there, or damaged images.
        MissingDependencyError: datasets is not installed.
    """
    saved = _opened(Path(root))
    return _split_up("huggingface", saved, _all_images(saved, label_column, content, cache))


def read_saved_photos(root: str | os.PathLike[str]) -> tuple[RetrievalSplit, tuple[str, ...]]:
    """Read the images of a saved data set as one split, for an audit, and what is to be said.

    Args:
        root: the folder, or a .parquet file.

    Raises:
        DataError: no such data set, columns that are not there, or damaged images.
        MissingDependencyError: datasets is not installed.
    """
    saved = _opened(Path(root))
    return _all_images(saved, None, "photo", None), saved.notes


def read_saved_features(path: Path) -> RetrievalData:
    """Read the features of a saved data set.

    Raises:
        DataError: no such data set, columns or splits that are not there, or features of different
            lengths.
        MissingDependencyError: datasets is not installed.
    """
    saved = _opened(path)
    column = saved.first_of(EMBEDDING_NAMES, "features")
    try:
        parts = [r.with_format("numpy")[column][:] for r in saved.parts.values()]
        array = np.concatenate([np.asarray(part, np.float32) for part in parts])
    except (TypeError, ValueError) as err:
        raise DataError(f"{path}: `{column}` holds no lists of numbers of one length.") from err
    features = torch.from_numpy(array)
    if features.ndim != 2 or not bool(features.isfinite().all()):
        raise DataError(
            f"{path}: `{column}` must hold one list of finite numbers per row, (N, F); got "
            f"{tuple(features.shape)}, with {int((~features.isfinite()).sum())} not finite."
        )
    named = {c: saved.texts(c) for c in NAME_COLUMNS if c in saved.columns}
    labels, names = _labels(saved, None), telling_names(named)
    everything = RetrievalSplit("train", labels, features=features, given_names=names)
    return _split_up("features", saved, everything)


@dataclass(frozen=True)
class _Saved:
    """A data set as it was opened.

    Attributes:
        path: of it.
        parts: {split: its rows}, or {"": all rows} of one without splits.
        notes: what is to be said of it.
    """

    path: Path
    parts: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns that every part has."""
        first, *others = self.parts.values()
        return [c for c in first.column_names if all(c in rows.column_names for rows in others)]

    def column(self, name: str) -> list[Any]:
        """The values of all rows, classes by their names: each split numbers them as it likes."""
        values: list[Any] = []
        for rows in self.parts.values():
            names = getattr(rows.features[name], "names", None)
            values += rows[name][:] if names is None else _named(rows[name][:], names)
        return values

    def texts(self, name: str) -> list[str]:
        """The values of all rows as text, '' where there is none."""
        return ["" if value is None else str(value) for value in self.column(name)]

    def splits(self) -> list[str] | None:
        """The split of each row, None where nothing says it."""
        if "" in self.parts:
            return self.texts("split") if "split" in self.columns else None
        return [split for split, rows in self.parts.items() for _ in range(len(rows))]

    def row(self, i: int) -> str:
        """Row i of all, as it is called in its own split."""
        splits = self.splits()
        if splits is None or "" in self.parts:
            return f"row {i}"
        return f"row {i - splits.index(splits[i])} of {splits[i]}"

    def first_of(self, wanted: Sequence[str], what: str) -> str:
        """The first of some columns that is there."""
        for name in wanted:
            if name in self.columns:
                warn_of_rivals(name, self.columns, wanted, self.path)
                return name
        where = "splits share" if len(self.parts) > 1 else "columns are"
        raise DataError(
            f"{self.path}: has no column of {what} ({', '.join(wanted)}); its {where} "
            f"{', '.join(self.columns) or 'no column'}."
        )


def _named(codes: list[Any], names: list[str]) -> list[str | None]:
    return [names[c] if c is not None and 0 <= c < len(names) else None for c in codes]


def _opened(path: Path) -> _Saved:
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
        return _Saved(path, {"": loaded})
    known = {name: rows for name, rows in loaded.items() if name in NAMES}
    if not known:
        raise DataError(f"{path}: its splits are {', '.join(loaded)}; expected {', '.join(NAMES)}.")
    return _Saved(path, known, left_out(set(loaded) - set(known)))


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


def _split_up(name: str, saved: _Saved, everything: RetrievalSplit) -> RetrievalData:
    data = by_split(name, everything, saved.splits(), saved.path)
    return replace(data, notes=(*saved.notes, *data.notes))


def _labels(saved: _Saved, column: str | None) -> np.ndarray:
    name = saved.first_of(LABEL_COLUMNS if column is None else (column,), "labels")
    values = saved.column(name)
    missing = [i for i, value in enumerate(values) if value is None]
    if missing:
        raise DataError(
            f"{saved.path}: `{name}` is empty in {counted(len(missing), 'row')}, the first is "
            f"{saved.row(missing[0])}. Leave them out by the data set's `filter` and save it anew; "
            "`ignore` cannot, as they have no label."
        )
    with about(saved.path, faults=(DataError, InputError)):
        labels = encode_labels(values, name=name)
        texts = labels.classes.astype(str)[labels.codes.numpy()]
        check_texts(texts.tolist())
    warn_of_twins(texts.tolist(), saved.path)
    return texts


def _image_column(saved: _Saved) -> str:
    features = next(iter(saved.parts.values())).features
    kinds = {name: type(features[name]).__name__ for name in saved.columns}
    found = [name for name, kind in kinds.items() if kind == "Image"]
    found = found or [name for name in _IMAGE_COLUMNS if name in kinds]
    if len(found) > 1:
        raise DataError(
            f"{saved.path}: has several columns of images, {', '.join(found)}. Keep one "
            "(`remove_columns`)."
        )
    return found[0] if found else saved.first_of(_IMAGE_COLUMNS, "images")


def _all_images(
    saved: _Saved, label_column: str | None, content: str, cache: Any
) -> RetrievalSplit:
    """Images and labels of all rows; unpacked into a folder of files unless it is there."""
    labels, column = _labels(saved, label_column), _image_column(saved)
    # By content: a table may name pictures that lie elsewhere, and a date tells nothing for sure.
    key, names = hashlib.blake2b(digest_size=12), []
    for name, picture in _pictures(saved, column):
        key.update(f"{name} {len(picture)} ".encode() + picture)
        names.append(name)
    folder = cache_dir(cache) / "datasets" / key.hexdigest()
    images = RetrievalSplit("train", labels, root=folder, paths=tuple(names), content=content)
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            with new_folder(folder) as made:
                for name, picture in _pictures(saved, column):
                    (made / name).write_bytes(picture)
                _check_images(saved, replace(images, root=made))
        except RunError:
            if not folder.is_dir():  # else another process was faster
                raise
    elif lost := {*missing_paths(images)}:  # by one who tidies caches
        for name, picture in _pictures(saved, column):
            if name in lost:
                atomic_write(folder / name, picture)
    return images


def _pictures(saved: _Saved, column: str) -> Iterator[tuple[str, bytes]]:
    """Yield the image of each row as a file: its name and its content."""
    base = saved.path if saved.path.is_dir() else saved.path.parent
    for i, image in enumerate(_encoded(saved, column)):
        content, name = image["bytes"], image["path"] or ""
        if content is None:
            source = file_in(base, name)
            if source is None and os.path.isfile(base / name):  # noqa: PTH113  (of odd names, too)
                raise _outside(f"{saved.path}: the image of {saved.row(i)}", name)
            if source is None:
                raise DataError(f"{saved.path}: {saved.row(i)} has no image. Leave it out.")
            content = source.read_bytes()
        suffix = Path(name).suffix.lower()
        suffix = suffix if suffix in SUFFIXES else ".png"
        yield f"{i:08d}{suffix}", content


def _encoded(saved: _Saved, column: str) -> Iterator[dict[str, Any]]:
    """The images of all rows as `datasets.Image` stores them, not decoded."""
    kind = import_optional("datasets", "").Image(decode=False)
    for rows in saved.parts.values():
        try:
            encoded = rows.select_columns(column).cast_column(column, kind)
        except Exception as err:  # pyarrow's and its own
            raise DataError(
                f"{saved.path}: its column `{column}` must hold one encoded image a row; it is "
                f"{str(rows.features[column])[:80]}. Cast it to datasets.Image."
            ) from err
        for row in encoded:
            yield row[column] or {"bytes": None, "path": None}


def _check_images(saved: _Saved, images: RetrievalSplit) -> None:
    """Refuse damage while it is known which row each file was."""
    found = look_at([(images, i) for i in range(len(images))], decode_all=False)
    faults = [(i, finding.fault) for i, finding in enumerate(found) if finding.fault]
    if faults:
        (i, fault), count = faults[0], counted(len(faults), "image is", "images are")
        raise DataError(
            f"{saved.path}: {count} damaged; the first, that of {saved.row(i)}, is {fault}. "
            "Replace it, or leave the row out."
        )
