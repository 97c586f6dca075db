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
    data_parameters_loss as data_parameters_loss,
    introspection_loss as introspection_loss,
    multi_task_loss as multi_task_loss,
    reliability_loss as reliability_loss,
)
from bspml.functional.cross_entropies import gce as gce, mae as mae, truncated_gce as truncated_gce
from bspml.functional.emphasis import (
    WeightCurve as WeightCurve,
    emphasis_focus as emphasis_focus,
    emphasis_spread as emphasis_spread,
    imae_variance as imae_variance,
)
from bspml.functional.gradient_rescaling import (
    gr_cross_entropy as gr_cross_entropy,
    gr_weight as gr_weight,
    imae as imae,
)
from bspml.functional.lambert import lambertw as lambertw
from bspml.functional.self_paced import (
    rescaled_hinge as rescaled_hinge,
    self_paced_weights as self_paced_weights,
)
from bspml.functional.super_loss import (
    superloss as superloss,
    superloss_confidence as superloss_confidence,
)
