"""Pairs of a batch: which references are positives and which are negatives of which anchor.

Losses and miners both start here, so that they agree on precision, on what a self pair is, and
on what a pair list means.  Masks are (B, R): batch rows by reference rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from bspml.errors import InputError
from bspml.losses.mined_pairs import MinedPairs
from bspml.losses.similarity import widen
from bspml.shapes import Bool, Float, Int, Tensor
from bspml.tensors.checks import FLOATS, as_numbers, check_finite, to_device
from bspml.tensors.row_checks import check_class_ids
from bspml.weights.batch import BatchWeights, trained_labels
from bspml.weights.state import SampleWeights


@dataclass(frozen=True)
class PairBatch:
    """A checked batch and what it is compared with.

    Attributes:
        embeddings: (B, D), at least float32.
        labels: (B,), or None.
        ref_emb: (R, D) of the same dtype; `embeddings` itself without references.
        ref_labels: (R,), or None.
        within: the references are the batch itself.
        same_rows: row i of both sides is one sample, so the diagonal holds self pairs.
        given: (B, D) the very tensor the caller passed, before any conversion.
    """

    embeddings: Float[Tensor, "B D"]
    labels: Tensor | None
    ref_emb: Float[Tensor, "R D"]
    ref_labels: Tensor | None
    within: bool
    same_rows: bool
    given: Tensor

    @property
    def other_emb(self) -> Float[Tensor, "R D"] | None:
        """The foreign references; None if the batch is compared with itself."""
        return None if self.within else self.ref_emb

    @property
    def other_rows(self) -> int | None:
        """R of foreign references, else None."""
        return None if self.within else len(self.ref_emb)

    def relabelled(
        self, weights: SampleWeights | None, known: BatchWeights, pairs: Any = None
    ) -> PairBatch:
        """Return it with repaired labels in the place of those given, where there are any.

        Args:
            weights: the table, or None.
            known: what was looked up.
            pairs: that were mined already; see `trained_labels`.
        """
        both = trained_labels(weights, self.labels, self.ref_labels, known, pairs)
        if both[0] is self.labels and both[1] is self.ref_labels:
            return self
        return replace(self, labels=both[0], ref_labels=both[1])


def prepare_batch(
    embeddings: Tensor, labels: Any = None, ref_emb: Tensor | None = None, ref_labels: Any = None
) -> PairBatch:
    """Check a batch and its references, and bring them to one device and precision.

    Half precision becomes float32: in 8 or 11 bits the order of similarities, and with it the
    mined pairs, changes.  As in pytorch-metric-learning, passing the same embeddings or the same
    label tensor on both sides means that row i is one sample on both sides.

    Args:
        embeddings: (B, D) floats.
        labels: (B,), or None.
        ref_emb: (R, D), or None: the batch is compared with itself.
        ref_labels: (R,), or None.

    Raises:
        InputError: wrong shapes or dtypes, or, on the CPU, a row that is not finite.  On an
            accelerator the check would make every step wait; see `not_finite_marker` there.
    """
    within = ref_emb is None or ref_emb is embeddings
    same_rows = within or (labels is not None and ref_labels is labels)
    _check_rows(embeddings, "embeddings")
    dtype = torch.promote_types(embeddings.dtype, torch.float32)
    if not within:
        assert ref_emb is not None
        _check_rows(ref_emb, "ref_emb")
        dtype = torch.promote_types(dtype, ref_emb.dtype)
        if ref_emb.shape[1] != embeddings.shape[1]:
            raise InputError(
                f"`ref_emb` must have as many columns as `embeddings`, {embeddings.shape[1]}; "
                f"got {ref_emb.shape[1]}. Both come from the same network."
            )
    emb = widen(embeddings, dtype)
    refs = emb if within else widen(ref_emb, dtype).to(emb.device)  # type: ignore[arg-type]
    codes, ref_codes = codes_of_sides(labels, emb, ref_labels, None if within else refs)
    return PairBatch(emb, codes, refs, ref_codes, within, same_rows, embeddings)


def codes_of_sides(
    labels: Any, embeddings: Tensor, ref_labels: Any, ref_emb: Tensor | None
) -> tuple[Int[Tensor, " B"] | None, Int[Tensor, " R"] | None]:
    """Return the labels of a batch and of its references as int64, on the devices of the rows.

    What was one object on both sides stays one.

    Args:
        labels: (B,) of any kind, or None.
        embeddings: (B, D).
        ref_labels: (R,) likewise.
        ref_emb: (R, D), or None: the batch is compared with itself.

    Raises:
        InputError: text, fractions, or not one label for each row.
    """
    codes = ref_codes = None
    if labels is not None:
        codes = to_device(check_class_ids(labels, len(embeddings)), embeddings.device)
    if ref_emb is None or (ref_labels is labels and len(ref_emb) == len(embeddings)):
        return codes, codes
    if ref_labels is not None:
        found = check_class_ids(ref_labels, len(ref_emb), "ref_labels", "ref_emb")
        ref_codes = to_device(found, ref_emb.device)
    return codes, ref_codes


def self_pairs(
    batch: PairBatch, sample_index: Tensor | None, ref_sample_index: Tensor | None
) -> Bool[Tensor, "B R"] | None:
    """Return pairs of a sample with itself among foreign references; None if only the diagonal can
    be.

    Against references (a memory of earlier batches) the data-set index tells: an old embedding
    of the same image is no positive.  Within a batch the row tells, as in
    pytorch-metric-learning: a sample drawn twice is two augmented views, a pair like any other.

    Args:
        batch: checked rows and references.
        sample_index: (B,) data-set rows, or None.
        ref_sample_index: (R,) data-set rows, or None.
    """
    if batch.within or sample_index is None or ref_sample_index is None:
        return None
    return sample_index[:, None] == ref_sample_index  # (B, R)


def label_masks(
    batch: PairBatch,
    same_sample: Bool[Tensor, "B R"] | None = None,
    anchors: Bool[Tensor, " B"] | None = None,
    references: Bool[Tensor, " R"] | None = None,
) -> tuple[Bool[Tensor, "B R"], Bool[Tensor, "B R"]]:
    """Return all positive and all negative pairs by label, without self pairs.

    Args:
        batch: what is paired.
        same_sample: of `self_pairs`.
        anchors: which rows may have pairs; None: all.
        references: which references may be in pairs; None: all.

    Raises:
        InputError: labels are missing on a side.
    """
    if batch.labels is None or batch.ref_labels is None:
        side = "labels" if batch.labels is None else "ref_labels"
        raise InputError(
            f"`{side}` is needed to form pairs; got None. Pass it, or pass `indices_tuple`."
        )
    same = batch.labels[:, None] == batch.ref_labels  # (B, R)
    allowed = torch.ones_like(same)
    if references is not None:
        allowed &= references
    if anchors is not None:
        allowed &= anchors[:, None]
    if batch.same_rows:
        allowed.fill_diagonal_(False)
    if same_sample is not None:
        allowed &= ~same_sample
    return allowed & same, allowed.gt(same)  # a > b of truth values: a and not b


def drop_self_pairs(
    batch: PairBatch,
    positive: Bool[Tensor, "B R"],
    negative: Bool[Tensor, "B R"],
    same_sample: Tensor | None,
) -> tuple[Bool[Tensor, "B R"], Bool[Tensor, "B R"]]:
    """Return both masks without the self pairs, new masks unless there are none.

    Args:
        batch: checked rows and references.
        positive: (B, R).
        negative: (B, R).
        same_sample: (B, R), of `self_pairs`, or None.
    """
    if batch.same_rows:
        other = ~torch.eye(*positive.shape, dtype=torch.bool, device=positive.device)
        positive, negative = positive & other, negative & other
    if same_sample is not None:
        positive, negative = positive & ~same_sample, negative & ~same_sample
    return positive, negative


def without_self_pairs(
    pairs: tuple[Any, ...], sample_index: Int[Tensor, " B"], ref_sample_index: Int[Tensor, " R"]
) -> tuple[Tensor, ...]:
    """Return pairs or triplets without those whose positive is the anchor's own sample.

    Args:
        pairs: (a1, p, a2, n) or (a, p, n), rows of the batch and of the references.
        sample_index: (B,) data-set rows of the batch.
        ref_sample_index: (R,) data-set rows of the references.
    """
    pairs = tuple(pair_indices(values, sample_index.device) for values in pairs)
    a1, p = pairs[:2]
    other = sample_index[a1] != ref_sample_index[p]
    stay = [indices[other] for indices in (pairs if len(pairs) == 3 else (a1, p))]
    return *stay, *pairs[len(stay) :]


def indices_to_masks(
    indices_tuple: Any, matrix: Float[Tensor, "B R"], absent: Bool[Tensor, " R"] | None = None
) -> tuple[Bool[Tensor, "B R"], Bool[Tensor, "B R"]]:
    """Return pairs `(a1, p, a2, n)` or triplets `(a, p, n)` as masks of the shape of `matrix`.

    A pair listed twice counts once.

    Args:
        indices_tuple: what a miner returned.
        matrix: (B, R), only its shape and device count.
        absent: (R,) references whose triplets go: of each the other pair, too.

    Raises:
        InputError: not 3 or 4 index tensors, an index outside the matrix (a negative one too), or a
            pair listed as positive and as negative.
    """
    if isinstance(indices_tuple, MinedPairs) and indices_tuple.positive is not None:
        assert indices_tuple.negative is not None
        if indices_tuple.positive.shape != matrix.shape:
            raise InputError(
                f"`indices_tuple` was mined among {tuple(indices_tuple.positive.shape)} pairs, "
                f"the batch has {tuple(matrix.shape)}. It must come from this very batch."
            )
        return indices_tuple.positive, indices_tuple.negative
    if not isinstance(indices_tuple, list | tuple) or len(indices_tuple) not in (3, 4):
        is_sequence = isinstance(indices_tuple, list | tuple)
        raise InputError(
            "`indices_tuple` must hold 3 (a, p, n) or 4 (a1, p, a2, n) index tensors; "
            f"got {len(indices_tuple) if is_sequence else type(indices_tuple).__name__}. "
            "Pass what a miner returns."
        )
    a1, p, n = indices_tuple[0], indices_tuple[1], indices_tuple[-1]
    positive = _scatter(a1, p, matrix)
    negative = _scatter(indices_tuple[-2] if len(indices_tuple) == 4 else a1, n, matrix)
    if absent is not None and len(indices_tuple) == 3:
        a1, p, n = (pair_indices(values, matrix.device) for values in (a1, p, n))
        stay = ~(absent[p] | absent[n])
        positive = _scatter(a1[stay], p[stay], matrix)
        negative = _scatter(a1[stay], n[stay], matrix)
    both = positive & negative
    if both.any():
        anchor, other = both.nonzero()[0].tolist()
        raise InputError(
            f"`indices_tuple` lists the pair ({anchor}, {other}) as positive and as negative. "
            "Were indices of the batch mixed with indices of a memory? Let the memory mine: "
            "CrossBatchMemory(loss, ..., miner=miner)."
        )
    return positive, negative


def not_finite_marker(batch: PairBatch) -> Float[Tensor, ""] | None:
    """Return a scalar 0, or NaN if any embedding is not finite; None where `prepare_batch` has
    checked.

    Added to a loss it makes a diverged network visible although mining compares NaN away, and
    lets a gradient scaler skip the step, without waiting for the device.
    """
    if batch.embeddings.device.type == "cpu":
        return None
    sides = (batch.embeddings,) if batch.within else (batch.embeddings, batch.ref_emb)
    return finite_or_nan(*sides)


def finite_or_nan(*embeddings: Float[Tensor, "_ D"]) -> Float[Tensor, ""]:
    """Return 0 if every entry is finite, else NaN: infinity times 0 is NaN."""
    marks = [(e.detach() * 0).sum() for e in embeddings]
    return marks[0] if len(marks) == 1 else torch.stack(marks).sum()


def _check_rows(embeddings: Any, name: str) -> None:
    if not isinstance(embeddings, torch.Tensor) or embeddings.dtype not in FLOATS:
        kind = getattr(embeddings, "dtype", type(embeddings).__name__)
        raise InputError(
            f"`{name}` must be a tensor of floats; got {kind}. Pass the network's output."
        )
    as_numbers(embeddings, name, "a tensor of floats", "Call `.to_dense()`.")
    if embeddings.ndim != 2:
        raise InputError(
            f"`{name}` must be (B, D), one row per sample; got {tuple(embeddings.shape)}."
        )
    # One pass over the data; the rows are looked for only when the sum says so (or overflowed).
    if embeddings.device.type == "cpu" and not math.isfinite(embeddings.detach().float().sum()):
        remedy = "Look for a diverged network (learning rate, half precision)."
        check_finite(embeddings, name, remedy)


def _scatter(rows: Any, columns: Any, like: Tensor) -> Tensor:
    mask = torch.zeros(like.shape, dtype=torch.bool, device=like.device)
    rows, columns = (pair_indices(values, like.device) for values in (rows, columns))
    if len(rows) != len(columns):
        raise InputError(
            f"`indices_tuple` pairs {len(rows)} anchors with {len(columns)} others; "
            "each anchor needs its positive or negative."
        )
    # Checked on every device: a negative index would wrap round without a word.
    outside = (rows < 0) | (rows >= like.shape[0]) | (columns < 0) | (columns >= like.shape[1])
    if outside.any():
        place = int(outside.nonzero()[0, 0])
        raise InputError(
            f"`indices_tuple` points outside the batch of {like.shape[0]} rows and "
            f"{like.shape[1]} references: the pair ({int(rows[place])}, {int(columns[place])}). "
            "It must come from this very batch."
        )
    mask[rows, columns] = True
    return mask


def pair_indices(values: Any, device: torch.device) -> Tensor:
    """Return a part of an index tuple as int64: bytes and bools would select as a mask does.

    Args:
        values: (n,) integers, or nothing of any kind.
        device: where they go.

    Raises:
        InputError: no integers, or not of one axis.
    """
    index = as_numbers(
        values, "indices_tuple", "index tensors of integers", "Pass what a miner returns."
    )
    if index.ndim != 1:
        raise InputError(
            f"`indices_tuple` must hold index tensors of one axis; got {tuple(index.shape)}. "
            "Use `.flatten()`."
        )
    # pytorch-metric-learning's empty tensors may be of any dtype.
    if len(index) and (index.is_floating_point() or index.dtype == torch.bool):
        raise InputError(
            f"`indices_tuple` must hold integers; got {index.dtype}. Turn a mask into indices "
            "with `.nonzero()`."
        )
    return index.long().to(device)
