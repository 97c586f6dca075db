"""What a loss's own reducer does to transformed losses.

pytorch-metric-learning's reducers pick losses by value: AvgNonZeroReducer drops what is not above
0.  SuperLoss is negative for every easy sample, so the picking is done on the raw losses and the
averaging on the transformed ones:

    raw (n,) -> plan(reducer) -> keep (n,), finish(transformed (n,)) -> scalar

Reducers of other classes are taken to be linear in the losses they pick.  Their coefficients on
the raw losses,  c_i = d reducer / d l_i,  are applied to the transformed ones.  On the CPU a
reducer is refused that fails Euler's identity  sum c_i l_i = reducer(l)  or whose c_i change with
l.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from pytorch_metric_learning import reducers as pml_reducers

from bspml.errors import InputError
from bspml.shapes import Bool, Float, Tensor

_EULER_TOLERANCE = 1e-3  # rounding of a float32 sum over a million pairs stays well below


@dataclass(frozen=True)
class Plan:
    """How a reducer treats one sub-loss.

    Attributes:
        keep: (n,) the losses that enter; None: all.
        finish: (n,) transformed losses to what the reducer returns.
        empty: nothing enters, so nothing has a gradient, not even NaN times 0.  Always False on
            an accelerator, where looking would wait for it.
        shares: (n,) how much each loss counts in an average, up to a factor; None: a sum, or a
            sum over a number that the loss gives.
    """

    keep: Bool[Tensor, " n"] | None
    finish: Callable[[Tensor], Any]
    empty: bool = False
    shares: Float[Tensor, " n"] | None = None

    def weighted(self, weights: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return the factors that weights put on losses: in an average the divisor follows.

        A mean of n losses becomes  sum w l / sum w,  a sum  sum w l.  Nothing that counts gives
        factors of 0.

        Args:
            weights: (n,) in [0, 1].
        """
        if self.shares is None:
            return weights
        total, counted = self.shares.sum(), (self.shares * weights).sum()
        return weights * torch.where(counted > 0, total, 0) / torch.where(counted > 0, counted, 1)


def reducer_for(reducer: Any, name: str, sub_losses: tuple[str, ...] = ()) -> Any:
    """Return the reducer that handles the sub-loss `name`.

    Args:
        reducer: the loss's own.
        name: key of the loss dictionary.
        sub_losses: the keys of the loss's data.  A single one takes the reducer held for `loss`
            where none is held for it: SmoothAPLoss says `ap_loss`, and its reducers are set for
            `loss`.
    """
    if isinstance(reducer, pml_reducers.MultipleReducers):
        held = dict(reducer.reducers.items())  # a ModuleDict has no `get`
        if name not in held and sub_losses == (name,) and "loss" in held:
            return held["loss"]
        return held.get(name, reducer.default_reducer)
    return reducer


def check_reducer(reducer: Any, loss_name: str) -> None:
    """Refuse reducers whose way of combining sub-losses cannot be followed.

    Args:
        reducer: the loss's own.
        loss_name: for the message.

    Raises:
        InputError: a subclass of MultipleReducers with a `forward` of its own, or no reducer.
    """
    if not isinstance(reducer, pml_reducers.BaseReducer):
        raise InputError(
            f"`loss` ({loss_name}) must have a reducer of pytorch-metric-learning; "
            f"got {type(reducer).__name__}. Derive yours from its BaseReducer."
        )
    multiple = pml_reducers.MultipleReducers
    if isinstance(reducer, multiple) and type(reducer).forward is not multiple.forward:
        raise InputError(
            f"`loss` ({loss_name}) has the reducer {type(reducer).__name__}, which combines "
            "sub-losses in its own `forward`; override `sub_loss_reduction` instead."
        )


def make_plan(
    reducer: Any,
    name: str,
    info: dict[str, Any],
    raw: Float[Tensor, " n"],
    embeddings: Tensor,
    labels: Any,
    active_only: bool = False,
) -> Plan:
    """Return how `reducer` treats the sub-loss `name` with raw losses `raw`.

    Args:
        reducer: the loss's own, for this sub-loss.
        name: of the sub-loss.
        info: its entry in the loss dictionary.
        raw: (n,) the losses before any transform, n at least 1.
        embeddings: (B, D), as reducers get them.
        labels: (B,) or None, likewise.
        active_only: the divisor of a DivisorReducer leaves out losses that are 0, so these do
            not count there.

    Raises:
        InputError: on the CPU: a reducer that is not linear in the losses it picks.
    """

    def call(losses: Tensor, by: Any = reducer) -> Any:
        return by({name: {**info, "losses": losses}}, embeddings, labels)

    # The divisor counts the losses above 0; any other reducer counts all of them.
    divides = isinstance(reducer, pml_reducers.DivisorReducer)
    keep = raw > 0 if active_only and divides else None
    plan = _plan(reducer, info, raw, keep, call)
    if raw.device.type != "cpu" or isinstance(reducer, pml_reducers.DoNothingReducer):
        return plan
    nothing = plan.keep is not None and not bool(plan.keep.any())
    if divides:
        nothing = nothing or not bool(info["divisor"] != 0)
    return replace(plan, empty=nothing)


def _plan(
    reducer: Any,
    info: dict[str, Any],
    raw: Float[Tensor, " n"],
    keep: Bool[Tensor, " n"] | None,
    call: Callable[..., Any],
) -> Plan:
    kind = type(reducer)
    if kind in (pml_reducers.ThresholdReducer, pml_reducers.AvgNonZeroReducer):
        keep = _within(raw, reducer.low, reducer.high)
        return Plan(keep, lambda losses: _mean(losses, keep), shares=keep.to(raw))
    if kind is pml_reducers.MeanReducer:
        return Plan(keep, lambda losses: _mean(losses, keep), shares=torch.ones_like(raw))
    if kind is pml_reducers.SumReducer:
        return Plan(keep, lambda losses: _kept(losses, keep).sum())
    # A divisor that counts the losses above 0 is an average's; another is the loss's own affair.
    counted = None if keep is None else keep.to(raw)
    if kind is pml_reducers.DivisorReducer:
        return Plan(
            keep, lambda losses: _divide(_kept(losses, keep).sum(), info["divisor"]), shares=counted
        )
    pml_kinds = (
        pml_reducers.DivisorReducer,  # and what is derived from it: a sum over a given number
        pml_reducers.ClassWeightedReducer,
        pml_reducers.DoNothingReducer,
    )
    if isinstance(reducer, pml_kinds):
        if isinstance(reducer, pml_reducers.ClassWeightedReducer):
            counted = torch.ones_like(raw)
        return Plan(keep, lambda losses: call(_kept(losses, keep)), shares=counted)
    slopes = _slopes(call, raw, kind.__name__)
    shares = slopes
    if any(isinstance(part, pml_reducers.ClassWeightedReducer) for part in reducer.modules()):
        plain = _without_class_weights(reducer)
        shares = _slopes(lambda losses: call(losses, plain), raw, kind.__name__)
    # Coefficients that sum to 1 are an average's.
    average = (shares.sum() - 1).abs() < _EULER_TOLERANCE
    return Plan(
        slopes != 0,
        lambda losses: (_kept(losses, slopes != 0) * slopes).sum(),
        shares=shares if bool(average) else None,
    )


def _without_class_weights(reducer: Any) -> Any:
    """Return a copy that weighs every class by 1, as its divisor does."""
    plain = deepcopy(reducer)
    for part in plain.modules():
        if isinstance(part, pml_reducers.ClassWeightedReducer):
            part.weights = torch.ones_like(part.weights)
    return plain


def _within(raw: Tensor, low: float | None, high: float | None) -> Bool[Tensor, " n"]:
    """Strictly between, as pytorch-metric-learning's ThresholdReducer compares."""
    sides = [] if low is None else [raw > low]
    if high is not None:
        sides.append(raw < high)
    if not sides:
        return torch.ones_like(raw, dtype=torch.bool)
    return sides[0] if len(sides) == 1 else sides[0] & sides[1]


def _kept(losses: Tensor, keep: Bool[Tensor, " n"] | None) -> Tensor:
    # A mask, not an index: picking by index would wait for the device.
    return losses if keep is None else torch.where(keep, losses, 0)


def _mean(losses: Tensor, keep: Bool[Tensor, " n"] | None) -> Tensor:
    """Mean of the kept; 0, with a gradient of 0, if none is."""
    if keep is None:
        return losses.mean()
    return _kept(losses, keep).sum() / keep.sum().clamp(min=1)


def _divide(total: Tensor, divisor: Any) -> Tensor:
    if not isinstance(divisor, Tensor):  # sending it to the device would wait for the device
        return total / divisor if divisor else total * 0
    return torch.where(divisor != 0, total, 0) / torch.where(divisor != 0, divisor, 1)


def _slopes(call: Callable[[Tensor], Any], raw: Tensor, reducer_name: str) -> Tensor:
    """(n,) the coefficients of a reducer that is linear in the losses it picks."""
    checked = raw.device.type == "cpu"  # elsewhere looking would wait for the device
    with torch.enable_grad():
        leaf = raw.detach().clone().requires_grad_()
        value = call(leaf)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise InputError(
                f"the loss's reducer {reducer_name} must return one number; got "
                f"{type(value).__name__}. Use one of pytorch-metric-learning, or MeanReducer."
            )
        gradient = None
        if value.requires_grad:
            (gradient,) = torch.autograd.grad(
                value.sum(), leaf, allow_unused=True, create_graph=checked
            )
        bent = checked and gradient is not None and _changes(gradient, leaf)
    slopes = torch.zeros_like(raw) if gradient is None else gradient.detach()
    if checked:
        parts = slopes * raw.detach()
        off = (parts.sum() - value.detach().sum()).abs()
        if bent or off > _EULER_TOLERANCE * (parts.abs().sum() + value.detach().abs().sum()):
            raise InputError(
                f"the loss's reducer {reducer_name} is not linear in the losses it picks, so it "
                "cannot be followed after a transform. Use MeanReducer, or reduce yourself: "
                "loss.set_reducer(DoNothingReducer()) before wrapping."
            )
    return slopes


def _changes(slopes: Tensor, leaf: Tensor) -> bool:
    """Whether the coefficients are functions of the losses, as those of a mean square's root are.

    Args:
        slopes: (n,) coefficients at `leaf`, with their graph.
        leaf: (n,) losses.
    """
    if not slopes.requires_grad:
        return False
    size = leaf.detach().abs()
    ramp = torch.arange(len(leaf), dtype=leaf.dtype, device=leaf.device).cos()
    step = ramp * (size + size.mean())
    try:
        (change,) = torch.autograd.grad(slopes, leaf, step, allow_unused=True)
    except RuntimeError:  # somebody's own function, which has one derivative only
        return False
    if change is None:
        return False
    return bool(change.abs().sum() > _EULER_TOLERANCE * slopes.detach().abs().sum())
