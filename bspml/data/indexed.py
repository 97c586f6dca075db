"""Data sets that say which sample they return, and the way of that index through a pml trainer.

pytorch-metric-learning's trainers hand the loss embeddings and labels, nothing else.  The one
place where they show a caller the whole batch is `data_and_label_getter`: there the index is
taken out and announced to the sample weights.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index as as_int
from typing import Any, Protocol, SupportsIndex, runtime_checkable

import numpy as np
import torch
from torch.utils.data import Dataset

from bspml.errors import InputError
from bspml.tensors.arguments import check_kind


@runtime_checkable
class TakesBatch(Protocol):
    """What `sample_index_getter` needs of a SampleWeights."""

    def set_batch(self, sample_index: Any) -> None:
        """Announce the rows of the next batch."""

    def relabelled(self, labels: Any, sample_index: Any) -> Any:
        """Return the labels that these rows are trained under.

        Args:
            labels: (B,) the given ones.
            sample_index: (B,) data-set rows.
        """


class IndexedDataset(Dataset):
    """`dataset[i] = (x, y)` as `(x, y, i)`, i counting from 0.

    To train on a part, take `torch.utils.data.Subset(IndexedDataset(ds), rows)`: the indices are
    then those of the whole set, like the weights'.

    Args:
        dataset: sized and indexable, returning (x, y).
        labels: (N,) integers to return instead of the data set's own, e.g. noisy ones.

    Raises:
        InputError: a data set without a length, or labels of another number or kind.

    Example:
        >>> ds = IndexedDataset([("a.jpg", 7), ("b.jpg", 9)], labels=[7, 8])
        >>> ds[1], ds[-1], len(ds)
        (('b.jpg', 8, 1), ('b.jpg', 8, 1), 2)
    """

    def __init__(self, dataset: Any, labels: Any = None) -> None:
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise InputError(
                "`dataset` must have a length and an index; "
                f"got {type(dataset).__name__}. A stream has no rows to weigh."
            )
        self.dataset = dataset
        self.labels = None if labels is None else _integer_labels(labels, len(dataset))

    def __len__(self) -> int:
        return len(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        """Hand the epoch on to a data set whose views depend on it; the others need none."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __getitem__(self, index: SupportsIndex) -> tuple[Any, Any, int]:
        row = as_int(index)  # samplers yield numpy integers, too
        if not -len(self) <= row < len(self):
            raise IndexError(f"index {row} is outside the {len(self)} samples of the data set")
        row %= len(self)
        item = self.dataset[row]
        if not isinstance(item, tuple | list) or len(item) != 2:
            kind = f"{len(item)} values" if isinstance(item, tuple | list) else type(item).__name__
            raise InputError(
                f"`dataset` must return (x, y); got {kind} at index {row}. "
                "Wrap the data set itself, once."
            )
        x, y = item
        return x, y if self.labels is None else int(self.labels[row]), row


def sample_index_getter(weights: TakesBatch) -> Callable[[Any], tuple[Any, Any]]:
    """Return a `data_and_label_getter` for pytorch-metric-learning's trainers.

    It runs in the main process, batch by batch, before the miner and the loss: they then find
    their rows with `weights`.  A `subset_batch_miner` drops rows behind its back; the loss notices
    that the numbers differ and raises.

    Args:
        weights: the SampleWeights that the loss and the miner hold.

    Returns:
        A function from the batch (x, y, i) to (x, y), y the labels trained under; its `weights`
        are these, for who clears them after the step.
    """

    check_kind(weights, "weights", TakesBatch, "the SampleWeights that the loss holds")

    def getter(batch: Any) -> tuple[Any, Any]:
        x, y, index = _three(batch)
        weights.set_batch(index)
        return x, weights.relabelled(y, index)

    getter.weights = weights  # type: ignore[attr-defined]
    return getter


def clear_batch(getter: Any) -> None:
    """Forget the rows that a `sample_index_getter` announced; any other getter announced none."""
    forget = getattr(getattr(getter, "weights", None), "clear_batch", None)
    if forget is not None:
        forget()


def drop_sample_index(batch: Any) -> tuple[Any, Any]:
    """Return (x, y) of (x, y, i), as the `data_and_label_getter` of testers; no weights."""
    x, y, _ = _three(batch)
    return x, y


def _three(batch: Any) -> Any:
    if len(batch) != 3:
        raise InputError(
            f"the batch must be (x, y, i); got {len(batch)} values. "
            "Wrap the data set in IndexedDataset, and use this getter only with it."
        )
    return batch


def _integer_labels(labels: Any, n: int) -> np.ndarray:
    array = np.asarray(labels.cpu() if isinstance(labels, torch.Tensor) else labels)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise InputError(
            f"`labels` must be one integer per sample, ({n},); "
            f"got shape {array.shape} of {array.dtype}. Encode names as numbers first."
        )
    return array
