"""SuperLoss, gradient rescaling and IMAE on top of another method: `superloss:margin`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from bspml.errors import InputError
from bspml.experiment.methods.hyper import Hyper, at_least_0, choice, flag, positive
from bspml.experiment.methods.parts import MethodContext, MethodParts, Values
from bspml.losses.filtered import FilteredLoss
from bspml.losses.reducers import IMAE, GradientRescaling, SuperLoss
from bspml.tensors.checks import check_choice, check_number

_TAUS = ("ema", "mean")


@dataclass(frozen=True)
class Wrapper:
    """A transform that goes on the loss of a method.

    Attributes:
        name: before the colon; its hyper-parameters start with it.
        title: in tables, before the method's.
        source: whose it is.
        hyper: its hyper-parameters, by their names in a configuration.
        apply: wraps a loss in place, given the hyper-parameters and the table of weights.
    """

    name: str
    title: str
    source: str
    hyper: Mapping[str, Hyper]
    apply: Callable[[nn.Module, Values, Any], Any]


def wrap(
    wrapper: Wrapper, parts: MethodParts, context: MethodContext, hyper: Values
) -> MethodParts:
    """The parts with the transform on their loss.

    With a table of weights the confidences are kept for each sample (see `sample_confidences`),
    but not inside PRISM, whose loss sees what the filter left.

    Raises:
        InputError: the loss has no value per sample, pair or triplet, by name.
    """
    loss, weights = parts.loss, context.weights
    if isinstance(loss, FilteredLoss):
        loss, weights = loss.loss, None
    wrapper.apply(loss, hyper, weights)
    return dataclasses.replace(
        parts,
        name=f"{wrapper.name}:{parts.name}",
        needs_sample_index=parts.needs_sample_index or weights is not None,
        notes=(*parts.notes, _scale_note(wrapper, hyper)),
    )


def _scale_note(wrapper: Wrapper, hyper: Values) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in hyper.items())
    units = "; lam is in units of the loss" if wrapper.name == "superloss" else ""
    return f"{wrapper.name}: {settings}{units}"


def _superloss(loss: nn.Module, hyper: Values, weights: Any) -> None:
    SuperLoss(
        loss,
        hyper["superloss_lam"],
        hyper["superloss_tau"],
        momentum=hyper["superloss_momentum"],
        shared_tau=hyper["superloss_shared_tau"],
        smoothing=hyper["superloss_smoothing"],
        sample_weights=weights,
    )


def _gr(loss: nn.Module, hyper: Values, weights: Any) -> None:
    GradientRescaling(
        loss, hyper["gr_beta"], hyper["gr_lam"], hyper["gr_g"], sample_weights=weights
    )


def _imae(loss: nn.Module, hyper: Values, weights: Any) -> None:
    IMAE(loss, hyper["imae_T"], sample_weights=weights)


def _check_tau(value: Any, name: str) -> str | float:
    return check_choice(value, name, _TAUS) if isinstance(value, str) else check_number(value, name)


def _check_momentum(value: Any, name: str) -> float:
    momentum = check_number(value, name, 0.0, 1.0)
    if momentum == 1:
        raise InputError(f"`{name}` must be below 1; got 1: the average would never move.")
    return momentum


WRAPPERS = {
    "superloss": Wrapper(
        "superloss",
        "SuperLoss",
        "[Castells 2020]",
        {
            # 0.05 is what [Castells 2020, supplement 3.4] validated for retrieval.
            "superloss_lam": positive(0.05, "strength of the regulariser, in units of the loss"),
            "superloss_tau": Hyper("ema", "loss of confidence 1: ema, mean, a number", _check_tau),
            "superloss_momentum": Hyper(0.9, "of the exponential average", _check_momentum),
            # Under one tau all positives of a contrastive loss count as hard, noisy or not.
            "superloss_shared_tau": flag(False, "one tau for positive and negative pairs"),
            "superloss_smoothing": choice(
                "none", "whose average loss is judged", "none", "class", "sample"
            ),
        },
        _superloss,
    ),
    "gr": Wrapper(
        "gr",
        "GR",
        "[Wang GR 2019]",
        {
            "gr_beta": at_least_0(8.0, "size of the emphasis"),
            "gr_lam": at_least_0(0.5, "its focus, p = lam / (1 + lam)"),
            "gr_g": choice("exp", "emphasis to weight", "exp", "identity"),
        },
        _gr,
    ),
    "imae": Wrapper(
        "imae",
        "IMAE",
        "[Wang IMAE 2019]",
        {"imae_T": at_least_0(8.0, "size of the emphasis")},
        _imae,
    ),
}
