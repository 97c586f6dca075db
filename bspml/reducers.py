"""SuperLoss, gradient rescaling and IMAE: the public door of `bspml.losses.reducers`.

Example:
    >>> import torch
    >>> from pytorch_metric_learning.losses import TripletMarginLoss
    >>> from bspml.reducers import SuperLoss
    >>> loss = SuperLoss(TripletMarginLoss(), tau=0.1)
    >>> emb = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
    >>> value = loss(emb, torch.tensor([0, 0, 1]))
    >>> sorted(loss.reducer.confidences)
    ['loss']
"""

from bspml.losses.reducers import *  # noqa: F403
from bspml.losses.reducers import __all__ as __all__
