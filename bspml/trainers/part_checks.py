"""What the parts of an `AlternatingTrainer` must be, checked before the first step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from torch.optim.swa_utils import AveragedModel

from bspml.data.sampler import PKSampler
from bspml.errors import InputError
from bspml.tensors.arguments import check_kind
from bspml.trainers.curriculum import FixedCurriculum, SelfPacedCurriculum
from bspml.trainers.patience import Patience
from bspml.trainers.round_record import Observer
from bspml.trainers.schedules import Schedule


@runtime_checkable
class _Trainer(Protocol):
    """What a pytorch-metric-learning trainer has, subclass or not."""

    sampler: Any
    models: Any
    optimizers: Any
    forward_and_backward: Any
    initialize_dataloader: Any


_KINDS: dict[str, Any] = {
    "trainer": _Trainer,
    "sampler": PKSampler,
    "curriculum": SelfPacedCurriculum | FixedCurriculum,
    "observer": Observer,
    "schedule": Schedule,
    "averaged": AveragedModel,
    "patience": Patience,
}
_REQUIREMENTS = {
    "trainer": "a pytorch-metric-learning trainer, such as MetricLossOnly",
    "sampler": "a PKSampler",
    "curriculum": "a SelfPacedCurriculum, a FixedCurriculum or None",
    "embed": "a function that returns the (N, D) embeddings of the training set",
    "embed_rows": "a function of (n,) rows that returns their (n, D) embeddings, or None",
    "evaluate": "a function or None",
    "observer": "an object with on_step(trainer, step, steps, loss) and on_round(trainer, record), "
    "or None",
    "schedule": "what lr_schedule(...) returns, or None",
    "averaged": "what average_weights(trunk) returns, or None",
    "patience": "a Patience or None",
}
_OPTIONAL = {"curriculum", "embed_rows", "evaluate", "observer", "schedule", "averaged", "patience"}


def check_parts(**parts: Any) -> None:
    """Refuse what would fail in the middle of a round only.

    Args:
        **parts: the arguments of an `AlternatingTrainer`, by name.

    Raises:
        InputError: one of them is of another kind; says what it must be.
    """
    for name, part in parts.items():
        if part is not None or name not in _OPTIONAL:
            check_kind(part, name, _KINDS.get(name, Callable), _REQUIREMENTS[name])


def check_together(
    trainer: Any,
    sampler: PKSampler,
    curriculum: SelfPacedCurriculum | FixedCurriculum | None,
    initial_embeddings: Any,
    patience: Patience | None,
    evaluate: Any,
) -> None:
    """Refuse parts of an `AlternatingTrainer` that do not go with each other.

    Args:
        trainer: a pml trainer.
        sampler: that it must draw from.
        curriculum: or None.
        initial_embeddings: for an update before the first step, or None.
        patience: or None.
        evaluate: or None.

    Raises:
        InputError: two of them do not; says what to do.
    """
    if trainer.sampler is not sampler:
        raise InputError(
            "`trainer.sampler` must be the very `sampler` given here, so that rounds can "
            "restrict its rows. Pass sampler=sampler to MetricLossOnly."
        )
    if initial_embeddings is not None and not (curriculum and curriculum.starts_with_update):
        raise InputError(
            "`initial_embeddings` are for an update before the first step, which this "
            'curriculum does not want (only preset="auto" with warmup="features" does). '
            "Leave them out."
        )
    if patience is not None and evaluate is None:
        raise InputError(
            "`patience` waits for a better evaluation, and there is no `evaluate`. Pass one, "
            "or leave the patience out."
        )
