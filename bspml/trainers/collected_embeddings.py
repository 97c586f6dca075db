"""Embeddings of a round's own steps, in the place of a second pass over the training set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bspml.errors import InputError
from bspml.tensors.checks import check_choice, to_device
from bspml.weights.state import SampleWeights


def check_source(embeddings: Any, trainer: Any) -> None:
    """Refuse embeddings of another name, and collected ones of batches that lose rows.

    Args:
        embeddings: "fresh" or "collected".
        trainer: a pml trainer.

    Raises:
        InputError: neither, or "collected" beside a `subset_batch_miner`.
    """
    check_choice(embeddings, "embeddings", ["fresh", "collected"])
    if embeddings == "collected" and "subset_batch_miner" in trainer.mining_funcs:
        raise InputError(
            '`embeddings` is "collected", and the trainer\'s `subset_batch_miner` drops rows of '
            'each batch, so that nobody knows whose an embedding is. Take embeddings="fresh".'
        )


class CollectedEmbeddings:
    """The last embedding that each row of the data set had in a step of this round.

    Attributes:
        rows: (N, D), NaN where no step has visited; None before the first step.
    """

    rows: Tensor | None = None

    @contextmanager
    def collecting(self, embedder: torch.nn.Module, weights: SampleWeights) -> Iterator[None]:
        """Keep what a network returns in train mode, while the block runs.

        Args:
            embedder: the network's last part, whose output is an embedding.
            weights: was told of the rows of the batch (`sample_index_getter`).
        """

        def keep(module: Any, inputs: Any, output: Tensor) -> None:
            if module.training and weights.batch_index is not None:
                if self.rows is None:
                    self.rows = torch.full((len(weights), output.shape[1]), float("nan"))
                # A checkpoint is read to the CPU, whatever the device.
                self.rows = self.rows.to(output.device)
                index = to_device(weights.batch_index, output.device)
                self.rows[index] = output.detach().to(self.rows)

        handle = embedder.register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()

    def take(
        self, embed: Callable[[], Any], embed_rows: Callable[[Tensor], Any] | None
    ) -> Any:  # as `embed` returns it: the curriculum refuses what are no embeddings
        """Return (N, D), made afresh where no step visited a row; the next round starts with none.

        Args:
            embed: embeddings of all rows.
            embed_rows: of given rows; None takes them from `embed`.
        """
        if self.rows is None:
            return embed()
        collected, self.rows = self.rows, None
        rows = collected.isnan().any(1).nonzero()[:, 0]
        if len(rows):
            fresh = torch.as_tensor(embed())[rows] if embed_rows is None else embed_rows(rows)
            collected[rows] = torch.as_tensor(fresh).to(collected)
        return collected
