"""A loss on the samples of the batch that a filter keeps."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning.utils.module_with_records import ModuleWithRecords
from torch import nn

from bspml.errors import InputError
from bspml.losses.bspml_loss import BSPMLLoss
from bspml.losses.cross_batch_memory import CrossBatchMemory
from bspml.losses.kept_rows import Rows, kept_rows, loss_of_mined, no_loss
from bspml.losses.pairs import codes_of_sides
from bspml.losses.weighted import Weighted
from bspml.shapes import Bool, Float, Tensor
from bspml.weights.state import SampleWeights, check_weights


class FilteredLoss(ModuleWithRecords):
    """`loss` of the rows that `sample_filter` keeps, as if the batch had no others.

    Mining comes after filtering, so a dropped row moves no threshold either: give the miner here
    (or inside the loss), not to the trainer.

    Args:
        loss: any loss called as `loss(embeddings, labels, indices_tuple)`.
        sample_filter: module called as `sample_filter(embeddings, labels) -> (B,) bool`; with
            `sample_index=`, too, if it has the attribute `needs_sample_index = True`.
        miner: mines among the kept rows; None leaves pairs to the loss.
        weights: the table of the data set, to note for each sample whether it was kept.  What
            `weights.fix` decided holds: 0 leaves the batch before the filter, and more is kept.
            Its other numbers are read by `loss` alone, if at all.

    Attributes:
        num_kept, num_dropped: rows of the last batch.

    Raises:
        InputError: `weights` is no SampleWeights, or None where the filter needs rows named.

    Example:
        >>> class First(nn.Module):
        ...     def forward(self, embeddings, labels):
        ...         return torch.arange(len(labels)) < 2
        >>> loss = FilteredLoss(BSPMLLoss(beta=1), First())
        >>> emb = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
        >>> bool(loss(emb, torch.tensor([0, 1, 1])) == BSPMLLoss(beta=1)(emb[:2], [0, 1]))
        True
    """

    kept: Tensor

    def __init__(
        self,
        loss: nn.Module,
        sample_filter: nn.Module,
        miner: nn.Module | None = None,
        weights: SampleWeights | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.loss: nn.Module = loss
        self.sample_filter, self.miner = sample_filter, miner
        self.weights = check_weights(weights)
        self._names_rows = getattr(sample_filter, "needs_sample_index", False)
        if self._names_rows and weights is None:
            raise InputError(
                f"`weights` must be given: {type(sample_filter).__name__} knows samples by their "
                "data-set rows; got None. Pass weights=SampleWeights(labels)."
            )
        size = 0 if weights is None else len(weights)
        self.register_buffer("kept", torch.full((size,), float("nan")))
        self.num_kept = self.num_dropped = 0
        self.add_to_recordable_attributes(list_of_names=["num_kept", "num_dropped"], is_stat=True)

    def forward(
        self,
        embeddings: Tensor,
        labels: Any,
        indices_tuple: Any = None,
        ref_emb: Any = None,
        ref_labels: Any = None,
        *,
        sample_index: Any = None,
    ) -> Tensor:
        """Return the loss of the kept rows; 0, with a gradient of 0, if none is kept.

        Args:
            embeddings: (B, D) floats.
            labels: (B,).
            indices_tuple: not accepted: its rows would still include the dropped ones.
            ref_emb: not accepted: references have not been judged.
            ref_labels: likewise.
            sample_index: (B,) data-set rows, where `weights` was given; None takes what
                `weights.set_batch` announced.

        Raises:
            InputError, SampleIndexError: as named above, or what filter and loss refuse.
        """
        self.reset_stats()
        if indices_tuple is not None:
            raise InputError(
                "`indices_tuple` was mined among the rows that are dropped, too. Let the filtered "
                "loss mine: FilteredLoss(loss, sample_filter, miner=miner), and pass none."
            )
        if ref_emb is not None or ref_labels is not None:
            raise InputError("`ref_emb` is not filtered; pass the batch alone.")
        codes, _ = codes_of_sides(labels, embeddings, None, None)
        index, weights = None, self.weights
        if weights is not None and weights.names_nobody(sample_index):  # of an evaluation: all stay
            return loss_of_mined(self.loss, self.miner, embeddings, labels)
        if weights is not None:
            index = weights.index_for_batch(len(embeddings), sample_index, labels)
            codes = labels = weights.relabelled(codes, index)
        keep = self._kept(embeddings, labels, index)
        self.num_kept = int(keep.sum())
        self.num_dropped = len(keep) - self.num_kept
        if index is not None and self.training:
            self.kept[index.to(self.kept.device)] = keep.to(self.kept)
        if self.num_kept == 0:
            return no_loss(embeddings, self.loss)
        left = kept_rows(Rows(embeddings, codes), keep)
        if weights is None or index is None:
            return loss_of_mined(self.loss, self.miner, *left[:2])
        index = index.to(keep.device)[keep]
        takes_rows = isinstance(self.loss, BSPMLLoss | Weighted | CrossBatchMemory)
        named = {"sample_index": index} if takes_rows else {}
        with weights.only_rows(index):  # for whatever else looks weights up
            return loss_of_mined(self.loss, self.miner, *left[:2], **named)

    def _kept(self, embeddings: Tensor, codes: Any, index: Tensor | None) -> Bool[Tensor, " B"]:
        """Ask the filter, but of what a person decided, whose word is final.

        Wrong labels do not even reach its memory; right ones do where it keeps them itself.
        """
        if self.weights is None or index is None:
            return self.sample_filter(embeddings, codes)
        table, device = self.weights, embeddings.device
        fixed, positive = table.fixed[index].to(device), (table.weights[index] > 0).to(device)
        asked, right = ~fixed | positive, fixed & positive
        if not asked.any():
            return asked
        named = {"sample_index": index[asked.to(index.device)]} if self._names_rows else {}
        found = self.sample_filter(embeddings[asked], codes[asked.to(codes.device)], **named)
        return asked.masked_scatter(asked, found.to(asked)) | right

    def as_weights(self) -> Float[Tensor, " N"]:
        """Return (N,) 1 where the sample was kept the last time it came, or never came, else 0.

        Raises:
            InputError: made without `weights`, so samples have no names.
        """
        if self.weights is None:
            raise InputError(
                "which samples were kept is only known by their rows: make the loss with "
                "`weights=SampleWeights(labels)` and tell each batch's `sample_index`."
            )
        return self.kept.nan_to_num(nan=1.0)
