"""A folder of images: one sub-folder per class, or all in one place."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from bspml.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


class ImageFolder(Dataset[Tensor]):
    """Images under `root`, in sorted order, as float tensors in [0, 1].

    Hidden files (`._x.jpg`, `.DS_Store`) and hidden folders are passed over; upper-case suffixes
    count.  The sub-folder right under `root` is the label.

    Args:
        root: the folder.
        image_size: side in pixels; images are resized to a square.
        channels: 1 for grey, 3 for RGB; images of any mode are converted.

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
        self.paths = sorted(self._find())
        if not self.paths:
            raise DataError(f"{root}: holds no image ({', '.join(SUFFIXES[:4])}, ...).")
        self.labels = np.array([p.split("/")[0] if "/" in p else "" for p in self.paths])

    def _find(self) -> list[str]:
        found = []
        for folder, below, files in os.walk(self.root):
            below[:] = sorted(name for name in below if not name.startswith("."))
            relative = Path(folder).relative_to(self.root)
            found += [
                (relative / name).as_posix()
                for name in files
                if not name.startswith(".") and name.lower().endswith(SUFFIXES)
            ]
        return found

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, sample_index: int) -> Tensor:
        from PIL import Image, UnidentifiedImageError

        path = self.root / self.paths[sample_index]
        try:
            with Image.open(path) as image:
                mode = "L" if self.channels == 1 else "RGB"
                size = (self.image_size, self.image_size)
                pixels = np.asarray(image.convert(mode).resize(size, Image.Resampling.BILINEAR))
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as err:
            raise DataError(
                f"{path}: cannot be read as an image ({err}). Remove or replace it."
            ) from err
        tensor = torch.from_numpy(pixels.copy()).float() / 255
        return tensor[None] if self.channels == 1 else tensor.permute(2, 0, 1).contiguous()
