"""Data sets that say which sample they return, and the way of that index through a pml trainer.

pytorch-metric-learning's trainers hand the loss embeddings and labels, nothing else.  The one
place where they show a caller the whole batch is `data_and_label_getter`: there the index is
taken out and announced to the sample weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index as as_int
from typing import Any, Protocol, SupportsIndex, runtime_checkable

import numpy as np
import torch
from torch.utils.data import Dataset

from bspml.errors import InputError
from bspml.tensors.arguments import check_kind
from bspml.tensors.checks import as_numbers
from bspml.tensors.row_index import index_of


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
        dataset: sized and indexable, returning (x, y); or dictionaries, as a Hugging Face data set
            does.
        labels: (N,) integers to return instead of the data set's own, e.g. noisy ones.
        x: of dictionaries: the column to return as x.
        y: of dictionaries: the column of the labels; not needed where `labels` are given.

    Raises:
        InputError: a data set without a length, labels of another number or kind, or columns that
            are not there.

    Example:
        >>> ds = IndexedDataset([("a.jpg", 7), ("b.jpg", 9)], labels=[7, 8])
        >>> ds[1], ds[-1], len(ds)
        (('b.jpg', 8, 1), ('b.jpg', 8, 1), 2)
        >>> rows = [{"image": "a.jpg", "label": 7}, {"image": "b.jpg", "label": 9}]
        >>> IndexedDataset(rows, x="image", y="label")[1]
        ('b.jpg', 9, 1)
    """

    def __init__(
        self, dataset: Any, labels: Any = None, *, x: str | None = None, y: str | None = None
    ) -> None:
        indexable = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if not indexable or isinstance(dataset, Mapping):
            raise InputError(
                "`dataset` must have a length and an index; "
                f"got {type(dataset).__name__}. A stream has no rows to weigh."
            )
        if index_of(dataset) is not None:  # would give items by their label, rows by their place
            raise InputError(
                f"`dataset` is a pandas {type(dataset).__name__}, whose index is no row number. "
                "Use `list(zip(frame[x], frame[y]))` or another sequence of (input, label)."
            )
        self.dataset = dataset
        self.labels = None if labels is None else _integer_labels(labels, len(dataset))
        if y is not None and (x is None or labels is not None):
            raise InputError(
                "`y` names the column of the labels beside that of `x`; got it "
                f"{'without `x`' if x is None else 'and `labels`'}. Pass the one that is meant."
            )
        self.y, self._columns = y, (x, y)
        if (columns := getattr(dataset, "column_names", None)) is not None:
            self._check_columns(columns)

    def _check_columns(self, there: Iterable[str]) -> None:
        """Refuse a data set of dictionaries unless it has the columns that were named."""
        x, y = self._columns
        missing = [name for name in (x, y) if name is not None and name not in there]
        if x is not None and not missing and (y is not None or self.labels is not None):
            return
        said = f"no column {missing[0]!r}" if missing else "columns, and x= and y= must name two"
        raise InputError(
            f"`dataset` has {said}; its columns are {', '.join(map(repr, there))}. Use "
            'IndexedDataset(dataset, x="image", y="label") with the names of yours.'
        )

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
        x, y = self._pair(self.dataset[row], row)
        return x, y if self.labels is None else int(self.labels[row]), row

    def _pair(self, item: Any, row: int) -> Sequence[Any]:
        if isinstance(item, Mapping):
            self._check_columns(item)
            x, y = self._columns
            return item[x], None if y is None else item[y]
        if self._columns[0] is None and isinstance(item, tuple | list) and len(item) == 2:
            return item
        kind = f"{len(item)} values" if isinstance(item, tuple | list) else type(item).__name__
        if self._columns[0] is not None:
            raise InputError(
                f"`x` names a column, and `dataset` must return dictionaries; got {kind} at index "
                f"{row}. Leave x= and y= out for a data set of (x, y)."
            )
        raise InputError(
            f"`dataset` must return (x, y); got {kind} at index {row}. "
            "Wrap the data set itself, once."
        )


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
        refuse_text(y)
        weights.set_batch(index)
        return x, weights.relabelled(y, index)

    getter.weights = weights  # type: ignore[attr-defined]
    return getter


def refuse_text(labels: Any) -> None:
    """Refuse labels of a batch that no pytorch-metric-learning trainer takes.

    Args:
        labels: of the batch.

    Raises:
        InputError: they are text.
    """
    if isinstance(labels, list | tuple) and any(isinstance(label, str) for label in labels):
        raise InputError(
            "the batch's labels are text, and pytorch-metric-learning's trainers take numbers. "
            "Pass IndexedDataset(dataset, labels=weights.codes) with SampleWeights(labels)."
        )


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
    must, remedy = f"one integer per sample, ({n},)", "Encode names as numbers first."
    ids = as_numbers(labels, "labels", must, remedy)
    if ids.shape != (n,) or ids.is_floating_point() or ids.dtype == torch.bool:
        raise InputError(
            f"`labels` must be {must}; got shape {tuple(ids.shape)} of {ids.dtype}. {remedy}"
        )
    return ids.cpu().numpy()
