"""What a method is built from, and what it is built into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from bspml.errors import InputError
from bspml.experiment.methods.hyper import Hyper
from bspml.losses.filtered import FilteredLoss
from bspml.losses.reducers import SuperLossReducer
from bspml.tensors.checks import check_number, check_whole
from bspml.weights.state import SampleWeights, check_weights

Values = Mapping[str, Any]  # hyper-parameters, checked, none missing


@dataclass(frozen=True)
class MethodContext:
    """What the training set and the run say to a method.

    Attributes:
        num_classes: C of the training labels, which are 0..C-1.
        embedding_size: D of the network's output.
        weights: the table of sample weights, or None; methods that move weights need it.
        noise_rate: share of wrong labels in [0, 1], if it is known.
        seed: of what a method draws (proxies, triplets).
        hyper: hyper-parameters that differ from their defaults.

    Raises:
        InputError: a value out of range, or weights of another number of classes.
    """

    num_classes: int
    embedding_size: int
    weights: SampleWeights | None = None
    noise_rate: float | None = None
    seed: int = 0
    hyper: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole(self.num_classes, "num_classes")
        check_whole(self.embedding_size, "embedding_size")
        check_whole(self.seed, "seed", low=0)
        if self.noise_rate is not None:
            check_number(self.noise_rate, "noise_rate", 0.0, 1.0)
        if check_weights(self.weights) is not None:
            assert self.weights is not None
            if len(self.weights.classes) != self.num_classes:
                raise InputError(
                    f"`weights` must have num_classes = {self.num_classes} classes; got "
                    f"{len(self.weights.classes)}. Both come from the training labels."
                )


@dataclass(frozen=True)
class MethodParts:
    """What a training loop needs of a method.

    Attributes:
        name: as asked for.
        loss: called as `loss(embeddings, labels, pairs)`; holds all state that a run saves.
        miner: called before the loss, as `miner(embeddings, labels)`, or None: the loss mines
            itself or takes all pairs.  Keeps no state.
        curriculum_kind: what moves the weights: None (nothing), "paper" or "auto" (a
            `SelfPacedCurriculum` of that preset), or "fixed-clean" (a `FixedCurriculum` after
            `weights.update(~is_noisy)`).
        curriculum: keywords of that `SelfPacedCurriculum`, beside `weights`, `is_noisy`, `seed`.
        loss_has_parameters: the loss needs an optimiser of its own.
        loss_lr_factor: its learning rate over the network's.
        needs_sample_index: the batch's data-set rows must be announced (`weights.set_batch`).
        notes: sentences for a person: choices that no paper prints, departures and why.
    """

    name: str
    loss: nn.Module
    miner: nn.Module | None = None
    curriculum_kind: str | None = None
    curriculum: Mapping[str, Any] = field(default_factory=dict)
    loss_has_parameters: bool = False
    loss_lr_factor: float = 1.0
    needs_sample_index: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Method:
    """One name of the registry.

    Attributes:
        name: in configurations.
        title: in tables, as the paper prints it.
        says: what it is, in a line.
        source: whose it is.
        hyper: its hyper-parameters.
        make: builds it from the context and the checked hyper-parameters.
        needs_weights: it moves or reads the table of sample weights.
        unwrappable: why no per-element transform can go on top; empty: it can.
    """

    name: str
    title: str
    says: str
    source: str
    hyper: Mapping[str, Hyper]
    make: Callable[[MethodContext, Values], MethodParts]
    needs_weights: bool = False
    unwrappable: str = ""


def table_of(context: MethodContext, method: str) -> SampleWeights:
    """The weights of the context, or a refusal: this method cannot do without."""
    if context.weights is None:
        raise InputError(
            f"`weights` must be given: {method} weighs samples; got None. "
            "Pass MethodContext(..., weights=SampleWeights(labels))."
        )
    return context.weights


def sample_confidences(parts: MethodParts) -> Tensor | None:
    """(N,) numbers in [0, 1], how far the loss trusts each sample's label; None: it does not say.

    Of PRISM: was the sample kept the last time it came.  Of SuperLoss: `sigma`, up to 1, which a
    sample of average loss has.  1 for samples not met.  Of gradient rescaling and IMAE None: their
    emphasis is largest for samples of medium probability, so a low number is no distrust.
    Methods with a curriculum keep theirs in the table of weights.
    """
    loss = parts.loss
    if isinstance(loss, FilteredLoss):
        return None if loss.weights is None else loss.as_weights()
    confidences = sigma(parts)
    return None if confidences is None else confidences.nan_to_num(nan=1.0).clamp(0, 1)


def sigma(parts: MethodParts) -> Tensor | None:
    """(N,) SuperLoss's confidence in the last batch that met each sample, at most e.

    NaN: no batch has met it.  None: no SuperLoss, or one that does not know the samples.
    """
    reducer = getattr(parts.loss, "reducer", None)
    if isinstance(reducer, SuperLossReducer) and reducer.table is not None:
        return reducer.sample_confidences()
    return None
