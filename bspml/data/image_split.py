"""One split of a classification data set in memory, and how a part of it is held out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bspml.tensors.checks import check_number, check_whole, encode_labels
from bspml.tensors.row_checks import check_rows


@dataclass(frozen=True, eq=False)
class ImageSplit:
    """Images and their labels.

    Attributes:
        images: (N, H, W, channels) uint8, 0 to 255.
        labels: (N,) int64, position in `classes`.
        classes: the C class names.
        superclasses: names of the groups of classes, where the data set has them, else None.
        superclass_of: (C,) int64, position in `superclasses` of each class; None without them.
    """

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    superclasses: tuple[str, ...] | None = None
    superclass_of: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Any) -> ImageSplit:
        """Return the samples of these rows: (R,) integers, in their order, or an (N,) bool mask.

        `classes` stay as they are, also those of which no sample is left.
        """
        index = check_rows(rows, len(self)).numpy()
        return replace(self, images=self.images[index], labels=self.labels[index])


def channels_first(images: np.ndarray) -> Tensor:
    """Return pixels (N, channels, H, W) of images (N, H, W, channels), in their dtype."""
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def held_out_rows(labels: Any, share: Any, seed: Any = 0) -> np.ndarray:
    """Return a stratified random part of a data set: round(share * N_c) samples of each class.

    Rows are ordered by a hash of the seed and their number, so that no library's shuffle can
    change the split, and a larger share holds out the rows of a smaller one and more.

    Args:
        labels: (N,) of any kind.
        share: of each class to hold out, in [0, 1]; halves are rounded to the even number.
        seed: of the choice.

    Returns:
        (N,) bool, which rows are held out.

    Example:
        >>> int(held_out_rows(["a", "a", "b", "b", "b", "b"], 0.5).sum())
        3
    """
    share = check_number(share, "share", 0.0, 1.0)
    seed = check_whole(seed, "seed", low=0)
    codes = encode_labels(labels).codes.numpy()
    keys = [hashlib.sha256(f"{seed} {row}".encode()).digest() for row in range(len(codes))]
    held = np.zeros(len(codes), dtype=bool)
    members: list[list[int]] = [[] for _ in range(int(codes.max(initial=-1)) + 1)]
    for row in sorted(range(len(codes)), key=keys.__getitem__):
        members[codes[row]].append(row)
    for rows in members:
        held[rows[: round(share * len(rows))]] = True
    return held
