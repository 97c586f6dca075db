"""Batches of P classes x K samples, in an order that a run can be resumed in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler

from bspml.distributed.rows import nth_share
from bspml.errors import CheckpointError, InputError
from bspml.tensors.checks import check_whole, encode_labels


class PKSampler(BatchSampler):
    """Yield lists of P x K data-set rows: P classes, K samples of each.

    Source: [Zhang 2023], Algorithm 2, step 2 ("sample P classes stochastically and then sample K
    samples per class stochastically").
    Differs: classes, and the samples of a class, come from shuffled queues instead of independent
    draws.  Each is as likely as before, but all come up once before any comes up again, so that an
    epoch of balanced classes shows every sample, and no sample meets itself in a batch.

    A class with fewer than K rows fills its K places by going round its rows again; batches are
    always full.  A class with one row has no positive pair, so it is left out, unless fewer than P
    classes remain without the single ones.

    The batches of an epoch are a function of (seed, epoch, rows) and of nothing else; the global
    random state is neither read nor changed.  So every process of several has the same order, and
    with `share` yields its part of each batch.  Iterating goes on where the last iteration stopped,
    and after the last batch of an epoch with the next epoch.

    With DataLoader workers the loader fetches batches before the loop trains on them, so
    `position` runs ahead of the training.  Save with `state_dict(position=batches_trained_on)`.

    Pass it as `sampler=` to a pytorch-metric-learning trainer, or as `batch_sampler=` to a
    DataLoader.  After `set_rows`, start a new iteration: a running one keeps the old rows.

    Args:
        labels: (N,) labels of any kind, one per data-set row.
        classes_per_batch: P.
        samples_per_class: K.
        batches_per_epoch: default: usable rows // (P K), at least 1; it follows `set_rows`.
        seed: a whole number, at least 0.

    Attributes:
        epoch: the epoch being iterated, or just finished.
        position: batches of this epoch handed out so far.

    Raises:
        InputError: fewer than P classes have rows, or an argument out of range.

    Example:
        >>> sampler = PKSampler(list("aaabbbccc"), classes_per_batch=2, samples_per_class=2)
        >>> len(sampler), [len(batch) for batch in sampler]
        (2, [4, 4])
    """

    def __init__(
        self,
        labels: Any,
        classes_per_batch: int = 16,
        samples_per_class: int = 4,
        batches_per_epoch: int | None = None,
        seed: int = 0,
    ) -> None:
        encoded = encode_labels(labels)
        self._given = self._codes = encoded.codes.numpy()
        self.classes_per_batch = check_whole(classes_per_batch, "classes_per_batch")
        self.samples_per_class = check_whole(samples_per_class, "samples_per_class")
        if batches_per_epoch is not None:
            batches_per_epoch = check_whole(batches_per_epoch, "batches_per_epoch")
        self._fixed_length = batches_per_epoch
        self.seed = check_whole(seed, "seed", low=0)
        n = len(self._codes)
        super().__init__(range(n), self.classes_per_batch * self.samples_per_class, drop_last=True)
        self.epoch = 0
        self.position = 0
        self._mask = np.ones(n, dtype=bool)
        self._groups = self._usable_groups(self._mask, self._codes)
        self._seen = np.zeros(n, dtype=bool)
        self._run: object = None  # the newest iteration: only it may move `position`
        self._part = list(range(self.batch_size))  # of each batch: what this process takes

    # --- order ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Batches per epoch."""
        if self._fixed_length is not None:
            return self._fixed_length
        return max(1, self.num_usable // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        if self.position >= len(self):
            self.set_epoch(self.epoch + 1)
        run = self._run = object()
        is_seen = self._seen = np.zeros(len(self._codes), dtype=bool)
        skip, length = self.position, len(self)
        for number, batch in enumerate(self._batches(), start=1):
            is_seen[batch] = True
            # A resumed epoch is drawn from its start, so that the queues stand as they stood.
            if number > skip:
                if self._run is run:
                    self.position = number
                yield [batch[place] for place in self._part]
            if number == length:
                return

    def _batches(self) -> Iterator[list[int]]:
        """Batches of `self.epoch` without end."""
        rng = np.random.default_rng((self.seed, self.epoch))
        classes = _Queue(np.arange(len(self._groups)), rng)
        groups = [_Queue(rows, rng) for rows in self._groups]
        while True:
            batch_classes = classes.draw(self.classes_per_batch)
            yield [row for c in batch_classes for row in groups[c].draw(self.samples_per_class)]

    def set_epoch(self, epoch: int, position: int = 0) -> None:
        """Go to the start of an epoch, or behind its first batches.

        Args:
            epoch: from 0.
            position: batches of it to pass over.
        """
        epoch = check_whole(epoch, "epoch", low=0)
        self.position = check_whole(position, "position", low=0)
        self.epoch = epoch
        self._run = None

    def share(self, rank: int, ranks: int, micro_batches: int = 1) -> None:
        """Yield only part `rank` of `ranks` of each batch, from the next iteration on.

        The parts are consecutive, in the order of the ranks, and differ by one row at most.
        Lengths, positions and states are still about whole batches, so a saved state goes on with
        any number of ranks.

        Args:
            rank: 0 to `ranks` - 1.
            ranks: how many processes share a batch.
            micro_batches: pieces the batch is computed in, one after the other: every piece is
                shared, and the pieces of this rank come one behind the other.

        Raises:
            InputError: `rank` is not below `ranks`, or a piece has fewer rows than there are ranks,
                or the pieces are not of one size.
        """
        rank, ranks = check_whole(rank, "rank", low=0), check_whole(ranks, "ranks")
        if rank >= ranks:
            raise InputError(f"`rank` must be below `ranks`, {ranks}; got {rank}.")
        piece, remainder = divmod(self.batch_size, check_whole(micro_batches, "micro_batches"))
        if remainder:
            raise InputError(
                f"`micro_batches` must divide the batch of {self.batch_size} rows; got "
                f"{micro_batches}. Let it divide the classes per batch."
            )
        if piece < ranks:
            raise InputError(
                f"a batch has {piece} rows, fewer than the {ranks} processes that share it. Start "
                "fewer processes, or take larger batches, or fewer micro-batches."
            )
        own = range(piece)[nth_share(piece, rank, ranks)]
        self._part = [first + i for first in range(0, self.batch_size, piece) for i in own]

    # --- rows -------------------------------------------------------------------------------------

    def set_rows(self, mask: Any = None, labels: Any = None) -> None:
        """Restrict sampling to the rows where `mask` is true; None allows all again.

        The current epoch starts anew under these rows; if it was finished, the next one starts.

        Args:
            mask: (N,) bool tensor or array, or None.
            labels: (N,) labels that classes are drawn by from now on, such as repaired ones; None:
                those the sampler was made of.

        Raises:
            InputError: not (N,) bool, or fewer than P classes have rows left; nothing is changed.
        """
        n = len(self._codes)
        codes = self._given if labels is None else encode_labels(labels, n).codes.numpy()
        if mask is None:
            rows = np.ones(n, dtype=bool)
        else:
            rows = mask.detach().cpu().numpy() if isinstance(mask, Tensor) else np.asarray(mask)
            if rows.shape != (n,) or rows.dtype != np.bool_:
                raise InputError(
                    f"`mask` must be (N,) = ({n},) bool, true where a row may be sampled; got "
                    f"{rows.shape} {rows.dtype}. Use `weights > 0` for weights."
                )
        groups = self._usable_groups(rows, codes)
        is_finished = self.position >= len(self)
        self._mask, self._groups, self._codes = rows.copy(), groups, codes
        self.set_epoch(self.epoch + is_finished)

    def _usable_groups(self, mask: np.ndarray, codes: np.ndarray) -> list[np.ndarray]:
        """Rows under `mask`, class by class, of the classes that can be sampled."""
        rows = np.flatnonzero(mask)
        rows = rows[np.argsort(codes[rows], kind="stable")]
        starts = np.flatnonzero(np.diff(codes[rows], prepend=-1))
        groups = np.split(rows, starts[1:]) if len(rows) else []
        paired = [g for g in groups if len(g) >= min(2, self.samples_per_class)]
        if len(groups) < self.classes_per_batch:
            raise InputError(
                f"`classes_per_batch` must be at most the number of classes with rows to sample, "
                f"{len(groups)} ({len(rows)} of {len(mask)} rows); got {self.classes_per_batch}. "
                "Lower it, or allow more rows."
            )
        return paired if len(paired) >= self.classes_per_batch else groups

    @property
    def num_usable(self) -> int:
        """Rows that can come up: those allowed, less those of classes left out for being single."""
        return sum(len(g) for g in self._groups)

    def coverage(self) -> float:
        """Share of the allowed rows that came up so far in the epoch last iterated, in [0, 1].

        Rows left out because they are alone in their class count as missed.
        """
        return float(self._seen[self._mask].mean())

    # --- state ------------------------------------------------------------------------------------

    def state_dict(self, position: int | None = None) -> dict[str, Any]:
        """Return what `load_state_dict` needs to go on with exactly the batches that remain.

        Args:
            position: batches of this epoch really used, when a prefetching loader ran ahead;
                default: batches handed out.
        """
        batches = self.position if position is None else check_whole(position, "position", low=0)
        return {
            "epoch": self.epoch,
            "position": batches,
            "rows": torch.from_numpy(self._mask.copy()),
            "codes": torch.from_numpy(self._codes.copy()),
            "drawn_from": self.drawn_from(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a saved place; the next iteration yields the batches that remained there.

        Raises:
            CheckpointError: the state is of other labels, seed, P, K or epoch length.
        """
        try:
            saved_settings, rows = dict(state["drawn_from"]), state["rows"]
            epoch = check_whole(state["epoch"], "epoch", low=0)
            position = check_whole(state["position"], "position", low=0)
        except (KeyError, TypeError, ValueError) as err:
            raise CheckpointError(
                f"`state` must be what PKSampler.state_dict() returned; {err!r}. "
                "Was another object's state saved under this name?"
            ) from err
        self.check_drawn_from(saved_settings)
        self.set_rows(rows, state.get("codes"))  # not in states of before labels were repaired
        self.set_epoch(epoch, position)

    def check_drawn_from(self, saved: Mapping[str, Any]) -> None:
        """Raise a CheckpointError unless `saved`, a `drawn_from()`, is this sampler's."""
        for key, value in self.drawn_from().items():
            if saved.get(key) != value:
                raise CheckpointError(
                    f"the sampler's state was saved with {key}={saved.get(key)}, this sampler has "
                    f"{key}={value}: the remaining batches cannot be the same. Build it with the "
                    "arguments and labels of the saved run."
                )

    def drawn_from(self) -> dict[str, Any]:
        """Everything but epoch and rows that the order depends on, as plain values."""
        return {
            "num_samples": len(self._codes),
            "labels_sha256": hashlib.sha256(self._given.tobytes()).hexdigest(),
            "classes_per_batch": self.classes_per_batch,
            "samples_per_class": self.samples_per_class,
            "batches_per_epoch": self._fixed_length,
            "seed": self.seed,
        }


class _Queue:
    """Items in shuffled order, shuffled again when used up; no item twice in one draw."""

    def __init__(self, items: np.ndarray, rng: np.random.Generator) -> None:
        self._items = items
        self._rng = rng
        self._waiting: list[int] = []

    def draw(self, count: int) -> list[int]:
        """The next `count` items; only if there are fewer than that, some come up again."""
        items: list[int] = []
        while len(items) < count:
            items += self._draw_once(min(count - len(items), len(self._items)))
        return items

    def _draw_once(self, count: int) -> list[int]:
        """The next `count` items, at most all."""
        if len(self._waiting) < count:
            waiting = set(self._waiting)
            shuffled = self._rng.permutation(self._items).tolist()
            # What is still waiting is drawn now, so in the new round its turn comes last.
            self._waiting += sorted(shuffled, key=waiting.__contains__)
        items, self._waiting = self._waiting[:count], self._waiting[count:]
        return items
