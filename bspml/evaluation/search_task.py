"""What is searched for in what: checked queries and gallery, and the rows that say nothing.

embeddings, labels [, gallery, gallery_labels]
  -> same pandas index, finite rows, labels of one kind     (refused)
  -> without ignored labels, of norm 1 on the grid
  -> zero rows, a collapse, copies                          (warned of)
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from bspml.errors import InputError
from bspml.evaluation.neighbours import vectors_in
from bspml.evaluation.sides import (
    check_columns,
    check_ignored,
    encode_jointly,
    is_ignored,
    own_gallery_rows,
    warn_of_copies,
)
from bspml.shapes import Float, Int, Tensor
from bspml.tensors.arguments import check_flags
from bspml.tensors.checks import check_device, check_embeddings, encode_labels, some_of, zero_rows
from bspml.tensors.copies import rounding
from bspml.tensors.row_index import check_same_columns, check_same_rows
from bspml.tensors.unit_rows import grid_unit_rows

# Mean squared distance to the mean direction, below which similarities differ by about 1e-6:
# the order of the neighbours is then mostly float32 rounding.
_COLLAPSE = 1e-6
_TILE_ROWS = 4096  # turned into float64 at a time


class CollapseWarning(UserWarning):
    """All embeddings point the same way; what is retrieved is an accident."""


class Side(NamedTuple):
    """Rows to search for, or in, without those whose label is ignored.

    Attributes:
        rows: (N, D) from `grid_unit_rows`.
        codes: (N,) int64 labels, over the union of both sides' classes.
        numbers: (N,) which of the given rows these are.
        zero: given rows of norm 0.
        num_ignored: given rows that were left out.
        precision: epsilon of the type that the rows came in.
    """

    rows: Float[Tensor, "N D"]
    codes: Int[Tensor, " N"]
    numbers: np.ndarray
    zero: tuple[int, ...]
    num_ignored: int
    precision: float

    @classmethod
    def of(
        cls, values: Tensor, codes: Int[Tensor, " N"], ignored: np.ndarray, device: torch.device
    ) -> Side:
        """Normalise checked rows, without the ignored ones.

        Args:
            values: (M, D).
            codes: (M,).
            ignored: (M,) bool.
            device: to compute on.
        """
        numbers = np.flatnonzero(~ignored)
        zero = zero_rows(values).cpu().numpy()
        if len(numbers) < len(values):
            kept = torch.from_numpy(numbers)
            values, codes = values[kept.to(values.device)], codes[kept]
        rows = grid_unit_rows(values.to(device))
        left_out = int(ignored.sum())
        precision = torch.finfo(values.dtype).eps
        return cls(rows, codes, numbers, tuple(zero[~ignored[zero]].tolist()), left_out, precision)

    @property
    def points(self) -> np.ndarray:
        """(N,) bool, the rows of norm 1."""
        return ~np.isin(self.numbers, self.zero)


def _tolerance(*sides: Side) -> float:
    """Return how far rows lie apart that are equal within the coarser rounding."""
    return rounding(max(side.precision for side in sides), sides[0].rows.shape[1])


@dataclass(frozen=True, eq=False)
class SearchTask:
    """Queries, and the gallery that they are searched in.

    Attributes:
        queries: to search for.
        gallery: to search in; the same object where there is none.
        own: (N,) the gallery row that each query is itself, or None where none is meant to be one.
    """

    queries: Side
    gallery: Side
    own: Int[Tensor, " N"] | None

    @classmethod
    def of(
        cls,
        embeddings: Any,
        labels: Any,
        gallery: Any = None,
        gallery_labels: Any = None,
        device: Any = None,
        ignore: Any = (),
        query_in_gallery: bool = False,
    ) -> SearchTask:
        """Check the arguments, as `bspml.evaluate` documents them.

        Args:
            embeddings, labels: of the queries.
            gallery, gallery_labels: to search in, or None.
            device: to compute on; None: where `embeddings` lie.
            ignore: labels that count nowhere.
            query_in_gallery: the queries are in the gallery, too.

        Raises:
            InputError: an argument that does not fit, or no row is left.
        """
        check_flags(query_in_gallery=query_in_gallery)
        check_same_rows(embeddings=embeddings, labels=labels)
        check_same_rows(gallery=gallery, gallery_labels=gallery_labels)
        check_same_columns(embeddings=embeddings, gallery=gallery)
        gallery = vectors_in(gallery)
        values, place = _checked_rows(embeddings, "embeddings", device)
        if gallery is None and gallery_labels is None:
            encoded = encode_labels(labels, len(values))
            check_ignored(ignore, encoded)
            side = Side.of(values, encoded.codes, is_ignored(encoded, ignore, "embeddings"), place)
            return cls(side, side, torch.arange(len(side.rows), device="cpu"))
        if gallery is None or gallery_labels is None:
            raise InputError("`gallery` and `gallery_labels` come together; got only one of them.")
        others, _ = _checked_rows(gallery, "gallery", place)
        check_columns(values, others)
        ours = encode_labels(labels, len(values))
        theirs = encode_labels(gallery_labels, len(others), "gallery_labels")
        check_ignored(ignore, ours, theirs)
        codes, gallery_codes = encode_jointly(ours, len(values), theirs, len(others))
        queries = Side.of(values, codes, is_ignored(ours, ignore, "embeddings"), place)
        searched = Side.of(others, gallery_codes, is_ignored(theirs, ignore, "gallery"), place)
        own = None
        if query_in_gallery:
            tolerance = _tolerance(queries, searched)
            rows = (queries.rows, searched.rows)
            own = own_gallery_rows(
                rows, (queries.codes, searched.codes), tolerance, queries.numbers, "rows"
            )
        return cls(queries, searched, own)

    @property
    def alone(self) -> bool:
        """Whether the gallery is the queries."""
        return self.gallery is self.queries

    @property
    def available(self) -> int:
        """Gallery rows that a query is compared with."""
        return len(self.gallery.rows) - (self.own is not None)

    @property
    def num_ignored(self) -> int:
        """Rows left out for their label, of both sides."""
        return self.queries.num_ignored + (0 if self.alone else self.gallery.num_ignored)

    def matches(self) -> Int[Tensor, " N"]:
        """Count the gallery rows of each query's label, without the query itself."""
        codes = self.queries.codes
        sizes = torch.bincount(self.gallery.codes, minlength=int(codes.max()) + 1)
        return sizes[codes] - int(self.own is not None)

    def to_cluster(self, which: str) -> tuple[Tensor, np.ndarray, str]:
        """Return the rows for k-means, their classes, and which rows they are.

        Args:
            which: "query" or "query+gallery".
        """
        if which == "query" or self.alone:
            return self.queries.rows, self.queries.codes.numpy(), "query"
        # Queries that are in the gallery count once.
        sides = [self.gallery] if self.own is not None else [self.queries, self.gallery]
        codes = torch.cat([side.codes for side in sides])
        return torch.cat([side.rows for side in sides]), codes.numpy(), which

    def warn_of_zero_rows(self) -> None:
        """Warn of rows of norm 0, for the caller of the caller."""
        sides = {"embeddings": self.queries} | ({} if self.alone else {"gallery": self.gallery})
        for name, side in sides.items():
            if side.zero:
                warnings.warn(
                    f"`{name}` has rows of norm 0: {some_of(side.zero)}; their similarities are "
                    "all 0.",
                    stacklevel=3,
                )

    def warn_of_collapse(self) -> bool:
        """Warn, for the caller of the caller, of rows that all point one way; return whether."""
        sides = [self.queries.rows] + ([] if self.alone else [self.gallery.rows])
        # By tiles: a norm in float64 would first copy all rows.
        blocks = [tile for side in sides for tile in side.split(_TILE_ROWS)]
        n = sum(len(block) for block in blocks)
        # Written in place: results kept between the blocks would leave holes in the memory.
        sums = blocks[0].new_empty((len(blocks), blocks[0].shape[1]), dtype=torch.float64)
        norms = sums.new_empty(len(blocks))
        for block, its_sum, its_norm in zip(blocks, sums, norms, strict=True):
            torch.sum(block, 0, dtype=torch.float64, out=its_sum)
            torch.linalg.vector_norm(block, dtype=torch.float64, out=its_norm)
        mean = sums.sum(0) / n
        # mean squared distance to the mean = mean square - square of the mean
        spread = norms.square().sum() / n - mean.square().sum()
        collapsed = bool(spread < _COLLAPSE)
        if collapsed:
            warnings.warn(
                "the embeddings have collapsed: all rows point the same way, so neighbours are "
                "chosen by index and Recall@1 is at chance. Look at the learning rate and the "
                "loss.",
                CollapseWarning,
                stacklevel=3,
            )
        return collapsed

    def warn_of_copies(self) -> int:
        """Warn, for the caller of the caller, of copies that are searched; return how many."""
        sides = [self.gallery] if self.own is not None else [self.gallery, self.queries]
        told = [(side.rows, side.points, side.numbers) for side in sides]
        name = "embeddings" if self.alone else "gallery"
        classes = len(self.gallery.codes.unique())
        return warn_of_copies(told, _tolerance(*sides), classes, name, "rows", stacklevel=4)


def _checked_rows(values: Any, name: str, device: Any) -> tuple[Tensor, torch.device]:
    """Return rows without a gradient, and where to compute."""
    checked = check_embeddings(values, name).detach()
    if not len(checked):
        raise InputError(f"`{name}` must have at least one row; got {tuple(checked.shape)}.")
    place = checked.device if device is None else check_device(device)
    # No float64 on mps.
    return checked, torch.device("cpu") if place.type == "mps" else place
