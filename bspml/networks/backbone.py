"""A network that someone else trained: its pixels, its features, and a layer of ours at its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bspml.errors import InputError
from bspml.networks.pooling import make_pooling
from bspml.shapes import Float, Tensor

Channels = tuple[float, float, float]

IMAGE_SIZE = 224  # side in pixels of what most backbones were trained on


class PretrainedNet(nn.Module):
    """A backbone trained on shifted and scaled RGB, fed with pixels in [0, 1].

    Grey images (B, 1, H, W) are shown as three equal channels.

    Args:
        backbone: maps (pixels - mean) / std, (B, 3, H, W), to embeddings (B, D).
        mean: of the three channels, in [0, 1].
        std: of the three channels.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, backbone: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.backbone = backbone
        # Constants, not state: checkpoints hold the backbone only.
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1), persistent=False)

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B D"]:
        """Return embeddings of images in [0, 1], grey or RGB."""
        return self.backbone((images - self.mean) / self.std)


@dataclass(frozen=True)
class Backbone:
    """A network with its weights, and where the layers are that we may change.

    Attributes:
        name: as in `build_network`, for messages.
        net: maps scaled RGB (B, 3, H, W) to (B, anything).
        last: dotted name of the module of `net` that takes its features (B, F).
        width: F.
        mean, std: of the pixels it was trained on, by channel, in [0, 1].
        pool: dotted name of the module that averages its last maps (B, C, H, W) over all positions;
            None if there is no such module.
        flat: whether that module returns (B, C) instead of (B, C, 1, 1).
    """

    name: str
    net: nn.Module
    last: str
    width: int
    mean: Channels
    std: Channels
    pool: str | None = None
    flat: bool = False

    def with_pooling(self, pooling: str) -> Backbone:
        """Put "avg" or "gem" in the place of its own pooling; changes `net`.

        Raises:
            InputError: another pooling, or none to replace.
        """
        replacement = make_pooling(pooling)
        if self.pool is None:
            raise InputError(
                f"`pooling`: {self.name} has no module that averages its last maps, so none can "
                "take its place. Leave `pooling` out, or use a backbone that has one, such as a "
                "ResNet, RegNet, EfficientNet or MobileNetV3."
            )
        if self.flat:
            replacement = nn.Sequential(replacement, nn.Flatten(1))
        _put(self.net, self.pool, replacement)
        return self

    def with_head(self, embedding_size: int) -> PretrainedNet:
        """Add a new linear layer from features to embeddings (B, D); changes `net`."""
        _put(self.net, self.last, nn.Linear(self.width, embedding_size))
        return PretrainedNet(self.net, self.mean, self.std)

    def without_head(self) -> PretrainedNet:
        """Return its features (B, F), nothing to train, in evaluation mode; changes `net`."""
        _put(self.net, self.last, nn.Flatten(1))
        return PretrainedNet(self.net, self.mean, self.std).requires_grad_(False).eval()


def _put(net: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, leaf = name.rpartition(".")
    setattr(net.get_submodule(parent), leaf, module)
