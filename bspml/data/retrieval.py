"""Data sets for retrieval: splits of images, or of features, with labels.

Retrieval is tested on classes that training never saw.  `train` and `test` are such halves; where
a data set is searched in a gallery (In-shop), `test` holds its queries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bspml.data.picture_keys import keys_in
from bspml.data.split_images import FileImages, MemoryImages, SplitImages
from bspml.data.transforms import CONTENTS, View, Whole, standard_view
from bspml.errors import DataError, InputError
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_choice, check_whole, encode_labels
from bspml.tensors.row_checks import check_rows
from bspml.words import did_you_mean

NAMES = ("train", "test", "query", "gallery")
# What a data set may consist of.
COMBINATIONS = (["train", "test"], ["train", "query", "gallery"])

_LARGEST = 16 * 2**30  # bytes of pixels that `decoded` takes into memory


@dataclass(frozen=True, eq=False)
class Origin:
    """All that was read in one go, of which a split may be a part: a whole folder, table or file.

    Attributes:
        labels: (M,) class names, text, as they were read.
        names: M names, such as paths, or None.
        pictures: rows -> a digest of the photo of each, '' for none; None where none are known.
    """

    labels: np.ndarray
    names: tuple[str, ...] | None = None
    pictures: Callable[[Sequence[int]], Sequence[str]] | None = None

    @property
    def numbers(self) -> tuple[str, ...]:
        """What samples without names are called where some are taken away: "sample 105"."""
        return tuple(f"sample {row}" for row in range(len(self.labels)))


@dataclass(frozen=True, eq=False)
class RetrievalSplit:
    """One split: labels, and either files, pixels in memory, or features.

    Attributes:
        name: "train", "test", "query" or "gallery".
        labels: (N,) class names, text.
        root: the folder that `paths` start in, or None.
        paths: N paths with forward slashes, or None.
        boxes: (N, 4) float64 left, top, right, bottom of the object in pixels of the image, as
            annotated (it may leave the image), or None.
        pixels: (N, channels, H, W) uint8 0 to 255 or float 0 to 1, or None.
        features: (N, F) floats, or None.
        content: "photo", "tile" or "character", see `bspml.data.transforms.standard_view`.
        given_names: N names of samples that have no paths, or None.
        whole: what the split is a part of; filled in: the split itself unless taken from another.
        whole_rows: (N,) int64, where each sample stands in it; likewise.

    Raises:
        InputError: another name, nothing to look at, or lengths that differ.
    """

    name: str
    labels: np.ndarray
    root: Path | None = None
    paths: tuple[str, ...] | None = None
    boxes: np.ndarray | None = None
    pixels: Tensor | None = None
    features: Tensor | None = None
    content: str = "photo"
    given_names: tuple[str, ...] | None = None
    whole: Origin | None = None
    whole_rows: np.ndarray | None = None

    def __post_init__(self) -> None:
        check_choice(self.name, "name", NAMES)
        check_choice(self.content, "content", CONTENTS)
        if self.labels.ndim != 1 or self.labels.dtype.kind != "U":
            raise InputError(
                f"`labels` must be (N,) text; got {self.labels.shape} of {self.labels.dtype}. "
                "Use `.astype(str)`."
            )
        if self.paths is not None and self.root is None:
            raise InputError("`paths` need a `root`; give the folder that they start in.")
        contents = ("paths", "pixels", "features")
        entries = {name: getattr(self, name) for name in (*contents, "boxes", "given_names")}
        parts: dict[str, Any] = {name: part for name, part in entries.items() if part is not None}
        if not parts.keys() & set(contents):
            raise InputError("A split needs `paths`, `pixels` or `features`.")
        if self.whole is None:  # frozen
            pictures = partial(keys_in, self.root, self.paths)
            object.__setattr__(self, "whole", Origin(self.labels, self.names, pictures))
            object.__setattr__(self, "whole_rows", np.arange(len(self.labels)))
        parts["whole_rows"] = self.rows
        for name, part in parts.items():
            if len(part) != len(self.labels):
                raise InputError(
                    f"`{name}` must have one entry per label, {len(self.labels)}; got {len(part)}."
                )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def origin(self) -> Origin:
        """All that was read in one go, of which this split is a part, or the whole."""
        assert self.whole is not None
        return self.whole

    @property
    def rows(self) -> np.ndarray:
        """(N,) int64, where each sample stands in `origin`."""
        assert self.whole_rows is not None
        return self.whole_rows

    @property
    def names(self) -> tuple[str, ...] | None:
        """What each sample is called: its path, or the name given with it; None for neither."""
        return self.given_names if self.paths is None else self.paths

    def named(self) -> RetrievalSplit:
        """Return the split with names: its own, or else the numbers of its samples in `origin`."""
        if self.names is not None:
            return self
        return replace(self, given_names=_picked(self.origin.numbers, self.rows))

    @property
    def classes(self) -> np.ndarray:
        """(C,) the class names that occur, sorted."""
        return np.unique(self.labels)

    @property
    def codes(self) -> Tensor:
        """(N,) int64, position of each label in `classes`."""
        return encode_labels(self.labels).codes

    def images(
        self,
        image_size: int,
        channels: int = 3,
        crop_boxes: bool = False,
        augment: bool = False,
        seed: int = 0,
        view: View | None = None,
    ) -> SplitImages:
        """Return the images as tensors (channels, S, S) in [0, 1]; not normalised, networks do
        that.

        Files are decoded when they are asked for.  Pixels in memory that have the size already are
        shown as they are, unless `augment`.

        Args:
            image_size: side S in pixels.
            channels: 1 for grey, 3 for RGB; images of any mode are converted.
            crop_boxes: look at the annotated boxes only.
            augment: random views for training, see `standard_view`; call `set_epoch` each epoch.
            seed: of the random views.
            view: one of your own in place of the standard one.

        Raises:
            InputError: sizes or channels that make no image; boxes or images that are not there.
        """
        check_flags(crop_boxes=crop_boxes, augment=augment)
        size = check_whole(image_size, "image_size", low=1)
        if channels not in (1, 3):
            raise InputError(f"`channels` must be 1 or 3; got {channels!r}.")
        if crop_boxes and self.boxes is None:
            raise InputError(
                f"`crop_boxes` is true, but the {self.name} split has no boxes. Leave it false, or "
                "add the annotation file that has them."
            )
        image_view = view or standard_view(size, self.content, augment)
        if self.pixels is not None:
            if crop_boxes:
                raise InputError("`crop_boxes` needs the files; these are pixels in memory.")
            as_is = view is None and not augment and self.pixels.shape[2:] == (size, size)
            return MemoryImages(self.pixels, None if as_is else image_view, seed, channels)
        if self.paths is None or self.root is None:
            raise InputError(f"The {self.name} split holds features, not images.")
        return FileImages(
            self.root, self.paths, self.boxes if crop_boxes else None, image_view, seed, channels
        )

    def take(self, rows: Any) -> RetrievalSplit:
        """Return the samples of these rows: (R,) integers, in their order, or an (N,) bool mask."""
        index = check_rows(rows, len(self))
        row_array = index.numpy()
        return replace(
            self,
            labels=self.labels[row_array],
            paths=_picked(self.paths, row_array),
            boxes=None if self.boxes is None else self.boxes[row_array],
            pixels=None if self.pixels is None else self.pixels[index],
            features=None if self.features is None else self.features[index],
            given_names=_picked(self.given_names, row_array),
            whole_rows=self.rows[row_array],
        )

    def part(self, name: str, rows: Any) -> RetrievalSplit:
        """Return some samples as a split of another name.

        Args:
            name: "train", "test", "query" or "gallery".
            rows: as in `take`.
        """
        return replace(self.take(rows), name=name)

    def halves(self, trains: np.ndarray) -> tuple[RetrievalSplit, RetrievalSplit]:
        """Return the rows that train, called "train", and the others, called "test"."""
        return self.part("train", trains), self.part("test", ~trains)

    def joined(self, other: RetrievalSplit) -> RetrievalSplit:
        """Return this split and, after it, another of the same root, as one.

        Where both are parts of one origin, so is the whole; else it is its own origin.
        """
        together = self.origin is other.origin
        boxes = [split.boxes for split in (self, other) if split.boxes is not None]
        names = [split.given_names for split in (self, other) if split.given_names is not None]
        return replace(
            self,
            labels=np.concatenate([self.labels, other.labels]),
            paths=(*(self.paths or ()), *(other.paths or ())) or None,
            boxes=np.concatenate(boxes) if len(boxes) == 2 else None,
            pixels=_cat(self.pixels, other.pixels),
            features=_cat(self.features, other.features),
            given_names=(*names[0], *names[1]) if len(names) == 2 else None,
            whole=self.origin if together else None,
            whole_rows=np.concatenate([self.rows, other.rows]) if together else None,
        )

    def decoded(
        self,
        image_size: int,
        channels: int = 3,
        crop_boxes: bool = False,
        whole: bool = False,
        view: View | None = None,
    ) -> RetrievalSplit:
        """Return the same split with all images decoded into memory as uint8.

        For sets that fit: repeated epochs then cost no decoding.

        Args:
            image_size, channels, crop_boxes: as in `images`.
            whole: resize the whole image to a square, where the standard view of photographs would
                take the centre.
            view: as in `images`.

        Raises:
            DataError: more than 16 GiB, or an image that cannot be read; names it.
        """
        check_flags(crop_boxes=crop_boxes, whole=whole)
        if whole:
            view = Whole(check_whole(image_size, "image_size", low=1))
        images = self.images(image_size, channels, crop_boxes, view=view)
        size = len(self) * channels * image_size**2
        if size > _LARGEST:
            raise DataError(
                f"{len(self):,} images of {image_size} pixels take {size / 2**30:.0f} GiB in "
                "memory. Read them from their files with `images`, or lower `image_size`."
            )
        pixels = torch.empty((len(self), channels, image_size, image_size), dtype=torch.uint8)
        for row in range(len(self)):
            pixels[row] = (images[row] * 255).round().to(torch.uint8)
        return replace(self, pixels=pixels, boxes=None)


def _picked(names: tuple[str, ...] | None, rows: np.ndarray) -> tuple[str, ...] | None:
    return None if names is None else tuple(names[i] for i in rows)


def _cat(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    return None if first is None or second is None else torch.cat([first, second])


@dataclass(frozen=True, eq=False)
class RetrievalData:
    """A data set for retrieval.

    Attributes:
        name: as in the catalogue.
        train: what to learn from.
        test: what to search with, and in, unless there is a gallery.
        gallery: what to search in (In-shop), else None.
        ks: the K of Recall@K that papers print for this set, less those that exceed the number of
            neighbours a query has.
        notes: what a reader of the results should know, in sentences.
        halved: half of the classes train, as nothing says which.
    """

    name: str
    train: RetrievalSplit
    test: RetrievalSplit
    gallery: RetrievalSplit | None = None
    ks: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    notes: tuple[str, ...] = ()
    halved: bool = False

    def __post_init__(self) -> None:
        neighbours = len(self.test) - 1 if self.gallery is None else len(self.gallery)
        fitting = tuple(k for k in self.ks if k <= neighbours) or (1,)
        object.__setattr__(self, "ks", fitting)  # frozen

    @classmethod
    def of(
        cls,
        name: str,
        splits: Sequence[RetrievalSplit],
        ks: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
        notes: tuple[str, ...] = (),
    ) -> RetrievalData:
        """Put splits together; a note says if they share classes, which benchmarks keep apart.

        Args:
            name: of the data set.
            splits: train and test, or train, query and gallery, in this order.
            ks: the K of Recall@K that papers print for it.
            notes: what a reader of the results should know; one of shared classes is made anew.
        """
        train, test, *gallery = splits
        tested, share = test.classes, "Train and test share"
        shared_classes = np.intersect1d(train.classes, tested)
        notes = tuple(note for note in notes if not note.startswith(share))
        if len(shared_classes):
            told = f"{len(shared_classes)} of {len(tested)} classes, such as {shared_classes[0]}"
            notes = (*notes, f"{share} {told}: the test is not one of unseen classes.")
        return cls(name, train, test, gallery[0] if gallery else None, ks, notes)

    @property
    def splits(self) -> tuple[RetrievalSplit, ...]:
        """train, test and, where there is one, gallery."""
        splits = (self.train, self.test)
        return splits if self.gallery is None else (*splits, self.gallery)

    def without(self, ignore: Any) -> RetrievalData:
        """Return the data set without the samples of some labels, which a note counts.

        Args:
            ignore: labels, one or several; numbers are taken as text.

        Raises:
            DataError: a split has no sample left, or no sample has one of the labels.
        """
        ignore = ignore.tolist() if hasattr(ignore, "tolist") else ignore  # a tensor names itself
        one = isinstance(ignore, str) or not hasattr(ignore, "__iter__")
        names = [str(label) for label in ([ignore] if one else ignore)]
        splits = self.splits
        if self.halved:  # of what is left
            everything = self.train.joined(self.test)
            everything = everything.take(np.argsort(everything.rows))
            left = everything.labels[~np.isin(everything.labels, names)]
            splits = everything.halves(np.isin(everything.labels, left[half_of_classes(left)]))
        left_out = [np.isin(split.labels, names) for split in splits]
        counts = [int(mask.sum()) for mask in left_out]
        known = {label for split in self.splits for label in split.classes}
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known) or "; leave it out of `ignore`."
                raise DataError(f"{self.name}: no sample has the label to ignore {name!r}{hint}")
        if not sum(counts):
            return self
        pairs = list(zip(splits, left_out, strict=True))
        for split, mask in pairs:
            if mask.all():
                raise DataError(
                    f"{split.root or self.name}: every sample of the {split.name} split has one of "
                    f"the labels to ignore, {', '.join(names)}."
                )
        parts = [split.take(~mask) if mask.any() else split for split, mask in pairs]
        note = f"Left out: {sum(counts):,} samples of the labels {', '.join(names)}."
        return RetrievalData.of(self.name, parts, self.ks, (*self.notes, note))


def half_of_classes(labels: np.ndarray) -> np.ndarray:
    """Return (N,) bool: the samples of the first half of the classes, sorted by name.

    An odd class out goes to the other half, as in [Musgrave 2020].

    Example:
        >>> half_of_classes(np.array(["b", "a", "c", "a"])).tolist()
        [False, True, False, True]
    """
    classes = np.unique(labels)
    return np.isin(labels, classes[: len(classes) // 2])
