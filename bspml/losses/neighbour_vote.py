"""A filter after [Galanakis 2024]: is a sample's label that of the samples it lies among?

    embeddings, labels, data-set rows
      -> neighbours   the k nearest of the last embeddings of all other samples
      -> keep         no label has more of them than the sample's own
      -> memory       every row, kept or not, in the place of its sample

No noise rate has to be known.  `bspml.losses.filtered` puts it before a loss.
"""

from __future__ import annotations

from typing import Any

import torch

from bspml.errors import InputError
from bspml.losses.pairs import prepare_batch
from bspml.losses.saved_numbers import RowMemory
from bspml.shapes import Bool, Float, Int, Tensor
from bspml.tensors.checks import check_whole
from bspml.tensors.row_checks import check_sample_index


class NeighbourVote(RowMemory):
    """Keep the samples whose label wins the vote of their nearest neighbours.

    The neighbours of a sample are the `k` most similar (cosine) of the embeddings that the other
    samples had when a batch last held them, at most an epoch or so old.  Each votes for its own
    given label; a draw is won by the sample's label.  Every row is kept until as many rows have
    been shown as there are samples, about one epoch.

    Updates in train mode only.  Its state is in `state_dict`, and it draws nothing at random, so a
    resumed run goes on exactly.  One process: ranks do not share their memories.

    Source: [Galanakis 2024], of which the abstract alone was at hand: noisy samples are recognised
    by their neighbourhood and left out of the training step, online and in the batch; the
    neighbourhood is of features of the whole data set from earlier epochs; no rate of noise is
    needed.
    Differs: how the neighbourhood decides is ours, the plurality of k votes, and so are k and the
    rule for draws; the memory is renewed with every batch, not once an epoch.

    Args:
        num_samples: N of the data set.
        embedding_size: D.
        k: neighbours that vote.

    Attributes:
        memory: (N, D) float32 buffer, the last embedding of each sample, normalised.
        memory_labels: (N,) int64 buffer, its label; -1: not met yet.

    Raises:
        InputError: an argument below 1.

    Example:
        >>> keep = NeighbourVote(num_samples=4, embedding_size=2, k=2)
        >>> emb = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.8, 0.2], [0.9, 0.2]])
        >>> labels = torch.tensor([0, 0, 0, 1])
        >>> keep(emb, labels, sample_index=[0, 1, 2, 3])  # remembers
        tensor([True, True, True, True])
        >>> keep(emb, labels, sample_index=[0, 1, 2, 3])  # the last lies among zeros
        tensor([ True,  True,  True, False])
    """

    memory_labels: Tensor
    saved_numbers = ("rows_shown",)
    needs_sample_index = True

    def __init__(self, num_samples: int, embedding_size: int, k: int = 10) -> None:
        super().__init__()
        num_samples = check_whole(num_samples, "num_samples", high=2**31)
        embedding_size = check_whole(embedding_size, "embedding_size", high=2**20)
        self.k = check_whole(k, "k")
        self.register_buffer("memory", torch.zeros(num_samples, embedding_size))
        self.register_buffer("memory_labels", torch.full((num_samples,), -1))
        self.rows_shown = 0

    @torch.no_grad()
    def forward(
        self, embeddings: Tensor, labels: Any, sample_index: Any = None
    ) -> Bool[Tensor, " B"]:
        """Return which rows to keep.

        Args:
            embeddings: (B, D) floats, normalised here.
            labels: (B,) integers, 0 at least.
            sample_index: (B,) the data-set row of each.

        Returns:
            (B,) bool, on the device of `embeddings`.

        Raises:
            InputError, SampleIndexError: what does not fit; nothing is remembered then.
        """
        rows, codes, index = self._prepare(embeddings, labels, sample_index)
        keep = torch.ones_like(codes, dtype=torch.bool)
        if self.rows_shown >= len(self.memory):
            keep = self.wins_vote(rows, codes, index)
        if self.training:
            self.memory[index], self.memory_labels[index] = rows, codes
            self.rows_shown += len(rows)
        return keep

    def _prepare(self, embeddings: Tensor, labels: Any, index: Any) -> tuple[Tensor, ...]:
        """Return normalised float32 rows, their codes and their places."""
        batch = prepare_batch(embeddings, labels)
        if batch.labels is None or index is None:
            missing = "labels" if batch.labels is None else "sample_index"
            raise InputError(f"`{missing}` must be given; got None. Neighbours vote by both.")
        rows = self.comparable(batch.embeddings)
        if len(batch.labels) and batch.labels.min() < 0:
            raise InputError(
                f"`labels` must be 0 at least; got {int(batch.labels.min())}. "
                "`SampleWeights(labels).codes` numbers the classes."
            )
        size, count = len(self.memory), len(batch.labels)
        places = check_sample_index(index, size, count, "sample_index", rows.device)
        return rows, batch.labels, places

    def wins_vote(
        self, rows: Float[Tensor, "B D"], codes: Int[Tensor, " B"], index: Int[Tensor, " B"]
    ) -> Bool[Tensor, " B"]:
        """Say whose label has at least as many votes as any other.

        Args:
            rows: (B, D) normalised.
            codes: (B,) labels.
            index: (B,) data-set rows, which do not vote for themselves.
        """
        with torch.autocast(rows.device.type, enabled=False):
            similarity = rows @ self.memory.T  # (B, N)
        similarity.masked_fill_(self.memory_labels < 0, -torch.inf)
        similarity.scatter_(1, index[:, None], -torch.inf)
        nearest = similarity.topk(min(self.k, len(self.memory)), dim=1)
        votes = self.memory_labels[nearest.indices]  # (B, K)
        counts = nearest.values > -torch.inf  # fewer than k others may have been met
        same = (votes[:, :, None] == votes[:, None, :]) & counts[:, None, :]
        most = (same.sum(2) * counts).amax(1)
        return ((votes == codes[:, None]) & counts).sum(1) >= most

    def extra_repr(self) -> str:
        """Return sizes, for `print(loss)`."""
        return f"{len(self.memory)} samples, {self.k} neighbours"
