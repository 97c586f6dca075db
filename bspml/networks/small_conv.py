"""A convolutional network for small images, trained from scratch in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from bspml.errors import InputError
from bspml.shapes import Float, Tensor
from bspml.tensors.checks import check_whole
from bspml.words import shown

_GRID = 3  # side of the last feature map: what three poolings leave of 24 to 31 pixels


class SmallConvNet(nn.Module):
    """Three convolutions and a linear layer, for small images such as glyphs (24 px) and digits.

    Any image of at least 8 px works: the last map is averaged to 3 x 3 before the linear layer.

    Args:
        embedding_size: D.
        channels: of the three convolutions.
        in_channels: of the images, 1 for grey.
    """

    def __init__(
        self,
        embedding_size: int = 128,
        channels: Sequence[int] = (16, 32, 64),
        in_channels: int = 1,
    ) -> None:
        super().__init__()
        if not isinstance(channels, Sequence) or len(channels) != 3:
            raise InputError(f"`channels` must be three numbers; got {shown(channels)}.")
        widths = [check_whole(in_channels, "in_channels")]
        widths += [check_whole(c, "channels") for c in channels]
        self.blocks = nn.Sequential(*(_block(i, o) for i, o in pairwise(widths)))
        self.pool = nn.AdaptiveAvgPool2d(_GRID)
        self.head = nn.Linear(widths[-1] * _GRID**2, check_whole(embedding_size, "embedding_size"))
        # On a CPU the convolutions of these few channels run about twice as fast channels last.
        self.to(memory_format=torch.channels_last)

    def forward(self, images: Float[Tensor, "B channels height width"]) -> Float[Tensor, "B D"]:
        """Return embeddings of images in [0, 1]."""
        if min(images.shape[-2:]) < 8:
            raise InputError(
                f"`images` must be at least 8 x 8 pixels, three poolings halve them; got "
                f"{tuple(images.shape)}. Enlarge them."
            )
        maps = self.blocks(images.contiguous(memory_format=torch.channels_last))
        if maps.shape[-2:] != (_GRID, _GRID):
            maps = self.pool(maps)
        return self.head(maps.flatten(1))


def _block(inputs: int, outputs: int) -> nn.Sequential:
    # Pooling comes before the normalisation: a maximum passes through any increasing map, so only
    # the batch statistics differ, and three quarters of that work is saved.
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.MaxPool2d(2),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )
