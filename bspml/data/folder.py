"""A folder of images: one sub-folder per class, or all in one place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from bspml.errors import DataError
from bspml.files import is_special

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")


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
        from PIL import Image

        path = self.root / self.paths[sample_index]
        if is_special(path):
            raise DataError(f"{path}: is a pipe or a device, not an image. Remove it.")
        try:
            with Image.open(path) as image:
                small = to_mode(image, "L" if self.channels == 1 else "RGB")
                size = (self.image_size, self.image_size)
                pixels = np.asarray(small.resize(size, Image.Resampling.BILINEAR))
        except Exception as err:  # decoders raise what they like on damage: SyntaxError, zlib.error
            reason = str(err) or type(err).__name__
            raise DataError(
                f"{path}: cannot be read as an image ({reason}). Remove or replace it."
            ) from err
        tensor = torch.from_numpy(pixels.copy()).float() / 255
        return tensor[None] if self.channels == 1 else tensor.permute(2, 0, 1).contiguous()


def to_mode(image: Any, mode: str) -> Any:
    """A Pillow image in 8 bits a channel, `mode` "L" or "RGB".

    Pillow's own conversion cuts values off at 255, which makes a 16-bit image white.  Here:

    - grey of 16 bits, or integers of 32 bits, which is how some formats hold 16: 0..65535 becomes
      0..255 (divided by 257, rounded).  Integers outside are refused.
    - grey floats: 0..1 becomes 0..255.  Floats outside are refused.
    - transparency is dropped: what lies under it shows.
    - the rest (grey, palettes, RGB, CMYK, YCbCr, one bit) is converted by Pillow.

    Raises:
        DataError: integers or floats outside those ranges, NaN.
    """
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        top = 1 if image.mode == "F" else 65535
        values = np.asarray(image, dtype=np.float64)
        if not (values.min() >= 0 and values.max() <= top):  # NaN compares false
            raise DataError(
                f"its values span {values.min():g} to {values.max():g}; expected 0 to {top}, or 8 "
                "bits a channel"
            )
        image = Image.fromarray(np.rint(values * (255 / top)).astype(np.uint8))
    elif image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # else Pillow warns
    return image.convert(mode)
