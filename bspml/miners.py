"""Miners that know the sample weights: the public door of `bspml.losses.miners`.

Example:
    >>> import torch
    >>> from bspml.miners import BSPMLMiner
    >>> emb = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> anchors, positives, _, negatives = BSPMLMiner()(emb, torch.tensor([0, 0, 1]))
    >>> anchors.tolist(), positives.tolist()
    ([0, 1], [1, 0])
"""

from bspml.losses.miners import *  # noqa: F403
from bspml.losses.miners import __all__ as __all__
