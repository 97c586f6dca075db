"""A folder of images: one sub-folder per class, or all in one place."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from bspml.data.images import SUFFIXES, find_images, read_image, to_pixels
from bspml.data.transforms import Whole
from bspml.errors import DataError


class ImageFolder(Dataset[Tensor]):
    """Images under `root`, in sorted order, as float tensors in [0, 1].

    Hidden files (`._x.jpg`, `.DS_Store`) and hidden folders are passed over; upper-case suffixes
    count.  The sub-folder right under `root` is the label.

    Args:
        root: the folder.
        image_size: side in pixels; images are resized to a square.
        channels: 1 for grey, 3 for RGB; images of any mode are converted (see `to_mode`).

    Attributes:
        paths: N paths relative to `root`, with forward slashes.
        labels: (N,) names of the top sub-folders, '' for images right in `root`.

    Raises:
        DataError: no such folder, or no image in it.
    """

    def __init__(self, root: str | os.PathLike[str], image_size: int, channels: int = 3) -> None:
        self.root = Path(root)
        if not self.root.is_dir():
            raise DataError(f"{root}: no such folder of images.")
        self.image_size, self.channels = image_size, channels
        self.paths = find_images(self.root)
        if not self.paths:
            raise DataError(f"{root}: holds no image ({', '.join(SUFFIXES[:4])}, ...).")
        self.labels = np.array([p.split("/")[0] if "/" in p else "" for p in self.paths])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, sample_index: int) -> Tensor:
        image = read_image(self.root / self.paths[sample_index], self.channels)
        return to_pixels(Whole(self.image_size)(image)).float() / 255
