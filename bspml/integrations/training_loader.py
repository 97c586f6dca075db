"""The loader that Lightning trains on, in its user's hand: while `fit` runs a PKSampler draws."""

from __future__ import annotations

import random
from collections.abc import Callable, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, SequentialSampler, Subset

from bspml.data.dataset_labels import labels_of
from bspml.data.drawn_rows import DrawnRows, check_order
from bspml.data.sampler import PKSampler
from bspml.distributed.rows import copy_of_main
from bspml.errors import InputError
from bspml.integrations.batches import check_same_labels, part_of
from bspml.networks import InputBatches
from bspml.tensors.arguments import check_kind
from bspml.trainers.made_parts import make_sampler
from bspml.weights.state import SampleWeights

# How the user's loader reads items and joins them; each by the name of the argument.
_READING = ("collate_fn", "num_workers", "worker_init_fn", "multiprocessing_context", "timeout")


class TrainingLoader:
    """A loader, what it draws from during a training, and which rows a batch has.

    Args:
        loader: a DataLoader whose batch sampler is a `PKSampler`, or a plain one.
        keys: where input, label and, where items say it, the row stand; None: first, second and,
            with a PKSampler, third.

    Attributes:
        sampler: a `PKSampler`: the loader's, or the one of `fit_to`.

    Raises:
        InputError: another loader; says what it lacks.
    """

    sampler: PKSampler

    def __init__(self, loader: Any, keys: tuple[Any, ...] | None) -> None:
        self.loader = loader
        sampler: Any = getattr(loader, "batch_sampler", None)
        self.is_plain = not isinstance(sampler, PKSampler)
        if self.is_plain:
            _check_plain(loader)
        else:
            self.sampler = sampler
        self.dataset = loader.dataset
        self.keys = ((0, 1) if self.is_plain else (0, 1, 2)) if keys is None else keys
        if not isinstance(self.keys, tuple | list) or len(self.keys) not in (2, 3):
            raise InputError(
                "`keys` must be a tuple of where input, label and, if items say it, the row "
                f"stand; got {keys!r}. Pass keys=(input, label) or keys=(input, label, row)."
            )
        self._generator = torch.Generator()
        self._before: dict[str, Any] | None = None  # what the user's loader drew from
        self._reload: int | None = None  # the user's setting, while ours stands in its place

    def labels_said(self) -> Any:
        """Return the labels that the data set says it has, or refuse one that says none."""
        remedy = "Pass them: CurriculumCallback(loader, labels=labels)."
        return labels_of(self.dataset, "loader.dataset", remedy)

    def fit_to(self, weights: SampleWeights, embedded: Any) -> PKSampler:
        """Return the loader's sampler; that of a plain one is made, where its labels fit.

        Args:
            weights: one per item.
            embedded: data set or tensor of the samples that are embedded.

        Raises:
            InputError: other numbers of samples, batches of too few rows, or labels of others.
        """
        check_kind(embedded, "data", Sized, "a tensor (N, ...) or a data set with a length")
        items = len(self.dataset)
        if self.is_plain:
            size = self.loader.batch_size or getattr(self.loader.batch_sampler, "batch_size", None)
            self.sampler = make_sampler(weights, items, self._labels_at, size)
        sizes = len(weights), self.sampler.drawn_from()["num_samples"], items, len(embedded)
        if len(set(sizes)) > 1:
            raise InputError(
                "weights, sampler, data set of `loader` and `data` must have one row per sample; "
                f"got {sizes[0]}, {sizes[1]}, {sizes[2]} and {sizes[3]}. Make them of the same "
                "labels."
            )
        if embedded is not self.dataset:
            check_same_labels(embedded, weights, "data")
        return self.sampler

    def _labels_at(self, rows: list[int]) -> Any:
        batch = self.loader.collate_fn([self.dataset[row] for row in rows])
        return part_of(batch, self.keys[1], "label")

    def in_order(
        self, batch_size: int, prepare: Callable[[Any], Any], weights: SampleWeights
    ) -> Callable[[slice], InputBatches]:
        """Return what makes batches of the inputs of some rows, in order, as a training sees them.

        Args:
            batch_size: rows of a batch.
            prepare: what else a batch goes through after the `collate_fn`.
            weights: of the rows, whose labels the items must have.
        """

        def batches(rows: slice) -> InputBatches:
            in_turn = iter(torch.arange(len(self.dataset))[rows].split(batch_size))

            def inputs_of(batch: Any) -> Tensor:
                weights.check_items(part_of(batch, self.keys[1], "label"), next(in_turn))
                return part_of(prepare(batch), self.keys[0], "input")

            loader = DataLoader(
                Subset(self.dataset, range(len(self.dataset))[rows]),
                batch_size,
                generator=torch.Generator(),  # opening it would draw from the global one
                **{name: getattr(self.loader, name) for name in _READING},
            )
            return InputBatches(loader, inputs_of)

        return batches

    def begin(self) -> None:
        """Have the loader draw from the sampler, as if it had been made with it."""
        held = vars(self.loader)  # a DataLoader forbids to set its sampler; it is asked for anew
        if self.is_plain:
            self.sampler.seed = int(copy_of_main(torch.tensor(self.sampler.seed)))
        if self._before is None:
            self._before = {name: held[name] for name in ("batch_sampler", "sampler", "generator")}
        # As of a loader made with it; the iterator is that of workers that stay.  Opening it would
        # draw from the global generator, or from its user's, which no checkpoint holds.
        drawn = {"sampler": SequentialSampler(self.dataset), "generator": self._generator}
        held.update(drawn, batch_sampler=self.sampler, _iterator=None)

    def end(self) -> None:
        """Leave the loader as it was."""
        if self._before is not None:
            vars(self.loader).update(self._before, _iterator=None)
        self._before = None

    def place(self, epoch: int, step: int, seed: int) -> None:
        """Put sampler, workers and views at a place.

        Args:
            epoch: counted from 0.
            step: batches of it that are done.
            seed: of the workers.
        """
        self.sampler.set_epoch(epoch, step)
        self._generator.manual_seed(random.Random(f"{seed} {epoch}").getrandbits(63))
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def refuse_in(self, loaders: Any) -> None:
        """Refuse to validate on what the weights keep.

        Args:
            loaders: of the validation.

        Raises:
            InputError: the one of the training is among them.
        """
        if any(other is self.loader for other in tree_leaves(loaders)):
            raise InputError(
                "the loader of the training draws what the weights keep, which is no validation "
                "set. Validate with a DataLoader of its own, of the same data set if you like."
            )

    def open_anew(self, trainer: Any) -> None:
        """Have Lightning open the loader, and count its batches, when it next looks at it."""
        if self._reload is None:
            self._reload = trainer.reload_dataloaders_every_n_epochs
        trainer.reload_dataloaders_every_n_epochs = -1  # due at any epoch, this one included

    def opened(self, trainer: Any) -> None:
        """Give Lightning the user's setting back."""
        if self._reload is not None:
            trainer.reload_dataloaders_every_n_epochs, self._reload = self._reload, None

    def rows_and_labels(self, batch: Any, weights: SampleWeights) -> tuple[Tensor, Any]:
        """Return the (B,) data-set rows of the next batch, and its labels as they stand in it.

        Args:
            batch: of the training; each is asked for once, in turn.
            weights: of the rows, whose labels the batch must have.

        Raises:
            InputError: it lacks a part, or has another number of rows, or other labels.
        """
        _, label, *row = self.keys
        if isinstance(self.sampler, DrawnRows) and not row:
            labels = part_of(batch, label, "label")
            index = self.sampler.take(len(labels))
        else:
            index = torch.as_tensor(part_of(batch, row[0] if row else 2, "data-set row"))
            labels = part_of(batch, label, "label")
        weights.check_items(labels, index, wait=False)
        return index, labels


def _check_plain(loader: Any) -> None:
    dataset: Any = getattr(loader, "dataset", None)
    if not (
        isinstance(loader, DataLoader)
        and hasattr(dataset, "__len__")
        and loader.batch_sampler is not None
        and getattr(loader, "in_order", True)
    ):
        raise InputError(
            "`loader` must be a torch DataLoader that makes batches, in order, of a data set with "
            f"a length; got {type(loader).__name__} of {type(dataset).__name__}. A stream has no "
            "rows to weigh."
        )
    sampler = loader.sampler if loader.batch_size else loader.batch_sampler
    check_order(sampler, "loader", len(dataset))
