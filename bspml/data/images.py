"""Decoding of image files to 8-bit pixels, and errors that name the file."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bspml.errors import DataError
from bspml.files.folders import IMAGE_SUFFIXES, is_image_name
from bspml.files.opening import open_regular
from bspml.files.run import RunFolder
from bspml.words import counted

SUFFIXES = IMAGE_SUFFIXES

_OF_A_RUN = {RunFolder(Path()).config.name, RunFolder(Path()).records.name}
_ORIENTATION = 0x0112  # EXIF's tag


def folders_inside(root: str | os.PathLike[str], paths: Sequence[str]) -> str:
    """Return a hint where all images lie in folders of the one folder right in `root`, else ''.

    Args:
        root: the folder.
        paths: of its images, relative to it.

    Example:
        >>> folders_inside("data", ["photos/wren/1.jpg", "photos/owl/2.jpg"])
        ' If owl, wren are the classes, name data/photos.'
    """
    parts = [path.split("/") for path in paths]
    inside = sorted({part[1] for part in parts if len(part) > 2})
    if len({part[0] for part in parts}) != 1 or len(inside) < 2:
        return ""
    named = ", ".join(inside[:3]) + ", ..." * (len(inside) > 3)
    return f" If {named} are the classes, name {Path(root) / parts[0][0]}."


def find_images(root: Path) -> list[str]:
    """List the images below `root`: sorted paths relative to it, with forward slashes.

    Hidden files (`._x.jpg`, `.DS_Store`), hidden folders and the folders of runs, whose figures are
    no photos, are passed over; upper-case suffixes count.  Links to images and to folders are
    followed, but for one back to a folder on the way to it.

    Raises:
        DataError: a link leads nowhere; it may have been a class.
    """
    images = []
    came_by = {os.fspath(root): [_real(root)]}
    for folder, below, files in os.walk(root, followlinks=True):
        way = came_by.pop(folder)
        if {*files} >= _OF_A_RUN:
            below[:], files = [], []  # passed over, with the folders in it
        found = {n: _real(Path(folder, n)) for n in sorted(below) if not n.startswith(".")}
        below[:] = [n for n, real in found.items() if not any(w.startswith(real) for w in way)]
        came_by |= {os.path.join(folder, n): [*way, found[n]] for n in below}  # noqa: PTH118
        files = [name for name in files if not name.startswith(".")]
        dead = [f for f in files if not is_image_name(f) and not Path(folder, f).exists()]
        if dead:
            raise DataError(
                f"{folder}: {counted(len(dead), 'link leads', 'links lead')} nowhere, such as "
                f"{dead[0]}. Mend or remove such links."
            )
        relative = Path(folder).relative_to(root)
        images += [(relative / name).as_posix() for name in files if is_image_name(name)]
    return sorted(images)


def _real(folder: Path) -> str:
    return os.path.join(os.path.realpath(folder), "")  # noqa: PTH118  (ends in a separator)


def read_image(
    path: Path,
    channels: int = 3,
    box: Sequence[float] | None = None,
    needed_side: int | None = None,
) -> Any:
    """Decode an image file to a Pillow image of mode "L" (1 channel) or "RGB" (3), see `to_mode`.

    It stands as the camera was held (EXIF orientation), as in a browser.  Of several frames, as in
    an animated GIF, it is the first.

    Args:
        path: the file.
        channels: 1 or 3.
        box: left, top, right, bottom in pixels of the upright image; rounded outwards, cut at the
            image's border.
        needed_side: pixels that each side needs; a JPEG, quicker to decode at a part of its size,
            may come with fewer than it has.  Not with a box.  None: all.

    Raises:
        DataError: missing, a pipe or a device, damaged, or a box that misses the image; names the
            file.
    """
    remedy = "Remove or replace it."
    # Decoders raise what they like on damage: SyntaxError, zlib.error.
    with open_regular(path, "an image", missing="is missing.", remedy=remedy, faults=(Exception,)):
        try:
            with open_image(path) as image:
                if needed_side is not None:
                    image.draft(None, (needed_side, needed_side))
                image.load()  # turns a TIFF already
                upright = turned(image, orientation(image))
                pixels = to_mode(upright, "L" if channels == 1 else "RGB")
        except DataError as err:
            raise ValueError(str(err)) from err
    if box is None:
        return pixels
    corners = inside(box, pixels.size)
    if corners is None:
        shown = ", ".join(f"{value:g}" for value in box)
        raise DataError(
            f"{path}: its box ({shown}) holds no pixel of the image, which is {pixels.size[0]} x "
            f"{pixels.size[1]}. Correct the annotation, or do without boxes."
        )
    return pixels.crop(corners)


def open_image(path: Path) -> Any:
    """Open an image with Pillow, by its path, which Pillow's messages name; decodes nothing yet.

    Raises:
        ValueError: it is PostScript, of whatever name, which Pillow would have Ghostscript run.
        Exception: whatever Pillow raises on what is no image.
    """
    from PIL import Image

    image = Image.open(path)
    if image.format == "EPS":
        image.close()
        raise ValueError("it is PostScript, a program, which is not run")
    return image


def orientation(image: Any) -> int:
    """Return the EXIF orientation of a Pillow image, 1 (upright) to 8; 1 where none can be read."""
    value = 1
    with contextlib.suppress(Exception):  # a damaged note does not make a damaged picture
        value = image.getexif().get(_ORIENTATION, 1)
    return value if value in range(1, 9) else 1


def turned(image: Any, orientation: int) -> Any:
    """Return a Pillow image as its EXIF orientation says that it is meant to stand.

    Not `ImageOps.exif_transpose`, which fails on a damaged note.

    Args:
        image: as it is stored.
        orientation: 1 to 8.

    Example:
        >>> from PIL import Image
        >>> turned(Image.new("L", (40, 20)), 6).size
        (20, 40)
    """
    from PIL.Image import Transpose

    turns = (
        *(None, Transpose.FLIP_LEFT_RIGHT, Transpose.ROTATE_180, Transpose.FLIP_TOP_BOTTOM),
        *(Transpose.TRANSPOSE, Transpose.ROTATE_270, Transpose.TRANSVERSE, Transpose.ROTATE_90),
    )
    turn = turns[orientation - 1]
    return image if turn is None else image.transpose(turn)


def upright_size(image: Any) -> tuple[int, int]:
    """Return width and height of a Pillow image as it is meant to stand, without decoding it."""
    width, height = image.size
    return (height, width) if orientation(image) >= 5 else (width, height)


def inside(box: Sequence[float], size: tuple[int, int]) -> tuple[int, int, int, int] | None:
    """Return the part of a box that lies within its image.

    Args:
        box: left, top, right, bottom in pixels.
        size: width and height of the image.

    Returns:
        Left, top, right, bottom in whole pixels, rounded outwards; None if no pixel is left.

    Example:
        >>> inside((-3, 1.5, 4.2, 9), (10, 8)), inside((11, 0, 12, 1), (10, 8))
        ((0, 1, 5, 8), None)
    """
    left, top, right, bottom = (float(value) for value in box)
    if not all(map(math.isfinite, (left, top, right, bottom))):
        return None
    corners = (
        max(math.floor(left), 0),
        max(math.floor(top), 0),
        min(math.ceil(right), size[0]),
        min(math.ceil(bottom), size[1]),
    )
    return corners if corners[0] < corners[2] and corners[1] < corners[3] else None


def to_pixels(image: Any) -> Tensor:
    """Convert a Pillow image of mode "L" or "RGB" to (channels, H, W) uint8."""
    values = torch.from_numpy(np.array(image))
    return values[None] if values.ndim == 2 else values.permute(2, 0, 1).contiguous()


def to_mode(image: Any, mode: str) -> Any:
    """Convert a Pillow image to 8 bits a channel.

    Pillow's own conversion cuts values off at 255, which makes a 16-bit image white.  Here:

    - grey of 16 bits, or integers of 32 bits, which is how some formats hold 16: 0..65535 becomes
      0..255 (divided by 257, rounded).  Integers outside are refused.
    - grey floats: 0..1 becomes 0..255.  Floats outside are refused.
    - transparency is dropped: what lies under it shows.
    - the rest (grey, palettes, RGB, CMYK, YCbCr, one bit) is converted by Pillow.

    Args:
        image: of any mode.
        mode: "L" or "RGB".

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
