"""The multi-similarity miner that leaves out samples of weight 0."""

from __future__ import annotations

import math
from typing import Any

import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.miners import BaseMiner

from bspml.losses.mined_pairs import MinedPairs
from bspml.losses.pairs import PairBatch, label_masks, prepare_batch, self_pairs
from bspml.losses.similarity import check_distance, is_cosine, similarity_matrix
from bspml.shapes import Bool, Float, Tensor
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_number
from bspml.tensors.kernels.device import Mining, by_kernel, kernel, runs_pair_kernels
from bspml.weights.batch import BatchWeights, look_up
from bspml.weights.state import SampleWeights, check_weights


def _counted(mask: str) -> property:
    """The pairs of the last batch by the name of their mask; the parent sets their number to 0."""

    def count(miner: Any) -> int:
        """Pairs of the last batch, counted when asked for; waits for the device."""
        last = getattr(miner, mask)
        return int(last.sum()) if isinstance(last, Tensor) else last

    return property(count, lambda miner, number: setattr(miner, mask, number))


class BSPMLMiner(BaseMiner):
    """Keep the pairs that violate the margin, among samples of positive weight.

    Anchor i keeps its negative n if  S_in + epsilon > min_p S_ip  and its positive p if
    S_ip - epsilon < max_n S_in  [Zhang 2023, eq. (4) and (5)], with minimum and maximum over its
    positives and negatives of positive weight.  An anchor that lacks either has no pairs.

    Differs from the paper, which mines without weights: there a noisy sample, though its weight
    is 0, still decides through the thresholds which clean pairs are seen.

    Differs from pytorch-metric-learning's MultiSimilarityMiner: weights; a self pair never counts;
    rows with NaN raise (on an accelerator: are kept, so that the loss is NaN) instead of vanishing.
    With `skip_zero=False`, no table, or all weights positive the pairs are the same, in
    another order.

    Args:
        weights: the table of sample weights; None counts every sample.
        epsilon: margin, in units of the distance, at least 0.
        skip_zero: False mines without weights and needs no sample indices.
        **kwargs: of pytorch-metric-learning's BaseMiner: `distance` (default CosineSimilarity; also
            those where smaller is closer), `collect_stats`.

    Raises:
        InputError: `epsilon` negative, or not a finite number.

    Example:
        >>> emb = torch.tensor([[1., 0.], [.6, .8], [.8, .6], [0., 1.]])
        >>> weights = SampleWeights([0, 0, 1, 1])
        >>> weights.update([1, 1, 1, 0])
        >>> miner = BSPMLMiner(weights)
        >>> [t.tolist() for t in miner(emb, torch.tensor([0, 0, 1, 1]), sample_index=range(4))]
        [[0, 1], [1, 0], [0, 1], [2, 2]]
    """

    def __init__(
        self,
        weights: SampleWeights | None = None,
        epsilon: float | int = 0.1,
        skip_zero: bool = True,
        **kwargs: Any,
    ) -> None:
        check_flags(skip_zero=skip_zero)
        super().__init__(**kwargs)
        check_distance(self.distance)
        self.weights = check_weights(weights)
        self.epsilon = check_number(epsilon, "epsilon", low=0.0)
        self.skip_zero = skip_zero
        self.add_to_recordable_attributes(name="epsilon", is_stat=False)

    def forward(
        self,
        embeddings: Tensor,
        labels: Any,
        ref_emb: Tensor | None = None,
        ref_labels: Any = None,
        sample_index: Any = None,
        ref_sample_index: Any = None,
    ) -> MinedPairs:
        """Mine one batch.

        Args:
            embeddings: (B, D) floats.
            labels: (B,).
            ref_emb: (R, D) positives and negatives; None takes them from the batch.
            ref_labels: (R,).
            sample_index: (B,) data-set rows; None takes what `weights.set_batch` announced.
            ref_sample_index: (R,) data-set rows of `ref_emb`; None: those of the batch where
                `ref_labels` is `labels` itself, else they weigh 1.  A reference
                with the index of the anchor is the anchor itself and no pair.

        Returns:
            (a1, p, a2, n) int64: anchors and their positives, anchors and their negatives.  Listed
            when looked at; `BSPMLLoss` does not look, and takes the similarities over as well.

        Raises:
            InputError, SampleIndexError: shapes, values or indices that do not fit together.
        """
        self.reset_stats()
        with torch.no_grad():
            batch = prepare_batch(embeddings, labels, ref_emb, ref_labels)
            looks_up = self.skip_zero or (self.weights is not None and self.weights.any_repaired)
            table = self.weights if looks_up else None
            given = (sample_index, ref_sample_index, labels, ref_labels)
            known = look_up(table, batch.embeddings, batch.other_rows, *given)
            batch = batch.relabelled(table, known)
            matrix = similarity_matrix(batch.embeddings, batch.other_emb, self.distance)
            pairs = MinedPairs.of(*self.mine_masks(batch, known, matrix))
            if batch.within and is_cosine(self.distance):
                pairs.remember(embeddings, matrix)
        return pairs

    def mine(self, embeddings: Tensor, labels: Any, ref_emb: Tensor, ref_labels: Any) -> MinedPairs:
        """Run as pytorch-metric-learning's inner method: the same, with the announced batch.

        Args:
            embeddings: (B, D).
            labels: (B,).
            ref_emb: (R, D).
            ref_labels: (R,).
        """
        return self.forward(embeddings, labels, ref_emb, ref_labels)

    def mine_masks(
        self, batch: PairBatch, known: BatchWeights, matrix: Float[Tensor, "B R"]
    ) -> tuple[Bool[Tensor, "B R"], Bool[Tensor, "B R"]]:
        """Return the kept pairs as masks (B, R), given the similarities or distances (B, R).

        Args:
            batch: checked rows and references.
            known: their weights and data-set rows.
            matrix: (B, R) similarities or distances.
        """
        if batch.labels is not None and batch.ref_labels is not None and runs_pair_kernels(matrix):
            positive, negative = by_kernel(
                lambda: kernel("pairs.mined_masks")(*self.kernel_arguments(batch, known, matrix)),
                lambda: self.mined_by_operations(batch, known, matrix),
            )
        else:
            positive, negative = self.mined_by_operations(batch, known, matrix)
        # Not by the setters: a module's attributes take as long as ten operations.
        self.__dict__.update(_last_positive=positive, _last_negative=negative)
        return positive, negative

    def kernel_arguments(
        self, batch: PairBatch, known: BatchWeights, matrix: Float[Tensor, "B R"]
    ) -> tuple[Any, ...]:
        """Return what `bspml.tensors.kernels.pairs.mined_masks` takes.

        Args:
            batch: checked rows and references.
            known: their weights and data-set rows.
            matrix: (B, R) similarities or distances.
        """
        weighted = self.skip_zero and self.weights is not None
        return (
            matrix,
            batch.labels,
            batch.ref_labels,
            (known.anchors, known.references) if weighted else (None, None),
            # Within a batch the row tells what is a self pair.
            (None, None) if batch.within else (known.sample_index, known.ref_sample_index),
            Mining(batch.same_rows, self.distance.is_inverted, self.epsilon),
        )

    def mined_by_operations(
        self, batch: PairBatch, known: BatchWeights, matrix: Float[Tensor, "B R"]
    ) -> tuple[Bool[Tensor, "B R"], Bool[Tensor, "B R"]]:
        """Return the masks by torch's operations, on any device.

        Args:
            batch: checked rows and references.
            known: their weights and data-set rows.
            matrix: (B, R) similarities or distances.
        """
        same_sample = self_pairs(batch, known.sample_index, known.ref_sample_index)
        positive, negative = label_masks(batch, same_sample, *self._counting(known))
        closeness = matrix if self.distance.is_inverted else -matrix
        return keep_informative(closeness, positive, negative, self.epsilon)

    def _counting(self, known: BatchWeights) -> tuple[Tensor | None, Tensor | None]:
        """Which anchors (B,) and references (R,) have a positive weight; None: all count."""
        if not self.skip_zero or self.weights is None:
            return None, None
        anchors = None if known.anchors is None else known.anchors > 0
        if known.references is known.anchors:
            return anchors, anchors
        return anchors, None if known.references is None else known.references > 0

    num_pos_pairs = _counted("_last_positive")
    num_neg_pairs = _counted("_last_negative")

    def get_default_distance(self) -> CosineSimilarity:
        """Cosine similarity, as in the paper."""
        return CosineSimilarity()


def keep_informative(
    closeness: Float[Tensor, "B R"],
    positive: Bool[Tensor, "B R"],
    negative: Bool[Tensor, "B R"],
    epsilon: float,
) -> tuple[Bool[Tensor, "B R"], Bool[Tensor, "B R"]]:
    """Keep of these pairs those that violate the margin [Zhang 2023, eq. (4) and (5)].

    Args:
        closeness: (B, R), larger is closer.
        positive: (B, R), all positives.
        negative: (B, R), all negatives.
        epsilon: the margin.
    """
    if closeness.numel() == 0:
        return positive, negative
    hardest_negative = closeness.masked_fill(~negative, -math.inf).amax(1, keepdim=True)
    hardest_positive = closeness.masked_fill(~positive, math.inf).amin(1, keepdim=True)
    # Written as "not beyond the threshold", so that NaN, which compares false, stays in sight.
    easy_positive = closeness - epsilon >= hardest_negative
    easy_negative = closeness + epsilon <= hardest_positive
    return positive.gt(easy_positive), negative.gt(easy_negative)  # a > b: a and not b
