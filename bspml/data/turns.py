"""Whose turn it is in a batch: P classes out of all, K rows out of a class.

    (C,) turns that show every row  ->  turns of an epoch, L x P in all, at most L of a class
                                    ->  P distinct classes for each of its L batches

`bspml.data.sampler` says what an epoch is for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np


class ClassTurns:
    """The P distinct classes of each batch of an epoch; a class's turns are spread over it.

    Args:
        needed: (C,) turns in which a class shows all its rows.
        length: batches.
        per_batch: P, at most C.
        shown: (C,) share of a class that was shown before: it stands back.
        rng: of the order.
        owed: (C,) turns in which it shows what was not shown yet; 0 for a class that was through
            before others are: it stands back behind all of these.
    """

    def __init__(
        self,
        needed: np.ndarray,
        length: int,
        per_batch: int,
        shown: np.ndarray,
        rng: np.random.Generator,
        owed: np.ndarray,
    ) -> None:
        self.length, self.per_batch, self.rng = length, per_batch, rng
        self.shown = shown + 2.0 * (owed == 0)  # due is what lies below shown + 1
        self.turns = self._given_out(np.minimum(owed, length), np.minimum(needed, length))

    def _given_out(self, owed: np.ndarray, needed: np.ndarray) -> np.ndarray:
        """(C,) turns, length x P in all: as many as are owed, or needed, and as even as that
        allows.
        """
        total = self.length * self.per_batch
        levels = (np.zeros_like(needed), owed, needed, np.full_like(needed, self.length))
        enough = 0 if owed.sum() > total else 1 if needed.sum() > total else 2
        low, high = levels[enough : enough + 2]

        def in_all(level: int) -> int:
            return int(np.clip(level, low, high).sum())

        level = bisect_right(range(self.length + 1), total, key=in_all) - 1
        turns = np.clip(level, low, high)
        one_more = np.flatnonzero((low <= level) & (level < high))
        first = np.argsort(self.shown[one_more] + self.rng.random(len(one_more)))
        turns[one_more[first[: total - turns.sum()]]] += 1
        return turns

    def __iter__(self) -> Iterator[list[int]]:
        left = self.turns.copy()
        due = self._due(left, np.arange(len(left)))
        for batches_left in range(self.length, 0, -1):
            # Whoever has a turn in each of the batches left cannot wait; P at most have.
            order = np.where(left == batches_left, -1.0, due)
            chosen = np.sort(np.argpartition(order, self.per_batch - 1)[: self.per_batch])
            left[chosen] -= 1
            due[chosen] = self._due(left, chosen)
            yield self.rng.permutation(chosen).tolist()

    def _due(self, left: np.ndarray, classes: np.ndarray) -> np.ndarray:
        """When the next turns are due, as shares of the epoch: at random, each in its own part."""
        turns, left = self.turns[classes], left[classes]
        part = turns - left + self.rng.random(len(classes))
        return np.where(left > 0, self.shown[classes] + part / np.maximum(turns, 1), np.inf)


class RowQueue:
    """Rows in shuffled order, shuffled again when used up; no row twice in one draw."""

    def __init__(self, items: np.ndarray, rng: np.random.Generator, late: set[int]) -> None:
        self._items = items
        self._rng = rng
        self._late = late  # their turn comes last in the first round
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
            # What is still waiting is drawn now, so in the new round its turn comes last.
            late, self._late = self._late.union(self._waiting), set()
            shuffled = self._rng.permutation(self._items).tolist()
            self._waiting += sorted(shuffled, key=late.__contains__)
        items, self._waiting = self._waiting[:count], self._waiting[count:]
        return items
