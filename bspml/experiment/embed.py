"""What a run's network makes of its own splits, of new images, and of new features."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from bspml.data.retrieval import RetrievalSplit
from bspml.data.sets.class_folders import refuse_splits
from bspml.data.sets.folder import read_folder
from bspml.errors import CheckpointError, DataError, InputError, RunError, UserError, about
from bspml.experiment.data import (
    ExperimentData,
    Inputs,
    image_content,
    image_shape,
    is_trained_on,
    load_data,
    network_view,
)
from bspml.experiment.load import Run
from bspml.experiment.resuming import load_method
from bspml.experiment.seen import Seen
from bspml.experiment.splits import split_features
from bspml.files.columns import NoColumnError
from bspml.files.tables import read_embeddings, read_labels, read_names, read_texts

SPLITS = ("train", "test")
TRAINED_ON_THEM = (
    "This network was trained on these labels, so it is no honest judge of them: it pulls samples "
    "towards the wrong classes they were given, and the noise rate may come out too low. The order "
    "of suspicion stays good. For an honest rate, audit embeddings of a network that never saw "
    "these labels."
)

_OTHER_FEATURES = (
    "; if the backbone of `data.features` has other weights by now, these embeddings mean nothing"
)
_UNBOXED = "a folder has no boxes (data.crop_boxes): these are embeddings of whole photographs"


class Embedded(NamedTuple):
    """Embeddings and what is known of their samples.

    Attributes:
        embeddings: (N, D).
        labels: (N,) text, or None where there are none.
        names: N names; empty for a file of features without any.
        trained_on: whether the network was trained on some of these samples, or of their copies.
        seen: of the run's own test, which samples are copies of training samples; None: none is.
        splits: N, of a file that has them, or of the queries and the gallery of a run's test.
        changes: of the run's own splits, what `changes` says; of others, if its data are gone or
            changed, or its features are others.
    """

    embeddings: Tensor
    labels: np.ndarray | None
    names: list[str]
    trained_on: bool
    seen: Seen | None = None
    splits: list[str] | None = None
    changes: str = ""


def embed_named(run: Run, what: str) -> Embedded:
    """Embed the run's own split ("train" or "test"), a folder of images, or a file of features.

    New images are shown to the network as the test images were, through the backbone of
    `data.features` where it takes the features of one.

    Args:
        run: opened by `bspml.load`.
        what: "train", "test", or the path of a folder or file.

    Raises:
        RunError: the network takes the other kind: images, or features of another length.
        DataError: files missing or damaged.
    """
    if what in SPLITS:
        return _own_split(run, what)
    if Path(what).is_file():
        return _told_of_loss(run, _file_of_features(run, what))
    if not Path(what).is_dir():
        kind = "a file of features" if run.config.data.name == "features" else "a folder of images"
        raise DataError(
            f"{what}: no such file or folder. Name {kind}, or one of the run's splits, "
            f"{' or '.join(SPLITS)}."
        )
    if run.config.data.name == "features":
        raise RunError(
            f"{what}: the network of this run takes features, not images; give a file of features "
            f"(.npz, .npy, ...), or one of its splits, {' or '.join(SPLITS)}."
        )
    return _told_of_loss(run, _folder_of_images(run, what))


def _told_of_loss(run: Run, found: Embedded) -> Embedded:
    """Say where nobody can tell whether the network was trained on what it embeds."""
    settings = run.config.data
    if settings.root is None or (found.trained_on and settings.features is None):
        return found
    try:
        if not _learned_others(run, load_data(run.config, to_train=False)):
            return found
        why = "changed since"
    except UserError:
        why = "cannot be read" if Path(settings.root).exists() else "is gone"
    lost = (
        f"{settings.root}, the data of this run, {why}: if these samples were among them, the "
        "network was trained on them"
    )
    return found._replace(changes=lost if settings.features is None else lost + _OTHER_FEATURES)


def embed_test(run: Run) -> tuple[Embedded, Embedded | None]:
    """Embed the run's test samples, and the gallery they are searched in where there is one.

    Raises:
        DataError: files missing or damaged.
    """
    data = load_data(run.config, to_train=False)
    queries = _embedded(run, "test", data.test_images, data.test_labels, data.test_names)
    queries = queries._replace(seen=data.seen, changes=changes(run, data))
    if data.gallery_images is None or data.gallery_labels is None:
        return queries, None
    gallery = (data.gallery_images, data.gallery_labels, data.gallery_names)
    return queries, _embedded(run, "gallery", *gallery)


def _own_split(run: Run, side: str) -> Embedded:
    if side == "train":
        data = load_data(run.config, to_train=False)
        found = _embedded(run, side, data.images, data.labels, data.names)
        return found._replace(changes=changes(run, data))
    test, gallery = embed_test(run)
    if gallery is None:
        return test
    assert test.labels is not None is not gallery.labels
    return test._replace(
        embeddings=torch.cat([test.embeddings, gallery.embeddings]),
        labels=np.concatenate([test.labels, gallery.labels]),
        names=[*test.names, *gallery.names],
        splits=["query"] * len(test.names) + ["gallery"] * len(gallery.names),
    )


def changes(run: Run, data: ExperimentData) -> str:
    """Say which of a run's data changed since its training, at which a resumed one stops.

    Args:
        run: opened by `bspml.load`.
        data: of its configuration, as they are now.

    Returns:
        A sentence, empty where nothing did.
    """
    measured = load_method(run.folder, run.method).get("measured")
    parts = ["those it was trained on"] if _learned_others(run, data) else []
    if None not in (measured, data.measured) and measured != data.measured:
        parts.append("those of its evaluation")
    if not parts:
        return ""
    return (
        f"samples or labels of this run changed since, {' and '.join(parts)}: this is about what "
        "is there now, not about what the run's records say"
    )


def _learned_others(run: Run, data: ExperimentData) -> bool:
    """Whether a run was trained on other samples or labels than its data have now."""
    with suppress(CheckpointError):
        load_method(run.folder, run.method, data.fingerprint)
        return False
    return True


def _embedded(
    run: Run, side: str, images: Inputs, labels: np.ndarray, names: Sequence[str] | None = None
) -> Embedded:
    """Embed a side of the run's data; samples without a name are called by side and number."""
    sample_names = list(names or (f"{side}/{row}" for row in range(len(labels))))
    return Embedded(run.embed(images), labels, sample_names, side == "train")


def _file_of_features(run: Run, file: str) -> Embedded:
    width = run.features_width
    if width is None:
        raise RunError(
            f"{file}: the network of this run takes images, not features; give a folder of images, "
            f"or one of its splits, {' or '.join(SPLITS)}."
        )
    features = torch.from_numpy(read_embeddings(file)).float()
    with about(file, RunError, InputError):
        embeddings = run.embed(features)
    labels: np.ndarray | None = None
    names, splits = read_names(file), read_texts(file, ("split",)).get("split")
    if Path(file).suffix.lower() != ".npy":  # which holds numbers only
        with suppress(NoColumnError):  # there need be no labels
            labels = read_labels(file).astype(str)
    for column, values in (("labels", labels), ("names", names), ("splits", splits)):
        if values is not None and len(values) != len(features):
            raise DataError(f"{file}: has {len(features)} features, but {len(values)} {column}.")
    unlabelled = np.full(len(features), "")
    found = is_trained_on(run.config, RetrievalSplit("test", unlabelled, features=features))
    return Embedded(embeddings, labels, names or [], found, splits=splits)


def _folder_of_images(run: Run, what: str) -> Embedded:
    settings = run.config.data
    size, channels = image_shape(run.config)
    split = read_folder(what, image_content(run.config))
    refuse_splits(what, set(split.labels))
    images: Any
    if settings.features is not None:
        images = split_features(split, run.config).float()
    else:
        images = split.images(size, channels, view=network_view(run.config))
    assert split.paths is not None
    told, found = _UNBOXED if settings.crop_boxes else "", is_trained_on(run.config, split)
    return Embedded(run.embed(images), split.labels, list(split.paths), found, changes=told)
