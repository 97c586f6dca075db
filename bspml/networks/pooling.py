"""From maps of features to one vector per image: the mean over positions, or a generalised one."""

from __future__ import annotations

import torch
from torch import nn

from bspml.shapes import Float, Tensor
from bspml.tensors.checks import check_choice, check_number

POOLINGS = ("avg", "gem")

_EPS = 1e-6  # what counts as zero: x^p has no useful slope at 0


class GeM(nn.Module):
    """Generalised mean over all positions of a map, its exponent learned with the network.

    f_c = ( 1 / (H W) * sum over positions of max(x_c, 1e-6)^p )^(1/p)

    p = 1 is the average, p to infinity the maximum.  Negative values count as 1e-6: it is meant for
    maps that end in a ReLU or its like (ResNet, RegNet, EfficientNet); of maps with both signs
    (ConvNeXt, Swin) it loses the negative half.

    Source: [Radenovic 2018], generalised-mean pooling, one p for all channels.
    Differs: each map is divided by its maximum m first and the mean multiplied by m, which changes
    nothing, for f is homogeneous, but keeps x^p from overflowing; and a p below 1 acts as 1.

    Args:
        p: exponent to start from, at least 1.

    Example:
        >>> round(GeM(2.0)(torch.tensor([[[[3.0, 4.0]]]])).item() ** 2, 3)
        12.5
    """

    def __init__(self, p: float = 3.0) -> None:
        super().__init__()
        self.p = nn.Parameter(torch.tensor(check_number(p, "p", low=1.0)))

    def forward(
        self, maps: Float[Tensor, "B channels height width"]
    ) -> Float[Tensor, "B channels 1 1"]:
        """Return the mean of each map."""
        maps, p = maps.clamp(min=_EPS), self.p.clamp(min=1.0)
        # f does not depend on m, so m is a constant to the gradient as well.
        top = maps.detach().amax((2, 3), keepdim=True)
        powers = (maps / top).pow(p).mean((2, 3), keepdim=True)  # in [1 / (H W), 1]
        return (top * powers.pow(1 / p)).to(maps.dtype)

    def extra_repr(self) -> str:
        """Return the exponent, for `print`."""
        return f"p={self.p.item():g}"


def make_pooling(name: str) -> nn.Module:
    """Return the pooling of that name, (B, C, H, W) to (B, C, 1, 1).

    Args:
        name: "avg", or "gem" starting from p = 3.

    Raises:
        InputError: another name.
    """
    check_choice(name, "pooling", POOLINGS)
    return GeM() if name == "gem" else nn.AdaptiveAvgPool2d(1)
