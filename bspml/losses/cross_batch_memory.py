"""A memory of earlier batches that knows whose embeddings it holds."""

from __future__ import annotations

import threading
from typing import Any

import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.miners import MultiSimilarityMiner
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu

from bspml.distributed.group import rank, ranks
from bspml.errors import InputError
from bspml.losses.bspml_loss import BSPMLLoss, check_fits
from bspml.losses.kept_rows import Rows, kept_rows, loss_of_mined
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.losses.pairs import pair_indices, prepare_batch, without_self_pairs
from bspml.losses.reducers.wrapping import table_of
from bspml.losses.saved_numbers import SavedNumbers
from bspml.losses.weighted import Weighted
from bspml.shapes import Bool, Float, Int, Tensor
from bspml.tensors.arguments import check_kind
from bspml.tensors.checks import as_numbers, check_whole
from bspml.tensors.precision import KeepsDigits
from bspml.weights.batch import look_up, trained_labels
from bspml.weights.state import SampleWeights

_LISTED, _LISTING = lmu.get_matches_and_diffs, threading.RLock()
_KeepsDigits: Any = KeepsDigits  # as the parent is, whose attributes have no types
_FIRST_ANONYMOUS = 2**62  # indices of rows of unknown origin; no data-set row is that large


class CrossBatchMemory(SavedNumbers, _KeepsDigits, pml_losses.CrossBatchMemory):
    """Anchors of the batch against a queue of earlier embeddings, for weighted losses.

    pytorch-metric-learning's class of that name, with weights: each embedding is queued with its
    data-set row, and its weight is looked up when it is used.  A sample that loses its weight
    stops counting at once, however old its embedding.

    A sample is never its own pair, neither in the current batch nor by an older embedding of it.
    The parent removes only the current batch's, and after mining; here they are gone before, so
    they do not move the mining thresholds.  With distinct samples, and classes of more than one
    sample in the queue, both give the same loss without a miner, and with one of margins or
    hardest pairs.  With `enqueue_mask`, too, a row and a queued row of one sample are no pair.
    NCALoss alone, which takes no pairs, compares a sample with its own rows, as in the parent.

    Nor does a sample of weight 0 take part in mining (unless the miner is a `BSPMLMiner` with
    skip_zero=False, or the loss the paper's).  It keeps its place in the queue, for its weight may
    come back.

    Both hold for every miner that lists pairs or triplets with pytorch-metric-learning's functions,
    as all of that library do but the distance-weighted one, which draws positives evenly: of its
    draws those of the anchor itself are dropped.  Likewise of a miner of your own that compares
    labels by itself; thresholds that it takes over its matrix still see the anchor's own rows.

    Where a curriculum of the weights of loss or miner asks for a fresh network, the memory forgets
    the embeddings of the one before.  Without weights it cannot know: call `reset_queue()`.

    In pytorch-metric-learning's DistributedLossWrapper every rank sees the rows of all ranks, its
    own first.  They are queued rank by rank, so every rank holds the same queue, that of one
    process on the whole batch; in the parent each rank's queue differs.  Who gathers the rows
    otherwise passes `sample_index`: they are then queued in its order.

    Where all ranks are known to show the memory the whole batch in one order, `joint_batches` is
    set (`bspml.distributed` sets it), and the rows are queued as they come.

    The queue, its position and its indices are in `state_dict`, so a resumed run goes on exactly.
    Where neither loss nor miner has weights, losses of other classes are the parent's, unchanged.

    Args:
        loss: a `BSPMLLoss`, `Weighted` around a loss that the parent takes, or such a loss with
            `sample_weights` in its SuperLoss.
        embedding_size: D.
        memory_size: rows the queue holds; at least a batch.
        miner: any miner, a `BSPMLMiner` or one of pytorch-metric-learning; None takes all pairs,
            or what the loss's own miner says.

    Raises:
        InputError: a loss that cannot be used with a memory, or sizes below 1.

    Example:
        >>> memory = CrossBatchMemory(BSPMLLoss(), embedding_size=2, memory_size=4)
        >>> emb = torch.tensor([[1.0, 0.0], [0.6, 0.8]])
        >>> first = memory(emb, torch.tensor([0, 1]), sample_index=[0, 1])
        >>> second = memory(emb, torch.tensor([0, 1]), sample_index=[2, 3])  # and the two before
        >>> memory.index_memory.tolist(), bool(second > first)
        ([0, 1, 2, 3], True)
    """

    embedding_memory: Tensor
    label_memory: Tensor
    index_memory: Tensor
    _restarts = 0  # of the network, when the queue was last looked at
    # The parent keeps the first two as plain attributes, which a resumed run would start anew.
    saved_numbers = ("queue_idx", "has_been_filled", "next_anonymous")

    def __init__(
        self,
        loss: torch.nn.Module,
        embedding_size: int,
        memory_size: int = 1024,
        miner: torch.nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        embedding_size = check_whole(embedding_size, "embedding_size", high=2**20)
        memory_size = check_whole(memory_size, "memory_size", high=2**28)
        if miner is not None:
            mines = "a miner of pytorch-metric-learning, a BSPMLMiner or None"
            check_kind(miner, "miner", torch.nn.Module, mines)
        super().__init__(loss, embedding_size, memory_size=memory_size, miner=miner, **kwargs)
        self._weighed = loss.loss if isinstance(loss, Weighted) else loss
        self.check_loss_support(type(self._weighed).__name__)
        self.joint_batches = False

    @staticmethod
    def supported_losses() -> list[str]:
        """Return names of loss classes, as the parent wants them."""
        return [*pml_losses.CrossBatchMemory.supported_losses(), "Weighted", "BSPMLLoss"]

    @classmethod
    def check_loss_support(cls, loss_name: str) -> None:
        """Raise if losses of this name do not work on references."""
        if loss_name not in cls.supported_losses():
            raise InputError(
                f"`loss` must be one of {', '.join(cls.supported_losses())}; got {loss_name}."
            )

    def forward(
        self,
        embeddings: Tensor,
        labels: Any,
        indices_tuple: Any = None,
        enqueue_mask: Any = None,
        *,
        sample_index: Any = None,
    ) -> Tensor:
        """Queue the batch, then compare it with the whole queue.

        Args:
            embeddings: (B, D) floats.
            labels: (B,).
            indices_tuple: not accepted: a batch's row numbers mean nothing in the queue.
            enqueue_mask: (B,) bool; these rows are queued, the others are the anchors.
            sample_index: (B,) data-set rows; None takes what `weights.set_batch` announced.

        Raises:
            InputError, SampleIndexError: the batch does not fit; nothing has been queued then.
        """
        if indices_tuple is not None:
            raise InputError(
                "`indices_tuple` holds rows of the batch, which are not rows of the memory. "
                "Let the memory mine: CrossBatchMemory(loss, ..., miner=miner), and pass none."
            )
        self._forget_former_network()
        table, weighs_itself = self._weight_table(), isinstance(self.loss, BSPMLLoss | Weighted)
        if table is None and not weighs_itself:
            return super().forward(embeddings, labels, enqueue_mask=enqueue_mask)
        self.reset_stats()
        batch = prepare_batch(embeddings, labels)
        if batch.labels is None:
            raise InputError("`labels` must be given; got None. The memory pairs by label.")
        self._check_fits(batch.embeddings)
        if table is not None and table.names_nobody(sample_index):  # of an evaluation: not queued
            return loss_of_mined(self.loss, self.miner, embeddings, labels)
        batch_weights = look_up(table, batch.embeddings, None, sample_index, labels=labels)
        queued, anchors = self._queue_split(enqueue_mask, len(embeddings), batch.embeddings.device)
        order = torch.arange(len(embeddings), device=batch.embeddings.device)
        if not self.joint_batches:
            order_index = None if sample_index is None else batch_weights.sample_index
            order = order_on_every_rank(batch.embeddings.detach(), order_index)
        index = batch_weights.sample_index
        if index is None:
            index = self._anonymous(order)

        rows = order if enqueue_mask is None else order[queued[order]]
        kept = batch.labels if table is None else table.as_given(batch.labels, index)
        self._enqueue(batch.embeddings[rows], kept[rows], index[rows])
        size = self.memory_size if self.has_been_filled else self.queue_idx
        labels, _ = trained_labels(table, batch.labels, None, batch_weights)
        assert labels is not None
        call = (batch.embeddings[anchors], labels[anchors])
        memory = (self.embedding_memory[:size], self._queued_labels(size))
        indices = {"sample_index": index[anchors], "ref_sample_index": self.index_memory[:size]}
        pairs = self.miner
        if pairs is not None and not self._mines_inside():
            pairs = self._mine(Rows(*call, None, *memory), *indices.values())
        if not isinstance(self._weighed, BSPMLLoss):  # which tells a sample from itself
            listed = lmu.get_all_pairs_indices(call[1], memory[1]) if pairs is None else pairs
            pairs = without_self_pairs(tuple(listed), **indices)
        takes_rows = weighs_itself or table_of(self.loss) is not None
        return self.loss(*call, pairs, *memory, **(indices if takes_rows else {}))

    def _queued_labels(self, size: int) -> Tensor:
        """Return the labels of the queue, repaired ones in the place of those queued."""
        labels, table = self.label_memory[:size], self._weight_table()
        return labels if table is None else table.relabelled(labels, self.index_memory[:size])

    def _mines_inside(self) -> bool:
        """Return whether the loss may call our miner: one product for both, without lists."""
        is_ours = type(self.miner) is BSPMLMiner and isinstance(self._weighed, BSPMLLoss)
        if not is_ours or self._unseen() not in (None, self.miner.weights):
            return False
        try:
            check_fits(self.miner, self.loss.weights, self.loss.distance)
        except InputError:
            return False
        return True

    def _unseen(self) -> SampleWeights | None:
        """Return the table whose samples of weight 0 the miner must not see; None: it sees all."""
        # In the paper's loss a sample of weight 0 is there, and for a miner that is told so.
        is_paper = getattr(self._weighed, "weighting", "inside") == "paper"
        sees_all = is_paper or not getattr(self.miner, "skip_zero", True)
        return None if sees_all else table_of(self.loss)

    def _mine(self, rows: Rows, index: Tensor, ref_index: Tensor) -> tuple[Tensor, ...]:
        """Return the miner's pairs, chosen as if samples of weight 0 were not there."""
        table = self._unseen()
        if table is None:
            return _mine_others(self.miner, rows, index, ref_index)
        keep = [(table[i] > 0).to(i.device) for i in (index, ref_index)]
        found = _mine_others(self.miner, kept_rows(rows, *keep), index[keep[0]], ref_index[keep[1]])
        anchors, others = (kept.nonzero()[:, 0] for kept in keep)
        numbers = (anchors, others, others) if len(found) == 3 else (anchors, others) * 2
        return tuple(n[pair_indices(i, n.device)] for n, i in zip(numbers, found, strict=True))

    def _weight_table(self) -> SampleWeights | None:
        """Return the weights that the loss or the miner looks up, if any: these need known rows."""
        return table_of(self.loss) or table_of(self.miner)

    def _forget_former_network(self) -> None:
        """Empty the queue where a curriculum has asked for a fresh network since it was filled."""
        restarts = getattr(self._weight_table(), "restarts", self._restarts)
        if restarts != self._restarts:
            self._restarts = restarts
            self.reset_queue()

    def _queue_split(
        self, enqueue_mask: Any, rows: int, device: torch.device
    ) -> tuple[Bool[Tensor, " B"], Bool[Tensor, " B"] | slice]:
        """Choose the rows to queue and the anchors; refuse a wrong mask before any is queued."""
        queued = torch.ones(rows, dtype=torch.bool, device=device)
        anchors: Tensor | slice = slice(None)  # a mask of all rows would wait for the device
        if enqueue_mask is not None:
            bools = f"({rows},) bools, one per row"
            queued = as_numbers(enqueue_mask, "enqueue_mask", bools, "True queues a row.")
            if queued.shape == (0,):  # an empty list reads as floats
                queued = queued.bool()
            queued = queued.to(device)
            if queued.shape != (rows,) or queued.dtype != torch.bool:
                raise InputError(
                    f"`enqueue_mask` must be {bools}; got {tuple(queued.shape)} of {queued.dtype}."
                )
            anchors = ~queued
        queue_rows = rows if enqueue_mask is None else int(queued.sum())
        if queue_rows > self.memory_size:
            raise InputError(
                f"`memory_size` must be at least the rows queued at once, {queue_rows}; "
                f"got {self.memory_size}."
            )
        return queued, anchors

    def _check_fits(self, embeddings: Tensor) -> None:
        """Check that the rows fit those in the queue."""
        if embeddings.shape[1] != self.embedding_size:
            raise InputError(
                f"`embeddings` must have the memory's {self.embedding_size} columns; "
                f"got {embeddings.shape[1]}. Make it with embedding_size={embeddings.shape[1]}."
            )
        dtype = self.embedding_memory.dtype
        if (self.has_been_filled or self.queue_idx > 0) and embeddings.dtype != dtype:
            raise InputError(
                f"`embeddings` must be {dtype} like those in the memory; got {embeddings.dtype}. "
                "Convert them, or forget the others with `reset_queue()`."
            )

    def _anonymous(self, order: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Return new indices for rows of unknown origin: equal to none but themselves."""
        index = order.argsort() + self.next_anonymous
        self.next_anonymous += len(order)
        return index

    def _enqueue(self, embeddings: Tensor, labels: Tensor, index: Tensor) -> None:
        if len(embeddings) == 0:
            return  # the parent would take a full circle of 0 rows for a filled queue
        self.embedding_memory = self.embedding_memory.to(embeddings)
        self.label_memory = self.label_memory.to(labels)
        self.index_memory = self.index_memory.to(index.device)
        self.add_to_memory(embeddings, labels, len(embeddings))
        self.index_memory[self.curr_batch_idx] = index

    def reset_queue(self) -> None:
        """Empty the queue."""
        super().reset_queue()
        self.register_buffer("index_memory", torch.full((self.memory_size,), -1))
        self.next_anonymous = _FIRST_ANONYMOUS

    def bounds_of(self, name: str) -> tuple[int, int]:
        """Return the least and the largest that a saved number can be.

        Args:
            name: of `saved_numbers`.
        """
        if name == "queue_idx":
            return 0, self.memory_size
        return _FIRST_ANONYMOUS, 2**63 - 1

    def _save_to_state_dict(self, *args: Any) -> None:
        self._forget_former_network()
        super()._save_to_state_dict(*args)

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args: Any) -> None:
        """Take the saved precision: a float64 queue rounded to float32 would not resume exactly."""
        self._forget_former_network()  # what is loaded is the present one's
        for name in ("embedding_memory", "label_memory"):
            buffer = state_dict.get(prefix + name)
            if buffer is not None and buffer.shape == getattr(self, name).shape:
                setattr(self, name, getattr(self, name).to(buffer.dtype))
        super()._load_from_state_dict(state_dict, prefix, *args)


def _mine_others(miner: Any, rows: Rows, index: Tensor, ref_index: Tensor) -> tuple[Tensor, ...]:
    """Return what a miner chooses among the pairs of different samples.

    pytorch-metric-learning's miners see another sample in the anchor's copy in the queue.  They
    start from lists of pairs, which take no mask: the function that makes them is replaced while a
    miner is at work, for its labels alone.  The multi-similarity miner reads the whole matrix, too;
    ours finds its pairs.
    """
    call, indices = (*rows[:2], *rows[3:]), {"sample_index": index, "ref_sample_index": ref_index}
    if isinstance(miner, BSPMLMiner):
        return miner(*call, **indices)
    if getattr(type(miner), "mine", None) is MultiSimilarityMiner.mine:
        found = BSPMLMiner(epsilon=miner.epsilon, distance=miner.distance)(*call, **indices)
        miner.output_assertion(found)  # counts them
        return found
    if len(index) == 0 or len(ref_index) == 0:  # where a row has no minimum
        return (index[:0],) * 4
    same = index[:, None] == ref_index

    def others(labels: Tensor, ref_labels: Any = None) -> Any:
        masks = _LISTED(labels, ref_labels)
        is_ours = labels is rows.labels and ref_labels is rows.ref_labels
        return [mask.masked_fill(same, 0) for mask in masks] if is_ours else masks

    with _LISTING:  # again, where a miner holds a memory of its own
        before = lmu.get_matches_and_diffs
        try:
            lmu.get_matches_and_diffs = others
            return miner(*call)
        finally:
            lmu.get_matches_and_diffs = before


def order_on_every_rank(
    embeddings: Float[Tensor, "B D"], sample_index: Int[Tensor, " B"] | None
) -> Int[Tensor, " B"]:
    """Return the order to queue the rows in, so that all ranks queue the same rows in the same
    order.

    Without other ranks the rows stay as they are.  With them a call without index can only come
    from pytorch-metric-learning's DistributedLossWrapper (or is about this rank's rows alone, and
    then any order does): its rows, own rank first, are put back in the order of the ranks.  Who
    passes an index has gathered the rows in a way unknown here, so they are sorted: by index, and
    several views of a sample by their content.

    Args:
        embeddings: (B, D) the rows.
        sample_index: (B,) data-set rows, if the call named them.

    Returns:
        (B,) row numbers, on the device of `embeddings`.
    """
    rows = torch.arange(len(embeddings), device=embeddings.device)
    if ranks() == 1 or len(rows) == 0:
        return rows
    if sample_index is not None:
        content = torch.unique(embeddings, dim=0, return_inverse=True)[1].argsort(stable=True)
        return content[sample_index[content].argsort(stable=True)]
    if len(rows) % ranks():
        return rows  # not the wrapper's: its ranks have batches of one size
    own = rank()
    blocks = [*range(1, own + 1), 0, *range(own + 1, ranks())]
    return rows.view(ranks(), -1)[blocks].flatten()
