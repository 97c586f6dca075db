"""What a curriculum needs beside a training of another framework, made where it was not given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from pytorch_metric_learning.utils import common_functions as c_f
from torch import Tensor, nn

from bspml.data.dataset_labels import labels_of
from bspml.data.drawn_rows import DrawnRows, check_order
from bspml.data.indexed import refuse_text
from bspml.distributed import ranks
from bspml.errors import InputError, UserError
from bspml.tensors.arguments import check_kind
from bspml.tensors.row_checks import embedded_rows
from bspml.trainers.curriculum import FixedCurriculum, SelfPacedCurriculum
from bspml.weights.state import SampleWeights

Curriculum = SelfPacedCurriculum | FixedCurriculum
# Trainers of pytorch-metric-learning whose steps embed other things than a batch's inputs.
_OTHER_STEPS = ("TwoStreamMetricLoss", "CascadedEmbeddings", "DeepAdversarialMetricLearning")
_PROBED = 16  # items whose labels are held against those of the data set


def make_curriculum(
    curriculum: Any, said: Callable[[], Any], labels: Any = None, warmup: str | None = None
) -> Curriculum:
    """Return the curriculum, or one of weights made of the labels where none is given.

    Args:
        curriculum: or None.
        said: returns the (N,) labels of the data set, where none are given.
        labels: (N,), for the weights of a curriculum that is made.
        warmup: of a curriculum that is made.

    Raises:
        InputError: of another kind, or beside what only one that is made can use.
    """
    if curriculum is None:
        labels = said() if labels is None else labels
        return SelfPacedCurriculum(SampleWeights(labels), warmup=warmup)
    kinds = "a SelfPacedCurriculum, a FixedCurriculum or None"
    check_kind(curriculum, "curriculum", (SelfPacedCurriculum, FixedCurriculum), kinds)
    if labels is not None or warmup is not None:
        name = "warmup" if labels is None else "labels"
        raise InputError(
            f"`{name}` is for a curriculum that is made here; got it beside `curriculum`. Make "
            "that one with it."
        )
    return curriculum


def make_sampler(
    weights: SampleWeights, items: int, labels_at: Callable[[list[int]], Any], batch_size: Any
) -> DrawnRows:
    """Return a sampler of all items of a data set, where the weights are theirs.

    Args:
        weights: of the curriculum.
        items: of the data set.
        labels_at: returns the labels of these items, as a batch has them.
        batch_size: the most rows of a batch.

    Raises:
        InputError: items of another number or other labels, or batches of less than two classes.
    """
    rows = list(range(0, items, max(1, items // _PROBED)))[:_PROBED]
    labels, error = labels_at(rows), None
    try:
        weights.named(rows, len(rows), labels.cpu() if isinstance(labels, Tensor) else None)
    except UserError as refused:
        error = refused
    if error is not None or len(weights) != items:
        raise InputError(
            f"the curriculum has {len(weights)} weights, the data set {items} items, and their "
            "labels must agree. Make both of the labels that are trained on, in their order."
        ) from error
    return DrawnRows.of_size(weights.codes, batch_size)


def _check_steps(trainer: Any) -> None:
    """Refuse a trainer whose batches are not of one input and label each, or are counted."""
    kind = next((k.__name__ for k in type(trainer).__mro__ if k.__name__ in _OTHER_STEPS), None)
    if kind is not None:
        raise InputError(
            f"`trainer` takes the steps of {kind}, whose batches the curriculum does not know. "
            "Use MetricLossOnly or TrainWithClassifier."
        )
    ours = isinstance(trainer.data_and_label_getter, PartsOfTrainer)  # rounds set the number
    # Training writes the loader's number there, too.
    counted = len(trainer.dataloader) if hasattr(trainer, "dataloader") else None
    if not ours and trainer.iterations_per_epoch not in (None, counted):
        raise InputError(
            f"`iterations_per_epoch` is {trainer.iterations_per_epoch}, and a round takes as many "
            "steps as the kept rows fill batches. Leave it out of the trainer, and say how long to "
            "train by train(epochs=...), which may be a fraction."
        )


def counted_losses(trainer: Any) -> list[nn.Module]:
    """Return the losses of a pytorch-metric-learning trainer that its steps compute.

    Args:
        trainer: with `loss_funcs` and `loss_weights`.
    """
    return [loss for name, loss in trainer.loss_funcs.items() if trainer.loss_weights.get(name)]


class PartsOfTrainer:
    """Sampler, curriculum and embeddings of a pytorch-metric-learning trainer, made from itself.

    The trainer then draws its batches from the sampler; its data set, `collate_fn` and
    `data_and_label_getter` stay as they are, and its batches are announced to the weights.  One
    that does so already, as where a notebook's cell runs twice, is handed on.

    Args:
        trainer: whose data set says its labels, or was given with `dataset_labels`.
        curriculum: of the same rows; None makes one.
        warmup: of the one that is made.

    Raises:
        InputError: a data set without labels, a sampler that cannot be replaced, several processes.
    """

    def __init__(self, trainer: Any, curriculum: Any = None, warmup: str | None = None) -> None:
        if ranks() > 1:
            raise InputError(
                "on several processes pass `sampler`, `curriculum` and `embed`, and give the "
                "trainer an IndexedDataset with sample_index_getter(weights)."
            )
        _check_steps(trainer)
        if isinstance(trainer.data_and_label_getter, PartsOfTrainer):  # made here before
            trainer.data_and_label_getter.give_back()
        check_order(trainer.sampler, "trainer.sampler", len(trainer.dataset))
        self.trainer, self.getter = trainer, trainer.data_and_label_getter
        self._before = trainer.sampler, trainer.iterations_per_epoch
        self.curriculum = make_curriculum(curriculum, self._labels, warmup=warmup)
        self.weights = self.curriculum.weights
        self.sampler = make_sampler(
            self.weights, len(trainer.dataset), self._labels_at, trainer.batch_size
        )
        trainer.sampler, trainer.data_and_label_getter = self.sampler, self

    def give_back(self) -> None:
        """Leave the trainer as it was before."""
        t = self.trainer
        t.data_and_label_getter, (t.sampler, t.iterations_per_epoch) = self.getter, self._before

    def __call__(self, batch: Any) -> tuple[Any, Any]:
        """Announce a batch: a `data_and_label_getter`."""
        x, y, *_ = self.getter(batch)  # of an IndexedDataset a row, too
        index = self.sampler.take(len(y))
        self.weights.check_items(y, index, wait=False)
        self.weights.set_batch(index)
        return x, self.weights.relabelled(y, index)

    def _labels(self) -> Any:
        given = self.trainer.dataset_labels
        if given is not None and len(given) == len(self.trainer.dataset):
            return given
        return labels_of(self.trainer.dataset, "trainer.dataset", "Pass it dataset_labels=labels.")

    def _labels_at(self, rows: list[int]) -> Any:
        collate = self.trainer.collate_fn or torch.utils.data.default_collate
        labels = self.getter(collate([self.trainer.dataset[row] for row in rows]))[1]
        refuse_text(labels)
        if len(labels) != len(rows) or getattr(labels, "ndim", 1) > 1:
            raise InputError(
                "a batch must have (B,) labels. Choose their level in `data_and_label_getter`: "
                "(batch[0], batch[1][:, level]), beside dataset_labels=labels[:, level]."
            )
        return labels

    @torch.no_grad()
    def embed(self) -> Tensor:
        """Return the (N, D) embeddings of the training set by trunk and embedder, in eval mode."""
        t = self.trainer
        if t.sampler is not self.sampler:
            raise InputError(
                "the trainer was handed to another AlternatingTrainer since. Train with that one."
            )
        of = t.dataset, t.batch_size, t.dataloader_num_workers, t.collate_fn
        loader = c_f.get_eval_dataloader(*of)
        loader.generator = torch.Generator()  # opening it would draw from torch's
        parts, in_turn = [], torch.arange(len(t.dataset)).split(t.batch_size)
        t.set_to_eval()
        try:
            for batch, index in zip(loader, in_turn, strict=True):
                x, y, *_ = self.getter(batch)
                self.weights.check_items(y, index)
                parts.append(embedded_rows(t.compute_embeddings(x), len(index)))
            return torch.cat(parts)
        finally:
            t.set_to_train()
