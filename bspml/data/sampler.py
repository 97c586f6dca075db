"""Batches of P classes x K samples, in an order that a run can be resumed in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler

from bspml.data.turns import ClassTurns, RowQueue
from bspml.distributed.rows import nth_share
from bspml.errors import CheckpointError, InputError
from bspml.tensors.checks import as_numbers, check_whole, encode_labels
from bspml.tensors.class_ids import by_code
from bspml.tensors.row_index import check_same_rows, index_of

_ORDER = 2  # of the batches; another number where the same arguments gave others
_LARGEST = 2**24  # rows of a batch, batches of an epoch


class PKSampler(BatchSampler):
    """Yield lists of P x K data-set rows: P classes, K samples of each.

    Source: [Zhang 2023], Algorithm 2, step 2 ("sample P classes stochastically and then sample K
    samples per class stochastically").
    Differs: classes, and the samples of a class, come from shuffled queues instead of independent
    draws, so that an epoch shows every row and no sample meets itself in a batch.

    An epoch is the shortest that shows every row, unless `batches_per_epoch` says otherwise.  A
    class of n rows takes ceil(n / K) turns of it, spread over the epoch; turns that are left over
    go to the classes with the fewest.  So the largest class sets the length where it has more turns
    than a P-th of all: classes of 50, 20, 20 and 11 rows take 13 batches of 4 x 4.

    A class whose rows do not fill its places goes round its rows again; batches are always full.
    A class with one row has no positive pair, so it is left out, unless fewer than P classes
    remain without the single ones.

    Each iteration is an epoch of its own, from its first batch on: only `set_epoch` and
    `load_state_dict` start inside one.  What an epoch did not show, since it was broken off or is
    too short, comes first in the next: ten batches of each epoch show every row in the end.

    The batches of an epoch are a function of seed, epoch, rows and what the epochs before it left
    over; after `set_epoch` nothing is.  The global random state is neither read nor changed.  So
    every process of several has the same order, and with `share` yields its part of each batch.

    With DataLoader workers the loader fetches batches before the loop trains on them, so
    `position` runs ahead of the training.  Save with `state_dict(position=batches_trained_on)`.

    Pass it as `sampler=` to a pytorch-metric-learning trainer, or as `batch_sampler=` to a
    DataLoader.  After `set_rows`, start a new iteration: a running one keeps the old rows.

    Args:
        labels: (N,) labels of any kind, one per data-set row.
        classes_per_batch: P.
        samples_per_class: K.
        batches_per_epoch: default: as many as show every usable row; it follows `set_rows`.
        seed: a whole number, at least 0.
        sampler: none: here for Lightning, which passes one where it finds the name.
        **others: none, likewise.

    Attributes:
        epoch: the epoch being iterated, or just finished.
        position: batches of this epoch handed out so far.

    Raises:
        InputError: fewer than P classes have rows, an argument out of range, or those of another
            batch sampler.

    Example:
        >>> sampler = PKSampler(list("aaabbbccc"), classes_per_batch=2, samples_per_class=2)
        >>> len(sampler), [len(batch) for batch in sampler], sampler.coverage()
        (3, [4, 4, 4], 1.0)
    """

    def __init__(
        self,
        labels: Any = None,
        classes_per_batch: int = 16,
        samples_per_class: int = 4,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        sampler: Any = None,
        **others: Any,
    ) -> None:
        if sampler is not None or others:
            _refuse(others if sampler is None else {"sampler": sampler})
        if labels is None:
            raise InputError("`labels` must be one label per data-set row; got none.")
        encoded = encode_labels(labels)
        self._index = index_of(labels)
        self._given = self._codes = encoded.codes.numpy()
        self.classes_per_batch = check_whole(classes_per_batch, "classes_per_batch")
        self.samples_per_class = check_whole(samples_per_class, "samples_per_class")
        rows = self.classes_per_batch * self.samples_per_class
        self._check_size(rows, "`classes_per_batch` x `samples_per_class` must be", "rows")
        if batches_per_epoch is not None:
            batches_per_epoch = check_whole(batches_per_epoch, "batches_per_epoch")
            self._check_size(batches_per_epoch, "`batches_per_epoch` must be", "batches")
        self._fixed_length = batches_per_epoch
        self.seed = check_whole(seed, "seed", low=0)
        n = len(self._codes)
        super().__init__(range(n), rows, drop_last=True)
        self.epoch = 0
        self.position = 0
        self._mask = np.ones(n, dtype=bool)
        self._groups = self._usable_groups(self._mask, self._codes)
        self._seen = np.zeros(n, dtype=bool)  # by the newest iteration
        self._shown = np.zeros(n, dtype=bool)  # by epochs before it, of classes not yet through
        self._through = np.zeros(n, dtype=bool)  # rows of classes that were, while others are not
        self._run: object = None  # the newest iteration of this epoch: only it moves `position`
        self._part = list(range(self.batch_size))  # of each batch: what this process takes

    @staticmethod
    def _check_size(number: int, must: str, of: str) -> None:
        if number > _LARGEST:
            raise InputError(f"{must} at most {_LARGEST:,} {of}; got {number:,}. Take fewer.")

    # --- order ------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Batches per epoch."""
        if self._fixed_length is not None:
            return self._fixed_length
        needed = self._turns_needed()
        return max(int(needed.max()), -(-int(needed.sum()) // self.classes_per_batch))

    def __iter__(self) -> Iterator[list[int]]:
        if self._run is not None or self.position >= len(self):
            self._next_epoch()
        run = self._run = object()
        is_seen = self._seen = np.zeros(len(self._codes), dtype=bool)
        skip = self.position
        for number, batch in enumerate(self._batches(len(self)), start=1):
            is_seen[batch] = True
            # A resumed epoch is drawn from its start, so that the queues stand as they stood.
            if number > skip:
                if self._run is run:
                    self.position = number
                yield [batch[place] for place in self._part]

    def _batches(self, length: int) -> Iterator[list[int]]:
        """Batches of `self.epoch`."""
        rng, shown = np.random.default_rng((self.seed, self.epoch)), self._shown
        groups = [RowQueue(rows, rng, set(rows[shown[rows]].tolist())) for rows in self._groups]
        sizes, num_shown = self._sizes, self._counted(shown)
        is_owed = self._counted(self._through) < sizes
        owed = is_owed * -(-(sizes - num_shown) // self.samples_per_class)
        per_batch = self.classes_per_batch
        turns = ClassTurns(self._turns_needed(), length, per_batch, num_shown / sizes, rng, owed)
        for batch_classes in turns:
            yield [row for c in batch_classes for row in groups[c].draw(self.samples_per_class)]

    def _turns_needed(self) -> np.ndarray:
        """(C,) how often each class must come up to show all its rows."""
        return -(-self._sizes // self.samples_per_class)

    @property
    def _sizes(self) -> np.ndarray:
        """(C,) rows of each class."""
        return np.array([len(rows) for rows in self._groups])

    def _counted(self, flags: np.ndarray) -> np.ndarray:
        """(C,) how many rows of each class are flagged."""
        starts = np.cumsum(self._sizes) - self._sizes
        return np.add.reduceat(flags[np.concatenate(self._groups)], starts, dtype=np.int64)

    def _next_epoch(self) -> None:
        """Go to the next epoch, in which the rows that this one did not show come first."""
        if self._run is None:  # a place that was loaded or set: what it passes over was shown
            self._seen = np.zeros(len(self._codes), dtype=bool)
            for batch in islice(self._batches(len(self)), self.position):
                self._seen[batch] = True
        shown, through = self._shown | self._seen, self._through.copy()
        for rows in self._groups:
            if shown[rows].all():
                shown[rows], through[rows] = False, True
        if all(through[rows].all() for rows in self._groups):
            through[:] = False
        self.set_epoch(self.epoch + 1)
        self._shown, self._through = shown, through

    def set_epoch(self, epoch: int, position: int = 0) -> None:
        """Go to the start of an epoch, or behind its first batches.

        What was shown before is forgotten: the batches depend on seed, epoch and rows alone.

        Args:
            epoch: from 0.
            position: batches of it to pass over.
        """
        epoch = check_whole(epoch, "epoch", low=0)
        self.position = check_whole(position, "position", low=0)
        self.epoch = epoch
        self._run = None
        self._shown, self._through = np.zeros((2, len(self._codes)), dtype=bool)

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

        Nothing changes where they are the rows and labels of before.  Else an epoch that was begun
        is over: the next iteration is the next epoch, in which rows not yet shown come first.

        Args:
            mask: (N,) bool tensor or array, or None.
            labels: (N,) labels that classes are drawn by from now on, such as repaired ones; None:
                those the sampler was made of.

        Raises:
            InputError: not (N,) bool, or fewer than P classes have rows left; nothing is changed.
        """
        n = len(self._codes)
        check_same_rows(("the sampler's labels", self._index), mask=mask, labels=labels)
        codes = self._given if labels is None else encode_labels(labels, n).codes.numpy()
        rows = np.ones(n, dtype=bool)
        if mask is not None:
            expected, remedy = f"(N,) = ({n},) bool", "Use `weights > 0` for weights."
            flags = as_numbers(mask, "mask", expected, remedy).detach().cpu()
            if flags.shape != (n,) or flags.dtype != torch.bool:
                raise InputError(
                    f"`mask` must be {expected}, true where a row may be sampled; got "
                    f"{tuple(flags.shape)} {flags.dtype}. {remedy}"
                )
            rows = flags.numpy()
        if np.array_equal(rows, self._mask) and np.array_equal(codes, self._codes):
            return
        groups = self._usable_groups(rows, codes)
        if self.position > 0:
            self._next_epoch()
        self._mask, self._groups, self._codes = rows.copy(), groups, codes

    def _usable_groups(self, mask: np.ndarray, codes: np.ndarray) -> list[np.ndarray]:
        """Rows under `mask`, class by class, of the classes that can be sampled."""
        groups = [*by_code(np.where(mask, codes, -1)).values()]
        paired = [g for g in groups if len(g) >= min(2, self.samples_per_class)]
        if len(groups) < self.classes_per_batch:
            raise InputError(
                f"`classes_per_batch` must be at most the number of classes with rows to sample, "
                f"{len(groups)} ({mask.sum()} of {len(mask)} rows); got {self.classes_per_batch}. "
                "Lower it, or allow more rows."
            )
        return paired if len(paired) >= self.classes_per_batch else groups

    @property
    def num_usable(self) -> int:
        """Rows that can come up: those allowed, less those of classes left out for being single."""
        return int(self._sizes.sum())

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
            "shown": torch.from_numpy(self._shown.copy()),
            "through": torch.from_numpy(self._through.copy()),
            "drawn_from": self.drawn_from(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a saved place; the next iteration yields the batches that remained there.

        Raises:
            CheckpointError: the state is of other labels, seed, P, K or epoch length, or of an
                order of batches that is no longer drawn.
        """
        before = self._mask, self._codes, self._groups
        try:
            self.check_drawn_from(dict(state["drawn_from"]))
            epoch = check_whole(state["epoch"], "epoch", low=0)
            position = check_whole(state["position"], "position", low=0)
            state = {"through": torch.zeros(len(self._codes), dtype=torch.bool), **state}  # once
            kinds = {"rows": "b", "codes": "iu", "shown": "b", "through": "b"}
            rows, codes, shown, through = (self._saved(state, key, kinds[key]) for key in kinds)
            if codes.min() < 0 or codes.max() > self._given.max():
                raise InputError("`codes` names classes that these labels do not have")
            self._mask, self._codes, self._groups = rows, codes, self._usable_groups(rows, codes)
            if position > len(self):
                raise InputError(f"`position` is {position}, an epoch has {len(self)} batches")
        except CheckpointError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as err:
            self._mask, self._codes, self._groups = before
            why = f"{err!s} is missing" if isinstance(err, KeyError) else " ".join(f"{err}".split())
            raise CheckpointError(
                f"`state` must be what PKSampler.state_dict() returned; {why[:200].rstrip('.')}. "
                "Was another object's state saved under this name?"
            ) from err
        self.follow(state["drawn_from"])
        self.set_epoch(epoch, position)
        self._shown, self._through = shown, through

    def _saved(self, state: Mapping[str, Any], key: str, kinds: str) -> np.ndarray:
        array = state[key].numpy()
        if array.shape != self._codes.shape or array.dtype.kind not in kinds:
            raise InputError(
                f"`{key}` is {array.shape} of {array.dtype}, for {len(self._codes)} rows"
            )
        return array.copy()

    def check_drawn_from(self, saved: Mapping[str, Any]) -> None:
        """Raise a CheckpointError unless `saved`, a `drawn_from()`, is this sampler's."""
        if saved.get("order") != _ORDER:
            raise CheckpointError(
                "the sampler's state was saved by a version of bspml that draws its batches in "
                "another order: what remained of its epoch cannot be the same. Go on with that "
                "version, or start the run anew."
            )
        for key, value in self.drawn_from().items():
            if saved.get(key) != value:
                got = " ".join(f"{saved.get(key)}".split())[:80]
                raise CheckpointError(
                    f"the sampler's state was saved with {key}={got}, this sampler has "
                    f"{key}={value}: the remaining batches cannot be the same. Build it with the "
                    "arguments and labels of the saved run."
                )

    def follow(self, saved: Mapping[str, Any]) -> None:
        """Keep the seed: it was given, and is that of `saved`, a checked `drawn_from()`."""

    def drawn_from(self) -> dict[str, Any]:
        """Everything but epoch and rows that the order depends on, as plain values."""
        return {
            "num_samples": len(self._codes),
            "labels_sha256": hashlib.sha256(self._given.tobytes()).hexdigest(),
            "classes_per_batch": self.classes_per_batch,
            "samples_per_class": self.samples_per_class,
            "batches_per_epoch": self._fixed_length,
            "seed": self.seed,
            "order": _ORDER,
        }


def _refuse(others: Mapping[str, Any]) -> None:
    """Refuse arguments that are not a PKSampler's."""
    if others.keys() & {"sampler", "batch_size", "drop_last"}:
        raise InputError(
            "a PKSampler chooses whole batches and cannot be rebuilt around another sampler, as "
            "Lightning tries on several devices: pass use_distributed_sampler=False to its "
            "Trainer, and call `share(rank, ranks)` so that each process takes its part."
        )
    raise InputError(
        f"PKSampler takes no `{next(iter(others))}`. It takes labels, classes_per_batch, "
        "samples_per_class, batches_per_epoch and seed."
    )
