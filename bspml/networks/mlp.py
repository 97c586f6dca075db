"""A head on features that were extracted once: hundreds of epochs in minutes, without a GPU."""

from __future__ import annotations

from torch import nn

from bspml.shapes import Float, Tensor
from bspml.tensors.checks import check_whole


class MLPHead(nn.Module):
    """Embeddings from cached features: one hidden layer, or none.

    Args:
        in_features: F, width of the features.
        embedding_size: D.
        hidden: width of the hidden layer; 0 makes the head one linear layer.
    """

    def __init__(self, in_features: int, embedding_size: int = 128, hidden: int = 512) -> None:
        super().__init__()
        width = check_whole(in_features, "in_features")
        layers: list[nn.Module] = []
        if check_whole(hidden, "hidden", low=0):
            layers = [nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True)]
            width = hidden
        layers.append(nn.Linear(width, check_whole(embedding_size, "embedding_size")))
        self.layers = nn.Sequential(*layers)

    def forward(self, features: Float[Tensor, "B F"]) -> Float[Tensor, "B D"]:
        """Return embeddings of feature rows."""
        return self.layers(features)
