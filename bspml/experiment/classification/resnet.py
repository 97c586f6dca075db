"""The residual networks for 32 x 32 images of [He 2016], section 4.2: ResNet-20, 32, 44 and 56.

Written from that description: a 3 x 3 convolution with 16 channels, three stages of n blocks with
16, 32 and 64 channels (6 n + 2 layers in all), a mean over the last map, and one linear layer.
Where a stage halves the map, its first block's shortcut takes every second pixel and pads the
missing channels with zeros (their option A), so shortcuts have no parameters.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from bspml.errors import InputError
from bspml.shapes import Float, Tensor
from bspml.tensors.checks import check_whole

DEPTHS = (20, 32, 44, 56)
_CHANNELS = (16, 32, 64)


class CifarResNet(nn.Module):
    """A residual network for small images.

    Args:
        depth: 6 n + 2 layers, n at least 1; the published ones are in `DEPTHS`.
        outputs: C, numbers per image.
        in_channels: of the images.
    """

    def __init__(self, depth: int, outputs: int, in_channels: int = 3) -> None:
        super().__init__()
        blocks, rest = divmod(check_whole(depth, "depth") - 2, 6)
        if rest or blocks < 1:
            raise InputError(
                f"`depth` must be 6 n + 2, such as {', '.join(map(str, DEPTHS))}; got {depth}."
            )
        width = _CHANNELS[0]
        self.stem = _convolution(check_whole(in_channels, "in_channels"), width)
        layers: list[nn.Module] = []
        for stage, channels in enumerate(_CHANNELS):
            for block in range(blocks):
                layers.append(_Block(width, channels, 2 if stage and not block else 1))
                width = channels
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(width, check_whole(outputs, "outputs"))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B C"]:
        """Return logits of standardised images."""
        maps = self.blocks(torch.relu(self.stem(images)))
        return self.head(maps.mean((2, 3)))


class _Block(nn.Module):
    """relu(shortcut(x) + conv(relu(conv(x)))), a batch normalisation after each convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _convolution(inputs, outputs, stride)
        self.second = _convolution(outputs, outputs)
        self.stride, self.padding = stride, outputs - inputs

    def forward(self, maps: Tensor) -> Tensor:
        residual = self.second(torch.relu(self.first(maps)))
        if self.stride > 1:
            maps = maps[:, :, :: self.stride, :: self.stride]
        if self.padding:
            half = self.padding // 2
            maps = functional.pad(maps, (0, 0, 0, 0, half, self.padding - half))
        return torch.relu(maps + residual)


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs)
    )
