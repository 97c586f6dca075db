"""Under what conditions numbers were measured: what the network saw, what it is, what computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bspml.data.transforms import standard_view
from bspml.evaluation.neighbours import find_faiss
from bspml.experiment.config import Config
from bspml.experiment.data import image_content, image_shape
from bspml.files.versions import versions_of
from bspml.networks.backbone import IMAGE_SIZE

_LIBRARIES = ("torch", "torchvision", "pytorch-metric-learning", "numpy", "scikit-learn")


def versions() -> Mapping[str, str | None]:
    """Versions of what computes the numbers; faiss is None where it is not installed."""
    faiss = find_faiss()
    found = None if faiss is None else str(faiss.__version__)
    return {**versions_of(_LIBRARIES), "faiss": found}


def seen_and_used(config: Config) -> dict[str, str]:
    """The view of a test image and the network of a run, in words."""
    data, network = config.data, config.network
    used = network.name
    if network.weights is not None:
        used += f", started from {network.weights}"
    elif network.name in ("small-conv", "mlp"):
        used += ", from scratch"
    if data.features is not None:
        used += f" on features of {data.features}"
    return {
        "test_transform": _test_transform(config),
        "backbone": f"{used}, {network.embedding_size} numbers",
    }


def in_lines(conditions: Mapping[str, Any], backend: str) -> list[str]:
    """The conditions for a terminal; `backend` is what searched, "faiss" or "torch"."""
    lines = [
        f"{name.replace('_', ' ') + ':':<16}{text}"
        for name, text in conditions.items()
        if name != "versions"
    ]
    libraries = ", ".join(
        f"{name} {number or 'not installed'}" for name, number in conditions["versions"].items()
    )
    return [*lines, f"{'searched by:':<16}{backend}", f"{'versions:':<16}{libraries}"]


def _test_transform(config: Config) -> str:
    if config.data.name == "features":
        return "none: features as they are in the file"
    size, channels = image_shape(config)
    if config.data.features is not None:  # the backbone's own size where none is given
        size = config.data.image_size or IMAGE_SIZE
    view = standard_view(size, image_content(config))
    boxes = "cropped to the annotated box, " if config.data.crop_boxes else ""
    colours = "grey" if channels == 1 else "colours"
    return f"{boxes}{view}, {colours}, values in [0, 1]"
