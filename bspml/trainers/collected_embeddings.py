"""Embeddings of a round's own steps, in the place of a second pass over the training set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bspml.tensors.checks import to_device
from bspml.weights.state import SampleWeights


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
                    shape = (len(weights), output.shape[1])
                    self.rows = torch.full(shape, float("nan"), device=output.device)
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
        missing = collected.isnan().any(1)
        if missing.any():
            rows = missing.nonzero()[:, 0]
            fresh = torch.as_tensor(embed())[rows] if embed_rows is None else embed_rows(rows)
            collected[missing] = torch.as_tensor(fresh).to(collected)
        return collected
