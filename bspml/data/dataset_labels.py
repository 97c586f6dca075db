"""The labels that a data set says it has, read without opening its items."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from bspml.data.indexed import IndexedDataset
from bspml.errors import InputError
from bspml.tensors.row_index import check_in_order

_COLUMNS = ("label", "labels")
_ATTRIBUTES = ("targets", "labels", "get_labels")  # torchvision; torchvision; Open Metric Learning


def labels_of(dataset: Any, name: str, remedy: str) -> np.ndarray:
    """Return the (N,) labels of a data set's columns or attributes, tensors, parts or list.

    Args:
        dataset: sized and indexable.
        name: of the caller's argument, for the message.
        remedy: what to do about a data set that does not say them; a sentence.

    Raises:
        InputError: it does not.  Reading every item could mean to open every photo.

    Example:
        >>> labels_of([("a.jpg", 7), ("b.jpg", 9)], "dataset", "").tolist()
        [7, 9]
    """
    labels = labels_said(dataset)
    if labels is None:
        raise InputError(
            f"`{name}` must say its labels, in a column `label` or `labels`, or as `targets` or "
            f"`labels`; {type(dataset).__name__} does not. {remedy}"
        )
    return labels


def labels_said(dataset: Any) -> np.ndarray | None:
    """Return what `labels_of` does, or None of a data set that does not say its labels."""
    if isinstance(dataset, Subset):
        whole = labels_said(dataset.dataset)
        return None if whole is None else whole[np.asarray(dataset.indices, dtype=np.int64)]
    if isinstance(dataset, ConcatDataset):
        if any(isinstance(part, IndexedDataset) for part in dataset.datasets):
            raise InputError(
                "a ConcatDataset of IndexedDatasets counts the rows of each from 0, and those of "
                "one would be taken for another's. Make IndexedDataset(ConcatDataset([...]))."
            )
        parts = [labels_said(part) for part in dataset.datasets]
        return None if any(p is None for p in parts) else _array([*chain(*parts)])  # type: ignore[arg-type]
    if isinstance(dataset, TensorDataset):
        return _array(dataset.tensors[1]) if len(dataset.tensors) > 1 else None
    if isinstance(dataset, IndexedDataset) and dataset.labels is None:
        rows, y = dataset.dataset, dataset.y
        return labels_said(rows) if y is None else _array(column_of(rows, y))
    if isinstance(dataset, list | tuple):
        pairs = all(isinstance(item, list | tuple) and len(item) > 1 for item in dataset)
        return _array([item[1] for item in dataset]) if pairs else None
    columns = getattr(dataset, "column_names", None) or ()
    if column := next((name for name in _COLUMNS if name in columns), None):
        return _array(column_of(dataset, column))
    said = (getattr(dataset, name, None) for name in _ATTRIBUTES)
    labels = next((labels for labels in said if labels is not None), None)
    return None if labels is None else _array(labels() if callable(labels) else labels)


def column_of(dataset: Any, name: str) -> Any:
    """Return a column as it is stored: a transform of items may want others, or rename it.

    Args:
        dataset: of Hugging Face, or another that columns are taken out of by name.
        name: of the column.
    """
    return (dataset.with_format(None) if hasattr(dataset, "with_format") else dataset)[name]


def _array(labels: Any) -> np.ndarray:
    if not isinstance(labels, Iterator):  # which is read once, here
        check_in_order(labels, "labels")
    values = labels.cpu() if hasattr(labels, "cpu") else list(labels)
    array = np.asarray(values)
    # Beside text, numpy makes text of numbers and of what is missing: 0 would be '0'.
    is_mixed = array.dtype.kind == "U" and not all(isinstance(value, str) for value in values)
    return np.array(values, dtype=object) if is_mixed else array
