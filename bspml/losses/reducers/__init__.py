"""Robustness around a loss: SuperLoss, gradient rescaling and IMAE as reducers.

    loss(embeddings, labels)  ->  values per sample, pair or triplet
      -> reducer (here)       ->  each value transformed, weighted, averaged as the loss averages

`wrapping` has the three wrappers, `transform` the flow of one batch, `superloss` and
`gradient_rescaling` the two transforms, `softmax` the rescaling at the logits, `catalogue` which
loss is treated how, `inner` what the loss's own reducer picks, `tau` and `tables` the state.
"""

from bspml.losses.reducers.gradient_rescaling import GradientRescalingReducer
from bspml.losses.reducers.superloss import SuperLossReducer
from bspml.losses.reducers.tau import RunningTau
from bspml.losses.reducers.transform import Confidences, TransformReducer
from bspml.losses.reducers.wrapping import IMAE, GradientRescaling, SuperLoss, unwrap

__all__ = [
    "IMAE",
    "Confidences",
    "GradientRescaling",
    "GradientRescalingReducer",
    "RunningTau",
    "SuperLoss",
    "SuperLossReducer",
    "TransformReducer",
    "unwrap",
]
