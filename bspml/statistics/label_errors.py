"""Which labels are wrong, how many, and what they should be: both judges, the model, the rounds.

    judges -> tables -> model -> odds of every label            round 0: every sample a reference
      ^                            |
      +---- weights = 1 - P(wrong) +                            rounds 1, 2, ...

A judge whose references are partly wrong calls labels uncertain that are not: its classes are
mixtures.  So the references are weighed by how probably their labels are right, and everything is
judged anew, while the left-out likelihood of the labels improves; the round of the best likelihood
answers.  (Where the rounds do not help, with many similar classes, the likelihood says so.)

The tables have N C entries for C classes.  Where these are many they are never held: the model is
fitted to a sample of the rows, every class alike, and all rows are judged in blocks; `fitted` says
how many told the model; below N the interval of the rate holds the error of sampling, as it rests
on these rows alone.  The shrinkage is chosen by at most 2,000 of them: over 18 synthetic settings
(random and nearest-class errors of 0 to 40 %, 3 to 500 samples a class) AUROC and rate are those of
all of them to .001.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from bspml.errors import InputError
from bspml.shapes import Tensor
from bspml.statistics.contrastive import JudgingTask, contrastive_tables
from bspml.statistics.contrastive_square import LARGEST
from bspml.statistics.discriminant import Discriminant
from bspml.statistics.label_likelihood import Confusions, label_cost
from bspml.statistics.label_model import (
    NEAREST,
    LabelModel,
    RandomErrors,
    Verdicts,
    fit_label_model,
    tells_apart,
)
from bspml.statistics.soft_means import SoftMeans
from bspml.tensors.precision import full_precision

SHRINKS = (0.1, 0.3, 0.5, 0.8, 0.95)

_FIT_VALUES = 1 << 21  # of a table that the model is fitted to
_FEWEST_FITTED = 1500
_ROUNDS = 4
_SHRINK_ROWS = 2000  # by which the shrinkage is chosen, at most
_SHRINK_VALUES = 1 << 19  # of a table that chooses the shrinkage
_FEWEST_OF_CLASS = 4  # references that are left of a class
_LEAST_WEIGHT = 1e-4  # of a reference, however doubtful
_BLOCK_VALUES = 1 << 22  # of a table judged at a time


@dataclass(frozen=True)
class LabelErrors:
    """What is known of N labels.

    Attributes:
        odds: (N,) float64 log odds that the label is wrong; NaN where it was not judged.
        wrong_probability: (N,) float64, likewise.
        other_class: (N,) int64, the class that is most probably right if the label is not; -1
            where not judged.
        other_probability: (N,) float64, the probability that this class is the right one.
        strangeness: (N,) float64, how far the sample is from the class nearest to it: minus the
            largest entry of the discriminant; NaN where not judged.
        model: the fitted model; None where the samples do not tell the classes apart.
        shrink: of the discriminant.
        rounds: in which the references were weighed anew.
        fitted: samples that the model was fitted to.
    """

    odds: np.ndarray
    wrong_probability: np.ndarray
    other_class: np.ndarray
    other_probability: np.ndarray
    strangeness: np.ndarray
    model: LabelModel | None
    shrink: float
    rounds: int
    fitted: int

    @property
    def rate(self) -> float:
        """Return the share of wrong labels, confusions included."""
        return 0.0 if self.model is None else self.model.rate

    @property
    def interval(self) -> tuple[float, float]:
        """Return its 95 % interval."""
        return (0.0, 1.0) if self.model is None else self.model.interval


@full_precision()
def judge_labels(
    embeddings: Any,
    labels: Any,
    sample_weights: Any = None,
    rows: Any = None,
    random_rate: float | None = None,
    fitted_to: Any = None,
    soft_means: np.ndarray | None = None,
    half_trained: bool = False,
    most_references: int | None = None,
) -> LabelErrors:
    """Judge every label by what its sample shows, confusions between similar classes included.

    The embedding must not have been trained on the judged labels.  Deterministic.

    Args:
        embeddings: (N, D); rows are normalised here, rows of norm 0 are left out.
        labels: (N,) of any kind `bspml.tensors.checks.encode_labels` takes.
        sample_weights: (N,) in [0, 1], weight of each sample as a reference; 1 if None.
        rows: samples to judge, as a bool mask (N,) or sample indices; all if None.  With other
            references than the judged there is one round: nothing weighs references that nobody
            judged.
        random_rate: share of labels wrong at random, where `bspml.statistics.noise_rate` knows it;
            see `fit_label_model`.
        fitted_to: the judged samples that the model is fitted to, as a bool mask (N,); all if None.
            Its shares of errors are then theirs.
        soft_means: (N, C) of `SoftMeans` under these weights, of another pass over the
            similarities, if at hand.
        half_trained: the embedding comes from a network that learned from labels as wrong as
            these, and not for long; see `bspml.statistics.label_model`.
        most_references: of the soft means, evenly of every class but four of each at least, so
            that the judgement is linear in N; None for all.

    Raises:
        InputError: wrong shapes, weights outside [0, 1], nothing to judge, or fewer than two
            classes among the references.

    Example:
        >>> x = np.repeat(np.eye(4), 8, 0) + 0.2 * np.random.default_rng(0).normal(size=(32, 4))
        >>> found = judge_labels(x, ["b", *"aaaaaaa", *"bbbbbbbb", *"cccccccc", *"dddddddd"])
        >>> found.wrong_probability.argmax().item(), found.rate < 0.2
        (0, True)
    """
    task = JudgingTask.of(embeddings, labels, sample_weights, 10.0, rows, 16)
    judged = np.flatnonzero(task.judged.numpy())
    if len(judged) == 0:
        raise InputError(
            "`rows` must hold a sample to judge; got none (rows of norm 0 are left out)."
        )
    if float(task.weights.max()) > 0:
        task = task._replace(weights=task.weights / task.weights.max())  # only ratios count
    # A sample that is nobody's reference, such as a picture under two labels, is judged but does
    # not tell what labels are like; unless others than the judged are the references.
    telling = judged[task.weights.numpy()[judged] > 0]
    told_by = telling if rows is None and len(telling) else judged
    if fitted_to is not None:
        told_by = np.flatnonzero(np.asarray(fitted_to) & task.judged.numpy())
    fitted = _sample(task.labels.codes.numpy()[told_by], told_by, len(task.labels.classes))
    judged = fitted if len(fitted) == len(judged) else judged  # then the tables serve twice
    if soft_means is None:
        soft_means = _of_one_pass(task, task.weights, LARGEST)
    judges = _Judges.of(task, task.weights, soft_means, most_references)
    judges = replace(judges, shrink=judges.best_shrink(fitted))
    best = judges.fit(fitted, random_rate, half_trained, first=True)
    if best is None:
        return _nothing(len(task.labels.codes), judges.shrink, len(fitted))
    verdicts, strangeness = judges.verdicts(best, judged)
    rounds, shrink = 0, judges.shrink
    while rows is None and rounds < _ROUNDS:
        weights = task.weights.clone()
        weights[judged] *= torch.from_numpy(np.maximum(1 - verdicts.doubt, _LEAST_WEIGHT))
        soft_means = _of_one_pass(task, weights, 2 * _FIT_VALUES)  # then most rows are fitted
        judges = _Judges.of(task, weights, soft_means, most_references)
        judges = replace(judges, shrink=shrink)
        model = judges.fit(fitted, random_rate, half_trained)
        if model is None or model.log_likelihood <= best.log_likelihood:
            break
        best, rounds = model, rounds + 1
        verdicts, strangeness = judges.verdicts(best, judged)
    n = len(task.labels.codes)
    found = _Found(verdicts, strangeness, best, judges.shrink, rounds, len(fitted))
    return found.of_all(n, judged)


@dataclass(frozen=True)
class _Judges:
    """Both judges under some weights of the references."""

    discriminant: Discriminant
    soft_means: SoftMeans
    codes: np.ndarray  # (N,)
    too_few: np.ndarray  # classes of one reference, which no other label is taken for
    support: float  # mean references a class
    shrink: float
    latest: dict[str, Any]  # the tables last asked for

    @classmethod
    def of(
        cls,
        task: JudgingTask,
        weights: Tensor,
        known: np.ndarray | None = None,
        most: int | None = None,
    ) -> _Judges:
        embeddings, labels = task.embeddings, task.labels
        classes, references = len(labels.classes), labels.codes[task.weights > 0]
        whole = None if known is None else torch.from_numpy(known)
        telling = weights if most is None else _thinned(weights, task, most)
        soft_means = SoftMeans.of(embeddings, labels, telling, whole)  # refuses what cannot judge
        counts = torch.bincount(references, minlength=classes).numpy()
        few = (counts < 2) & (counts > 0)
        return cls(
            Discriminant.of(embeddings, labels.codes, weights, classes),
            soft_means,
            labels.codes.numpy(),
            np.flatnonzero(few) if (counts >= 2).sum() >= 2 else np.zeros(0, int),
            float(counts[counts > 0].mean()),
            0.5,
            {},
        )

    def tables(self, index: np.ndarray) -> list[np.ndarray]:
        """(M, C) of the discriminant and of the soft means; the latest are kept."""
        if self.latest.get("index") is not index:
            rows = torch.from_numpy(index)
            tables = [
                table.cpu().numpy()
                for table in (
                    self.discriminant.table(rows, self.shrink),
                    self.soft_means.table(rows),
                )
            ]
            for table in tables:
                table[:, self.too_few] = -np.inf
            self.latest.update(index=index, tables=tables)
        return list(self.latest["tables"])

    def confusions(self, doubt: Tensor) -> Confusions:
        classes = len(self.discriminant.class_weights)
        count = min(NEAREST, max(3, classes // 4), classes - 1)
        nearest = self.discriminant.nearest_classes(count, self.shrink, 1 - doubt)
        return Confusions.of(*(values.cpu().numpy() for values in nearest))

    def best_shrink(self, fitted: np.ndarray) -> float:
        """The shrinkage under which the discriminant alone explains the labels best."""
        classes = len(self.discriminant.class_weights)
        count = max(_FEWEST_FITTED // 3, min(_SHRINK_ROWS, _SHRINK_VALUES // classes))
        rows = _evenly(fitted, count)
        tables = self.discriminant.tables(torch.from_numpy(rows), SHRINKS)
        codes = self.codes[rows]
        costs = [label_cost(table.cpu().numpy(), codes) for table in tables]
        return SHRINKS[int(np.argmin(costs))]

    def fit(
        self,
        fitted: np.ndarray,
        random_rate: float | None,
        half_trained: bool,
        first: bool = False,
    ) -> LabelModel | None:
        """The model, or None where the samples do not tell the classes apart."""
        tables = self.tables(fitted)
        codes, m = self.codes[fitted], np.arange(len(fitted))
        if not np.all([np.isfinite(table[m, codes]) for table in tables], 0).any():
            return None
        if not any(tells_apart(table, codes) for table in tables):
            return None
        # A wrong label draws two classes together, which then seem easily confused: what random
        # errors explain is left out of the distances.
        at_random = RandomErrors.of(tables, codes)
        doubt = torch.zeros(len(self.codes), dtype=torch.float64)
        if first:
            doubt[fitted] = torch.from_numpy(at_random.doubt)
        confusions = self.confusions(doubt)
        return fit_label_model(
            tables, codes, confusions, self.support, random_rate, half_trained, at_random
        )

    def verdicts(self, model: LabelModel, judged: np.ndarray) -> tuple[Verdicts, np.ndarray]:
        """Judge `judged`, in blocks; and how strange each is."""
        size = max(1, _BLOCK_VALUES // model.num_classes)
        cuts = [judged] if len(judged) <= size else np.split(judged, range(size, len(judged), size))
        parts, strangeness = [], []
        for part in cuts:
            tables = self.tables(part)
            parts.append(model.verdicts(tables, self.codes[part]))
            strangeness.append(-np.fmax.reduce(tables[0], 1).astype(np.float64))
        verdicts = Verdicts(*(np.concatenate(values) for values in zip(*parts, strict=True)))
        return verdicts, np.concatenate(strangeness)


def _thinned(weights: Tensor, task: JudgingTask, most: int) -> Tensor:
    """The weights of some references of every class, evenly taken; 0 for the others."""
    codes, classes = task.labels.codes.numpy(), len(task.labels.classes)
    kept = np.flatnonzero(task.weights.numpy() > 0)  # whatever the round
    kept = kept[np.argsort(codes[kept], kind="stable")]
    sizes = np.bincount(codes[kept], minlength=classes)
    size = sizes[codes[kept]]
    rank = np.arange(len(kept)) - (np.cumsum(sizes) - sizes)[codes[kept]]
    share = np.minimum(max(_FEWEST_OF_CLASS, most // classes), size)
    chosen = kept[(rank + 1) * share // size > rank * share // size]
    thinned = torch.zeros_like(weights)
    thinned[chosen] = weights[chosen]
    return thinned


def _of_one_pass(task: JudgingTask, weights: Tensor, most: int) -> np.ndarray | None:
    """The soft means of all rows at once, for half the products, where most rows are judged by
    few enough classes."""
    n, classes = len(task.embeddings), len(task.labels.classes)
    on_host = task.embeddings.device.type == "cpu"
    if not on_host or n * classes > most or 2 * int(task.judged.sum()) <= n:
        return None
    tables = contrastive_tables(task.embeddings, task.labels, weights)[1]
    return None if tables is None else tables.sharp


def _sample(codes: np.ndarray, judged: np.ndarray, classes: int) -> np.ndarray:
    """Rows to fit to, spread evenly over the classes, so that no class is without."""
    count = max(_FEWEST_FITTED, _FIT_VALUES // classes)
    return _evenly(judged[np.argsort(codes, kind="stable")], count)


def _evenly(rows: np.ndarray, count: int) -> np.ndarray:
    """`count` of the rows, at equal steps."""
    if len(rows) <= count:
        return rows
    return rows[np.linspace(0, len(rows) - 1, count).round().astype(int)]


class _Found(NamedTuple):
    """What is known of the judged rows."""

    verdicts: Verdicts
    strangeness: np.ndarray
    model: LabelModel
    shrink: float
    rounds: int
    fitted: int

    def of_all(self, n: int, judged: np.ndarray) -> LabelErrors:
        """Scatter the judged rows back to (N,)."""

        def scatter(values: np.ndarray, fill: float) -> np.ndarray:
            full = np.full(n, fill, values.dtype)
            full[judged] = values
            return full

        return LabelErrors(
            odds=scatter(self.verdicts.odds, np.nan),
            wrong_probability=scatter(self.verdicts.wrong, np.nan),
            other_class=scatter(self.verdicts.other, -1),
            other_probability=scatter(self.verdicts.other_probability, np.nan),
            strangeness=scatter(self.strangeness, np.nan),
            model=self.model,
            shrink=self.shrink,
            rounds=self.rounds,
            fitted=self.fitted,
        )


def _nothing(n: int, shrink: float, fitted: int) -> LabelErrors:
    """What is known where the samples do not tell the classes apart."""
    unknown = np.full(n, np.nan)
    return LabelErrors(
        unknown, unknown.copy(), np.full(n, -1), unknown.copy(), unknown.copy(), None, shrink, 0,
        fitted,
    )  # fmt: skip
