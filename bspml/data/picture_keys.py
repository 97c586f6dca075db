"""What each picture of a split shows, as a digest of its content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bspml.files.opening import open_regular

if TYPE_CHECKING:
    from bspml.data.retrieval import RetrievalSplit

_CHUNK = 2**24  # bytes that are hashed at a time
_THREADS = 8  # waiting for a disk goes on beside hashing


def picture_keys(
    split: RetrievalSplit, crop_boxes: bool = False, rows: Sequence[int] | None = None
) -> list[bytes]:
    """Return a digest of what each picture shows: the bytes of its file, or its pixels.

    Where it lies and what it is called does not count: pictures that are moved, copied, or read by
    another command as part of another folder stay themselves.

    Args:
        split: N images, in files or in memory.
        crop_boxes: whether the annotated boxes are looked at.
        rows: R pictures to look at; None for all.

    Returns:
        N (or R) times 32 hexadecimal digits.

    Raises:
        DataError: a file cannot be read; names it.

    Example:
        >>> import torch
        >>> from bspml.data.retrieval import RetrievalSplit
        >>> pixels = torch.zeros(3, 1, 8, 8)
        >>> pixels[1] = 1
        >>> split = RetrievalSplit("train", np.array(["a", "b", "b"]), pixels=pixels)
        >>> black, white, copy = picture_keys(split)
        >>> black == copy, black == white
        (True, False)
    """
    if split.pixels is not None:
        pixels = split.pixels if rows is None else split.pixels[list(rows)]
        return [_pixels_key(image.detach().cpu().numpy()) for image in pixels]
    assert split.paths is not None  # split.images() has checked it
    root, boxes = split.root, split.boxes if crop_boxes else None
    assert root is not None

    def key(row: int) -> bytes:
        digest = _file_digest(root / paths[row])
        if boxes is not None:
            digest.update(b"box" + np.asarray(boxes[row], dtype="<f8").tobytes())
        return digest.hexdigest().encode()

    paths = split.paths
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(key, range(len(paths)) if rows is None else rows))


def keys_in(root: Path | None, names: Sequence[str] | None, rows: Sequence[int]) -> list[str]:
    """Return a digest of the file of each sample, '' where there is none.

    Args:
        root: the folder that names are files in, or None for no files.
        names: N paths in it, or None.
        rows: of the samples to look at.

    Raises:
        DataError: a file cannot be read; names it.
    """
    files = [os.path.join(root or "", names[row] if names else "") for row in rows]  # noqa: PTH118
    # Not Path.is_file, which raises on odd names.
    is_there = [root is not None and os.path.isfile(file) for file in files]  # noqa: PTH113
    return [
        str(_file_digest(f).hexdigest()) if x else "" for f, x in zip(files, is_there, strict=True)
    ]


def _file_digest(path: Any) -> Any:
    digest = _digest()
    with open_regular(path, "an image", missing="is missing.") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest


def _pixels_key(pixels: np.ndarray) -> bytes:
    digest = _digest()
    digest.update(f"pixels {pixels.dtype.str} {pixels.shape} ".encode())
    digest.update(np.ascontiguousarray(pixels).tobytes())
    return digest.hexdigest().encode()


def _digest() -> Any:
    return hashlib.blake2b(digest_size=16)
