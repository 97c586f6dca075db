"""What a feature depends on: the picture, the network, and how the one is shown to the other."""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from typing import Any

from bspml.data.picture_keys import picture_keys as picture_keys
from bspml.data.transforms import View
from bspml.errors import MissingDependencyError
from bspml.files.opening import open_regular
from bspml.networks import efficientnet_lite

_VERSION = 2  # raise it whenever features change, so that they are made anew
_CHUNK = 2**24  # bytes that are hashed at a time


@dataclass(frozen=True)
class FeatureSource:
    """What makes features of images, and how it is shown them.

    Attributes:
        backbone: "efficientnet-lite0", "torchvision:MODEL" or "timm:MODEL".
        weights: file of its weights, see `bspml.networks.build_network`.
        image_size: side in pixels; None is 224, or what a model of timm was trained on.
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
