"""Which data-set rows a batch has, and whether they are the batch's: the labels must be theirs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from bspml.errors import InputError, SampleIndexError
from bspml.shapes import Tensor
from bspml.tensors.precision import KeepsDigits
from bspml.tensors.row_checks import as_class_ids, check_sample_index
from bspml.tensors.row_index import check_same_rows


class BatchRows(KeepsDigits):
    """What `SampleWeights` knows of the batch at hand.

    Attributes:
        weights: (N,) float32 buffer.
        codes: (N,) int64 buffer, the given class of each sample.
        current_codes: (N,) int64 buffer, the class it is trained under.
        classes: (C,) array of the distinct labels, sorted.
        batch_index: (B,) int64 as last announced by `set_batch`, or None.  Not saved.
        ref_batch_index: (R,) int64 likewise, for reference rows.
        looked_up: whether somebody asked for weights since the batch was announced.
        evaluating: batches whose rows nobody names are of other data, such as those of a
            validation, and every sample of them weighs 1.  Not saved.
        any_repaired: whether any sample is trained under another label than the given one.
    """

    weights: Tensor
    codes: Tensor
    current_codes: Tensor
    classes: np.ndarray
    _kind = 1  # of `_best_kind`, as last told apart; at first the classes themselves

    def __init__(self) -> None:
        super().__init__()
        self.any_repaired = False  # known without looking, which would wait for the device
        self.batch_index: Tensor | None = None
        self.ref_batch_index: Tensor | None = None
        self.looked_up = self.evaluating = False
        self._compared: list[tuple[Tensor, int]] = []

    def rows_of(self, index: Any, rows: int | None = None, name: str = "sample_index") -> Tensor:
        """Return checked data-set rows, (B,) int64 on the table's device.

        Args:
            index: (B,) integers in [0, N).
            rows: B, where it is known.
            name: the caller's argument, for messages.
        """
        return check_sample_index(index, len(self.weights), rows, name, self.weights.device)

    def set_batch(self, sample_index: Any, ref_sample_index: Any = None) -> None:
        """Announce which data-set rows the next loss and miner calls are about.

        Holds until the next call or `clear_batch`.  Losses and miners that are given labels refuse
        a batch whose labels are not those of the announced rows, so that after a forgotten call no
        sample is weighed by a stranger's weight.

        With pytorch-metric-learning's DistributedLossWrapper the loss sees the rows of all ranks,
        its own first: announce
        `torch.cat([idx, pml_dist.all_gather(idx)])`, as `sample_index`, or as `ref_sample_index`
        if the wrapper is `efficient=True`.

        Args:
            sample_index: (B,) integers in [0, N), one per row of the batch.
            ref_sample_index: (R,) likewise for the rows of `ref_emb`, if there are any.

        Raises:
            InputError, SampleIndexError: not such indices; the previous batch then still holds.
        """
        index = check_sample_index(sample_index, len(self.weights), None, "sample_index")
        if ref_sample_index is not None:
            ref_sample_index = check_sample_index(
                ref_sample_index, len(self.weights), None, "ref_sample_index"
            )
        self.batch_index, self.ref_batch_index = index, ref_sample_index
        self.looked_up, self._compared = False, []

    @contextmanager
    def only_rows(self, sample_index: Tensor) -> Iterator[None]:
        """Announce a part of the batch for the calls inside, and the batch again afterwards.

        Args:
            sample_index: (B,) checked data-set rows.
        """
        before = self.batch_index, self.ref_batch_index, self._compared
        self.batch_index, self.ref_batch_index, self._compared = sample_index, None, []
        try:
            yield
        finally:
            self.batch_index, self.ref_batch_index, self._compared = before

    def clear_batch(self) -> None:
        """Forget what `set_batch` announced, as trainers do after the step: it has had its day."""
        self.batch_index = self.ref_batch_index = None
        self._compared = []

    def names_nobody(self, sample_index: Any = None) -> bool:
        """Say whether a batch is of an evaluation's samples, of which the table knows nothing.

        Args:
            sample_index: (B,) as given to the call, or None.
        """
        return self.evaluating and sample_index is None and self.batch_index is None

    def index_for_batch(self, rows: int, sample_index: Any = None, labels: Any = None) -> Tensor:
        """Return the data-set rows of a batch: `sample_index` if given, else what `set_batch` said.

        Args:
            rows: B, how many there must be.
            sample_index: (B,) integers in [0, N), or None.
            labels: (B,) of the batch, if known: the rows must have these.

        Returns:
            (B,) int64 with B = `rows`, on the table's device.

        Raises:
            SampleIndexError: neither is known, or an index lies outside [0, N).
            InputError: not one integer per row, or rows of other labels.
        """
        self.looked_up = True
        if sample_index is not None:
            return self.named(sample_index, rows, labels)
        if self.batch_index is None:
            raise SampleIndexError(
                "the batch's sample indices are missing. Pass `sample_index=` (data-set rows, "
                "(B,)) to the call, or announce them with `weights.set_batch(sample_index)`."
            )
        return self.announced(self.batch_index, rows, labels)

    def named(
        self, sample_index: Any, rows: int, labels: Any, name: str = "sample_index"
    ) -> Tensor:
        """Return data-set rows given to a call, or refuse them where they are not this batch's.

        On an accelerator nobody looks at the labels, which would make every step wait.

        Args:
            sample_index: (B,) integers in [0, N).
            rows: B, how many there must be.
            labels: (B,) of the batch, or None where they are not known.
            name: of the caller's argument, for messages.

        Raises:
            InputError, SampleIndexError: another number of rows, or of other labels.
        """
        index = self.rows_of(sample_index, rows, name)
        check_same_rows(labels=labels, sample_index=sample_index)
        codes = self._comparable(labels, rows)
        if codes is not None and not self._waits(codes):
            self._refuse_others(
                codes, index, f"`{name}` does not name the rows of this batch", "Pass their rows"
            )
        return index

    def announced(
        self, index: Tensor, rows: int, labels: Any, name: str = "sample_index"
    ) -> Tensor:
        """Return announced data-set rows, or refuse them where they are not this batch's.

        On an accelerator, labels that come first after the announcement are not looked at, which
        would make every step wait; other labels than those under one announcement are.

        Args:
            index: `batch_index` or `ref_batch_index`.
            rows: B, how many there must be.
            labels: (B,) of the batch, or None where they are not known.
            name: of the argument that announced them, for messages.

        Raises:
            InputError: another number of rows, or of other labels.
        """
        index = self.rows_of(index, rows, name)
        codes = self._comparable(labels, rows)
        if codes is None:
            return index
        if self._waits(codes):
            version = 0 if codes.is_inference() else codes._version
            is_first = not self._compared
            if is_first or any(codes is seen and version == v for seen, v in self._compared):
                self._compared = self._compared or [(codes, version)]
                return index
            self._compared.append((codes, version))
        self._refuse_others(
            *(codes, index, "the rows announced with `weights.set_batch` are not this batch's"),
            "Announce every batch, or pass `sample_index=`",
        )
        return index

    def check_items(self, labels: Any, sample_index: Any, wait: bool = True) -> None:
        """Refuse a batch of a data set whose items have other labels than the data set says.

        Text is not held against anything.

        Args:
            labels: (B,) of the batch, as its items have them.
            sample_index: (B,) integers in [0, N), of the same rows.
            wait: for an accelerator, where labels lie on one; else they are not looked at there.

        Raises:
            InputError: another number of labels than rows, or labels of others.
        """
        if not isinstance(labels, torch.Tensor):
            if any(isinstance(label, str) for label in labels):
                return
            labels = as_class_ids(labels)
        if len(labels) != len(sample_index):
            raise InputError(
                f"a batch of {len(sample_index)} items has {len(labels)} labels. The `collate_fn` "
                "must keep every item."
            )
        codes = self._comparable(labels, len(sample_index))
        if codes is not None and (wait or not self._waits(codes)):
            self._refuse_others(
                codes,
                self.rows_of(sample_index),
                "the items of the data set have other labels than the weights were made of",
                "Correct labels in the items themselves, not only in `targets` or `labels=`, and "
                "keep the order of the items in the `collate_fn`",
            )

    def _comparable(self, labels: Any, rows: int) -> Tensor | None:
        """The labels of a batch, where they can be held against the table's."""
        # A table of one class, or of a class for every sample, was made without classes in mind.
        if labels is None or len(self.classes) in (1, len(self.weights)):
            return None
        codes = labels if isinstance(labels, torch.Tensor) else as_class_ids(labels)
        return codes if codes.shape == (rows,) else None  # else for the loss to refuse

    def _waits(self, codes: Tensor) -> bool:
        return {codes.device.type, self.codes.device.type} != {"cpu"}

    def _refuse_others(self, codes: Tensor, index: Tensor, wrong: str, remedy: str) -> None:
        differs = self._best_kind(codes.to(index.device), index)[1]
        if not bool(differs.any()):
            return
        off = differs.nonzero()[:, 0]
        expected = self.classes[int(self.current_codes[index[off[0]]])]
        raise InputError(
            f"{wrong}: their labels differ at {len(off)} of {len(index)} rows, first at row "
            f"{int(off[0])} (data-set row {int(index[off[0]])} is of {expected!s}, the batch "
            f"says {codes[off[0]].item()}). {remedy}; batches have the labels that the weights "
            "were made of, or their positions in `weights.classes`."
        )

    def for_batch(self, rows: int, sample_index: Any = None) -> Tensor:
        """Return the weights of a batch, (B,); raises as `index_for_batch` does.

        Args:
            rows: B, how many there must be.
            sample_index: (B,) integers in [0, N), or None for what `set_batch` said.
        """
        return self.weights[self.index_for_batch(rows, sample_index)]

    def relabelled(self, labels: Any, sample_index: Any) -> Any:
        """Return the labels of a batch with the repaired ones in their place.

        Losses and miners that hold these weights do so themselves, as do the trainers: call it
        before a miner of others.  Current labels stay, so twice is as good as once.

        Args:
            labels: (B,) the given ones: positions in `classes`, or the classes themselves.
            sample_index: (B,) data-set rows.

        Raises:
            InputError: labels of neither kind, where one of them has to be replaced.
        """
        return self._labels_by(self.current_codes, labels, sample_index)

    def as_given(self, labels: Any, sample_index: Any) -> Any:
        """Return the labels of a batch with the given ones in the place of those repaired.

        For who keeps them: a later repair makes other labels current, and `relabelled` knows the
        given ones and those of today.

        Args:
            labels: (B,) as for `relabelled`.
            sample_index: (B,) data-set rows.

        Raises:
            InputError: likewise.
        """
        return self._labels_by(self.codes, labels, sample_index)

    def _labels_by(self, codes: Tensor, labels: Any, sample_index: Any) -> Any:
        if not self.any_repaired and self.codes.device.type != "cpu":
            return labels  # looking would wait for the device
        index = self.rows_of(sample_index)
        changed = self.codes[index] != self.current_codes[index]
        if not bool(changed.any()):
            return labels
        found = as_class_ids(labels).to(index.device)
        fits = found.shape == index.shape
        kind, off = self._best_kind(found if fits else index, index)
        if not fits or bool(off.any()):
            raise InputError(
                "`labels` must be (B,), those that the weights were made of, or their positions in "
                "`weights.classes`, for repaired ones to take their place."
            )
        named = torch.where(changed, kind[codes[index]], found).to(found.dtype)
        return labels if torch.equal(named, found) else named

    def _best_kind(self, labels: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return (C,) what the labels of a batch call the classes, and (B,) where they do not.

        They are positions in `classes`, or the classes themselves, of the labels given to these
        rows or of those that have taken their place.
        """
        kinds = [torch.arange(len(self.classes), device=index.device)]
        if self.classes.dtype.kind in "iub":
            kinds.append(torch.as_tensor(self.classes.astype(np.int64), device=index.device))
        labels, given, current = as_class_ids(labels), self.codes[index], self.current_codes[index]
        offs = [(labels != kind[given]) & (labels != kind[current]) for kind in kinds]
        counts = [int(off.sum()) for off in offs]
        # Where both fit, the batches before tell.
        best = min(range(len(kinds)), key=lambda k: (counts[k], k != self._kind))
        if counts[best] == 0 and any(counts):
            self._kind = best
        return kinds[best], offs[best]
