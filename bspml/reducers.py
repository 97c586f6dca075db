"""SuperLoss, gradient rescaling and IMAE: the public door of `bspml.losses.reducers`."""

from bspml.losses.reducers import (
    IMAE,
    Confidences,
    GradientRescaling,
    GradientRescalingReducer,
    RunningTau,
    SuperLoss,
    SuperLossReducer,
    TransformReducer,
    unwrap,
)

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
