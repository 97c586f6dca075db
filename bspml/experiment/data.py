"""What an experiment is about: both sides of a data set, and the labels to train on.

A data set's splits, the wrong labels the configuration plants or reads, what the user decided about
single labels; from images, decoded when they are asked for or held in memory, or from features of
a frozen backbone, extracted once.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from bspml.data.labels.decisions import CorrectedLabels
from bspml.data.labels.own_labels import OwnLabels
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.data.split_copies import split_copies
from bspml.errors import ConfigError, UserError
from bspml.experiment.config import Config
from bspml.experiment.labels import GivenLabels, corrected_data, given_labels
from bspml.experiment.seen import Seen, near_copies
from bspml.experiment.splits import hold_out, load_splits, read_data
from bspml.files.checkpoints import fingerprint
from bspml.networks.backbone import IMAGE_SIZE
from bspml.networks.by_name import view_for
from bspml.words import counted

# Side of the images where the configuration leaves it open, and channels, by what they show.
_SIZES = {"photo": IMAGE_SIZE, "tile": 32, "character": 28}
_CHANNELS = {"photo": 3, "tile": 3, "character": 1}
_CONTENTS = {
    **dict.fromkeys(("glyphs", "omniglot"), "character"),
    **dict.fromkeys(("cifar10", "cifar100"), "tile"),
}
_IN_MEMORY = 2**30  # bytes of decoded pixels that are kept rather than decoded every epoch
_FEW_CLASSES = 10  # of fewer, none are held out unless it is asked for
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
        true_labels: (N,) the truth, or None where nobody knows it: in the user's own data, unless
            wrong labels were planted or listed, and then it is their labels before that.
        is_noisy: (N,) bool, or None where the truth is not known.
        test_images: (M, ...) like `images`; the queries where there is a gallery.
        test_labels: (M,) class names; disjoint from the training classes.
        fingerprint: changes when images or labels do.
        width: channels of the images, or F.
        gallery_images, gallery_labels: what the queries are searched in, or None.
        validation_images, validation_labels: of training classes held out to select the epoch, or
            None; under the labels that are given after all corrections, without the samples whose
            label is known to be wrong.
        split: the training split that `images` come from, for names and pictures.
        decided: what the user decided about single labels, or None.
        notes: what a reader of the results should know.
        test_names, gallery_names: what each test sample is called, or None.
        seen: which test samples are copies of training samples; None: none is.
        measured: a fingerprint of all that is evaluated on, the validation included.
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
    gallery_names: tuple[str, ...] | None = None
    seen: Seen | None = None
    measured: str | None = None
    is_outlier: np.ndarray | None = None

    @property
    def noise_rate(self) -> float | None:
        """True share of wrong labels, where known."""
        return None if self.is_noisy is None else float(self.is_noisy.mean())

    @property
    def trained_codes(self) -> Tensor:
        """(n,) codes of the samples that train: not those whose label was decided to be wrong."""
        return self.codes if self.decided is None else self.codes[~self.decided.dropped]

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

    def pictures(self) -> Thumbnails | None:
        """Return small pictures of the training samples by row; None for features without files."""
        if self.split is None or (self.split.paths is None and self.split.pixels is None):
            return None
        return Thumbnails(self.split, self.width)


class Thumbnails:
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


def load_data(config: Config, to_train: bool = True) -> ExperimentData:
    """Load the data set and put in the wrong labels the configuration asks for.

    Args:
        config: the experiment.
        to_train: look for near copies of training samples too, which the notes of a training name.

    Raises:
        DataError: files missing or damaged, or labels of another number than samples.
        ConfigError: settings that do not go with this data set.
    """
    splits = load_splits(config)
    corrected = corrected_data(config, splits)
    parted = splits if corrected is None else corrected.data
    test, gallery = parted.test, parted.gallery
    train, labelling, validation = _training(config, splits, corrected)
    if config.data.validation:
        assert validation is not None
        test, gallery, validation = validation, None, None
    measured_on = replace(test, name="test")
    whole = replace(splits, train=train, test=measured_on, gallery=gallery)
    copies = split_copies(whole)
    told = *copies, *(near_copies(whole.splits, copies) if to_train else ())
    inputs = [_inputs(config, split) for split in (train, test, gallery, validation)]
    codes = torch.from_numpy(np.unique(labelling.labels, return_inverse=True)[1].astype(np.int64))
    evaluated = zip((test, gallery, validation), inputs[1:], strict=True)
    measured = [
        fingerprint(_fingerprint_source(split, side), split.labels)
        for split, side in evaluated
        if split is not None
    ]
    seen = Seen.of(copies, len(test), None if gallery is None else len(gallery))
    return ExperimentData(
        images=inputs[0],
        views=_views(config, train, inputs[0]),
        labels=labelling.labels,
        codes=codes,
        true_labels=None if labelling.is_noisy is None else train.labels,
        is_noisy=labelling.is_noisy,
        test_images=inputs[1],
        test_labels=test.labels,
        fingerprint=fingerprint(_fingerprint_source(train, inputs[0]), labelling.learned),
        width=inputs[0].shape[1] if isinstance(inputs[0], Tensor) else inputs[0].channels,
        gallery_images=inputs[2],
        gallery_labels=None if gallery is None else gallery.labels,
        validation_images=inputs[3],
        validation_labels=None if validation is None else validation.labels,
        split=train,
        decided=labelling.decided,
        notes=(*parted.notes, *labelling.notes, *(found.sentence for found in told)),
        test_names=test.names,
        gallery_names=None if gallery is None else gallery.names,
        seen=seen if len(seen) else None,
        measured=" ".join(measured),
        is_outlier=labelling.is_outlier,
    )


def is_trained_on(config: Config, split: RetrievalSplit) -> bool:
    """Return whether the training has some of these samples: the same files or features, or copies.

    Where its data set is gone nobody can tell: False.

    Args:
        config: of the training; what its data set holds now counts.
        split: "test", of files or features.
    """
    with suppress(UserError):
        train = read_data(config).train
        with suppress(UserError):  # a file of labels is gone, say; then all that may have trained
            splits = load_splits(config)
            train = _training(config, splits, corrected_data(config, splits))[0]
        if train.paths is not None:
            train = replace(train, features=None)  # the files count
        sizes = [None if x.features is None else x.features.shape[1] for x in (train, split)]
        if (train.paths is None) == (split.paths is None) and sizes[0] == sizes[1]:
            found = split_copies(RetrievalData(config.data.name, train, split))
            return any((copies.split, copies.source) == ("test", "train") for copies in found)
    return False


# --- labels ---------------------------------------------------------------------------------------


def _training(
    config: Config, splits: RetrievalData, own: OwnLabels | None
) -> tuple[RetrievalSplit, GivenLabels, RetrievalSplit | None]:
    """Return what trains, its labels, and what is held out of it, under the labels it is judged by.

    A file is about the rows of the whole training split, so its labels are put in first, and a
    sample stands on the side of the class it is given.  Noise is planted among the classes that
    train: it would carry their samples to the held-out ones otherwise.

    Args:
        config: the experiment.
        splits: as read.
        own: of `corrected_data`.
    """
    train = splits.train
    whole = train if own is None else own.data.train
    share, note = 0.25 if config.data.validation else config.validation_share, None
    if config.data.validation_classes is None and config.validation_share > 0:
        note = _why_none_is_held_out(splits if own is None else own.data)
        share = share if note is None else 0.0
    settings = config.noise
    files = (settings.labels_file, settings.list_file, settings.decisions_file)
    if share == 0:
        labelling = given_labels(config, whole, _features(whole), own)
        if note is not None:
            labelling = replace(labelling, notes=(*labelling.notes, note))
        return whole, labelling, None
    whole = whole.named()  # what a page says of the rest is found again in the whole
    if files == (None, None, None):
        held = hold_out(config, whole.labels, share)
        rest = whole.take(~held)
        return rest, given_labels(config, rest, _features(rest), own), whole.take(held)
    labelling = given_labels(config, whole, _features(whole), own)
    # Of corrected labels: a class that trains by a wrong label alone is none to be held out.
    chosen_by = train.labels if own is None else whole.labels
    held = hold_out(config, chosen_by, share, labelling.labels)
    judging, rest = held & labelling.judges, whole.take(~held)
    judges = replace(whole.take(judging), labels=labelling.labels[judging])
    labelling = labelling.taken(~held, rest.labels)
    if len(judges) < held.sum():
        words = counted(int(held.sum()) - len(judges), "sample is", "samples are")
        note = f"{words} left out of the held-out classes: the label is known to be wrong"
        labelling = replace(labelling, notes=(*labelling.notes, note))
    return rest, labelling, judges


def _why_none_is_held_out(splits: RetrievalData) -> str | None:
    """Say why classes are not held out unless that is asked for; None where they are."""
    if len(splits.train.classes) < _FEW_CLASSES:
        return f"fewer than {_FEW_CLASSES} classes train: none is held out to select an epoch"
    if len(np.intersect1d(splits.train.classes, splits.test.classes)):
        return "classes of the test train, too: none is held out to select an epoch"
    return None


def _features(split: RetrievalSplit) -> Tensor | None:
    return None if split.features is None else split.features.float()


# --- inputs ---------------------------------------------------------------------------------------


def _inputs(config: Config, split: RetrievalSplit | None) -> Any:
    """Return what the network sees of a split: features, pixels in memory, or images from files."""
    settings = config.data
    if split is None:
        return None
    if split.features is not None:
        return split.features.float()
    size, channels = image_shape(config)
    pixels = split.pixels
    if pixels is not None and pixels.is_floating_point() and pixels.shape[1:] == (
        channels, size, size,
    ) and not settings.crop_boxes:  # fmt: skip
        return pixels
    if len(split) * channels * size**2 * 4 <= _IN_MEMORY:
        decoded = split.decoded(size, channels, settings.crop_boxes, view=network_view(config))
        assert decoded.pixels is not None
        return decoded.pixels.float() / 255
    return split.images(size, channels, settings.crop_boxes, view=network_view(config))


def image_shape(config: Config) -> tuple[int, int]:
    """Return the side in pixels and the channels of the images the network sees."""
    settings = config.data
    content = image_content(config)
    usual = 24 if settings.name == "glyphs" else _SIZES[content]
    size, own = settings.image_size or usual, network_view(config)
    return size if own is None else own.image_size, settings.channels or _CHANNELS[content]


def network_view(config: Config) -> Any:
    """Return how timm shows photographs to its network at test time; None for the standard view."""
    if image_content(config) != "photo" or not config.network.name.startswith("timm:"):
        return None
    return view_for(config.network.name, config.data.image_size)


def image_content(config: Config) -> str:
    """Return what the images show: "photo", "tile" or "character"."""
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


def _fingerprint_source(split: RetrievalSplit, inputs: Any) -> Any:
    """Return what the fingerprint is made of: the inputs in memory, or the files."""
    in_memory = inputs if isinstance(inputs, Tensor) else split.pixels
    if in_memory is not None:
        return in_memory
    files = [inputs.root / path for path in inputs.paths]
    if inputs.boxes is None:
        return files
    sizes = [f"{file.name} {file.stat().st_size}" for file in files]
    return [f"{size} {box}" for size, box in zip(sizes, inputs.boxes.tolist(), strict=True)]
