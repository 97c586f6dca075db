"""What one call of a loss or a miner knows of its rows: their weights, data-set indices, labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from bspml.errors import InputError
from bspml.shapes import Float, Int, Tensor
from bspml.tensors.checks import to_device
from bspml.tensors.row_checks import check_sample_index
from bspml.weights.state import SampleWeights


@dataclass(frozen=True)
class BatchWeights:
    """What one loss or miner call knows about its rows; None stands for all ones or unknown.

    Attributes:
        anchors: (B,) weights of the batch, None if there is no table.
        references: (R,) weights of the reference rows, None if they all weigh 1.
        sample_index: (B,) data-set rows of the batch.
        ref_sample_index: (R,) data-set rows of the references.
    """

    anchors: Float[Tensor, " B"] | None = None
    references: Float[Tensor, " R"] | None = None
    sample_index: Int[Tensor, " B"] | None = None
    ref_sample_index: Int[Tensor, " R"] | None = None

    def of(
        self, indices: Int[Tensor, "k n"], ref_rows: int | None
    ) -> tuple[Float[Tensor, " n"] | None, Int[Tensor, "k n"] | None]:
        """Return what samples, pairs or triplets weigh, the product over theirs, and their rows.

        Args:
            indices: (k, n) rows of the batch, and, from the second on, of its references.
            ref_rows: R, or None if the references are the batch itself.

        Returns:
            (n,) weights, None if all are 1; (k, n) data-set rows, -1 where unknown, or None.
        """
        if self.sample_index is None:
            return None, None
        weights = None if self.anchors is None else self.anchors[indices[0]]
        keys = [self.sample_index[indices[0]]]
        others = self.sample_index if ref_rows is None else self.ref_sample_index
        for rows in indices[1:]:
            if self.references is not None:
                factor = self.references[rows]
                weights = factor if weights is None else weights * factor
            keys.append(torch.full_like(rows, -1) if others is None else others[rows])
        return weights, torch.stack(keys)


def look_up(
    weights: SampleWeights | None,
    like: Tensor,
    ref_rows: int | None,
    sample_index: Any = None,
    ref_sample_index: Any = None,
    labels: Any = None,
    ref_labels: Any = None,
) -> BatchWeights:
    """Return weights and indices of a batch and of its references, on the device of `like`, and in
    its dtype but for half precision.

    Args:
        weights: the table; None looks nothing up and keeps the indices only to tell self pairs.
        like: (B, D) the embeddings the weights go with.
        ref_rows: R, or None if the references are the batch itself.
        sample_index: (B,), or None for what `weights.set_batch` announced.
        ref_sample_index: (R,), or None: the references then weigh 1, unless the batch comes from
            `weights.set_batch` and that named them too, or the labels are one object on both sides.
        labels: (B,) of the batch; the rows must have them.
        ref_labels: (R,) likewise; `labels` itself: row i is one sample on both sides.

    Raises:
        InputError: the number of indices is not the number of rows, rows of other labels than the
            batch's, or `ref_sample_index` came without references.
        SampleIndexError: unknown or out-of-range indices.
    """
    if ref_rows is None and ref_sample_index is not None:
        raise InputError("`ref_sample_index` names the rows of `ref_emb`, which was not given.")
    if weights is None or weights.names_nobody(sample_index):
        return BatchWeights(
            sample_index=_index_only(sample_index, len(like), "sample_index", like),
            ref_sample_index=_index_only(ref_sample_index, ref_rows, "ref_sample_index", like),
        )
    from_batch = sample_index is None
    index = weights.index_for_batch(len(like), sample_index, labels)
    anchors = _like(weights.weights[index], like)
    index = to_device(index, like.device)
    if ref_rows is None:
        return BatchWeights(anchors, anchors, index, None)
    if ref_sample_index is not None:
        ref_index = weights.named(ref_sample_index, ref_rows, ref_labels, "ref_sample_index")
    elif from_batch and weights.ref_batch_index is not None:
        announced = weights.ref_batch_index
        ref_index = weights.announced(announced, ref_rows, ref_labels, "ref_sample_index")
    elif labels is not None and ref_labels is labels:  # row i is one sample on both sides
        ref_index = index
    else:
        return BatchWeights(anchors, None, index, None)
    references = _like(weights.weights[ref_index], like)
    return BatchWeights(anchors, references, index, to_device(ref_index, like.device))


def trained_labels(
    weights: SampleWeights | None,
    labels: Tensor | None,
    ref_labels: Tensor | None,
    known: BatchWeights,
    pairs: Any = None,
) -> tuple[Tensor | None, Tensor | None]:
    """Return the labels of both sides with repaired ones in the place of those given.

    What was one object on both sides stays one, and references of unknown rows keep their labels.

    Args:
        weights: the table, or None.
        labels: (B,) in the terms of the batch: the labels themselves or their positions.
        ref_labels: (R,) likewise.
        known: what was looked up.
        pairs: a1, p, ... or a, p, n that were mined already, of these labels.

    Raises:
        InputError: `pairs` of given labels, which were repaired since.
    """
    if weights is None or not weights.any_repaired or labels is None or known.sample_index is None:
        return labels, ref_labels
    current, refs = weights.relabelled(labels, known.sample_index), ref_labels
    if ref_labels is labels:
        refs = current
    elif ref_labels is not None and known.ref_sample_index is not None:
        refs = weights.relabelled(ref_labels, known.ref_sample_index)
    if isinstance(pairs, list | tuple) and refs is not None and current is not labels:
        anchors, positives = pairs[:2]
        if bool((current[anchors] != refs[positives]).any()):
            raise InputError(
                "`indices_tuple` pairs samples whose labels were repaired as the given labels say. "
                "Hand `weights.relabelled(labels, sample_index)` to the miner and the loss, or "
                "mine with BSPMLMiner(weights), which looks them up."
            )
    return current, refs


def _like(weights: Tensor, like: Tensor) -> Tensor:
    # Half precision has no number for a small weight.
    return to_device(weights, like.device).to(torch.promote_types(like.dtype, torch.float32))


def _index_only(index: Any, rows: int | None, name: str, like: Tensor) -> Tensor | None:
    """Check indices without a table: only compared with each other, they have no upper end."""
    if index is None:
        return None
    return check_sample_index(index, 2**63 - 1, rows, name, like.device)
