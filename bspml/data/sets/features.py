"""Features computed elsewhere, or once: train a head on them for hundreds of epochs in minutes.

Accepted under the name `features`:

- one .npz with arrays `embeddings` (or features), `labels`, `splits` (or split) and, if you like,
  `names`;
- one .npy beside `NAME_labels.csv` (.npy, .txt), whose column `split` counts, too;
- one .parquet or .csv with columns `label`, `split` and the numbers, as `read_embeddings` reads it;
- a folder with a file per split, train and test or train, query and gallery, each an .npz,
  .parquet or .csv as above without splits (what `bspml embed` writes), or `train.npy` beside
  `train_labels.npy` (.csv, .txt);
- a Hugging Face data set that `save_to_disk` wrote, see `bspml.data.sets.saved_datasets`.

Without splits in a single file, the first half of the classes trains.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from bspml.data.labels.own_labels import held_labels
from bspml.data.retrieval import COMBINATIONS, NAMES, RetrievalData, RetrievalSplit
from bspml.data.sets.path_table import by_split, left_out
from bspml.data.sets.saved_datasets import is_saved, read_saved_features
from bspml.errors import DataError
from bspml.files.tables import fitting_names, read_embeddings, read_texts

SOURCE = "Name the file of your features (.npz, .parquet, .csv), or its folder."

_KINDS = (".npz", ".parquet", ".csv", ".npy")
_LABELS = (".npy", ".csv", ".txt")


def read_features(root: str | os.PathLike[str]) -> RetrievalData:
    """Read features, labels and splits as the head of this module says.

    Returns:
        `RetrievalData` whose splits have `features` (N, F), and no images.

    Raises:
        DataError: files missing, damaged, or two that could each be meant; lengths that differ, NaN
            or infinity, an unknown split.
    """
    path = Path(root)
    if is_saved(path):
        return read_saved_features(path)
    if not path.is_dir():
        whole = _read_split(path, "train")
        column = read_texts(_label_file(path), ("split",)).get("split")
        return by_split("features", whole, column, path)
    there = [file for file in sorted(path.glob("[!.]*")) if file.suffix.lower() in _KINDS]
    files = {name: file for name in NAMES if (file := _split_file(there, name)) is not None}
    if list(files) not in COMBINATIONS:
        raise DataError(
            f"{path}: has features of {', '.join(files) or 'no split'}; expected train and "
            "test, or train, query and gallery, such as train.npz and test.npz."
        )
    splits = [_read_split(file, name) for name, file in files.items()]
    sizes = {split.features.shape[1] for split in splits if split.features is not None}
    if len(sizes) > 1:
        raise DataError(f"{path}: its splits have features of different lengths, {sorted(sizes)}.")
    others = [f.name for f in there if f.stem.lower() not in NAMES and f.stem[-7:] != "_labels"]
    return RetrievalData.of("features", splits, notes=left_out(others))


def _split_file(there: list[Path], name: str) -> Path | None:
    """The file of a split, whose name is in whatever case, as in a column of splits."""
    return _only([f for kind in _KINDS for f in there if f.name.lower() == f"{name}{kind}"])


def _only(files: list[Path]) -> Path | None:
    """The file, or None; of several nobody knows which one is meant."""
    if len(files) > 1:
        raise DataError(f"{files[0]}: beside it lies {files[1].name}. Keep one of the two here.")
    return files[0] if files else None


def _read_split(path: Path, name: str) -> RetrievalSplit:
    features = torch.from_numpy(read_embeddings(path))
    labels = held_labels(_label_file(path)).astype(str)
    if len(labels) != len(features):
        raise DataError(f"{path}: has {len(features)} features, but {len(labels)} labels.")
    names = fitting_names(_label_file(path), len(labels))
    return RetrievalSplit(name, labels, features=features, given_names=names)


def _label_file(path: Path) -> Path:
    """`path` itself, or, of an .npy file, the labels beside it."""
    if path.suffix.lower() != ".npy":
        return path
    places = [path.with_name(f"{path.stem}_labels{kind}") for kind in _LABELS]
    if (beside := _only([place for place in places if place.is_file()])) is None:
        raise DataError(f"{path}: has no labels beside it; expected {path.stem}_labels.npy.")
    return beside
