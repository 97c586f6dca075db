"""The network of a classification or regression experiment, by name and from the seed alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from bspml.errors import ConfigError, InputError
from bspml.experiment.classification.resnet import CifarResNet
from bspml.experiment.config import ClassificationConfig
from bspml.networks import MLPHead, build_network
from bspml.networks.by_name import seeded
from bspml.shapes import Float, Tensor


class Standardised(nn.Module):
    """A network behind (pixels - mean) / deviation, channel by channel; one output has no axis.

    Args:
        network: maps standardised images (B, channels, H, W) to outputs (B, C).
        mean: of the channels of the training images.
        deviation: likewise, above 0.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, network: nn.Module, mean: Sequence[float], deviation: Sequence[float]
    ) -> None:
        super().__init__()
        self.network = network
        # Constants of the data, not state.
        shape = (1, -1, 1, 1)
        self.register_buffer("mean", torch.tensor(mean).view(shape), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation).view(shape), persistent=False)

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Tensor:
        """Return (B, C) logits, or (B,) numbers of a network with one output."""
        outputs = self.network((images - self.mean) / self.deviation)
        return outputs.squeeze(1) if outputs.shape[1] == 1 else outputs


def make_network(
    config: ClassificationConfig,
    image_shape: tuple[int, int, int],
    outputs: int,
    mean: Sequence[float],
    deviation: Sequence[float],
) -> nn.Module:
    """Return the network that `config.network` names, initialised from `config.seed`.

    Args:
        config: the experiment.
        image_shape: channels, height, width.
        outputs: C classes, or 1 for a regression.
        mean: of the channels of the training images.
        deviation: likewise.

    Raises:
        ConfigError: no such torchvision model, or one that does not take such images.
    """
    name, channels = config.network.name, image_shape[0]
    with seeded(config.seed):
        if name == "mlp":
            features = channels * image_shape[1] * image_shape[2]
            head = MLPHead(features, outputs, config.network.hidden)
            return Standardised(nn.Sequential(nn.Flatten(), head), mean, deviation)
        if name.startswith("resnet"):
            depth = int(name.removeprefix("resnet"))
            return Standardised(CifarResNet(depth, outputs, channels), mean, deviation)
    try:
        network = build_network(name, outputs, in_channels=channels, seed=config.seed)
    except InputError as err:
        raise ConfigError(str(err).replace("`name`", "`network.name`", 1)) from None
    if name == "small-conv":
        return Standardised(network, mean, deviation)
    # Those of torchvision shift and scale by themselves.
    return Standardised(network, [0.0] * channels, [1.0] * channels)
