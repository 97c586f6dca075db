"""What Lightning's callback finds in a Trainer: parts of its batches, its loader, its module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from torch import nn

from bspml.data.sampler import PKSampler
from bspml.distributed import ranks
from bspml.errors import InputError
from bspml.shapes import Tensor


def in_full(module: nn.Module) -> set[nn.Parameter]:
    """Return what every rank computes the whole gradient of, times the number of ranks.

    They are the parameters of wrapped losses, such as proxies; DistributedDataParallel takes the
    mean, which is right for networks, of which each rank saw a part.

    Args:
        module: the user's.
    """
    wrappers = (m for m in module.modules() if isinstance(m, DistributedLossWrapper))
    whole = (p for w in wrappers if not w.efficient for p in w.parameters())
    return {p for p in whole if p.requires_grad} if ranks() > 1 else set()


class Embedder(nn.Module):
    """The module, or a function that uses it, in the Trainer's precision.

    Args:
        module: the user's.
        function: of a batch's inputs; None: the module itself.
        precision: the Trainer's plugin.
    """

    def __init__(self, module: nn.Module, function: Any, precision: Any) -> None:
        super().__init__()
        self.module, self.precision = module, precision
        self.function = module if function is None else function

    def forward(self, inputs: Any) -> Tensor:
        """Return the (B, D) embeddings of a batch's inputs."""
        with self.precision.forward_context():
            return self.function(self.precision.convert_input(inputs))


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
    has = list(batch) if isinstance(batch, Mapping) else f"a {type(batch).__name__} of {len(batch)}"
    raise InputError(
        f"the batch must have the {what} at {key!r}; got {has}. Wrap the data set in "
        "bspml.IndexedDataset, or say where it is with `keys=(input, label, row)`."
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
            f"the curriculum weighs the samples of one training loader; got {len(loader)}. "
            "Join the data sets into one, such as with torch.utils.data.ConcatDataset."
        )
    if getattr(loader, "batch_sampler", None) is not sampler:
        raise InputError(
            "training must draw from the `loader` that the callback was made with, or from its "
            "batch_sampler; got another. Give `fit` that one, or let `train_dataloader` return it."
        )
