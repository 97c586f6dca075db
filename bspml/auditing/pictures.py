"""Small pictures for the page, from files that the samples are named after or from pixels."""

from __future__ import annotations

import base64
import io
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bspml.data.images import read_image
from bspml.errors import DataError, InputError
from bspml.files.arrays import text_objects
from bspml.files.folders import file_in, is_image_name
from bspml.tensors.checks import as_numbers

_SIDE = 96  # pixels of the longer side
# Pictures are put into the page, so that it can be moved and mailed, until it is this heavy;
# later ones are links to the files.
_BUDGET = 8 * 2**20


class PagePictures:
    """Pictures by sample index, as data URIs or as links from the page.

    Args:
        images: None; a folder that `names` are files in; or pixels (N, channels, H, W) in [0, 1].
        names: (N,) text.
        page_folder: folder of the page, from where links start.
        known: {sample: data URI or path} to show where `images` is None.

    Raises:
        InputError: pixels of another shape.
        DataError: no such folder, or none of the names is a file in it.
    """

    def __init__(
        self,
        images: Any,
        names: np.ndarray,
        page_folder: Path,
        known: Mapping[int, str] | None = None,
    ) -> None:
        self.names, self.page_folder, self.known = names, page_folder, known or {}
        self.spent = 0
        self.pixels: torch.Tensor | None = None
        self.root: Path | None = None
        self._made: dict[int, str | None] = {}
        if images is None:
            return
        if isinstance(images, str | os.PathLike):
            if not os.fspath(images):
                raise DataError("the name of the folder of images is empty; name one.")
            self.root = Path(images)
            self._check_root()
            return
        must = f"a folder or pixels (N, channels, H, W), N = {len(names)}"
        remedy = "Name the folder that the samples' names are files in."
        self.pixels = as_numbers(images, "images", must, remedy).detach().cpu()
        if self.pixels.ndim != 4 or len(self.pixels) != len(names):
            raise InputError(f"`images` must be {must}; got {tuple(self.pixels.shape)}.")

    def _check_root(self) -> None:
        assert self.root is not None
        if not os.path.isdir(self.root):  # noqa: PTH112 - Path.is_dir raises on odd names
            raise DataError(f"{self.root}: no such folder of images.")
        if not any(self._file(i) for i in range(len(self.names))):
            first = next((str(name) for name in self.names if name), None)
            hint = f"the first is {first!r}" if first else "the samples have no names"
            raise DataError(
                f"{self.root}: none of the samples' names is a file in it; {hint}. Names are paths "
                "relative to the folder of images, and links out of it are not followed."
            )

    def __call__(self, sample_index: int) -> str | None:
        """Return a data URI, a path relative to the page, or None."""
        if sample_index not in self._made:
            self._made[sample_index] = self._make(sample_index)
        return self._made[sample_index]

    def _make(self, sample_index: int) -> str | None:
        if self.pixels is not None:
            if self.spent >= _BUDGET:
                return None
            return self._embed(_from_pixels(self.pixels[sample_index]), "PNG")
        if self.root is None:
            image = self.known.get(sample_index)
            return image if image is None or image.startswith("data:") else self._link(image)
        path = self._file(sample_index)
        if path is None:
            return None
        if self.spent < _BUDGET:
            small = small_picture(path)
            if small is not None:
                return self._embed(small, "JPEG")
        # A page is read again only if its links lead to pictures.
        return self._link(path) if is_image_name(path.name) else None

    @property
    def folder(self) -> str | None:
        """Where the names are files, as a path relative to the page; None where they are not."""
        return None if self.root is None else self._link(self.root)

    def files(self) -> dict[int, Path]:
        """Return {sample index: its file} of the samples whose name is a file."""
        found = {i: self._file(i) for i in range(len(self.names))} if self.root else {}
        return {i: path for i, path in found.items() if path is not None}

    def _link(self, path: str | Path) -> str | None:
        try:
            return Path(os.path.relpath(path, self.page_folder)).as_posix()
        except ValueError:  # another drive
            return None

    def _file(self, sample_index: int) -> Path | None:
        return None if self.root is None else file_in(self.root, str(self.names[sample_index]))

    def _embed(self, image: Any, kind: str) -> str:
        content = io.BytesIO()
        image.save(content, kind, quality=75)
        text = base64.b64encode(content.getvalue()).decode()
        self.spent += len(text)
        return f"data:image/{kind.lower()};base64,{text}"


def check_pictures(images: Any, names: Sequence[str] | None, n: int) -> None:
    """Refuse what `PagePictures` would, before anything is made of it.

    Args:
        images: see `PagePictures`.
        names: of the samples, None for none.
        n: samples.

    Raises:
        InputError: pixels of another shape.
        DataError: no such folder, or none of the names is a file in it.
    """
    PagePictures(images, text_objects([""] * n if names is None else names), Path())


def _from_pixels(pixels: torch.Tensor) -> Any:
    from PIL import Image

    bytes_ = (pixels.float().clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    image = Image.fromarray(bytes_[..., 0] if bytes_.shape[2] == 1 else bytes_[..., :3])
    image.thumbnail((_SIDE, _SIDE))
    return image


def small_picture(path: Path, side: int = _SIDE) -> Any | None:
    """Return a small RGB image, or None if the file cannot be read as one.

    Args:
        path: of the file.
        side: pixels of the longer side at most.
    """
    try:
        with warnings.catch_warnings():
            # What decoders remark on damaged files is not for whoever asked about labels.
            warnings.simplefilter("ignore")
            small = read_image(path, needed_side=2 * side)
    except DataError:
        return None
    small.thumbnail((side, side))
    return small
