"""A last layer that starts as the features of its backbone are, so that training begins from them.

A random one forgets a part of what the backbone knows before the first step, and a training that
brings only that back looks like progress.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from bspml.networks.by_name import seeded
from bspml.networks.freezing import head_of
from bspml.shapes import Float, Tensor


def features_alone(model: nn.Module) -> nn.Module:
    """Return a copy of a network that ends in its features, without the last linear layer.

    Raises:
        InputError: `model` has no linear layer.

    Example:
        >>> features_alone(nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))(torch.ones(1, 3)).shape
        torch.Size([1, 3])
    """
    return copy.deepcopy(model, {id(head_of(model)): nn.Identity()})


@torch.no_grad()
def start_orthogonal(model: nn.Module, seed: int = 0) -> None:
    """Let the last linear layer turn features without stretching them: orthonormal rows, no shift.

    An embedding at least as long as the features starts as they are, with the same similarities,
    the rest of it zero; a shorter one as a random projection of them.

    Args:
        model: changed in place.
        seed: of the projection.
    """
    head = head_of(model)
    with seeded(seed):
        shorter = head.out_features < head.in_features
        (nn.init.orthogonal_ if shorter else nn.init.eye_)(head.weight)
    if head.bias is not None:
        head.bias.zero_()


@torch.no_grad()
def start_principal(model: nn.Module, features: Float[Tensor, "N F"]) -> None:
    """Let the last linear layer start as the principal components of its features.

    An embedding at least as long as the features starts as they are.

    Args:
        model: changed in place.
        features: that its last layer takes, of the training images.
    """
    head = head_of(model)
    if head.out_features >= head.in_features:
        start_orthogonal(model)
        return
    rows = nn.functional.normalize(features.double())
    # Not centred: a shift would change the similarities that the embedding is to start with.
    components = torch.linalg.eigh(rows.T @ rows).eigenvectors.flip(1)
    head.weight.copy_(components[:, : head.out_features].T)
    if head.bias is not None:
        head.bias.zero_()
