"""Sample weights around any loss of pytorch-metric-learning.

    embeddings, labels, pairs, references
      -> weights of the rows             `SampleWeights`, by their data-set index
      -> rows of weight 0 leave          `kept_rows`: the batch as if it had never had them
      -> the loss                        as it is, where all that is left weighs 1
         or its values, weighted         `weighted_sums` inside log-sums, `TransformReducer` outside

Which loss takes weights between 0 and 1, and how, stands in `bspml.reducers.catalogue`.
"""

from __future__ import annotations

from typing import Any

from pytorch_metric_learning import losses as pml_losses, reducers as pml_reducers
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils.distributed import DistributedLossWrapper
from pytorch_metric_learning.utils.module_with_records import ModuleWithRecords
from torch import nn

from bspml.errors import InputError
from bspml.losses.bspml_loss import BSPMLLoss, WeightedMeanReducer
from bspml.losses.kept_rows import Rows, kept_rows, no_loss
from bspml.losses.pairs import codes_of_sides
from bspml.losses.positives import ChoiceWatch, PositiveWatch
from bspml.losses.reducers.catalogue import LossEntry, entry_of
from bspml.losses.reducers.inner import reducer_for
from bspml.losses.reducers.softmax import check_classes
from bspml.losses.reducers.transform import Call, Installed, TransformReducer
from bspml.losses.reducers.wrapping import held_by, table_of
from bspml.losses.weighted_sums import weighted_values
from bspml.shapes import Bool, Tensor
from bspml.tensors.checks import some_of
from bspml.tensors.modes import in_eval_mode
from bspml.weights.batch import BatchWeights, look_up, trained_labels
from bspml.weights.state import SampleWeights, check_weights


class Weighted(pml_losses.BaseMetricLossFunction):
    """A loss in which each sample counts as much as its weight w in [0, 1].

    Weight 0 is the same as leaving the sample out of the batch, value and gradient, whatever the
    loss: its pairs and triplets go, and so do its terms in every sum and its place in every mean.
    (A loss's running statistics and its regulariser of the embeddings see the batch without it.)
    With all weights 1 it is the loss itself.  A sample whose label was repaired is trained under
    its current one, whether the batch has that or the given one.  Between 0 and 1,

    - every value l of a sample is multiplied by w_i, of a pair by w_a w_b, of a triplet by
      w_a w_p w_n, and the divisor of a mean follows:  sum w l / sum w;  of MarginLoss, whose
      divisor counts the active sides of triplets, every active triplet counts alike in it;
    - inside a logarithm of a sum over samples (MultiSimilarity, SupCon, NTXent, Circle, NCA,
      TupletMargin, Angular, the lifted structures) sample j's terms are multiplied by w_j, so
      that a small weight is nearly absence there, too.  What has no value without positives
      (SupCon, NCA; Circle, nor without negatives) counts as much as the best of them; only in
      GeneralizedLiftedStructure an anchor without positives has a value, which none fades to;
    - a loss that has one number for the batch or a value per proxy (ProxyAnchor, PNP, Histogram,
      ...) takes weights 0 and 1 only.

    `SuperLoss(Weighted(loss, weights))` and `Weighted(SuperLoss(loss), weights)` are the same.
    Sums of losses: `MultipleLosses([Weighted(a, weights), Weighted(b, weights)])`, or, for weights
    0 and 1, `Weighted(MultipleLosses([a, b]), weights)`, where its miners, too, see no row of
    weight 0.  A memory goes around: `bspml.CrossBatchMemory(Weighted(loss, weights), ...)` looks a
    queued sample's weight up when it is used.  So does a DistributedLossWrapper.

    A miner goes inside, where it sees no row of weight 0 either: what a miner of the whole batch
    chose for an anchor (batch-hard, multi-similarity, distance-weighted) it chose among such rows,
    too, which may leave the anchor without any.  A batch drawn without them takes either.

    Args:
        loss: of pytorch-metric-learning or derived from it, wrapped in `SuperLoss` or not.
        weights: the `SampleWeights` of the data set.
        miner: mines every batch, called as miner(embeddings, labels) with what weighs more than 0;
            None: what a call brings counts.

    Attributes:
        num_kept, num_dropped: rows of the last batch.

    Raises:
        InputError: not a table of weights; a loss that cannot be weighted, by name and with the
            reason.

    Example:
        >>> import torch
        >>> from bspml import SampleWeights
        >>> weights = SampleWeights(["a", "a", "b", "a"])
        >>> weights.update([1, 1, 1, 0])
        >>> emb, codes = torch.tensor([[1.0, 0], [0.8, 0.6], [0, 1], [-1, 0]]), weights.codes
        >>> loss = Weighted(pml_losses.ContrastiveLoss(), weights)
        >>> bool(loss(emb, codes, sample_index=[0, 1, 2, 3]) == loss.loss(emb[:3], codes[:3]))
        True
    """

    def __init__(self, loss: nn.Module, weights: Any, miner: nn.Module | None = None) -> None:
        # Without the parents' reducer and distance: those of the loss are the ones that count.
        ModuleWithRecords.__init__(self)
        table = check_weights(weights)
        if table is None:
            raise InputError("`weights` must be given; got None. Pass SampleWeights(labels).")
        self.entry = _check(loss, table)
        if miner is not None and isinstance(loss, BSPMLLoss | pml_losses.MultipleLosses):
            raise InputError(f"`miner` goes into {type(loss).__name__} itself, which takes one.")
        if isinstance(loss, BSPMLLoss):
            _share(loss, table)
        self.loss, self.weights, self.miner = loss, table, miner
        self._chosen = ChoiceWatch()
        self._positives = PositiveWatch()
        # A loss with proxies compares with them.
        self._needs_positives = not any(p.numel() for p in loss.parameters())
        self.num_kept = self.num_dropped = 0
        self.add_to_recordable_attributes(list_of_names=["num_kept", "num_dropped"], is_stat=True)

    @property
    def distance(self) -> Any:
        """The distance of the loss."""
        return self.loss.distance

    @property
    def reducer(self) -> Any:
        """The reducer of the loss."""
        return self.loss.reducer

    def forward(
        self,
        embeddings: Tensor,
        labels: Any = None,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Any = None,
        *,
        sample_index: Any = None,
        ref_sample_index: Any = None,
    ) -> Any:
        """Return the loss of one batch; 0, with a gradient of 0, if every row weighs 0.

        Args:
            embeddings: (B, D) floats.
            labels: (B,).
            indices_tuple: pairs or triplets of a miner that chose for each by itself, or of a batch
                without rows of weight 0; or None.  Others go to the constructor's `miner`.
            ref_emb: (R, D), or None: the batch is compared with itself.
            ref_labels: (R,).
            sample_index: (B,) data-set rows; None takes what `weights.set_batch` announced.
            ref_sample_index: (R,) data-set rows of `ref_emb`; None: those of the batch where
                `ref_labels` is `labels` itself, else they weigh 1.

        Raises:
            InputError: a weight between 0 and 1 under a loss that takes none, pairs where there is
                a `miner`, or what the loss refuses.
            SampleIndexError: indices that do not fit.
        """
        if self.training and self.weights.names_nobody(sample_index):
            with in_eval_mode(self):  # its averages are the training's
                return self(embeddings, labels, indices_tuple, ref_emb, ref_labels)
        if isinstance(self.loss, BSPMLLoss):  # weighs by itself, without lists of kept rows
            index = {"sample_index": sample_index, "ref_sample_index": ref_sample_index}
            return self.loss(embeddings, labels, indices_tuple, ref_emb, ref_labels, **index)
        self.reset_stats()
        within = ref_emb is None or ref_emb is embeddings
        foreign = None if within else ref_emb
        if foreign is not None and isinstance(self.loss, pml_losses.MultipleLosses):
            raise InputError(
                "`ref_emb` is not taken by MultipleLosses; got one. Weigh each loss: "
                "Weighted(loss, weights)(embeddings, labels, None, ref_emb, ref_labels)."
            )
        codes, ref_codes = codes_of_sides(labels, embeddings, ref_labels, foreign)
        ref_rows = None if foreign is None else len(foreign)
        given = (sample_index, ref_sample_index, labels, ref_labels)
        known = look_up(self.weights, embeddings, ref_rows, *given)
        codes, ref_codes = trained_labels(self.weights, codes, ref_codes, known, indices_tuple)
        if within and self._needs_positives:
            self._positives.look(codes)
        rows = Rows(embeddings, codes, indices_tuple, foreign, None if within else ref_codes)
        rows, known = self._leave_out(rows, known)
        if self.num_kept == 0 or (rows.ref_emb is not None and len(rows.ref_emb) == 0):
            return no_loss(embeddings, self.loss)
        if self.miner is not None:
            if indices_tuple is not None:
                raise InputError(
                    "`indices_tuple` must be None where Weighted has a `miner`, which mines the "
                    "batch; got one. A memory's miner is CrossBatchMemory's."
                )
            references = () if rows.ref_emb is None else (rows.ref_emb, rows.ref_labels)
            pairs = self.miner(rows.embeddings, rows.labels, *references)
            rows = rows._replace(indices_tuple=pairs)
        check_classes(self.loss, rows.labels)
        return self._value(rows, known)

    def _leave_out(self, rows: Rows, known: BatchWeights) -> tuple[Rows, BatchWeights]:
        """The rows and references that weigh something, and what is known of them."""
        if known.anchors is None:  # of an evaluation
            self.num_kept, self.num_dropped = len(rows.embeddings), 0
            return rows, known
        keep = known.anchors > 0
        keep_refs = None if known.references is None else known.references > 0
        self.num_kept = int(keep.sum())
        self.num_dropped = len(keep) - self.num_kept
        if rows.ref_emb is None:
            keep_refs = None
        if self.num_dropped or (keep_refs is not None and not bool(keep_refs.all())):
            whole, rows = rows, kept_rows(rows, keep, keep_refs)
            if rows.ref_emb is None:
                self._chosen.look(whole.indices_tuple, rows.indices_tuple)
        left = BatchWeights(
            _fractional(known.anchors[keep]),
            _fractional(_picked(known.references, keep if rows.ref_emb is None else keep_refs)),
            _picked(known.sample_index, keep),
            _picked(known.ref_sample_index, keep_refs),
        )
        return rows, left

    def _value(self, rows: Rows, known: BatchWeights) -> Any:
        """The loss of rows that all weigh something."""
        loss: Any = self.loss
        is_weighted = known.anchors is not None or known.references is not None
        reducer = getattr(loss, "reducer", None)
        # pytorch-metric-learning multiplies values (B, 1) by the weights of all classes.
        ours = TransformReducer | pml_reducers.ClassWeightedReducer
        if not is_weighted and not isinstance(reducer, ours):
            value = loss(*(rows[:3] if rows.ref_emb is None else rows))
            # NCA drops rows without a positive, and the mean of no values is NaN: 0 below.
            is_number = isinstance(value, Tensor)  # else of a DoNothingReducer
            if not (self.entry.log_sum and is_number and bool(value.isnan())):
                return value
        if is_weighted and self.entry.weighting == "exclude":
            raise InputError(
                f"{type(loss).__name__} takes weights 0 and 1 only: {self.entry.refused}. Got a "
                f"weight between them{self._where()}. Use the curriculum's rule='threshold', "
                "or another loss."
            )
        loss.reset_stats()
        whole = Rows(*rows[:3], *c_f.set_ref_emb(*rows[:2], *rows[3:]))
        values = None
        if known.references is not None and self.entry.log_sum:
            values = weighted_values(loss, whole, known.references)
        if values is None:
            values = loss.compute_loss(*whole)
        loss.add_embedding_regularization_to_loss_dict(values, whole.embeddings)
        if not isinstance(reducer, TransformReducer):
            reducer = TransformReducer(reducer, Installed(type(loss).__name__, self.entry))
        ref_rows = None if rows.ref_emb is None else len(rows.ref_emb)
        reducer.call = Call(ref_rows, known=known)
        return reducer(values, whole.embeddings, whole.labels)

    def _where(self) -> str:
        """Name samples whose weight lies between 0 and 1."""
        weights = self.weights.weights
        between = ((weights > 0) & (weights < 1)).nonzero()[:, 0]
        return f" (samples {some_of(between)})" if len(between) else ""


def _picked(values: Tensor | None, keep: Bool[Tensor, " B"] | None) -> Tensor | None:
    return values if values is None or keep is None else values[keep]


def _fractional(weights: Tensor | None) -> Tensor | None:
    """None where every weight is 1: nothing is to be multiplied then."""
    return None if weights is None or bool((weights == 1).all()) else weights


def _share(loss: BSPMLLoss, table: SampleWeights) -> None:
    """Let the loss weigh by this table, as it does by its own."""
    if loss.weighting != "inside":
        raise InputError(
            f'BSPMLLoss(weighting="{loss.weighting}") cannot be Weighted: there a sample of weight '
            '0 still counts in the mean. Use weighting="inside".'
        )
    if loss.weights is not None and loss.weights is not table:
        raise InputError(
            "`weights` must be the table that the loss has already; got another one. "
            "Make both with the same SampleWeights object."
        )
    reducer = loss.reducer
    inner = reducer.inner if isinstance(reducer, TransformReducer) else reducer
    inner = reducer_for(inner, "loss")  # beside that of a regulariser
    if type(inner) not in _OF_WEIGHTS:
        raise InputError(
            f"BSPMLLoss(reducer={type(inner).__name__}()) cannot be Weighted: its mean counts "
            "samples, not their weights. Leave the reducer out, or take a SumReducer."
        )
    if isinstance(reducer, TransformReducer) and loss.weights is None:
        reducer.leave_weights_to_loss(table)
    loss.weights = table
    if loss.miner is not None and loss.miner.weights is None:
        loss.miner.weights = table


# Reducers whose mean counts the weights that BSPMLLoss tells, and those without a mean.
_OF_WEIGHTS = (WeightedMeanReducer, pml_reducers.SumReducer, pml_reducers.DoNothingReducer)

_AROUND = {
    "CrossBatchMemory": "bspml.CrossBatchMemory(Weighted(loss, weights), ...), which looks the "
    "weights of the samples in its queue up",
    "DistributedLossWrapper": "bspml.distributed.DistributedLossWrapper(Weighted(loss, weights))",
    "Weighted": "one Weighted around the loss",
}


def _check(loss: Any, table: SampleWeights) -> LossEntry:
    """The loss's entry, or a refusal that names the loss."""
    name = type(loss).__name__
    around = (pml_losses.CrossBatchMemory, DistributedLossWrapper, Weighted)
    if isinstance(loss, around):
        kind = next(k.__name__ for k in around if isinstance(loss, k))
        raise InputError(f"`loss` is a {name}, which goes around: use {_AROUND[kind]}.")
    if isinstance(loss, pml_losses.MultipleLosses):
        for part in held_by(loss):
            if table_of(part) is not None:
                raise InputError(
                    f"`loss` is MultipleLosses with a {type(part).__name__} that looks weights up "
                    "itself. Use MultipleLosses([Weighted(loss, weights), ...])."
                )
            _check(part, table)
        return LossEntry(
            refused="its losses are summed before a weight could be put on a value; "
            "MultipleLosses([Weighted(loss, weights), ...]) can"
        )
    if not isinstance(loss, pml_losses.BaseMetricLossFunction):
        raise InputError(
            f"`loss` must be a loss of pytorch-metric-learning, or MultipleLosses; got {name}. "
            "A loss of your own can derive from its BaseMetricLossFunction."
        )
    entry = entry_of(loss) or LossEntry(sub_losses=tuple(loss._sub_loss_names()))
    if entry.refused_weights:
        raise InputError(f"Weighted cannot go around {name}: {entry.refused_weights}.")
    if getattr(getattr(loss, "reducer", None), "sample_weights", table) not in (None, table):
        raise InputError(
            f"`loss` ({name}) was wrapped with another table as `sample_weights`. "
            "Make both with the same SampleWeights object."
        )
    return entry
