"""Samples that are in two splits, twice in a test, or in training under two labels.

What a test finds of them was seen before; of two labels of one sample at most one is right.

The same bytes of a file, the same pixels, or features equal in direction but for 2e-6, as those are
that were scaled or rounded.  Files are read only where one of another split has their size.
"""

from __future__ import annotations

import stat
from collections import Counter
from dataclasses import dataclass

import numpy as np

from bspml.data.picture_keys import picture_keys
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.tensors.copies import first_copies, near_digests
from bspml.tensors.unit_rows import grid_unit_rows
from bspml.words import counted

_SHOWN = 10  # pairs that a sentence names
_ALIKE = 2e-6  # distance of two directions


@dataclass(frozen=True)
class SplitCopies:
    """Samples of one split that are in another, or earlier in the same one.

    Attributes:
        split: whose samples these are.
        source: the split that has them, too; the same: earlier samples, in training those under
            another label.
        rows: (P,) int64, ascending.
        source_rows: (P,) int64, the first sample of `source` that each is a copy of.
        names: P pairs of names, the copy's and its source's.
        near: they are much alike, but not the same.
    """

    split: str
    source: str
    rows: np.ndarray
    source_rows: np.ndarray
    names: tuple[tuple[str, str], ...]
    near: bool = False

    @classmethod
    def of(
        cls,
        split: RetrievalSplit,
        source: RetrievalSplit,
        rows: np.ndarray,
        source_rows: np.ndarray,
        near: bool = False,
    ) -> SplitCopies:
        """Take the names from the splits.

        Args:
            split, source, rows, source_rows, near: as above.
        """
        pairs = zip(rows.tolist(), source_rows.tolist(), strict=True)
        names = tuple((_name(split, row), _name(source, other)) for row, other in pairs)
        return cls(split.name, source.name, rows, source_rows, names, near)

    @property
    def sentence(self) -> str:
        """Say how many there are, and name ten of them."""
        relation = "and" if self.near else "is"
        shown = [f"{copy} {relation} {source}" for copy, source in self.names[:_SHOWN]]
        more = f", ... ({len(self.rows):,} in all)" if len(self.rows) > _SHOWN else ""
        are = "is" if len(self.rows) == 1 else "are"
        where = f"in {self.source}, too"
        if self.near:
            one = "a near copy of one" if len(self.rows) == 1 else "near copies of some"
            where = f"{one} of {self.source} by the features (saved again, cropped or scaled)"
        if self.split == self.source:
            where = "a copy of another" if len(self.rows) == 1 else "copies of others"
            where += " under another label" if self.split == "train" else ""
        return (
            f"{counted(len(self.rows), 'sample')} of {self.split} {are} {where}: "
            f"{', '.join(shown)}{more}."
        )


def split_copies(data: RetrievalData) -> tuple[SplitCopies, ...]:
    """Find the samples that are in two splits, twice in a test, or in training under two labels.

    Args:
        data: splits of files, pixels or features.

    Returns:
        A finding for each two splits that share samples, in the order of the splits: what is in
        train under two labels, what of the others is in train, what of the gallery are queries,
        what is there twice.

    Raises:
        DataError: a file cannot be read; names it.

    Example:
        >>> import torch
        >>> x, names = torch.eye(4), np.array(["a", "b", "c"])
        >>> train = RetrievalSplit("train", names, features=x[:3])
        >>> test = RetrievalSplit("test", names, features=x[[3, 1, 0]])
        >>> found, = split_copies(RetrievalData("mine", train, test))
        >>> found.sentence
        '2 samples of test are in train, too: test/1 is train/1, test/2 is train/0.'
    """
    keys = dict(zip((split.name for split in data.splits), _keys(data.splits), strict=True))
    found = []
    for i, split in enumerate(data.splits):
        for source in data.splits[: i + 1]:
            copies = _shared(split, keys[split.name], source, keys[source.name])
            if len(copies.rows):
                found.append(copies)
    return tuple(found)


def _shared(
    split: RetrievalSplit, keys: np.ndarray, source: RetrievalSplit, source_keys: np.ndarray
) -> SplitCopies:
    if split is source:
        if split.boxes is not None:  # two parts of one picture are two samples
            boxes = [box.tobytes().hex() for box in split.boxes]
            keys = np.where(keys == b"", keys, np.char.add(keys, np.array(boxes, dtype="S64")))
        first = first_copies(keys)
        is_copy = (first != np.arange(len(first))) & (keys != b"")
        if split.name == "train":
            is_copy &= split.labels != split.labels[first]
    else:
        both = np.concatenate([source_keys, keys])
        first = first_copies(both)[len(source_keys) :]
        is_copy = (first < len(source_keys)) & (keys != b"")
    rows = np.flatnonzero(is_copy)
    return SplitCopies.of(split, source, rows, first[rows])


def _name(split: RetrievalSplit, row: int) -> str:
    return f"{split.name}/{row}" if split.names is None else split.names[row]


def _keys(splits: tuple[RetrievalSplit, ...]) -> list[np.ndarray]:
    """Digests of each split's samples; empty for files that are no copies by their size alone."""
    if all(split.paths is None for split in splits):
        given = [split.features for split in splits if split.pixels is None]
        features = [grid_unit_rows(part) for part in given if part is not None]
        if len(features) == len(splits):
            return near_digests(features, _ALIKE)
        return [np.array(picture_keys(split), dtype="S32") for split in splits]
    sizes = [_sizes(split) for split in splits]
    counts = Counter(size for of_split in sizes for size in of_split)
    keys = []
    for split, of_split in zip(splits, sizes, strict=True):
        rows = [row for row, size in enumerate(of_split) if size > 0 and counts[size] > 1]
        digests = np.zeros(len(split), dtype="S32")
        digests[rows] = picture_keys(split, rows=rows)
        keys.append(digests)
    return keys


def _sizes(split: RetrievalSplit) -> list[int]:
    """Bytes of each file, 0 where there is none to read."""
    sizes = []
    for path in split.paths or ():
        try:
            status = (split.root / path).stat()  # type: ignore[operator]
            sizes.append(status.st_size if stat.S_ISREG(status.st_mode) else 0)
        except OSError:
            sizes.append(0)
    return sizes
