"""What a method is built from, and what it is built into."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from torch import Tensor, nn

from bspml.errors import InputError
from bspml.losses.filtered import FilteredLoss
from bspml.losses.reducers import SuperLossReducer
from bspml.tensors.checks import check_number, check_whole
from bspml.trainers.settings import Section, section_of
from bspml.weights.state import SampleWeights, check_weights


@dataclass(frozen=True)
class MethodContext:
    """What a method is built from: facts of the training set and the run.

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
        weights = check_weights(self.weights)
        if weights is not None and len(weights.classes) != self.num_classes:
            raise InputError(
                f"`weights` must have num_classes = {self.num_classes} classes; got "
                f"{len(weights.classes)}. Both come from the training labels."
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
        notes: sentences for the user: choices that no paper prints, departures and why.
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


class Hyper(NamedTuple):
    """What is known of one hyper-parameter.

    Attributes:
        default: used where nothing is said.
        says: what it is, for a table.
        printed: the default stands in [Zhang 2023]; else it is another paper's or our choice.
    """

    default: Any
    says: str
    printed: bool


class HyperParameters(Section):
    """Hyper-parameters as a section, with the name that they stand under.

    Attributes:
        name: in configurations.
        title: in tables, as the paper prints it.
        source: whose it is.
        hidden: keys that cannot be set; they stay at their defaults.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    hidden: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def hyper(cls) -> dict[str, Hyper]:
        """Return what can be set, in the order of the section."""
        return {
            name: Hyper(f.default, f.description or "", f.json_schema_extra == {"printed": True})
            for name, f in cls.model_fields.items()
            if name not in cls.hidden
        }


AnyHyper = TypeVar("AnyHyper", bound=HyperParameters)


def checked(kind: type[AnyHyper], hyper: Mapping[str, Any]) -> AnyHyper:
    """Build a method or wrapper from those of the hyper-parameters that are its own.

    Args:
        kind: the method or wrapper.
        hyper: hyper-parameters that differ from their defaults, of others too.

    Raises:
        InputError: a value that a hyper-parameter does not take.
    """
    own = {key: value for key, value in hyper.items() if key in kind.hyper()}
    return section_of(kind, own, "hyper.")


class Method(HyperParameters):
    """One name of the registry: its hyper-parameters, and how it is built from them.

    Attributes:
        says: what it is, in a line.
        needs_weights: it moves or reads the table of sample weights.
        unwrappable: why no per-element transform can go on top; empty: it can.
        unweighable: why no source of weights can go around; empty: it can.
    """

    says: ClassVar[str]
    needs_weights: ClassVar[bool] = False
    unwrappable: ClassVar[str] = ""
    unweighable: ClassVar[str] = ""

    @abstractmethod
    def make(self, context: MethodContext) -> MethodParts:
        """Build the method from these hyper-parameters and what the training set says."""


def table_of(context: MethodContext, method: str) -> SampleWeights:
    """Return the weights of the context; without them this method is refused.

    Args:
        context: what the training set and the run say.
        method: its name, for the message.

    Raises:
        InputError: the context has no weights.
    """
    if context.weights is None:
        raise InputError(
            f"`weights` must be given: {method} weighs samples; got None. "
            "Pass MethodContext(..., weights=SampleWeights(labels))."
        )
    return context.weights


def sample_confidences(parts: MethodParts) -> Tensor | None:
    """Return how far the loss trusts each sample's label, (N,) in [0, 1]; None: it does not say.

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
    """Return SuperLoss's confidence in each sample when a batch last met it, (N,), at most e.

    NaN: no batch has met it.  None: no SuperLoss, or one that does not know the samples.
    """
    reducer = getattr(parts.loss, "reducer", None)
    if isinstance(reducer, SuperLossReducer) and reducer.table is not None:
        return reducer.sample_confidences()
    return None
