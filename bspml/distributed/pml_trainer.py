"""A pytorch-metric-learning trainer whose steps are taken by all ranks together.

Nothing of the trainer is rewritten: each rank loads and embeds its part of the sampler's batch,
the embedder's output is replaced by the whole batch, labels and sample indices are gathered in
the same order, and the gradients are added up before the clippers and the optimisers see them.
Miners, losses and memories then work on the whole batch, as in one process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from bspml.distributed.batch import gather_batch, gathered, mark_joint
from bspml.distributed.batch_norm import synchronize_batch_norm
from bspml.distributed.gradients import add_gradients, average_gradients, check_same_form
from bspml.distributed.group import rank, ranks
from bspml.distributed.main_rank import sync_weights
from bspml.distributed.rows import gather_sizes
from bspml.errors import InputError


def share_steps(trainer: Any, sampler: Any) -> None:
    """Have all ranks take each step of `trainer` together; nothing without other ranks.

    The step is that of one process on the sampler's batch: the same order of samples, the same
    loss and, up to rounding, the same gradients.  Batch normalisations use the statistics of all
    ranks.  What differs: dropout draws other masks than one process would.

    Args:
        trainer: a `MetricLossOnly` whose `data_and_label_getter` takes (x, y, i).
        sampler: its `PKSampler`; every rank has one of the same seed.

    Raises:
        InputError: a batch has fewer samples than there are ranks, the trainer has a
            `subset_batch_miner`, or was handed here before.
    """
    if ranks() == 1:
        return
    if isinstance(trainer.data_and_label_getter, _Gathering):
        raise InputError(
            "on several processes a trainer serves one AlternatingTrainer, and `trainer` was "
            "handed to another before. Go on with that one, or make a new trainer."
        )
    if "subset_batch_miner" in trainer.mining_funcs:
        raise InputError(
            "a `subset_batch_miner` chooses rows before they are gathered, so it cannot be used "
            "on several processes. Leave it out, or start one process."
        )
    sampler.share(rank(), ranks(), getattr(trainer, "micro_batches", 1))
    for module in [*trainer.models.values(), *trainer.loss_funcs.values()]:
        sync_weights(module)
    for model in trainer.models.values():
        synchronize_batch_norm(model)
    for module in [*trainer.loss_funcs.values(), *trainer.mining_funcs.values()]:
        mark_joint(module)
    batch = _Gathering(trainer.data_and_label_getter)
    trainer.data_and_label_getter = batch
    trainer.models["embedder"].register_forward_hook(batch.embeddings)
    # The first of the clippers: they come between the backward pass and the optimisers.
    trainer.gradient_clippers = {"ranks": _Gradients(trainer), **(trainer.gradient_clippers or {})}


class _Gathering:
    """One batch on its way: its sizes on the ranks are asked for once."""

    def __init__(self, getter: Callable[[Any], tuple[Any, Any]]) -> None:
        self.getter, self.sizes = getter, [0]
        self.weights = getattr(getter, "weights", None)  # for who clears them after the step

    def __call__(self, batch: Any) -> tuple[Any, Any]:
        """Return the inputs of this rank and the labels of all: a `data_and_label_getter`."""
        inputs, *rest = batch
        self.sizes = gather_sizes(len(inputs))
        rest = gathered(rest, lambda part: gather_batch(part, self.sizes))
        return self.getter((inputs, *rest))

    def embeddings(self, module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        """Return the embeddings of all ranks: a forward hook of the embedder."""
        return gather_batch(output, self.sizes) if module.training else output


class _Gradients:
    """Added up for the networks, which saw a part; averaged for the losses, which saw all."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.checked = trainer, False

    def __call__(self) -> None:
        parts = [p for model in self.trainer.models.values() for p in model.parameters()]
        wholes = [p for loss in self.trainer.loss_funcs.values() for p in loss.parameters()]
        if not self.checked:
            check_same_form([*parts, *wholes])
            self.checked = True
        add_gradients(parts)
        average_gradients(wholes)
