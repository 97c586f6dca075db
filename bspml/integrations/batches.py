"""What the callbacks ask of a training loader and of its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

import torch
from torch import Tensor

from bspml.data.dataset_labels import labels_said
from bspml.data.sampler import PKSampler
from bspml.errors import InputError
from bspml.tensors.checks import encode_labels
from bspml.weights.state import SampleWeights


def part_of(batch: Any, key: Any, what: str) -> Any:
    """Return a part of a batch.

    Args:
        batch: a tuple, list or mapping.
        key: of the part in it.
        what: it is, for the message.

    Raises:
        InputError: there is none; says what there is.
    """
    try:
        if isinstance(batch, tuple | list | Mapping):
            return batch[key]
    except (KeyError, IndexError):
        pass
    size = f" of {len(batch)}" if isinstance(batch, Sized) else ""
    has = list(batch) if isinstance(batch, Mapping) else f"a {type(batch).__name__}{size}"
    raise InputError(
        f"the batch must have the {what} at {key!r}; got {has}. Wrap the data set in "
        "bspml.IndexedDataset, or say where it is with `keys=(input, label, row)`."
    )


def put_in_place(labels: Any, believed: Tensor) -> None:
    """Write other labels over those of a batch, as the step will find them.

    Args:
        labels: (B,) in the batch: a tensor or a list.
        believed: (B,).

    Raises:
        InputError: labels that cannot be written.
    """
    if isinstance(labels, Tensor):
        labels.copy_(believed)
    elif isinstance(labels, list):
        labels[:] = believed.tolist()
    else:
        raise InputError(
            "the batch's labels must be a tensor or a list, for repaired ones to take their "
            f"place; got {type(labels).__name__}. Return a tensor from the `collate_fn`."
        )


def check_loader(loader: Any, sampler: PKSampler) -> None:
    """Refuse any other loader than one that draws from this sampler.

    Args:
        loader: of the training.
        sampler: of the callback.

    Raises:
        InputError: several loaders, or one that draws from elsewhere.
    """
    if isinstance(loader, tuple | list | Mapping):
        raise InputError(
            f"the curriculum weighs the samples of one training loader; got a "
            f"{type(loader).__name__} of {len(loader)}. Pass one by itself, or join the data sets "
            "into one, such as with torch.utils.data.ConcatDataset."
        )
    if getattr(loader, "batch_sampler", None) is not sampler:
        raise InputError(
            "training must draw from the `loader` that the callback was made with, or from its "
            "batch_sampler; got another. Give `fit` that one, or let `train_dataloader` return it."
        )


def check_same_labels(dataset: Any, weights: SampleWeights, name: str) -> None:
    """Refuse a data set of other labels: each sample would get the weight of a stranger.

    Names of classes may differ, and what says one class, or one for every row, is no label.

    Args:
        dataset: as many rows as `weights`.
        weights: of the rows.
        name: of `dataset`, for the message.

    Raises:
        InputError: it says labels, which group its rows otherwise.
    """
    labels = labels_said(dataset)
    if labels is None or labels.ndim != 1:
        return
    codes = encode_labels(labels, len(weights), name).codes
    both = torch.stack([codes, weights.codes.cpu()])
    classes = [len(row.unique()) for row in both]
    if {both.unique(dim=1).shape[1]} != set(classes) and classes[0] not in (1, len(codes)):
        raise InputError(
            f"`{name}` has other labels than the weights were made of: they group its rows "
            "otherwise. Make the weights of the labels that are trained on, in their order."
        )
