"""Save plain numbers of a module beside its buffers, which a resumed run would otherwise lose.

Modules of ours do so themselves; of a pytorch-metric-learning CrossBatchMemory whoever saves a
training asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytorch_metric_learning.losses import CrossBatchMemory
from torch import Tensor, nn

from bspml.errors import CheckpointError, InputError
from bspml.tensors.precision import KeepsDigits
from bspml.tensors.unit_rows import unit_rows


class SavedNumbers:
    """Mixin for modules whose state is more than buffers: the rest travels in `state_dict`, too.

    Attributes:
        saved_numbers: names of the attributes, each an int or a bool.
    """

    saved_numbers: tuple[str, ...]

    def get_extra_state(self) -> dict[str, int]:
        """Return what `state_dict` saves beside the buffers."""
        return {name: int(getattr(self, name)) for name in self.saved_numbers}

    def set_extra_state(self, state: Any) -> None:
        """Restore what `state_dict` saved beside the buffers.

        Raises:
            CheckpointError: a number is missing, or none that is counted to.
        """
        for name in self.saved_numbers:
            kind: Any = type(getattr(self, name))
            value: Any = dict(state).get(name)
            low, high = (0, 1) if kind is bool else self.bounds_of(name)
            if not isinstance(value, int) or not low <= int(value) <= high:
                raise CheckpointError(
                    f"the saved `{name}` of {type(self).__name__} must be a whole number from "
                    f"{low} to {high}; got {value!r:.16}. Resume with the state of such a module."
                )
            setattr(self, name, kind(value))

    def bounds_of(self, name: str) -> tuple[int, int]:
        """Return the least and the largest that a number can be.

        Args:
            name: of `saved_numbers`.
        """
        return 0, 2**62


class RowMemory(SavedNumbers, KeepsDigits):
    """A filter that remembers rows of earlier batches.

    Attributes:
        memory: (M, D) float32 buffer, normalised.
    """

    memory: Tensor

    def comparable(self, embeddings: Tensor) -> Tensor:
        """Return (B, D) rows as the memory holds them, which goes to their device.

        Args:
            embeddings: (B, D).

        Raises:
            InputError: rows of another length.
        """
        columns, size = embeddings.shape[1], self.memory.shape[1]
        if columns != size:
            raise InputError(
                f"`embeddings` must have the memory's {size} columns; got {columns}. Make the "
                f"filter with embedding_size={columns}."
            )
        if self.memory.device != embeddings.device:
            self.to(embeddings.device)
        return unit_rows(embeddings).to(self.memory.dtype)


def places_in_queues(holder: nn.Module) -> dict[str, tuple[int, bool]]:
    """Return where pytorch-metric-learning's memories in `holder` stand in their queues.

    Their `state_dict` holds the queues alone.

    Returns:
        {name of the memory in `holder`: (`queue_idx`, `has_been_filled`)}.
    """
    return {
        name: (memory.queue_idx, memory.has_been_filled)
        for name, memory in holder.named_modules()
        if isinstance(memory, CrossBatchMemory) and not isinstance(memory, SavedNumbers)
    }


def take_places_in_queues(holder: nn.Module, saved: Mapping[str, Any]) -> None:
    """Let memories stand where `places_in_queues` said; those it did not know stay.

    Args:
        holder: a loss, or a module with losses in it.
        saved: what was returned.

    Raises:
        CheckpointError: a place that such a queue does not have.
    """
    for name in places_in_queues(holder).keys() & saved.keys():
        memory: Any = holder.get_submodule(name)
        place, is_full = saved[name]
        if (
            type(is_full) is not bool
            or type(place) is not int
            or not 0 <= place <= len(memory.label_memory)
        ):
            raise CheckpointError(
                f"the checkpoint's place in the queue of a {type(memory).__name__} must be a whole "
                f"number up to {len(memory.label_memory)}; got {place!r:.16}. Resume with the "
                "configuration of the run."
            )
        memory.queue_idx, memory.has_been_filled = place, is_full
