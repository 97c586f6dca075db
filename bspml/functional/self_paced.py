"""Classic self-paced weights, and the rescaled hinge."""

from __future__ import annotations

import math

from bspml.functional.cross_entropies import Tempered
from bspml.shapes import Float, Tensor
from bspml.tensors.arguments import at_least_float32, refuse_negative, unreduced
from bspml.tensors.checks import check_number


def self_paced_weights(losses: Tensor, age: float) -> Float[Tensor, "*S"]:
    """Return 1 for each element whose loss is at most `age`, else 0, without a gradient.

    These minimise  sum_i w_i l_i - age sum_i w_i  over w in [0, 1]^N.  A loss that is NaN gets 0.

    Source: [Zhang 2023, eq. (1, 2)], after [Kumar 2010].
    Args:
        losses: one loss per element, (B,) or any other shape with elements.
        age: in units of the loss; infinite takes all.
    Returns:
        Weights of the shape of `losses`, float32 at least.
    Raises:
        InputError: `losses` are integers or reduced already; `age` is NaN.
    Example:
        >>> import torch
        >>> self_paced_weights(torch.tensor([0.5, 1.0, 2.0]), age=1.0)
        tensor([1., 1., 0.])
    """
    age = check_number(age, "age", allow_infinite=True)
    losses = unreduced(losses).detach()
    return (losses <= age).to(losses.dtype)


def rescaled_hinge(hinge: Tensor, eta: float) -> Float[Tensor, "*S"]:
    """Compute (1 - e^{-eta h}) / (1 - e^{-eta}):  the hinge h itself at eta = 0, bounded otherwise.

    0 at h = 0 and 1 at h = 1 whatever eta; at most 1 / (1 - e^-eta).  The larger eta, the less a
    far outlier pulls: the gradient decays as e^{-eta h}.

    Source: [Xu 2017], for metric learning [Al-Obaidi 2020].
    Args:
        hinge: values max(0, ...) of a hinge loss, >= 0, any shape.
        eta: >= 0.
    Returns:
        Of the shape of `hinge`, float32 at least.
    Raises:
        InputError: no floats, `eta` negative or, on the CPU, a negative `hinge`: there the formula
            would grow exponentially.
    Example:
        >>> import torch
        >>> rescaled_hinge(torch.tensor([0.0, 1.0, 9.0]), eta=0.5)
        tensor([0.0000, 1.0000, 2.5133])
    """
    eta = check_number(eta, "eta", 0)
    hinge = at_least_float32(hinge, "hinge")
    refuse_negative(hinge, "hinge", "Apply relu first: it rescales a hinge.")
    at_one = -math.expm1(-eta) / eta if eta > 0 else 1.0  # (1 - e^-eta) / eta
    return Tempered.apply(hinge, eta) / at_one
