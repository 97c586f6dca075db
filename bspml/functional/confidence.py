r"""Confidence-aware losses that came before SuperLoss, after the summary in [Castells 2020].

Each takes a confidence (or an uncertainty) that is learned with the network, so it gets a
gradient as well as the prediction does.
"""

from __future__ import annotations

import math

import torch

from bspml.errors import InputError
from bspml.functional.label_gap import cross_entropy_of_gap, label_gap
from bspml.shapes import Float, Tensor
from bspml.tensors.arguments import at_least_float32, refuse_negative, refuse_outside
from bspml.tensors.checks import check_number, describe

_POSITIVE = "Predict its logarithm and take exp."
# B_2, B_4, ...:  log((e^x - 1)/x) - x/2 = sum_k B_2k / (2k (2k)!) x^2k,  used for x < 1.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)

_SERIES = tuple(b / (2 * k * math.factorial(2 * k)) for k, b in enumerate(_BERNOULLI, 1))


def introspection_loss(similarity: Tensor, sign: Tensor, confidence: Tensor) -> Float[Tensor, "*S"]:
    r"""Compute log((e^sigma - 1) / sigma) - sigma y s,  per pair.

    The negative log-density, at y s, of an exponential distribution on [0, 1] with rate -sigma.
    Right to the last digits for small and for large sigma, as is its gradient.

    Source: [Castells 2020, supplement eq. (1)], a rewriting of [Novotny 2018].
    Args:
        similarity: s in [0, 1] of each pair of descriptors.
        sign: y, 1 for a pair that belongs together and -1 for one that does not; broadcasts.
        confidence: sigma > 0 of each pair; broadcasts.
    Returns:
        Of the shape the three broadcast to, float32 at least.
    Raises:
        InputError: no floats, or, on the CPU, a value outside its range.
    Example:
        >>> introspection_loss(torch.tensor([0.8]), torch.tensor([1.0]), torch.tensor([2.0]))
        tensor([-0.4386])
    """
    s = at_least_float32(similarity, "similarity")
    sigma = at_least_float32(confidence, "confidence")
    _check_share(s, "similarity")
    _check_positive(sigma, "confidence")
    if not isinstance(sign, Tensor) or sign.is_complex():
        raise InputError(f"`sign` must be a tensor of 1 and -1; got {describe(sign)}.")
    remedy = "Map classes 0 and 1 to -1 and 1."
    refuse_outside(sign, lambda s: s.double().abs() == 1, "sign", "be 1 or -1", remedy)
    _check_broadcast(similarity=s, sign=sign, confidence=sigma)
    return _log_mean_exp(sigma) - sigma * sign * s


def _log_mean_exp(x: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """Compute log((e^x - 1) / x) for x > 0: the log of the mean of e^{x t} over t in [0, 1]."""
    small = x < 1
    x_small, x_large = torch.where(small, x, 0.5), torch.where(small, 1, x)
    square = x_small.square()
    series = torch.zeros_like(square)
    for coefficient in reversed(_SERIES):
        series = (series + coefficient) * square
    # e^x - 1 = e^x (1 - e^-x): nothing overflows.
    large = x_large + torch.log(-torch.expm1(-x_large) / x_large)
    return torch.where(small, x_small / 2 + series, large)


def reliability_loss(average_precision: Tensor, reliability: Tensor) -> Float[Tensor, "*S"]:
    r"""Compute sigma (1 - AP) + (1 - sigma) / 2,  per patch.

    Linear in sigma with slope 1/2 - AP: the best reliability is 1 for AP > 1/2 and 0 below.

    Source: [Castells 2020, supplement eq. (2)], which corrects the print of [Revaud 2019].
    Args:
        average_precision: AP in [0, 1] of each patch, from a differentiable estimate.
        reliability: sigma in [0, 1] of each patch; broadcasts.
    Returns:
        Of the shape the two broadcast to, float32 at least.
    Raises:
        InputError: no floats, or, on the CPU, a value outside [0, 1].
    Example:
        >>> reliability_loss(torch.tensor([0.9, 0.2]), torch.tensor([1.0, 0.0]))
        tensor([0.1000, 0.5000])
    """
    ap = at_least_float32(average_precision, "average_precision")
    sigma = at_least_float32(reliability, "reliability")
    _check_broadcast(average_precision=ap, reliability=sigma)
    _check_share(ap, "average_precision")
    _check_share(sigma, "reliability")
    return sigma * (1 - ap) + (1 - sigma) / 2


def data_parameters_loss(
    logits: Tensor, labels: Tensor, confidence: Tensor, lam: float = 0.0
) -> Float[Tensor, " B"]:
    r"""Compute -log softmax(sigma z)_y + lam (log sigma)^2,  per sample: a temperature of its own
    for each.

    As sigma grows it becomes a step: 0 where the label's logit is the largest, else infinite.
    (The print of that limit, supplement eq. (4), takes the maximum over all classes; the label's
    own is left out.)

    Source: [Castells 2020, supplement eq. (3)], after [Saxena 2019], instance parameters only.
    Args:
        logits: z, (B, C), C >= 2.
        labels: y, (B,) integers in [0, C).
        confidence: sigma > 0 of each sample, (B,); the inverse of the temperature.
        lam: >= 0, keeps sigma near 1.
    Returns:
        (B,) float32 at least.
    Raises:
        InputError: shapes or types that do not fit, `lam` negative, or, on the CPU, a label
            outside [0, C) or a confidence that is not positive.
    Example:
        >>> z, y = torch.tensor([[2.0, 0.0]]), torch.tensor([0])
        >>> data_parameters_loss(z, y, torch.tensor([1.0]))
        tensor([0.1269])
    """
    lam = check_number(lam, "lam", 0)
    z, sigma = at_least_float32(logits, "logits"), at_least_float32(confidence, "confidence")
    if z.ndim != 2:
        raise InputError(f"`logits` must be (B, C); got {tuple(z.shape)}.")
    if sigma.shape != z.shape[:1]:
        raise InputError(
            f"`confidence` must be one per sample, (B,) = ({len(z)},); got {tuple(sigma.shape)}."
        )
    _check_positive(sigma, "confidence")
    losses = cross_entropy_of_gap(label_gap(sigma[:, None] * z, labels))
    return losses + lam * sigma.log().square() if lam else losses


def multi_task_loss(losses: Tensor, log_variances: Tensor) -> Float[Tensor, ""]:
    r"""Compute sum_i l_i / (2 sigma_i^2) + log sigma_i  with  s_i = log sigma_i^2:  one number.

    That is  1/2 sum_i (l_i e^{-s_i} + s_i), whose best s_i is log l_i.

    Source: [Castells 2020, supplement eq. (5)], after [Kendall 2018], whose s this is.
    Args:
        losses: (n,) one loss per task, >= 0: a negative one would be minus infinity at best.
        log_variances: (n,) s, any real numbers, learned with the network.
    Returns:
        A scalar, float32 at least.
    Raises:
        InputError: shapes or types that do not fit, or, on the CPU, a negative loss.
    Example:
        >>> multi_task_loss(torch.tensor([1.0, 4.0]), torch.tensor([0.0, 0.0]))
        tensor(2.5000)
    """
    l, s = at_least_float32(losses, "losses"), at_least_float32(log_variances, "log_variances")  # noqa: E741
    if l.ndim != 1 or s.shape != l.shape:
        raise InputError(
            f"`losses` and `log_variances` must both be (n,), one per task; got "
            f"{tuple(l.shape)} and {tuple(s.shape)}."
        )
    refuse_negative(l, "losses", "The objective has no minimum otherwise.")
    return (l * torch.exp(-s) + s).sum() / 2


def _check_broadcast(**values: Tensor) -> None:
    try:
        torch.broadcast_shapes(*(v.shape for v in values.values()))
    except RuntimeError as err:
        shapes = ", ".join(f"`{name}` {tuple(v.shape)}" for name, v in values.items())
        raise InputError(f"the arguments must broadcast to one shape; got {shapes}.") from err


def _check_share(values: Tensor, name: str) -> None:
    inside = "lie in [0, 1]"
    refuse_outside(values, lambda v: (v >= 0) & (v <= 1), name, inside, "Rescale or clip it.")


def _check_positive(values: Tensor, name: str) -> None:
    refuse_outside(values, lambda v: v > 0, name, "be positive", _POSITIVE)
