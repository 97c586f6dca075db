"""The table of sample weights, and how a batch finds its rows in it.

One `SampleWeights` is shared by the loss, the miner and the curriculum.  It is a module whose
table is a buffer, so whatever saves the loss (pytorch-metric-learning's HookContainer too) saves
the weights with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bspml.errors import CheckpointError, InputError, SampleIndexError
from bspml.shapes import Float, Int, Tensor
from bspml.tensors.checks import as_numbers, encode_labels, some_of, to_device
from bspml.tensors.row_checks import check_sample_index

_BOX_TOLERANCE = 1e-9  # rounding a solver may leave outside [0, 1]


class SampleWeights(nn.Module):
    """One weight in [0, 1] per sample of the training set, all 1 at the start.

    The paper's w [Zhang 2023].  `weights[sample_index]` looks rows up; `update` replaces the
    table; `set_batch` announces the current batch to losses and miners that a caller outside our
    control (a pytorch-metric-learning trainer) calls without an index.

    Args:
        labels: (N,) given labels of the data set, integers or strings; possibly wrong.

    Attributes:
        weights: (N,) float32 buffer.
        codes: (N,) int64 buffer, the class of each sample as its position in `classes`.
        fixed: (N,) bool buffer, the weights that `fix` decided and nothing else changes.
        classes: (C,) array of the distinct labels, sorted.
        batch_index: (B,) int64 as last announced by `set_batch`, or None.  Not saved.
        ref_batch_index: (R,) int64 likewise, for reference rows.

    Raises:
        InputError: no labels, or labels that are not one integer or string per sample.

    Example:
        >>> weights = SampleWeights([7, 7, 9])
        >>> weights.update([1.0, 0.5, 0.0])
        >>> weights[[2, 1]]
        tensor([0.0000, 0.5000])
        >>> weights.maw(), weights.sdaw()
        (0.375, 0.375)
    """

    weights: Tensor
    codes: Tensor
    fixed: Tensor

    def __init__(self, labels: Any) -> None:
        super().__init__()
        encoded = encode_labels(labels)
        if len(encoded.codes) == 0:
            raise InputError("`labels` must have at least one entry; got none.")
        self.classes = encoded.classes
        self.register_buffer("weights", torch.ones(len(encoded.codes)))
        self.register_buffer("codes", encoded.codes)
        self.register_buffer("fixed", torch.zeros(len(encoded.codes), dtype=torch.bool))
        self.batch_index: Tensor | None = None
        self.ref_batch_index: Tensor | None = None

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, sample_index: Any) -> Tensor:
        """Return the weights of these data-set rows, as a copy: a scalar for an int, else (B,)."""
        if isinstance(sample_index, slice):
            try:
                return self.weights[sample_index].clone()
            except (TypeError, ValueError) as err:
                raise InputError(
                    f"`sample_index` must be a slice of whole numbers with a step of at least 1; "
                    f"got {sample_index}. Pass the rows as a list."
                ) from err
        index = as_numbers(
            sample_index, "sample_index", "integers, (B,)", "Pass the data-set row of each sample."
        )
        rows = self._rows(index.reshape(-1) if index.ndim == 0 else index)
        return self.weights[rows].reshape(index.shape)

    def _rows(self, index: Any, rows: int | None = None, name: str = "sample_index") -> Tensor:
        """Return checked data-set rows, (B,) int64 on the table's device."""
        return check_sample_index(index, len(self), rows, name, self.weights.device)

    def extra_repr(self) -> str:
        """Return sizes, for `print(loss)`."""
        return f"{len(self)} samples, {len(self.classes)} classes"

    # ------------------------------------------------------------------ the batch's rows

    def set_batch(self, sample_index: Any, ref_sample_index: Any = None) -> None:
        """Announce which data-set rows the next loss and miner calls are about.

        Holds until the next call.  With pytorch-metric-learning's DistributedLossWrapper the loss
        sees the rows of all ranks, its own first: announce
        `torch.cat([idx, pml_dist.all_gather(idx)])`, as `sample_index`, or as `ref_sample_index`
        if the wrapper is `efficient=True`.

        Args:
            sample_index: (B,) integers in [0, N), one per row of the batch.
            ref_sample_index: (R,) likewise for the rows of `ref_emb`, if there are any.

        Raises:
            InputError, SampleIndexError: not such indices; the previous batch then still holds.
        """
        index = check_sample_index(sample_index, len(self), None, "sample_index")
        if ref_sample_index is not None:
            ref_sample_index = check_sample_index(
                ref_sample_index, len(self), None, "ref_sample_index"
            )
        self.batch_index, self.ref_batch_index = index, ref_sample_index

    def index_for_batch(self, rows: int, sample_index: Any = None) -> Tensor:
        """Return the data-set rows of a batch: `sample_index` if given, else what `set_batch` said.

        Args:
            rows: B, how many there must be.
            sample_index: (B,) integers in [0, N), or None.

        Returns:
            (B,) int64 with B = `rows`, on the table's device.

        Raises:
            SampleIndexError: neither is known, or an index lies outside [0, N).
            InputError: not one integer per row.
        """
        if sample_index is None:
            sample_index = self.batch_index
        if sample_index is None:
            raise SampleIndexError(
                "the batch's sample indices are missing. Pass `sample_index=` (data-set rows, "
                "(B,)) to the call, or announce them with `weights.set_batch(sample_index)`."
            )
        return self._rows(sample_index, rows)

    def for_batch(self, rows: int, sample_index: Any = None) -> Tensor:
        """Return the weights of a batch, (B,); raises as `index_for_batch` does.

        Args:
            rows: B, how many there must be.
            sample_index: (B,) integers in [0, N), or None for what `set_batch` said.
        """
        return self.weights[self.index_for_batch(rows, sample_index)]

    # ------------------------------------------------------------------ the whole table

    @torch.no_grad()
    def update(self, new: Any) -> None:
        """Replace all weights, in place: every holder of this object sees the new ones.

        Those that `fix` decided stay as they are.

        Args:
            new: (N,) finite numbers in [0, 1]; rounding up to 1e-9 outside is clipped.

        Raises:
            InputError: another shape, NaN, or a value outside; the weights are then unchanged.
        """
        new = _in_unit_interval(new, "new", len(self), "sample").to(self.weights)
        self.weights.copy_(torch.where(self.fixed, self.weights, new))

    @torch.no_grad()
    def fix(self, sample_index: Any, weights: Any) -> None:
        """Decide some weights for good: `update` and `reset` leave them from now on.

        For what the user said about single labels: 1 for a label known to be right, 0 for a wrong
        one (`bspml.data.labels.decisions.read_corrected` reads such verdicts).  Saved with the
        table.

        Args:
            sample_index: (F,) data-set rows; none twice.
            weights: (F,) numbers in [0, 1].

        Raises:
            InputError: not one weight per row, or outside [0, 1], or a row twice.
            SampleIndexError: a row outside the data set.  Nothing is then changed.

        Example:
            >>> weights = SampleWeights(["a", "a", "b"])
            >>> weights.fix([2], [0.0])
            >>> weights.update([0.5, 0.5, 0.5])
            >>> weights.weights.tolist()
            [0.5, 0.5, 0.0]
        """
        rows = self._rows(sample_index)
        values = _in_unit_interval(weights, "weights", len(rows), "row").to(self.weights)
        twice = rows.bincount(minlength=len(self)) > 1
        if twice.any():
            raise InputError(
                f"`sample_index` must name each row once; got rows {some_of(twice.nonzero())} "
                "more often. Keep one decision for each."
            )
        self.weights[rows], self.fixed[rows] = values, True

    def reset(self) -> None:
        """Set all weights but the fixed ones to 1 again, in place."""
        self.weights[~self.fixed] = 1

    def class_means(self) -> Float[Tensor, " C"]:
        """Return each class's mean weight, (C,) float64 on the CPU, in the order of `classes`."""
        codes = self.codes.cpu()
        totals = torch.bincount(codes, self.weights.cpu().double(), len(self.classes))
        return totals / torch.bincount(codes, minlength=len(self.classes))

    def maw(self) -> float:
        """Mean over classes of the class's mean weight, in [0, 1] [Zhang 2023, eq. (14)].

        Classes count alike whatever their size: it is not the share of samples kept.
        """
        return float(self.class_means().mean())

    def sdaw(self) -> float:
        """Standard deviation over classes of the mean weight [Zhang 2023, eq. (14)].

        The population's (divided by C), so a single class gives 0.
        """
        return float(self.class_means().std(correction=0))

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args: Any) -> None:
        """Refuse the weights of another data set before anything is copied."""
        saved = state_dict.get(prefix + "weights")
        if saved is not None and saved.shape != self.weights.shape:
            raise CheckpointError(
                f"the checkpoint holds weights for {saved.numel()} samples, this data set has "
                f"{len(self)}. Load it with the data set it was trained on."
            )
        codes = state_dict.get(prefix + "codes")
        if codes is not None and not torch.equal(codes.cpu(), self.codes.cpu()):
            rows = (codes.cpu() != self.codes.cpu()).nonzero()[:, 0]
            raise CheckpointError(
                f"the checkpoint's weights belong to other labels: the classes differ at rows "
                f"{some_of(rows)} of {len(self)}. Load it with the labels it was trained on, or "
                "copy the numbers with `weights.update(...)` if that is what you want."
            )
        # NaN compares false, so it counts as outside.
        if saved is not None and not bool(((saved >= 0) & (saved <= 1)).all()):
            raise CheckpointError(
                "the checkpoint's weights must lie in [0, 1]; it holds NaN or numbers outside. "
                "Was it edited, or saved by another program?"
            )
        super()._load_from_state_dict(state_dict, prefix, *args)


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


def look_up(
    weights: SampleWeights | None,
    like: Tensor,
    ref_rows: int | None,
    sample_index: Any = None,
    ref_sample_index: Any = None,
) -> BatchWeights:
    """Return weights and indices of a batch and of its references, on the device and dtype of
    `like`.

    Args:
        weights: the table; None looks nothing up and keeps the indices only to tell self pairs.
        like: (B, D) the embeddings the weights go with.
        ref_rows: R, or None if the references are the batch itself.
        sample_index: (B,), or None for what `weights.set_batch` announced.
        ref_sample_index: (R,), or None: the references then weigh 1, unless the batch comes from
            `weights.set_batch` and that named them too.

    Raises:
        InputError: the number of indices is not the number of rows, or `ref_sample_index` came
            without references.
        SampleIndexError: unknown or out-of-range indices.
    """
    if ref_rows is None and ref_sample_index is not None:
        raise InputError("`ref_sample_index` names the rows of `ref_emb`, which was not given.")
    if weights is None:
        return BatchWeights(
            sample_index=_index_only(sample_index, len(like), "sample_index", like),
            ref_sample_index=_index_only(ref_sample_index, ref_rows, "ref_sample_index", like),
        )
    from_batch = sample_index is None
    index = weights.index_for_batch(len(like), sample_index)
    anchors = _like(weights.weights[index], like)
    index = to_device(index, like.device)
    if ref_rows is None:
        return BatchWeights(anchors, anchors, index, None)
    if ref_sample_index is None and from_batch:
        ref_sample_index = weights.ref_batch_index
    if ref_sample_index is None:
        return BatchWeights(anchors, None, index, None)
    ref_index = weights._rows(ref_sample_index, ref_rows, "ref_sample_index")
    references = _like(weights.weights[ref_index], like)
    return BatchWeights(anchors, references, index, to_device(ref_index, like.device))


def _like(weights: Tensor, like: Tensor) -> Tensor:
    return to_device(weights, like.device).to(like.dtype)


def _in_unit_interval(values: Any, name: str, n: int, each: str) -> Tensor:
    """Return (n,) numbers in [0, 1], rounding clipped."""
    values = as_numbers(
        values, name, f"one weight per {each}, shape ({n},)", "Pass numbers in [0, 1]."
    ).detach()
    if values.shape != (n,):
        raise InputError(
            f"`{name}` must be one weight per {each}, shape ({n},); got {tuple(values.shape)}."
        )
    # Written so that NaN, which compares false, counts as outside.
    bad = ~((values >= -_BOX_TOLERANCE) & (values <= 1 + _BOX_TOLERANCE))
    if bad.any():
        rows = bad.nonzero()[:, 0]
        raise InputError(
            f"`{name}` must lie in [0, 1]; got {float(values[rows[0]]):g} at row {int(rows[0])} "
            f"(rows {some_of(rows)}). Clip the weights, or look for a diverged solver."
        )
    return values.clamp(0, 1)


def check_weights(weights: Any, name: str = "weights") -> SampleWeights | None:
    """Return `weights` if it is a table or None; a bare tensor would not follow its updates.

    Args:
        weights: what the user passed.
        name: the caller's argument name, for the message.

    Raises:
        InputError: anything else.
    """
    if weights is None or isinstance(weights, SampleWeights):
        return weights
    raise InputError(
        f"`{name}` must be a SampleWeights or None; got {type(weights).__name__}. "
        "Make one with SampleWeights(labels) and set it with `.update(numbers)`."
    )


def _index_only(index: Any, rows: int | None, name: str, like: Tensor) -> Tensor | None:
    """Check indices without a table: only compared with each other, they have no upper end."""
    if index is None:
        return None
    return check_sample_index(index, 2**63 - 1, rows, name, like.device)
