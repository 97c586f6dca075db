"""Losses and weights as plain functions of tensors: SuperLoss, gradient rescaling and kin.

Everything here is per element (reduce it yourself), computed in float32 at least, and runs on the
device of its input without waiting for it.

Example:
    >>> import torch
    >>> from bspml.functional import superloss, superloss_confidence
    >>> losses = torch.tensor([0.5, 1.0, 4.0])
    >>> superloss_confidence(losses, tau=1.0, lam=1.0)  # e far below tau, 1 at tau, then to 0
    tensor([1.4296, 1.0000, 0.4839])
    >>> superloss(losses, tau=1.0, lam=1.0).mean()
    tensor(0.4638)
"""

from bspml.functional.confidence import (
    data_parameters_loss,
    introspection_loss,
    multi_task_loss,
    reliability_loss,
)
from bspml.functional.cross_entropies import gce, mae, truncated_gce
from bspml.functional.emphasis import (
    WeightCurve,
    emphasis_focus,
    emphasis_spread,
    imae_variance,
)
from bspml.functional.gradient_rescaling import gr_cross_entropy, gr_weight, imae
from bspml.functional.lambert import lambertw
from bspml.functional.self_paced import rescaled_hinge, self_paced_weights
from bspml.functional.super_loss import superloss, superloss_confidence

__all__ = [
    "WeightCurve",
    "data_parameters_loss",
    "emphasis_focus",
    "emphasis_spread",
    "gce",
    "gr_cross_entropy",
    "gr_weight",
    "imae",
    "imae_variance",
    "introspection_loss",
    "lambertw",
    "mae",
    "multi_task_loss",
    "reliability_loss",
    "rescaled_hinge",
    "self_paced_weights",
    "superloss",
    "superloss_confidence",
    "truncated_gce",
]
