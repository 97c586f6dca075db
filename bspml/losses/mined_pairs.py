"""What our miner hands to a loss: pairs as masks, listed only for those who ask.

Listing costs a pass over (B, R) and, on an accelerator, a wait: how many pairs there are decides
the length of the lists.  Our losses take the masks, and the similarities they were mined on, so a
step of our miner and our loss lists nothing and multiplies the embeddings once.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from bspml.shapes import Bool, Float, Tensor


class MinedPairs(tuple):
    """`(a1, p, a2, n)` as pytorch-metric-learning wants it, that still knows its masks.

    A tuple like any other: length 4, items, slices, iteration, unpacking, comparison, `torch.cat`.
    The lists are made at the first look at one.  Torch's functions of several tensors read the
    tuple beneath these methods: they find stand-ins there, which make the lists then.

    Attributes:
        positive: (B, R) bool, the pairs of `a1, p`; None in a tuple rebuilt from its parts.
        negative: (B, R) bool, the pairs of `a2, n`.
    """

    positive: Tensor | None = None
    negative: Tensor | None = None
    _lists: Callable[[], tuple[Tensor, ...]] | None = None  # a1, p, a2, n, made once
    _mined_on: tuple[Any, int, Tensor] | None = None

    @classmethod
    def of(cls, positive: Bool[Tensor, "B R"], negative: Bool[Tensor, "B R"]) -> MinedPairs:
        """Return the pairs of two masks.

        Args:
            positive: (B, R).
            negative: (B, R).
        """
        lists = functools.cache(
            lambda: (*positive.nonzero(as_tuple=True), *negative.nonzero(as_tuple=True))
        )
        pairs = cls(_StandIn.of(lists, place) for place in range(4))
        pairs.positive, pairs.negative, pairs._lists = positive, negative, lists
        return pairs

    def listed(self) -> tuple[Tensor, ...]:
        """Return the index tensors as a plain tuple; waits for the device the first time."""
        return tuple(super().__iter__()) if self._lists is None else self._lists()

    # ------------------------------------------------------------------ the similarities

    def remember(self, embeddings: Tensor, similarity: Float[Tensor, "B R"]) -> None:
        """Keep the cosines of `embeddings` with themselves that these pairs were mined on.

        Args:
            embeddings: (B, D), the tensor the miner was called with.
            similarity: (B, R), their cosines.
        """
        if not embeddings.is_inference():  # which count no versions
            self._mined_on = (weakref.ref(embeddings), embeddings._version, similarity)

    def similarity_of(self, embeddings: Tensor) -> Float[Tensor, "B R"] | None:
        """Return the miner's cosines, if they are of this very tensor, not written to since."""
        if self._mined_on is None:
            return None
        reference, version, similarity = self._mined_on
        same = reference() is embeddings and embeddings._version == version
        return similarity if same else None

    # ------------------------------------------------------------------ as a tuple

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.listed())

    def __getitem__(self, place: Any) -> Any:
        return self.listed()[place]

    def __contains__(self, item: object) -> bool:
        return item in self.listed()

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, tuple) and self.listed() == tuple(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.listed())

    def __add__(self, other: Any) -> Any:
        return self.listed() + tuple(other)

    def __radd__(self, other: Any) -> Any:
        return tuple(other) + self.listed()

    def __repr__(self) -> str:
        return repr(self.listed())

    def __reduce__(self) -> tuple[Any, ...]:
        return MinedPairs, (self.listed(),)


class _StandIn(torch.Tensor):
    """A tensor without data in the place of a list; any function of torch gets the list instead."""

    lists: Callable[[], tuple[Tensor, ...]]
    place: int

    @classmethod
    def of(cls, lists: Callable[[], tuple[Tensor, ...]], place: int) -> _StandIn:
        """Make an empty tensor that stands for the list at `place`."""
        stand_in = torch.Tensor._make_wrapper_subclass(cls, (0,))
        stand_in.lists, stand_in.place = lists, place
        return stand_in

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict | None = None
    ) -> Any:
        return func(*_lists_in(args), **_lists_in(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own stub has no cls
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Refuse what bypassed `__torch_function__`: it would compute on an empty tensor."""
        raise TypeError(f"{func} got a list of pairs that was not made: pass `tuple(pairs)`.")


def _lists_in(value: Any) -> Any:
    """Replace stand-ins in `value` by their lists, in tuples, lists and dicts too."""
    if isinstance(value, _StandIn):
        return value.lists()[value.place]
    if isinstance(value, tuple | list):
        return [_lists_in(item) for item in value]
    if isinstance(value, dict):
        return {key: _lists_in(item) for key, item in value.items()}
    return value
