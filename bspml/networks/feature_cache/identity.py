"""What a feature depends on: the picture, the network, and how the one is shown to the other."""

from __future__ import annotations

import contextlib
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from bspml.data.retrieval import RetrievalSplit
from bspml.data.transforms import View
from bspml.errors import MissingDependencyError
from bspml.files.opening import open_regular
from bspml.networks import efficientnet_lite

_VERSION = 2  # raise it whenever features change, so that they are made anew
_CHUNK = 2**24  # bytes that are hashed at a time
_THREADS = 8  # waiting for a disk goes on beside hashing


@dataclass(frozen=True)
class FeatureSource:
    """What makes features of images, and how it is shown them.

    Attributes:
        backbone: "efficientnet-lite0", "torchvision:MODEL" or "timm:MODEL".
        weights: file of its weights, see `bspml.networks.build_network`.
        image_size: side in pixels; None is 224.
        crop_boxes: look at the annotated boxes only.
    """

    backbone: str
    weights: str | os.PathLike[str] | None = None
    image_size: int | None = None
    crop_boxes: bool = False


def identity_of(source: FeatureSource, view: View) -> dict[str, Any]:
    """Return what the features of every picture depend on, in words; the weights as a digest.

    Args:
        source: of the features.
        view: what is shown of each picture.
    """
    return {
        "version": _VERSION,
        "backbone": source.backbone,
        "weights": _weights_digest(source),
        "view": str(view),
    }


def _weights_digest(source: FeatureSource) -> str | None:
    file = source.weights
    if file is None and source.backbone == efficientnet_lite.NAME:
        with contextlib.suppress(MissingDependencyError):  # whoever loads the network says so
            file = efficientnet_lite.weights_file()
    if file is None:
        return None
    digest = hashlib.sha256()
    with open_regular(file, "a file of weights", where=f"`weights`: {file}") as opened:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def picture_keys(split: RetrievalSplit, crop_boxes: bool = False) -> list[bytes]:
    """Return a digest of what each picture shows: the bytes of its file, or its pixels.

    Where it lies and what it is called does not count: pictures that are moved, copied, or read by
    another command as part of another folder stay themselves.

    Args:
        split: N images, in files or in memory.
        crop_boxes: whether the annotated boxes are looked at.

    Returns:
        N times 32 hexadecimal digits.

    Raises:
        DataError: a file cannot be read; names it.

    Example:
        >>> import torch
        >>> pixels = torch.zeros(3, 1, 8, 8)
        >>> pixels[1] = 1
        >>> split = RetrievalSplit("train", np.array(["a", "b", "b"]), pixels=pixels)
        >>> black, white, copy = picture_keys(split)
        >>> black == copy, black == white
        (True, False)
    """
    if split.pixels is not None:
        return [_pixels_key(image.detach().cpu().numpy()) for image in split.pixels]
    assert split.paths is not None  # split.images() has checked it
    root, boxes = split.root, split.boxes if crop_boxes else None
    assert root is not None

    def key(row: int) -> bytes:
        digest = _digest()
        with open_regular(root / paths[row], "an image", missing="is missing.") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        if boxes is not None:
            digest.update(b"box" + np.asarray(boxes[row], dtype="<f8").tobytes())
        return digest.hexdigest().encode()

    paths = split.paths
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(key, range(len(paths))))


def _pixels_key(pixels: np.ndarray) -> bytes:
    digest = _digest()
    digest.update(f"pixels {pixels.dtype.str} {pixels.shape} ".encode())
    digest.update(np.ascontiguousarray(pixels).tobytes())
    return digest.hexdigest().encode()


def _digest() -> Any:
    return hashlib.blake2b(digest_size=16)
