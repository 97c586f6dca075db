"""Batches whose rows the sampler knows, for data sets whose items do not say them.

A loader hands batches out in the order in which their rows were drawn, in this process even where
workers read them.  So a batch needs to carry nothing: its rows are the oldest that nobody took.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from bspml.data.sampler import PKSampler
from bspml.errors import InputError
from bspml.tensors.checks import check_whole

SAMPLES_PER_CLASS = 4
# By name, as two are of other packages.  What else chooses may leave rows out for a reason.
_OF_ALL_ROWS = ("RandomSampler", "SequentialSampler", "MPerClassSampler", "BalanceSampler")


class DrawnRows(PKSampler):
    """A `PKSampler` that says which rows the next batch of its loader has.

    Made as a `PKSampler`, or by `of_size`.

    Example:
        >>> points = list(zip(range(4), "aabb"))
        >>> sampler = DrawnRows(list("aabb"), classes_per_batch=2, samples_per_class=2)
        >>> for x, y in torch.utils.data.DataLoader(points, batch_sampler=sampler):
        ...     assert x.tolist() == sampler.take(len(y)).tolist()
    """

    _drawn: deque[list[int]] | None = None
    _follows = False  # a state's seed, as nobody chose its own

    def __iter__(self) -> Iterator[list[int]]:
        drawn = self._drawn = deque()  # what an iteration that was broken off drew comes no more
        for batch in super().__iter__():
            drawn.append(batch)
            yield batch

    def take(self, count: int) -> Tensor:
        """Return the rows of the next batch, (count,), or of one of its equal parts.

        Args:
            count: labels in the batch or part.

        Raises:
            InputError: the batch is of another number of rows.
        """
        rows = self._drawn.popleft() if self._drawn else []
        if not count or not rows or len(rows) % count:
            raise InputError(
                f"the batch has {count} labels, and {len(rows)} rows were drawn for it. Its "
                "`collate_fn` must keep every sample, and the loop must take batches in turn."
            )
        if len(rows) > count:
            assert self._drawn is not None
            self._drawn.appendleft(rows[count:])
        return torch.tensor(rows[:count])

    @classmethod
    def of_size(cls, codes: Tensor, batch_size: Any) -> DrawnRows:
        """Make one of four samples of each class; the seed is torch's, or a loaded state's.

        Args:
            codes: (N,) classes.
            batch_size: the most rows of a batch.
        """
        classes = classes_per_batch(codes, batch_size, "batch_size")
        seed = torch.initial_seed() % 2**63  # the ranks share it, as an int64
        made = cls(codes.cpu(), classes, SAMPLES_PER_CLASS, seed=seed)
        made._follows = True
        return made

    def check_drawn_from(self, saved: Mapping[str, Any]) -> None:
        """Raise a CheckpointError unless `saved`, a `drawn_from()`, is this sampler's."""
        if self._follows:
            check_whole(saved.get("seed"), "seed", low=0)
            saved = {**saved, "seed": self.seed}
        super().check_drawn_from(saved)

    def follow(self, saved: Mapping[str, Any]) -> None:
        """Take over the seed of a checked `drawn_from()`, where this was made by `of_size`."""
        self.seed = saved["seed"] if self._follows else self.seed


def classes_per_batch(codes: Tensor, batch_size: Any, name: str) -> int:
    """Return of how many classes a batch takes `SAMPLES_PER_CLASS` rows.

    Args:
        codes: (N,) classes.
        batch_size: the most rows of a batch.
        name: of the caller's argument, for the message.

    Raises:
        InputError: of fewer than two, or labels of fewer.
    """
    batch_size = check_whole(batch_size, name)
    there = len(codes.unique())
    if there < 2:
        raise InputError(
            f"the labels must be of at least two classes, for a loss to compare; got {there}. Are "
            "they the labels of all samples?"
        )
    classes = min(batch_size // SAMPLES_PER_CLASS, there)
    if classes < 2:
        raise InputError(
            f"`{name}` must be at least {2 * SAMPLES_PER_CLASS}, for {SAMPLES_PER_CLASS} samples "
            f"of each of two classes; got {batch_size}, and labels of {there} classes. "
            "Raise it, or make a PKSampler of your own."
        )
    return classes


def check_order(sampler: Any, name: str, rows: int) -> None:
    """Refuse to draw from all rows in the place of a sampler that may draw from some.

    Args:
        sampler: of a loader; None draws from all.
        name: of the caller's argument.
        rows: of the loader's data set.

    Raises:
        InputError: another than torch's plain ones, or those of P x K of other packages; or one
            that was made of other data.
    """
    kind = type(sampler).__name__
    source: Any = getattr(sampler, "data_source", None)
    draws = f"from a {kind}, which may leave rows out"
    if hasattr(source, "__len__") and len(source) != rows:
        draws = f"by a {kind} of {len(source)} rows from a data set of {rows}"
    elif sampler is None or kind in _OF_ALL_ROWS:
        return
    raise InputError(
        f"`{name}` draws {draws}, and the curriculum's batches come from all. Choose rows by "
        "torch.utils.data.Subset and shuffle, or make the PKSampler yourself."
    )
