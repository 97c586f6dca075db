"""The table of sample weights, and the labels that samples are trained under.

One `SampleWeights` is shared by the loss, the miner and the curriculum.  It is a module whose
table is a buffer, so whatever saves the loss (pytorch-metric-learning's HookContainer too) saves
the weights with it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch

from bspml.errors import CheckpointError, InputError
from bspml.shapes import Bool, Float, Tensor
from bspml.tensors.checks import FLOATS, as_numbers, describe, encode_labels, some_of
from bspml.tensors.row_index import check_same_rows, index_of
from bspml.weights.batch_rows import BatchRows

_BOX_TOLERANCE = 1e-9  # rounding a solver may leave outside [0, 1]


class SampleWeights(BatchRows):
    """One weight in [0, 1] per sample of the training set, all 1 at the start.

    The paper's w [Zhang 2023].  `weights[sample_index]` looks rows up; `update` replaces the
    table; `set_batch` announces the current batch to losses and miners that a caller outside our
    control (a pytorch-metric-learning trainer) calls without an index.

    Args:
        labels: (N,) given labels of the data set, integers or strings; possibly wrong.

    Attributes:
        weights: (N,) float32 buffer.
        codes: (N,) int64 buffer, the given class of each sample as its position in `classes`.
        current_codes: (N,) int64 buffer, the class it is trained under: the given one, unless a
            curriculum has repaired it (`relabel`).
        fixed: (N,) bool buffer, the weights that `fix` decided and nothing else changes.
        classes: (C,) array of the distinct labels, sorted.
        labels_index: what pandas index the labels had, None without one, for `check_same_rows`.
        restarts: how often a curriculum has asked for a fresh network; memories of embeddings
            forget the one before.  Not saved.
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

    fixed: Tensor
    restarts = 0

    def __init__(self, labels: Any) -> None:
        super().__init__()
        encoded = encode_labels(labels)
        self.labels_index = ("the labels of the weights", index_of(labels))
        if len(encoded.codes) == 0:
            raise InputError("`labels` must have at least one entry; got none.")
        self.classes = encoded.classes
        self.register_buffer("weights", torch.ones(len(encoded.codes)))
        self.register_buffer("codes", encoded.codes)
        self.register_buffer("current_codes", encoded.codes.clone())
        self.register_buffer("fixed", torch.zeros(len(encoded.codes), dtype=torch.bool))

    def __len__(self) -> int:
        return len(self.weights)

    def __getitem__(self, sample_index: Any) -> Tensor:
        """Return the weights of these data-set rows, as a copy: a scalar for an int, else (B,)."""
        self.looked_up = True
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
        rows = self.rows_of(index.reshape(-1) if index.ndim == 0 else index)
        return self.weights[rows].reshape(index.shape)

    def extra_repr(self) -> str:
        """Return sizes, for `print(loss)`."""
        return f"{len(self)} samples, {len(self.classes)} classes"

    # ------------------------------------------------------------------ given and current labels

    @property
    def labels(self) -> np.ndarray:
        """Return the (N,) given labels."""
        return self.classes[self.codes.cpu().numpy()]

    @property
    def label_digest(self) -> str:
        """Return a digest of the given labels and their order: what saved numbers belong to."""
        digest = hashlib.blake2b(
            "\0".join(map(str, self.classes.tolist())).encode("utf-8", "surrogatepass"),
            digest_size=16,
        )
        digest.update(self.codes.cpu().numpy().tobytes())
        return digest.hexdigest()

    @property
    def current_labels(self) -> np.ndarray:
        """Return the (N,) labels that samples are trained under."""
        return self.classes[self.current_codes.cpu().numpy()]

    @property
    def repaired(self) -> Bool[Tensor, " N"]:
        """Return which samples are trained under another label than the given one, (N,)."""
        return self.current_codes != self.codes

    @property
    def of_given_labels(self) -> Float[Tensor, " N"]:
        """Return the (N,) weights of the given labels: 0 where another one has taken its place."""
        return torch.where(self.repaired, 0, self.weights)

    @torch.no_grad()
    def relabel(self, codes: Any) -> None:
        """Train samples under other classes from now on; what `fix` decided keeps its label.

        Args:
            codes: (N,) positions in `classes`.

        Raises:
            InputError: not one class of these per sample; nothing is then changed.

        Example:
            >>> weights = SampleWeights(["a", "a", "b"])
            >>> weights.relabel([0, 1, 1])
            >>> weights.labels.tolist(), weights.current_labels.tolist()
            (['a', 'a', 'b'], ['a', 'b', 'b'])
        """
        check_same_rows(self.labels_index, codes=codes)
        new = as_numbers(codes, "codes", "integers, (N,)", "Pass positions in `classes`.")
        places = new.to(self.codes)  # torch compares no unsigned ones; beyond int64 they are < 0
        inside = new.shape == self.codes.shape and bool(
            ((places >= 0) & (places < len(self.classes))).all()
        )
        if not inside or new.is_floating_point() or new.dtype == torch.bool:
            raise InputError(
                f"`codes` must be one position in the {len(self.classes)} classes per sample, "
                f"({len(self)},); got {tuple(new.shape)} of {new.dtype}."
            )
        self.current_codes.copy_(torch.where(self.fixed, self.current_codes, places))
        self.notice_repairs()

    def notice_repairs(self) -> None:
        """Look whether any label is repaired, after others wrote the buffers."""
        self.any_repaired = bool(self.repaired.any())

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
        check_same_rows(self.labels_index, new=new)
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
        check_same_rows(sample_index=sample_index, weights=weights)
        rows = self.rows_of(sample_index)
        values = _in_unit_interval(weights, "weights", len(rows), "row").to(self.weights)
        twice = rows.bincount(minlength=len(self)) > 1
        if twice.any():
            raise InputError(
                f"`sample_index` must name each row once; got rows {some_of(twice.nonzero())} "
                "more often. Keep one decision for each."
            )
        self.weights[rows], self.fixed[rows] = values, True
        self.current_codes[rows] = self.codes[rows]  # what was decided is about the given label

    def reset(self) -> None:
        """Set all weights but the fixed ones to 1 again, in place."""
        self.weights[~self.fixed] = 1

    def class_means(self) -> Float[Tensor, " C"]:
        """Return each class's mean weight, (C,) float64 on the CPU, in the order of `classes`.

        0 for a class whose labels are all repaired: no sample is trained under it.
        """
        codes = self.current_codes.cpu()
        totals = torch.bincount(codes, self.weights.cpu().double(), len(self.classes))
        return totals / torch.bincount(codes, minlength=len(self.classes)).clamp(min=1)

    def maw(self) -> float:
        """Mean over classes of the class's mean weight, from 0 to 1 [Zhang 2023, eq. (14)].

        Classes count alike whatever their size: it is not the share of samples kept.  One that no
        sample is trained under counts in neither mean nor deviation.
        """
        return float(self._trained_means().mean())

    def sdaw(self) -> float:
        """Standard deviation over classes of the mean weight [Zhang 2023, eq. (14)].

        The population's (divided by C), so a single class gives 0.
        """
        return float(self._trained_means().std(correction=0))

    def _trained_means(self) -> Tensor:
        return self.class_means()[self.current_codes.cpu().unique()]

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *args: Any) -> None:
        """Refuse the weights of another data set before anything is copied."""
        if prefix + "codes" in state_dict:  # of before labels were repaired: none was
            state_dict.setdefault(prefix + "current_codes", self.codes.clone())
        names = [name for name, _ in self.named_buffers() if prefix + name in state_dict]
        buffers = {name: state_dict[prefix + name] for name in names}
        saved, codes = buffers.get("weights"), buffers.get("codes")
        if isinstance(saved, Tensor) and saved.shape != self.weights.shape:
            raise CheckpointError(
                f"the checkpoint holds weights for {saved.numel()} samples, this data set has "
                f"{len(self)}. Load it with the data set it was trained on."
            )
        for name, value in buffers.items():
            own = getattr(self, name)
            if _kind(value) != _kind(own) or value.shape != own.shape:  # copying would convert it
                raise CheckpointError(
                    f"the checkpoint's `{name}` must be {own.dtype} for {len(self)} samples; got "
                    f"{describe(value)}. Was it saved by another program?"
                )
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
        current = buffers.get("current_codes", self.current_codes)
        if not bool(((current >= 0) & (current < len(self.classes))).all()):
            raise CheckpointError(
                f"the checkpoint's `current_codes` must be positions in {len(self.classes)} "
                "classes. Was it edited, or saved by another program?"
            )
        super()._load_from_state_dict(state_dict, prefix, *args)
        self.notice_repairs()


def _kind(value: Any) -> str:
    if not isinstance(value, Tensor) or value.is_complex():
        return "other"
    if value.dtype == torch.bool:
        return "truth values"
    return "floats" if value.is_floating_point() else "integers"


def _in_unit_interval(values: Any, name: str, n: int, each: str) -> Tensor:
    """Return (n,) numbers in [0, 1], rounding clipped."""
    values = as_numbers(
        values, name, f"one weight per {each}, shape ({n},)", "Pass numbers in [0, 1]."
    ).detach()
    if values.shape != (n,):
        raise InputError(
            f"`{name}` must be one weight per {each}, shape ({n},); got {tuple(values.shape)}."
        )
    values = values if values.dtype in FLOATS else values.float()  # others hardly compute
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
