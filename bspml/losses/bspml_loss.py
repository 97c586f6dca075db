"""The multi-similarity loss with a weight per sample."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.reducers import BaseReducer, DivisorReducer, MeanReducer

from bspml.errors import InputError
from bspml.losses.log_sum import MultiSimilarityTerms, PairWeights, Scales
from bspml.losses.mined_pairs import MinedPairs
from bspml.losses.miners.bspml_miner import BSPMLMiner
from bspml.losses.pairs import (
    PairBatch,
    drop_self_pairs,
    indices_to_masks,
    label_masks,
    not_finite_marker,
    prepare_batch,
    self_pairs,
)
from bspml.losses.positives import PositiveWatch
from bspml.losses.similarity import check_distance, similarity_matrix
from bspml.shapes import Bool, Float, Tensor
from bspml.tensors.arguments import check_kind
from bspml.tensors.checks import check_choice, check_number
from bspml.weights.batch import BatchWeights, look_up
from bspml.weights.state import SampleWeights, check_weights


class WeightedMeanReducer(DivisorReducer):
    """Sum of the losses over the sum of the weights: the mean over the samples that count.

    pytorch-metric-learning's DivisorReducer, without its two waits for the device; a divisor of
    0 (no sample counts) gives 0 with a gradient of 0.  So does, but for rounding, one whose
    reciprocal, the gradient, would overflow.
    """

    def sum_and_divide(
        self, losses: Float[Tensor, " B"], embeddings: Tensor, divisor: Float[Tensor, ""]
    ) -> Float[Tensor, ""]:
        """Return a scalar; the last operation keeps no output, so trainers may scale it in place.

        Args:
            losses: (B,).
            embeddings: not used; pytorch-metric-learning passes it.
            divisor: 0-d, the sum of the weights.
        """
        smallest = torch.finfo(losses.dtype).tiny
        return losses.sum() / torch.where(divisor >= smallest, divisor, 1)


class BSPMLLoss(BaseMetricLossFunction):
    """Multi-similarity loss in which a sample counts as much as its weight w in [0, 1].

    With P and Q the positives and negatives of anchor i (mined, or all), element i is, for
    `weighting="inside"`,

        w_i [ 1/alpha log(1 + sum_P w_p e^{-alpha (S_ip - base)})
            + 1/beta  log(1 + sum_Q w_n e^{ beta  (S_in - base)}) ],

    and the loss is the sum over the batch divided by the sum of its w.  Weight 0 is then the same
    as leaving the sample out, of a regulariser, too.  For `weighting="paper"` [Zhang 2023, eq. (7)]
    it is

        w_i [ mean_P(w_p) / alpha log(1 + sum_P e^{-alpha (S_ip - base)})
            + mean_Q(w_n) / beta  log(1 + sum_Q e^{ beta  (S_in - base)}) ],

    averaged over the batch: a clean anchor is still pulled by each noisy pair, only less overall.

    With all weights 1 both are pytorch-metric-learning's MultiSimilarityLoss, value and gradient.
    Differs from it: one positive and one negative pair give their loss, not 0; a sample is never
    its own pair; half precision and autocast are computed, and returned, in float32; rows that
    are not finite raise on the CPU and give a NaN loss on an accelerator.

    Default distance: CosineSimilarity (distances where smaller is closer work too).
    Default reducer: `WeightedMeanReducer` for "inside", MeanReducer for "paper".
    Reducer input: "element", losses (B,), indices 0..B-1, and `divisor`, the sum of w.

    pytorch-metric-learning's CrossBatchMemory and SelfSupervisedLoss accept losses by class name
    and refuse this one.  For the first use `bspml.CrossBatchMemory`; for the second call the loss
    with both views stacked: `loss(cat([e, r]), cat([y, y]), sample_index=cat([idx, idx]))`.
    In its DistributedLossWrapper the loss sees the rows of every rank: see
    `SampleWeights.set_batch`; a batch whose indices are only this rank's is refused.

    Args:
        weights: the table of sample weights; None: every sample weighs 1.
        alpha: positive scale of the positives' exponent.
        beta: positive scale of the negatives' exponent.
        base: the similarity at which a pair's term is 1, the paper's rho.
        weighting: "inside" or "paper".
        miner: mines every batch that comes without `indices_tuple`, on the loss's own
            similarities.  The same pairs as calling the miner, for less: no pair is listed.
        **kwargs: of pytorch-metric-learning's losses: `distance`, `reducer`, `collect_stats`,
            `embedding_regularizer`, `embedding_reg_weight`.

    Raises:
        InputError: an argument out of range, or not finite.

    Example:
        >>> emb = torch.tensor([[1., 0.], [.8, .6], [.3, -.953939]])  # S_01 = .8, S_02 = .3
        >>> triplet = (torch.tensor([0]), torch.tensor([1]), torch.tensor([2]))
        >>> print(f"{3 * BSPMLLoss()(emb, indices_tuple=triplet):.6f}")  # one anchor of three
        0.218745
    """

    def __init__(
        self,
        weights: SampleWeights | None = None,
        alpha: float | int = 2,
        beta: float | int = 50,
        base: float | int = 0.5,
        weighting: str = "inside",
        miner: BSPMLMiner | None = None,
        **kwargs: Any,
    ) -> None:
        # Before super().__init__, which asks for the default reducer.
        self.weighting = check_choice(weighting, "weighting", ("inside", "paper"))
        super().__init__(**kwargs)
        check_distance(self.distance)
        check_kind(self.reducer, "reducer", BaseReducer, "a reducer of pytorch-metric-learning")
        self.weights = check_weights(weights)
        self.alpha = check_number(alpha, "alpha", low=0.0, open_low=True)
        self.beta = check_number(beta, "beta", low=0.0, open_low=True)
        self.base = check_number(base, "base")
        self.miner = check_fits(miner, self.weights, self.distance)
        self._positives = PositiveWatch()
        self.add_to_recordable_attributes(list_of_names=["alpha", "beta", "base"], is_stat=False)

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
        """Return the loss of one batch.

        Args:
            embeddings: (B, D) floats.
            labels: (B,); only needed without `indices_tuple`.
            indices_tuple: pairs (a1, p, a2, n) or triplets (a, p, n) from any miner; None takes
                all pairs, or those of `miner`; a `BSPMLMiner` mines the batch (it must have the
                table and distance of the loss: see `check_fits`).
            ref_emb: (R, D) positives and negatives; None takes them from the batch.
            ref_labels: (R,).
            sample_index: (B,) data-set rows; None takes what `weights.set_batch` announced.
            ref_sample_index: (R,) data-set rows of `ref_emb`; None: those of the batch where
                `ref_labels` is `labels` itself, else they weigh 1.  A reference
                with the index of the anchor is the anchor itself and no pair.

        Returns:
            What the reducer makes of the elements; by default a scalar.

        Raises:
            InputError, SampleIndexError: shapes, values or indices that do not fit together.
        """
        self.reset_stats()
        batch = prepare_batch(embeddings, labels, ref_emb, ref_labels)
        given = (sample_index, ref_sample_index, labels, ref_labels)
        batch_weights = look_up(self.weights, batch.embeddings, batch.other_rows, *given)
        batch = batch.relabelled(self.weights, batch_weights, indices_tuple)
        if batch.within:
            self._positives.look(batch.labels)
        with torch.autocast(batch.embeddings.device.type, enabled=False):
            loss_dict = self.element_losses(batch, indices_tuple, batch_weights)
            regular, anchors = batch.embeddings, batch_weights.anchors
            if self.embedding_regularizer and self.weighting == "inside" and anchors is not None:
                regular = regular[anchors > 0]
            if len(regular):
                self.add_embedding_regularization_to_loss_dict(loss_dict, regular)
            return self.reducer(loss_dict, batch.embeddings, batch.labels)

    def compute_loss(
        self, embeddings: Tensor, labels: Any, indices_tuple: Any, ref_emb: Tensor, ref_labels: Any
    ) -> dict[str, dict[str, Any]]:
        """Run as pytorch-metric-learning's inner method, with the announced batch: unreduced
        losses.

        Args:
            embeddings: (B, D).
            labels: (B,).
            indices_tuple: pairs or triplets, or None.
            ref_emb: (R, D).
            ref_labels: (R,).
        """
        batch = prepare_batch(embeddings, labels, ref_emb, ref_labels)
        known = {"labels": labels, "ref_labels": ref_labels}
        batch_weights = look_up(self.weights, batch.embeddings, batch.other_rows, **known)
        batch = batch.relabelled(self.weights, batch_weights, indices_tuple)
        return self.element_losses(batch, indices_tuple, batch_weights)

    def element_losses(
        self, batch: PairBatch, indices_tuple: Any, known: BatchWeights
    ) -> dict[str, dict[str, Any]]:
        """Return the (B,) elements, as the dictionary reducers take.

        Args:
            batch: checked rows and references.
            indices_tuple: pairs, triplets, a `BSPMLMiner`, or None.
            known: weights and data-set rows of the batch.
        """
        rows = len(batch.embeddings)
        if rows == 0 or len(batch.ref_emb) == 0:
            return self.zero_losses()
        matrix = self._similarities(batch, indices_tuple)  # (B, R)
        positive, negative = self.pair_masks(batch, indices_tuple, known, matrix)
        weights = self.factors(positive, negative, known)
        sign = 1 if self.distance.is_inverted else -1  # a distance turns both exponents round
        scales = Scales(sign * self.alpha, sign * self.beta, self.base)
        losses = MultiSimilarityTerms.apply(matrix, positive, negative, weights, scales)
        marker = not_finite_marker(batch)
        if marker is not None:
            losses = losses + marker
        anchors = matrix.new_ones(rows) if known.anchors is None else known.anchors
        return {
            "loss": {
                "losses": losses,  # (B,)
                "indices": torch.arange(rows, device=matrix.device),
                "reduction_type": "element",
                "divisor": anchors.sum(),
            }
        }

    def _similarities(self, batch: PairBatch, indices_tuple: Any) -> Float[Tensor, "B R"]:
        """Compute the matrix of the distance; reuse the product that our miner took already."""
        cosines = None
        if isinstance(indices_tuple, MinedPairs) and batch.within:
            cosines = indices_tuple.similarity_of(batch.given)
        return similarity_matrix(batch.embeddings, batch.other_emb, self.distance, cosines)

    def pair_masks(
        self,
        batch: PairBatch,
        indices_tuple: Any,
        known: BatchWeights,
        matrix: Float[Tensor, "B R"],
    ) -> tuple[Bool[Tensor, "B R"], Bool[Tensor, "B R"]]:
        """Return positives and negatives: as listed, else as our own miner says, else all.

        Args:
            batch: checked rows and references.
            indices_tuple: as in `element_losses`.
            known: weights and data-set rows of the batch.
            matrix: (B, R) similarities or distances.
        """
        if isinstance(indices_tuple, BSPMLMiner):
            return indices_tuple.mine_masks(batch, known, matrix.detach())
        same_sample = self_pairs(batch, known.sample_index, known.ref_sample_index)
        if indices_tuple is not None:
            absent = None
            if self.weighting == "inside" and known.references is not None:
                absent = known.references == 0
            positive, negative = indices_to_masks(indices_tuple, matrix, absent)
            return drop_self_pairs(batch, positive, negative, same_sample)
        if self.miner is not None:
            return self.miner.mine_masks(batch, known, matrix.detach())
        return label_masks(batch, same_sample)

    def factors(
        self, positive: Bool[Tensor, "B R"], negative: Bool[Tensor, "B R"], known: BatchWeights
    ) -> PairWeights:
        """Weigh the pairs by the samples' weights, as `weighting` says.

        Args:
            positive: (B, R), the positives.
            negative: (B, R), the negatives.
            known: weights of the batch.
        """
        anchors, references = known.anchors, known.references
        if self.weighting == "inside":
            return PairWeights(None if references is None else references.log(), anchors, anchors)
        if anchors is None or references is None:
            return PairWeights(None, anchors, anchors)
        sides = (anchors * mean_weight(side, references) for side in (positive, negative))
        return PairWeights(None, *sides)

    def get_default_reducer(self) -> BaseReducer:
        """Return the mean over the weight in the batch; over the batch for the paper's loss."""
        return WeightedMeanReducer() if self.weighting == "inside" else MeanReducer()

    def get_default_distance(self) -> CosineSimilarity:
        """Return cosine similarity, as in the paper."""
        return CosineSimilarity()


def check_fits(miner: Any, weights: SampleWeights | None, distance: Any) -> BSPMLMiner | None:
    """Return the loss mines on its own weights and similarities: a miner with others would be
    ignored.

    Args:
        miner: what the user passed.
        weights: the loss's table.
        distance: the loss's.

    Raises:
        InputError: not a `BSPMLMiner` with this table, or none, and with this distance.
    """
    if miner is None:
        return None
    if not isinstance(miner, BSPMLMiner):
        raise InputError(
            f"`miner` must be a BSPMLMiner; got {type(miner).__name__}. "
            "Call other miners yourself: loss(embeddings, labels, miner(embeddings, labels))."
        )
    if miner.weights is not None and miner.weights is not weights:
        raise InputError(
            "`miner` must share the loss's weights; got another table. "
            "Make both with the same SampleWeights object."
        )
    mine, ours = (
        (type(d), d.normalize_embeddings, d.p, d.power) for d in (miner.distance, distance)
    )
    if mine != ours:
        raise InputError(
            f"`miner` must have the loss's distance, {type(distance).__name__}; "
            f"got {type(miner.distance).__name__} or other settings. Give both the same one."
        )
    return miner


def mean_weight(keep: Bool[Tensor, "B R"], weights: Float[Tensor, " R"]) -> Float[Tensor, " B"]:
    """Return the mean weight of the kept pairs of each row; 0 for a row that keeps none.

    Args:
        keep: (B, R), the kept pairs.
        weights: (R,), of the references.
    """
    mask = keep.to(weights)  # (B, R)
    return (mask @ weights) / mask.sum(1).clamp(min=1)
