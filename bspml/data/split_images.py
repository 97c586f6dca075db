"""The images of a split as a data set of tensors, read from files or held in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from operator import index as as_int
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from bspml.data.images import read_image, to_pixels
from bspml.data.transforms import View, draws
from bspml.errors import DataError
from bspml.tensors.checks import check_whole
from bspml.words import counted


class SplitImages(Dataset[Tensor]):
    """N views of N images as float32 tensors (channels, S, S) in [0, 1].

    The view of a sample depends on `seed`, the epoch and the sample, and on nothing else: not on
    the order, not on the workers, not on earlier epochs.  Call `set_epoch` before each epoch.

    Args:
        view: what to show of an image, see `bspml.data.transforms`.
        seed: of what is random in the view.
        channels: 1 or 3.

    Attributes:
        epoch: the current one, from 0.
    """

    def __init__(self, view: View, seed: int, channels: int) -> None:
        self.view, self.seed, self.channels = view, check_whole(seed, "seed", low=0), channels
        self._epoch = torch.zeros((), dtype=torch.int64)
        # Workers that outlive an epoch must see it change.  Where memory cannot be shared, workers
        # do not run either.
        with contextlib.suppress(RuntimeError, OSError):
            self._epoch.share_memory_()

    @property
    def epoch(self) -> int:
        """The epoch that `set_epoch` set last, 0 before."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Show the views of this epoch from now on."""
        self._epoch.fill_(check_whole(epoch, "epoch", low=0))

    def __getitem__(self, sample_index: SupportsIndex) -> Tensor:
        row = as_int(sample_index)  # samplers yield numpy integers, too
        if not -len(self) <= row < len(self):
            raise IndexError(f"index {row} is outside the {len(self)} images of the split")
        row %= len(self)
        image = self.view(self._load(row), draws(self.seed, self.epoch, row))
        pixels = image if isinstance(image, Tensor) else to_pixels(image)
        return pixels if pixels.is_floating_point() else pixels.float() / 255

    def __len__(self) -> int:
        raise NotImplementedError

    def _load(self, row: int) -> Any:
        raise NotImplementedError


class FileImages(SplitImages):
    """Images decoded when they are asked for.

    Args:
        root: the folder that `paths` start in.
        paths: N relative paths.
        boxes: (N, 4) left, top, right, bottom of what to look at, or None for whole images.
        view, seed, channels: as in `SplitImages`.

    Raises:
        DataError: boxes in shares of the image, or with a side below 2 pixels.
    """

    def __init__(
        self,
        root: Path,
        paths: Sequence[str],
        boxes: np.ndarray | None,
        view: View,
        seed: int = 0,
        channels: int = 3,
    ) -> None:
        super().__init__(view, seed, channels)
        if boxes is not None and len(boxes):
            _check_pixels(boxes, root, paths)
        self.root, self.paths, self.boxes = root, paths, boxes

    def __len__(self) -> int:
        return len(self.paths)

    def _load(self, row: int) -> Any:
        box = None if self.boxes is None else self.boxes[row].tolist()
        return read_image(self.root / self.paths[row], self.channels, box)


def _check_pixels(boxes: np.ndarray, root: Path, paths: Sequence[str]) -> None:
    """Refuse boxes of which a pixel or none would be shown instead of an object."""
    sides = boxes[:, 2:] - boxes[:, :2]
    small = ((sides > 0) & (sides < 2)).any(axis=1).nonzero()[0]  # of others the image is asked
    if not len(small):
        return
    shares = bool((boxes >= 0).all() and (boxes <= 1).all())
    why = "All boxes lie in 0 to 1: multiply by the image's width and height. " if shares else ""
    shown = ", ".join(f"{value:g}" for value in boxes[small[0]])
    raise DataError(
        f"{root}: {counted(len(small), 'box', 'boxes')} must be in pixels, and have a side below "
        f"2; the first is ({shown}), of {paths[small[0]]}. {why}Correct them, or do without boxes."
    )


class MemoryImages(SplitImages):
    """Images held as one tensor; shown as they are where nothing is random and the size fits.

    Args:
        pixels: (N, channels, H, W) uint8 0 to 255 or float 0 to 1.  Grey becomes three equal
            channels; three become one by the mean of red, green and blue with Rec. 601's weights.
        view, seed, channels: as in `SplitImages`.
    """

    def __init__(self, pixels: Tensor, view: View | None, seed: int = 0, channels: int = 3) -> None:
        super().__init__(_same if view is None else view, seed, channels)
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def _load(self, row: int) -> Any:
        image = self.pixels[row]
        if len(image) == self.channels:
            return image
        if self.channels == 3:
            return image.expand(3, -1, -1)
        from torchvision.transforms import functional

        return functional.rgb_to_grayscale(image)


def _same(image: Any, rng: np.random.Generator) -> Any:
    return image
