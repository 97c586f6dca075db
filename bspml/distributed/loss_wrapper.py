"""pytorch-metric-learning's DistributedLossWrapper, with sample indices and uneven batches."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning.utils import distributed as pml_distributed
from torch import nn

from bspml.distributed.batch import gather_batch, gather_own_first, gathered, mark_joint
from bspml.distributed.group import ranks
from bspml.shapes import Tensor
from bspml.tensors.arguments import check_flags


class DistributedLossWrapper(pml_distributed.DistributedLossWrapper):
    """A loss of the batches of all ranks together, for networks in DistributedDataParallel.

    pytorch-metric-learning's class of that name, the same row order (own rank first) and the same
    factor: the loss is multiplied by the number of ranks, because DistributedDataParallel divides
    the gradients' sum by it.  W ranks with B samples each then take the step of one process with
    W B samples.  Differs from the parent:

    - `sample_index` is gathered in the same order, so a `BSPMLLoss` finds its rows' weights;
    - the ranks' batches may differ in size;
    - a CrossBatchMemory gets the rows in the order of the ranks, so all ranks queue the same;
    - one process is no reason to warn.

    Parameters of the loss itself (proxies) are no part of the network: all ranks compute the whole
    of their gradient, W times.  Do not put them into DistributedDataParallel; divide by `ranks()`.

    Args:
        loss: any loss that the parent takes.
        efficient: anchors are this rank's rows only.  Cheaper, but no longer the gradient of one
            process: a row is not moved by the pairs whose anchor is on another rank, and a mean
            over anchors is each rank's own.
    """

    def __init__(self, loss: Any, efficient: bool = False) -> None:
        check_flags(efficient=efficient)
        super().__init__(loss, efficient)
        if not efficient:
            mark_joint(loss)

    def forward(
        self,
        embeddings: Tensor,
        labels: Any = None,
        indices_tuple: Any = None,
        ref_emb: Any = None,
        ref_labels: Any = None,
        enqueue_mask: Any = None,
        *,
        sample_index: Any = None,
        ref_sample_index: Any = None,
    ) -> Any:
        """Return the loss of all ranks' rows, times the number of ranks.

        Args:
            embeddings: (B_r, D) this rank's.
            labels: (B_r,).
            indices_tuple: of a DistributedMinerWrapper: about the gathered rows.
            ref_emb, ref_labels: as in the parent.
            enqueue_mask: (B_r,) bool, for a CrossBatchMemory.
            sample_index: (B_r,) data-set rows of this rank's part.
            ref_sample_index: likewise, of `ref_emb`.
        """
        mask = _as_keyword("enqueue_mask", embeddings, enqueue_mask)
        index = _as_keyword("sample_index", embeddings, sample_index)
        ref_index = _as_keyword("ref_sample_index", embeddings, ref_sample_index)
        if isinstance(self.loss, pml_distributed.CrossBatchMemory):
            emb, y, mask, index = (gathered(v) for v in (embeddings, labels, mask, index))
            return ranks() * self.loss(emb, y, indices_tuple, **mask, **index)
        emb, y, refs, index, ref_index = (
            gathered(v, gather_own_first)
            for v in (embeddings, labels, (ref_emb, ref_labels), index, ref_index)
        )
        if not self.efficient or ranks() == 1:
            return ranks() * self.loss(emb, y, indices_tuple, *refs, **index, **ref_index)
        if ref_emb is None:
            refs, ref_index = (emb, y), {f"ref_{name}": rows for name, rows in index.items()}
        own = _as_keyword("sample_index", embeddings, sample_index)
        if indices_tuple is None and not own:  # nothing else tells an anchor from itself
            indices_tuple = pml_distributed.get_indices_tuple(labels, refs[1])
        return ranks() * self.loss(embeddings, labels, indices_tuple, *refs, **own, **ref_index)


def _as_keyword(name: str, like: Tensor, value: Any) -> dict[str, Tensor]:
    """Return the keyword, unless it was left out: not every loss knows it."""
    return {} if value is None else {name: torch.as_tensor(value, device=like.device)}


def announce_rows(weights: Any, sample_index: Tensor, module: nn.Module) -> None:
    """Announce this rank's rows of a batch in the order in which a wrapped loss will see them.

    Args:
        weights: the `SampleWeights` that the loss looks up.
        sample_index: (B_r,) data-set rows of this rank's part.
        module: what holds the loss.  Without a DistributedLossWrapper in it, pytorch-metric-
            learning's or ours, the loss sees this rank's rows only.
    """
    wrapper = next(
        (m for m in module.modules() if isinstance(m, pml_distributed.DistributedLossWrapper)), None
    )
    if wrapper is None or ranks() == 1:
        weights.set_batch(sample_index)
    elif isinstance(wrapper, DistributedLossWrapper) and isinstance(
        wrapper.loss, pml_distributed.CrossBatchMemory
    ):
        weights.set_batch(gather_batch(sample_index))
    elif wrapper.efficient:
        weights.set_batch(sample_index, gather_own_first(sample_index))
    else:
        weights.set_batch(gather_own_first(sample_index))


def computed_in_full(module: nn.Module) -> set[nn.Parameter]:
    """Return what every rank computes the whole gradient of, times the number of ranks.

    They are the parameters of wrapped losses, such as proxies; DistributedDataParallel takes the
    mean, which is right for networks, of which each rank saw a part.
    """
    wrappers = (
        m for m in module.modules() if isinstance(m, pml_distributed.DistributedLossWrapper)
    )
    whole = (p for w in wrappers if not w.efficient for p in w.parameters())
    return {p for p in whole if p.requires_grad} if ranks() > 1 else set()
