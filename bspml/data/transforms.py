"""From an image of any size to a square: the field's standard views, each a pure function.

Retrieval papers train on a random resized crop of 224 pixels, mirrored half of the time, and test
on the centre crop of 224 after resizing the shorter side to 256 [Musgrave 2020].  Pictures that
fill their frame, and written characters, are not cropped at test time, and a character is never
mirrored: b is not d.

What is random in a view is drawn by `draws(seed, epoch, sample_index)`, so that a sample looks the
same in an epoch whatever the order, the workers or the epochs before it: a run that is resumed
sees the same pictures.  torchvision's own classes draw from the global generator and are therefore
used through their functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_choice, check_whole

# A view takes a Pillow image or (channels, H, W), and the generator of what is random in it.
View = Callable[[Any, np.random.Generator], Any]

CONTENTS = ("photo", "tile", "character")

_RESIZE = 256 / 224  # shorter side before the centre crop, over the crop's side
_ATTEMPTS = 10  # to find a crop that fits, as torchvision's


def draws(seed: int, epoch: int, sample_index: int) -> np.random.Generator:
    """Return the generator of what is random in the view of one sample in one epoch.

    Args:
        seed: of the views.
        epoch: from 0.
        sample_index: row in the split.
    """
    return np.random.default_rng((seed, epoch, sample_index))


@dataclass(frozen=True)
class Whole:
    """The whole image, resized to a square without regard to its shape (bilinear)."""

    image_size: int

    def __call__(self, image: Any, rng: np.random.Generator | None = None) -> Any:
        """Deterministic; `rng` is not used."""
        return _resize(image, [self.image_size, self.image_size])

    def __str__(self) -> str:
        return f"whole image resized to {self.image_size} x {self.image_size}"


@dataclass(frozen=True)
class CentreCrop:
    """The centre, after resizing the shorter side.

    Attributes:
        image_size: side of the crop in pixels.
        resize: the shorter side before it; None: `image_size` * 256 / 224.
        interpolation: "bilinear", "bicubic" or another of torchvision's.
        squash: resize both sides to `resize`, without regard to the image's shape.
    """

    image_size: int
    resize: int | None = None
    interpolation: str = "bilinear"
    squash: bool = False

    @property
    def _side(self) -> int:
        return round(self.image_size * _RESIZE) if self.resize is None else self.resize

    def __call__(self, image: Any, rng: np.random.Generator | None = None) -> Any:
        """Deterministic; `rng` is not used."""
        from torchvision.transforms import functional

        sides = [self._side] * (2 if self.squash else 1)
        resized = _resize(image, sides, self.interpolation)
        return functional.center_crop(resized, [self.image_size, self.image_size])

    def __str__(self) -> str:
        sides, size = "both sides" if self.squash else "shorter side", self.image_size
        kind = "" if self.interpolation == "bilinear" else f" ({self.interpolation})"
        return f"{sides} resized to {self._side}{kind}, centre crop of {size} x {size}"


@dataclass(frozen=True)
class RandomCrop:
    """A random part of the image, resized to a square, perhaps mirrored.

    The part's area, as a share of the image's, is uniform in `scale`; the logarithm of its width
    over height is uniform in the logarithms of `ratio`.  If no such part fits in ten attempts,
    the centre in the nearest shape.  Both as torchvision's RandomResizedCrop.
    """

    image_size: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    mirror: bool = True

    def __call__(self, image: Any, rng: np.random.Generator) -> Any:
        """One view; the same generator state gives the same one."""
        from torchvision.transforms import functional

        height, width = image.shape[-2:] if isinstance(image, Tensor) else image.size[::-1]
        top, left, height, width = self.part(width, height, rng)
        side = [self.image_size, self.image_size]
        cropped = functional.crop(image, top, left, height, width)
        flipped = self.mirror and rng.random() < 0.5
        resized = _resize(cropped, side)
        return functional.hflip(resized) if flipped else resized

    def part(self, width: int, height: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
        """Draw the part of an image to show.

        Args:
            width: of the image, in pixels.
            height: likewise.
            rng: to draw from.

        Returns:
            Top, left, height and width of the part, in pixels.
        """
        low, high = (math.log(value) for value in self.ratio)
        for _ in range(_ATTEMPTS):
            area = width * height * rng.uniform(*self.scale)
            shape = math.exp(rng.uniform(low, high))
            w, h = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if 0 < w <= width and 0 < h <= height:
                top, left = rng.integers(height - h + 1), rng.integers(width - w + 1)
                return int(top), int(left), h, w
        w = min(width, max(1, round(height * self.ratio[1])))
        h = min(height, max(1, round(width / self.ratio[0])))
        return (height - h) // 2, (width - w) // 2, h, w


def standard_view(image_size: int, content: str = "photo", augment: bool = False) -> View:
    """Return the view that a data set is trained with (`augment`) or tested with.

    | content | to train | to test |
    |---|---|---|
    | photo | 8 to 100 % of the image, mirrored or not | resize, centre crop |
    | tile: the object fills the frame | 50 to 100 %, mirrored or not; our choice | whole |
    | character | 70 to 100 %, nearly square; our choice | whole |

    Args:
        image_size: side in pixels, 224 in most papers.
        content: what the images show.
        augment: True to train.

    Raises:
        InputError: a size below 1, or another content.
    """
    check_flags(augment=augment)
    check_whole(image_size, "image_size", low=1)
    check_choice(content, "content", CONTENTS)
    if not augment:
        return CentreCrop(image_size) if content == "photo" else Whole(image_size)
    if content == "photo":
        return RandomCrop(image_size)
    if content == "tile":
        return RandomCrop(image_size, scale=(0.5, 1.0))
    return RandomCrop(image_size, scale=(0.7, 1.0), ratio=(0.9, 1 / 0.9), mirror=False)


def _resize(image: Any, size: list[int], interpolation: str = "bilinear") -> Any:
    """To (height, width), or, of one number, the shorter side to it; antialiased."""
    from torchvision.transforms import InterpolationMode, functional

    mode = InterpolationMode(interpolation)
    resized = functional.resize(image, size, mode, antialias=True)
    if isinstance(resized, Tensor) and resized.is_floating_point() and interpolation != "bilinear":
        return resized.clamp(0, 1)  # beside an edge, bicubic goes beyond
    return resized
