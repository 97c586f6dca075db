"""Models of timm, with weights from a file of the user's.  Nothing is downloaded."""

from __future__ import annotations

import difflib
import math
import os
from typing import Any

from torch import nn

from bspml.data.transforms import CentreCrop
from bspml.errors import InputError, import_optional
from bspml.networks.backbone import Backbone
from bspml.networks.weights_file import load_weights


def load_timm(model: str, weights: str | os.PathLike[str] | None) -> Backbone:
    """Return the model `model`, such as "resnet50" or "resnet50.a1_in1k"; random weights if None.

    The tag after the dot says which published weights the file holds: how many classes their
    classifier has, and on which pixels they were trained.

    Args:
        model: name, with or without a tag.
        weights: file of its state dict, or None.

    Raises:
        InputError: no such model or tag.
        MissingDependencyError: timm is not installed.
        DataError: see `load_weights`.
    """
    timm = _timm_with(model)
    try:
        net = timm.create_model(model, pretrained=False)
    except (RuntimeError, ValueError) as err:
        raise InputError(f"`name`: timm cannot make {model!r}: {err}") from err
    if weights is not None:
        load_weights(net, weights, _classifiers(net))
    net.reset_classifier(0)  # features from now on, whatever the classifier was
    # Where a layer stands between pooling and classifier (MobileNetV3), its width.
    width = getattr(net, "head_hidden_size", None) or net.num_features
    settings = net.pretrained_cfg
    pool, flat = _pooling(net)
    return Backbone(
        f"timm:{model}", nn.Sequential(net, nn.Identity()), "1", width,
        tuple(settings["mean"]), tuple(settings["std"]),
        pool=None if pool is None else f"0.{pool}", flat=flat,
    )  # fmt: skip


def timm_view(model: str, image_size: int | None = None) -> CentreCrop:
    """Return how timm shows photographs to `model` at test time, by its pretrained settings.

    Args:
        model: name, with or without a tag.
        image_size: side in pixels; None: the one that it was trained on.

    Raises:
        InputError: no such model.
        MissingDependencyError: timm is not installed.
    """
    settings = _timm_with(model).get_pretrained_cfg(model)
    size = image_size or settings.input_size[-1]
    return CentreCrop(
        size,
        math.floor(size / settings.crop_pct),
        settings.interpolation,
        squash=settings.crop_mode == "squash",
    )


def _timm_with(model: str) -> Any:
    """Return the package, which has `model`."""
    timm = import_optional(
        "timm",
        f"network 'timm:{model}' needs timm, which is not installed; `pip install 'bspml[timm]'`.",
    )
    # Before create_model, which takes addresses ("hf-hub:...") too and would fetch from them.
    if not timm.is_model(model):
        hints = difflib.get_close_matches(model, timm.list_models()) or ["resnet50"]
        raise InputError(f"`name`: timm has no model {model!r}; it has {', '.join(hints)}, ...")
    return timm


def _classifiers(net: Any) -> list[str]:
    """Names of what turns features into classes: one module, or several (distilled models)."""
    layers = net.get_classifier()
    modules = layers if isinstance(layers, tuple | list) else (layers,)
    return [name for name, m in net.named_modules() if any(m is c for c in modules)]


def _pooling(net: nn.Module) -> tuple[str | None, bool]:
    """Name of the module that averages the last maps, if that is what one does; whether it is flat.

    timm has one class for it, whose `pool` averages over `dim` where it is not torch's own.
    """
    pools = [(n, m) for n, m in net.named_modules() if type(m).__name__ == "SelectAdaptivePool2d"]
    if len(pools) != 1:
        return None, False
    name, module = pools[0]
    inner: Any = getattr(module, "pool", None)
    # Transformers with channels last average over dim (1, 2).
    if tuple(getattr(inner, "dim", (2, 3))) != (2, 3):
        return None, False
    return name, isinstance(getattr(module, "flatten", None), nn.Flatten)
