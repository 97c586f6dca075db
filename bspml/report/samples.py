"""Samples column by column, as an audit or a run knows them; their order and cards on the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from bspml.errors import InputError
from bspml.files.run import WeightsTable
from bspml.report.models import Neighbour, Suspect


@dataclass(frozen=True)
class Samples:
    """What is known of N samples; a column is None where nothing of the kind is known.

    Attributes:
        labels: (N,) as given, possibly wrong.
        weights: (N,) in [0, 1].
        names: N names.
        suggested: (N,) labels that fit better, the given one or '' where there is none.
        margins: (N,) how much better the suggested label fits; NaN where unknown.
        p_values: (N,) NaN where the label was not judged.
        q_values: (N,) likewise.
        wrong_probability: (N,) that the label is wrong, in [0, 1]; NaN where unknown.
        suggestion_probability: (N,) that the suggested label is right; NaN where unknown.
        fits_no_class: (N,) bool, like the samples of no class.
        own: (N, k) nearest samples under the label, -1 for none.
        other: (N, k) nearest samples under the suggested label, or the one that fits next best, -1
            for none.
        texts: N texts to read.
        key: sample index -> digest of its photo, '' for none.
        picture: sample index -> data URI, path relative to the page, or None.

    Raises:
        InputError: columns of different lengths.

    Example:
        >>> samples = Samples(np.array([3, 7]), np.array([0.0, 1.0]), own=np.array([[1], [0]]))
        >>> card = samples.card(0)
        >>> card.label, card.weight, card.own[0].index
        ('3', 0.0, 1)
    """

    labels: np.ndarray
    weights: np.ndarray
    names: Sequence[str] | np.ndarray | None = None
    suggested: Sequence[str] | np.ndarray | None = None
    margins: np.ndarray | None = None
    p_values: np.ndarray | None = None
    q_values: np.ndarray | None = None
    wrong_probability: np.ndarray | None = None
    suggestion_probability: np.ndarray | None = None
    fits_no_class: np.ndarray | None = None
    own: np.ndarray | None = None
    other: np.ndarray | None = None
    texts: Sequence[str] | np.ndarray | None = None
    key: Callable[[int], str] = lambda _: ""
    picture: Callable[[int], str | None] = lambda _: None

    def __post_init__(self) -> None:
        for column in fields(self)[:-2]:
            self.check_length(column.name, getattr(self, column.name))

    def check_length(self, name: str, column: object) -> None:
        """Refuse a column that has not one entry per sample.

        Args:
            name: of the column.
            column: anything with a length, or None.

        Raises:
            InputError: it has another length.
        """
        length = len(self.weights) if column is None else len(column)  # type: ignore[arg-type]
        if length != len(self.weights):
            raise InputError(f"`{name}` must be one per sample, {len(self.weights)}; got {length}.")

    def neighbour(self, i: int) -> Neighbour:
        """Return sample `i` as it stands beside another one."""
        return Neighbour(
            index=i,
            name="" if self.names is None else str(self.names[i]),
            label=str(self.labels[i]),
            image=self.picture(i),
            text=None if self.texts is None else str(self.texts[i]),
            picture=self.key(i),
        )

    def card(self, i: int) -> Suspect:
        """Return the card of sample `i`."""
        sample = self.neighbour(i)
        suggested = "" if self.suggested is None else str(self.suggested[i])
        return Suspect(
            **dict(sample),
            suggested="" if suggested == sample.label else suggested,
            margin=_entry(self.margins, i),
            p=_entry(self.p_values, i),
            q=_entry(self.q_values, i),
            weight=float(self.weights[i]),
            wrong_probability=_entry(self.wrong_probability, i),
            suggestion_probability=_entry(self.suggestion_probability, i),
            fits_no_class=self.fits_no_class is not None and bool(self.fits_no_class[i]),
            own=self._row(self.own, i),
            other=self._row(self.other, i),
        )

    def _row(self, neighbours: np.ndarray | None, i: int) -> tuple[Neighbour, ...]:
        if neighbours is None:
            return ()
        return tuple(self.neighbour(j) for j in neighbours[i].tolist() if j >= 0)


def _entry(column: np.ndarray | None, i: int) -> float | None:
    return None if column is None else float(column[i])


def lowest_weights(
    table: WeightsTable, count: int = 48, scores: np.ndarray | None = None
) -> np.ndarray:
    """Return the rows of the `count` smallest weights, smallest first.

    Args:
        table: the weights.
        count: how many rows at most.
        scores: (N,) large where a label is suspicious; orders equal weights (many are exactly
            0).  NaN counts as not suspicious.  Without scores the data set's order decides.

    Example:
        >>> table = WeightsTable(np.array(list("abc")), np.array([0.0, 1.0, 0.0]), ((),) * 3)
        >>> lowest_weights(table, 2, scores=np.array([0.1, 0.2, 0.9])).tolist()
        [2, 0]
    """
    suspicion = np.zeros(len(table)) if scores is None else np.nan_to_num(scores, nan=-np.inf)
    return np.lexsort((np.arange(len(table)), -suspicion, table.trust))[:count]
