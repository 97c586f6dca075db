"""What an experiment is about: both sides of a data set, and the labels to train on.

A data set's splits, the wrong labels the configuration plants or reads, what a person decided about
single labels; from images, decoded when they are asked for or held in memory, or from features of
a frozen backbone, extracted once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from bspml import noise
from bspml.checkpoints import fingerprint
from bspml.config import Config
from bspml.data.catalogue import load_retrieval
from bspml.data.decision_words import note_on_new_classes
from bspml.data.decisions import (
    CorrectedLabels,
    apply_decisions,
    is_corrected,
    read_corrected,
    read_decisions,
)
from bspml.data.noise_lists import read_noise_list
from bspml.data.own_labels import OwnLabels, own_labels
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.data.tables import read_labels
from bspml.errors import ConfigError, DataError, InputError

# Side of the images where the configuration leaves it open, and channels, by what they show.
_SIZES = {"photo": 224, "tile": 32, "character": 28}
_CHANNELS = {"photo": 3, "tile": 3, "character": 1}
_CONTENTS = {
    **dict.fromkeys(("glyphs", "omniglot"), "character"),
    **dict.fromkeys(("cifar10", "cifar100"), "tile"),
}
_IN_MEMORY = 2**30  # bytes of decoded pixels that are kept rather than decoded every epoch
_PICTURE = 96  # side of the pictures a page shows

Inputs = Tensor | Dataset


@dataclass(frozen=True)
class ExperimentData:
    """Both sides of a data set, the training labels as given and as they truly are.

    Attributes:
        images: (N, channels, S, S) training images in [0, 1], or (N, F) features, or a data set of
            such images.
        views: what training looks at: `images`, or random views of them.
        labels: (N,) training labels as given, possibly wrong; names of classes.
        codes: (N,) the same as 0..C-1.
        true_labels: (N,) the truth, or None where nobody knows it: in a person's own data, unless
            wrong labels were planted or listed, and then it is their labels before that.
        is_noisy: (N,) bool, or None where the truth is not known.
        test_images: (M, ...) like `images`; the queries where there is a gallery.
        test_labels: (M,) class names; disjoint from the training classes.
        fingerprint: changes when images or labels do.
        width: channels of the images, or F.
        gallery_images, gallery_labels: what the queries are searched in, or None.
        validation_images, validation_labels: of training classes held out to select the epoch, or
            None; labels as the data set has them, no noise is planted among them.
        split: the training split that `images` come from, for names and pictures.
        decided: what a person said about single labels, or None.
        notes: what a reader of the results should know.
        test_names: what each test sample is called, or None.
        is_outlier: (N,) bool, the noisy samples whose true class no label names: neither is their
            label right nor another one.  None where the truth is not known.
    """

    images: Inputs
    views: Inputs
    labels: np.ndarray
    codes: Tensor
    true_labels: np.ndarray | None
    is_noisy: np.ndarray | None
    test_images: Inputs
    test_labels: np.ndarray
    fingerprint: str
    width: int
    gallery_images: Inputs | None = None
    gallery_labels: np.ndarray | None = None
    validation_images: Inputs | None = None
    validation_labels: np.ndarray | None = None
    split: RetrievalSplit | None = None
    decided: CorrectedLabels | None = None
    notes: tuple[str, ...] = ()
    test_names: tuple[str, ...] | None = None
    is_outlier: np.ndarray | None = None

    @property
    def noise_rate(self) -> float | None:
        """True share of wrong labels, where known."""
        return None if self.is_noisy is None else float(self.is_noisy.mean())

    @property
    def names(self) -> tuple[str, ...] | None:
        """What each training sample is called, such as its path; None where nothing is known."""
        return None if self.split is None else self.split.names

    @property
    def features(self) -> Tensor | None:
        """(N, F) what a frozen backbone says of the training samples, or None: these are images."""
        return self.images if isinstance(self.images, Tensor) and self.images.ndim == 2 else None

    @property
    def most_neighbours(self) -> int:
        """How many samples a query can find."""
        return (
            len(self.test_labels) - 1 if self.gallery_labels is None else len(self.gallery_labels)
        )

    def pictures(self) -> Pictures | None:
        """Small pictures of the training samples, row by row; None for features without files."""
        if self.split is None or (self.split.paths is None and self.split.pixels is None):
            return None
        return Pictures(self.split, self.width)


class Pictures:
    """(H, W, channels) arrays in [0, 1] of single samples, made when they are asked for."""

    def __init__(self, split: RetrievalSplit, width: int) -> None:
        if split.pixels is not None:
            size = split.pixels.shape[-1]
            self.images = split.images(size, split.pixels.shape[1])
        else:
            self.images = split.images(_PICTURE, width if width in (1, 3) else 3)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> np.ndarray:
        return self.images[row].permute(1, 2, 0).numpy()


def load_data(config: Config) -> ExperimentData:
    """Load the data set and put in the wrong labels the configuration asks for.

    Raises:
        DataError: files missing or damaged, or labels of another number than samples.
        ConfigError: settings that do not go with this data set.
    """
    found = _load(config)
    train, test, gallery, validation = found.train, found.test, found.gallery, None
    if config.data.validation:
        train, test, gallery = *_hold_out(config, train), None
    elif config.data.validation_classes > 0:
        train, validation = _hold_out(config, train, config.data.validation_classes)
    told = _told(config, replace(found, train=train, test=test, gallery=gallery))
    if told is not None:
        train, test = told.data.train, told.data.test
    inputs = [_inputs(config, split) for split in (train, test, gallery, validation)]
    true_labels = train.labels
    features = inputs[0] if isinstance(inputs[0], Tensor) and inputs[0].ndim == 2 else None
    if told is not None:
        given, decided, notes = train.labels, told.decided, told.notes
        is_noisy, named = np.zeros(len(given), dtype=bool), np.ones(len(given), dtype=bool)
    else:
        given, is_noisy, notes = _training_labels(config, train, features)
        named = np.isin(true_labels, given)
        decided = _decisions(config, given)
        if decided is not None:
            notes = (*notes, *note_on_new_classes(given, decided))
            corrected = decided.labels.astype(str)
            is_noisy = np.where(corrected == given, is_noisy, corrected != true_labels)
            given = corrected
    known = not config.data.is_own or config.noise.kind != "none" or bool(config.noise.list_file)
    codes = torch.from_numpy(np.unique(given, return_inverse=True)[1].astype(np.int64))
    return ExperimentData(
        images=inputs[0],
        views=_views(config, train, inputs[0]),
        labels=given,
        codes=codes,
        true_labels=true_labels if known else None,
        is_noisy=is_noisy if known else None,
        test_images=inputs[1],
        test_labels=test.labels,
        fingerprint=fingerprint(_identity(train, inputs[0]), _what_is_learned(given, decided)),
        width=inputs[0].shape[1] if isinstance(inputs[0], Tensor) else inputs[0].channels,
        gallery_images=inputs[2],
        gallery_labels=None if gallery is None else gallery.labels,
        validation_images=inputs[3],
        validation_labels=None if validation is None else validation.labels,
        split=train,
        decided=decided,
        notes=(*found.notes, *notes),
        test_names=test.names,
        is_outlier=is_noisy & ~named if known else None,
    )


# --- splits ---------------------------------------------------------------------------------------


def _read(config: Config) -> RetrievalData:
    """The data set as its files say, neither decoded nor shortened."""
    settings = config.data
    keys = ("layout", "label_column", "split_column", "content")
    options = {key: getattr(settings, key) for key in keys if getattr(settings, key) is not None}
    if settings.name == "glyphs" and settings.image_size is not None:
        options["image_size"] = settings.image_size
    try:
        return load_retrieval(
            settings.name, settings.root, settings.incomplete, settings.classes, **options
        )
    except InputError as err:
        raise ConfigError(f"`data`: {err}") from None


def training_files(config: Config) -> set[str]:
    """The real paths of the images of the training split; none for data without files.

    Raises:
        UserError: the data set cannot be read any more.
    """
    train = _read(config).train
    if train.root is None or train.paths is None:
        return set()
    return {os.path.realpath(train.root / path) for path in train.paths}


def _load(config: Config) -> RetrievalData:
    settings, data = config.data, _read(config)
    # Features of the whole splits first: whatever part of them is used, they are made once.
    splits = [_with_features(split, config) for split in data.splits]
    if settings.subset is not None:
        splits = [_first_classes(split, config) for split in splits]
    return RetrievalData.of(data.name, splits, data.ks, data.notes)


def _with_features(split: RetrievalSplit, config: Config) -> RetrievalSplit:
    if config.data.features is None:
        return split
    return replace(split, features=split_features(split, config, config.data.crop_boxes))


def split_features(split: RetrievalSplit, config: Config, crop_boxes: bool = False) -> Tensor:
    """(N, D) features of the backbone `data.features`, from the cache or made now."""
    from bspml.feature_cache import cached_features

    settings = config.data
    assert settings.features is not None
    return cached_features(
        split,
        settings.features,
        weights=settings.features_weights,
        image_size=settings.image_size,
        crop_boxes=crop_boxes,
        cache=settings.cache,
        num_workers=config.workers,
    )


def _first_classes(split: RetrievalSplit, config: Config) -> RetrievalSplit:
    names, first = np.unique(split.labels, return_index=True)
    wanted = config.data.subset
    assert wanted is not None
    if wanted > len(names):
        raise DataError(
            f"`data.subset` is {wanted}, but the {split.name} split of {config.data.name} has "
            f"{len(names)} classes; lower it."
        )
    kept = names[np.argsort(first)][:wanted]  # in the data set's order
    return split.take(np.isin(split.labels, kept))


def held_out_classes(labels: np.ndarray, share: float = 0.25) -> np.ndarray:
    """(N,) bool: the samples of a fixed random share of the classes, at least two of them."""
    classes = np.unique(labels)
    held = max(2, int(share * len(classes) + 1e-9))  # .29 of 100 is 29
    chosen = np.random.default_rng(0).permutation(len(classes))[:held]
    return np.isin(labels, classes[chosen])


def _hold_out(
    config: Config, train: RetrievalSplit, share: float = 0.25
) -> tuple[RetrievalSplit, RetrievalSplit]:
    """The training split without the held-out classes, and these."""
    held_out = held_out_classes(train.labels, share)
    left = len(np.unique(train.labels[~held_out]))
    if left < 2:
        raise ConfigError(
            f"`data`: {config.data.name} trains on {len(np.unique(train.labels))} classes, of "
            f"which holding out {len(np.unique(train.labels[held_out]))} for validation leaves "
            f"{left}; train on more classes, or hold none out."
        )
    if np.unique(train.labels[held_out], return_counts=True)[1].max() < 2:
        raise ConfigError(
            "`data`: every class held out for validation has a single sample, so nothing can be "
            "found; hold more classes out, or none."
        )
    return train.take(~held_out), train.take(held_out)


def _inputs(config: Config, split: RetrievalSplit | None) -> Any:
    """What the network sees of a split: features, pixels in memory, or images from files."""
    settings = config.data
    if split is None:
        return None
    if split.features is not None:
        return split.features.float()
    size, channels = image_shape(config)
    pixels = split.pixels
    if pixels is not None and pixels.is_floating_point() and pixels.shape[1:] == (
        channels, size, size,
    ):  # fmt: skip
        return pixels
    if len(split) * channels * size**2 * 4 <= _IN_MEMORY:
        decoded = split.decoded(size, channels, settings.crop_boxes)
        assert decoded.pixels is not None
        return decoded.pixels.float() / 255
    return split.images(size, channels, settings.crop_boxes)


def image_shape(config: Config) -> tuple[int, int]:
    """Side in pixels and channels of the images the network sees."""
    settings = config.data
    content = image_content(config)
    usual = 24 if settings.name == "glyphs" else _SIZES[content]
    return settings.image_size or usual, settings.channels or _CHANNELS[content]


def image_content(config: Config) -> str:
    """What the images show: "photo", "tile" or "character"."""
    return config.data.content or _CONTENTS.get(config.data.name, "photo")


def _views(config: Config, split: RetrievalSplit, inputs: Inputs) -> Inputs:
    settings = config.data
    photos = split.content == "photo" and split.features is None
    if not (photos if settings.augment is None else settings.augment):
        return inputs
    if split.features is not None:
        raise ConfigError(
            "`data.augment` shows random views of images, but the network sees features; set it "
            "to null."
        )
    size, channels = image_shape(config)
    return split.images(size, channels, settings.crop_boxes, augment=True, seed=config.seed)


def _identity(split: RetrievalSplit, inputs: Inputs) -> Any:
    """What the fingerprint is made of: the inputs in memory, or the files."""
    if isinstance(inputs, Tensor):
        return inputs
    assert split.root is not None
    assert split.paths is not None
    return [split.root / path for path in split.paths]


# --- labels ---------------------------------------------------------------------------------------


def _told(config: Config, data: RetrievalData) -> OwnLabels | None:
    """A person's own data under the labels they corrected; None where they gave none."""
    settings = config.noise
    files = (settings.labels_file, settings.decisions_file)
    if not config.data.is_own or settings.list_file is not None or files == (None, None):
        return None
    _check_one_source(config)
    return own_labels(data, *files)


def _training_labels(
    config: Config, split: RetrievalSplit, features: Tensor | None
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """The labels as given, before a person's decisions; which are wrong; what to know of them."""
    settings, true_labels = config.noise, split.labels
    if settings.list_file is not None:
        listed = read_noise_list(settings.list_file, split)
        return listed.labels, listed.is_noisy, listed.notes
    if settings.labels_file is not None:
        given = read_labels(settings.labels_file).astype(str)
        if len(given) != len(true_labels):
            raise DataError(
                f"{settings.labels_file}: has {len(given)} labels; the training split of "
                f"{config.data.name} has {len(true_labels)} samples."
            )
        return given, given != true_labels, ()
    if settings.kind == "none":
        return true_labels, np.zeros(len(true_labels), dtype=bool), ()
    noisy = _planted(config, true_labels, features)
    return np.asarray(noisy.labels).astype(str), np.asarray(noisy.is_noisy), ()


def _planted(config: Config, labels: np.ndarray, features: Tensor | None) -> noise.NoisyLabels:
    settings, seed = config.noise, config.noise_seed
    if settings.kind == "symmetric":
        return noise.symmetric(labels, settings.rate, seed=seed, per_class=settings.per_class)
    if settings.kind == "pair-flip":
        return noise.pair_flip(labels, settings.rate, seed=seed, per_class=settings.per_class)
    if settings.kind == "open-set":
        return noise.open_set(labels, settings.rate, seed=seed)
    if settings.kind == "small-cluster":
        return noise.small_cluster(labels, settings.rate, seed=seed, embeddings=features)
    if features is None:
        raise ConfigError(
            "`noise.kind` instance-dependent mislabels what looks like another class, so it needs "
            "features to look with: set `data.features` to a backbone."
        )
    return noise.instance_dependent(labels, settings.rate, features, seed=seed)


def _decisions(config: Config, given: np.ndarray) -> CorrectedLabels | None:
    """A person's verdicts: in a file of their own, or in the corrected labels made from one."""
    settings = config.noise
    corrected = _check_one_source(config)
    if settings.decisions_file is not None:
        return apply_decisions(given, read_decisions(settings.decisions_file))
    return None if corrected is None else read_corrected(corrected)


def _check_one_source(config: Config) -> str | None:
    """The file of corrected labels, if there is one; it must be the only file with decisions."""
    settings = config.noise
    file = settings.labels_file
    corrected = file if file is not None and is_corrected(file) else None
    if corrected is not None and settings.decisions_file is not None:
        raise DataError(
            f"{settings.labels_file} already holds decisions; put those of "
            f"{settings.decisions_file} into it with `bspml audit FOLDER --apply`, and leave "
            "`noise.decisions_file` out."
        )
    return corrected


def _what_is_learned(given: np.ndarray, decided: CorrectedLabels | None) -> np.ndarray:
    """The labels, and after them the weights that are fixed; what a resumed run must find again."""
    if decided is None:
        return given
    # A verdict of "unsure" changes nothing.
    words = np.where(decided.fixed, decided.weights.astype(str), "")
    return np.concatenate([given, words])
