"""Networks by name, as a configuration or a command line names them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from bspml.data.transforms import View, standard_view
from bspml.errors import InputError
from bspml.networks import efficientnet_lite, freezing
from bspml.networks.backbone import IMAGE_SIZE, Backbone
from bspml.networks.mlp import MLPHead
from bspml.networks.small_conv import SmallConvNet
from bspml.networks.timm_models import load_timm, timm_view
from bspml.networks.torchvision_models import load_torchvision
from bspml.networks.weights_file import load_weights
from bspml.tensors.arguments import check_flags, check_kind
from bspml.tensors.checks import check_whole

_BACKBONES = f"{efficientnet_lite.NAME}, torchvision:MODEL or timm:MODEL"

WeightsFile = str | os.PathLike[str] | None


def build_network(
    name: str,
    embedding_size: int = 128,
    *,
    in_channels: int = 1,
    weights: WeightsFile = None,
    seed: int = 0,
    pooling: str | None = None,
    freeze_batchnorm: bool = False,
    **options: Any,
) -> nn.Module:
    """Build a network by name, initialised from `seed` alone.

    The global random state is left as it was, and does not matter.

    Args:
        name: "small-conv" (`SmallConvNet`); "mlp" (`MLPHead`, `in_channels` is the feature width);
            "efficientnet-lite0" (pretrained, from two pip packages); "torchvision:MODEL", a
            torchvision classifier such as "torchvision:resnet50", its last layer replaced; or
            "timm:MODEL", likewise.
        embedding_size: D.
        in_channels: for "small-conv" and "mlp"; the others take grey and RGB images alike.
        weights: a file saved by `torch.save(network.state_dict(), file)`: for "small-conv", of
            the same network, its head too (`bspml.load(RUN).model` is one); for
            "torchvision:MODEL" and "timm:MODEL", of the classifier, whose last layer may have any
            number of classes or be absent.  None starts from random weights.  Nothing is
            downloaded.
        seed: of the initial weights.
        pooling: of a backbone's last maps, "avg" or "gem" (`GeM`); None leaves its own: the
            average in most convolutional networks, a token in most transformers.
        freeze_batchnorm: keep the batch normalisations at the statistics in the weights; see
            `freeze_batchnorm`.
        options: further arguments of `SmallConvNet` (`channels`) or `MLPHead` (`hidden`).

    Returns:
        The network, on the CPU, in train mode.

    Raises:
        InputError: unknown name, option, pooling or model.
        DataError: `weights` is missing, damaged, or of another model.
        MissingDependencyError: the packages of "efficientnet-lite0", or timm, are absent.
    """
    check_flags(freeze_batchnorm=freeze_batchnorm)
    check_kind(name, "name", str, "the name of a network")
    embedding_size = check_whole(embedding_size, "embedding_size")
    with seeded(check_whole(seed, "seed", low=0)):
        if name in ("small-conv", "mlp"):
            _refuse_options(name, pooling=pooling)
            net = _built_here(name, embedding_size, in_channels, options)
            if name == "mlp":
                _refuse_options(name, weights=weights, freeze_batchnorm=freeze_batchnorm or None)
            elif weights is not None:
                load_weights(net, weights)
        else:
            _refuse_options(name, **options)
            backbone = _find_backbone(name, weights)
            if backbone is None:
                raise InputError(f"`name` must be small-conv, mlp, {_BACKBONES}; got {name!r}.")
            if pooling is not None:
                backbone = backbone.with_pooling(pooling)
            net = backbone.with_head(embedding_size)
    if freeze_batchnorm:
        freezing.freeze_batchnorm(net)
    return net


def feature_network(backbone: str, weights: WeightsFile = None) -> nn.Module:
    """Return a pretrained backbone that returns its features (B, F), without a last layer.

    It takes pixels (B, 3, H, W) in [0, 1], and shifts and scales them as it was trained: give it no
    normalised ones.

    Args:
        backbone: "efficientnet-lite0", "torchvision:MODEL" or "timm:MODEL".
        weights: file of its weights, see `build_network`; None for "efficientnet-lite0".

    Returns:
        The network, on the CPU, in evaluation mode, without gradients.

    Raises:
        InputError: unknown backbone, or weights missing.
        DataError, MissingDependencyError: see `build_network`.
    """
    if backbone != efficientnet_lite.NAME and _family(backbone) is None:
        raise InputError(f"`backbone` must be {_BACKBONES}; got {backbone!r}.")
    if backbone != efficientnet_lite.NAME and weights is None:
        raise InputError(
            f"`backbone` {backbone} needs `weights`, a file of its state dict: untrained features "
            "judge nothing, and bspml downloads nothing."
        )
    with seeded(0):  # the classifier's random weights are not used, but would move the global
        net = _find_backbone(backbone, weights)
    assert net is not None
    return net.without_head()


def view_for(backbone: str | None, image_size: int | None, content: str = "photo") -> View:
    """Return how images are shown to a backbone at test time.

    Photographs as timm shows them to "timm:MODEL"; anything else by `standard_view`.

    Args:
        backbone: its name, or None for a network of no family.
        image_size: side in pixels; None: the one that the backbone was trained on, 224 for most.
        content: what the images show.

    Raises:
        InputError, MissingDependencyError: see `timm_models.timm_view`.
    """
    family, model = _family(backbone or "") or ("", "")
    if image_size is not None:
        check_whole(image_size, "image_size")
    if family != "timm":
        return standard_view(IMAGE_SIZE if image_size is None else image_size, content)
    view = timm_view(model, image_size)
    return view if content == "photo" else standard_view(view.image_size, content)


def _built_here(
    name: str, embedding_size: int, in_channels: int, options: dict[str, Any]
) -> nn.Module:
    try:
        if name == "mlp":
            return MLPHead(in_channels, embedding_size, **options)
        return SmallConvNet(embedding_size, in_channels=in_channels, **options)
    except TypeError as err:
        raise InputError(f"`options` of network {name!r}: {err}.") from err


def _find_backbone(name: str, weights: WeightsFile) -> Backbone | None:
    """The backbone of that name with its weights, or None if it is no backbone's name."""
    if name == efficientnet_lite.NAME:
        _refuse_options(name, weights=weights)
        return efficientnet_lite.load_efficientnet_lite()
    family, model = _family(name) or ("", "")
    if family == "torchvision":
        return load_torchvision(model, weights)
    return load_timm(model, weights) if family == "timm" else None


def _family(name: str) -> tuple[str, str] | None:
    """("torchvision" or "timm", model), or None."""
    family, _, model = name.partition(":")
    return (family, model) if family in ("torchvision", "timm") and model else None


def _refuse_options(name: str, **options: Any) -> None:
    option_names = [key for key, value in options.items() if value is not None]
    if option_names:
        raise InputError(f"network {name!r} does not take `{option_names[0]}`. Leave it out.")


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Let the global generators run from `seed` inside; afterwards they are as before.

    Args:
        seed: of the CPU's generator, and of the GPU's where `device` is one.
        device: what draws inside, besides the CPU.
    """
    on_cuda = device is not None and device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_cuda else []):
        # Not torch.manual_seed: that would reseed the accelerators too, which are not forked here.
        torch.random.default_generator.manual_seed(seed)
        if on_cuda:
            torch.cuda.manual_seed(seed)
        yield
