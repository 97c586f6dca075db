"""Which labels are wrong, how many, and what they should be: both judges, the model, the rounds.

    judges -> tables -> model -> odds of every label            round 0: every sample a reference
      ^                            |
      +---- weights = 1 - P(wrong) +                            rounds 1, 2, ...

A judge whose references are partly wrong calls labels uncertain that are not: its classes are
mixtures.  So the references are weighed by how probably their labels are right, and everything is
judged anew, while the left-out likelihood of the labels improves; the round of the best likelihood
answers.  (Where the rounds do not help, with many similar classes, the likelihood says so.)  A
round is tried on a few rows before all are judged, and only references doubted by more than
`_MATERIAL` change their weight, so that neither judge starts from nothing.

The tables have N C entries for C classes.  Where these are many they are never held: the model is
fitted to a sample of the rows, every class alike, and all rows are judged in blocks; `fitted` says
how many told the model; below N the interval of the rate holds the error of sampling, as it rests
on these rows alone.  The shrinkage is chosen by at most 2,000 of them: over 18 synthetic settings
(random and nearest-class errors of 0 to 40 %, 3 to 500 samples a class) AUROC and rate are those of
all of them to .001.  So are the rounds tried, which these settings did not measure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch

from bspml.errors import InputError
from bspml.shapes import Tensor
from bspml.statistics.contrastive import JudgingTask, contrastive_tables
from bspml.statistics.discriminant import Discriminant
from bspml.statistics.label_likelihood import label_costs
from bspml.statistics.label_model import (
    NEAREST,
    LabelModel,
    RandomErrors,
    Verdicts,
    fit_label_model,
    refit_label_model,
)
from bspml.statistics.label_pairs import Confusions
from bspml.statistics.label_samples import evenly, few_rows, sample_to_fit, thinned
from bspml.statistics.soft_means import SoftMeans
from bspml.statistics.telling_apart import (
    FEWEST_OF_CLASS,
    FEWEST_TESTED,
    tells_apart,
    tells_apart_anew,
)
from bspml.tensors.arguments import check_flags
from bspml.tensors.precision import full_precision

SHRINKS = (0.1, 0.3, 0.5, 0.8, 0.95)

_ROUNDS = 4
_ONE_PASS_VALUES = 1 << 24  # of a table that all rows are judged by
_PAIRS, _FEWEST_NEAREST = 1 << 16, 16  # of classes taken for one another
_GAIN = 1e-6  # of the mean log likelihood: rounding, so the order of the rows, is below
_SURE_SLOPE = 100.0  # of a judge beyond which fits no longer move
_MATERIAL = 0.02  # doubt below which a reference keeps its weight
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
    check_flags(half_trained=half_trained)
    task = JudgingTask.of(embeddings, labels, sample_weights, 10.0, rows, 16)
    judged = np.flatnonzero(task.judged.numpy())
    if len(judged) == 0:
        raise InputError(
            "`rows` must hold a sample to judge; got none (rows of norm 0 are left out)."
        )
    if float(task.weights.max()) > 0:
        task = task._replace(weights=task.weights / task.weights.max())  # only ratios count
    # A sample that is nobody's reference, such as a picture under two labels, is judged but tells
    # nothing; unless others than the judged are the references, which its class must have.
    codes, vouched = task.labels.codes.numpy(), task.weights.numpy()
    if rows is not None:
        vouched = np.bincount(codes, vouched)[codes]
    if fitted_to is not None:
        vouched = vouched * np.asarray(fitted_to)
    telling = judged[vouched[judged] > 0]
    told_by = telling if len(telling) else judged
    fitted = sample_to_fit(codes[told_by], told_by, len(task.labels.classes))
    judged = np.concatenate([fitted, np.setdiff1d(judged, fitted)])  # whose tables serve twice
    if soft_means is None:
        soft_means = None if most_references else _of_one_pass(task)
    judges = _Judges.of(task, soft_means, most_references)
    few = evenly(fitted, few_rows(len(task.labels.classes)))
    judges = judges.shrunk(few)
    best = judges.fit(fitted, random_rate, half_trained)
    if best is None:
        return _nothing(len(codes), judges.shrink, len(fitted))
    verdicts, strangeness = judges.verdicts(best, fitted, judged)
    rounds, no_doubt = 0, torch.zeros(len(codes), dtype=torch.float64)
    while rows is None and rounds < _ROUNDS:
        weights = task.weights.clone()
        kept = np.where(verdicts.doubt > _MATERIAL, 1 - verdicts.doubt, 1.0)
        weights[judged] *= torch.from_numpy(np.maximum(kept, _LEAST_WEIGHT))
        again = judges.reweighted(task, weights)
        before = judges.refit(best, few, half_trained)
        after = again.refit(best, few, half_trained)
        least = before.log_likelihood + _GAIN
        if after.log_likelihood <= least and best.slopes.max() > _SURE_SLOPE:
            after = again.refit(best, few, half_trained, how="afresh")
        if after.log_likelihood <= least:
            break
        after = again.refit(after, few, half_trained, again.confusions(no_doubt))
        if after.log_likelihood <= least:
            break
        model = again.refit(after, fitted, half_trained, how="counting")
        if model.log_likelihood <= best.log_likelihood + _GAIN:
            break
        judges, best, rounds = again, model, rounds + 1
        verdicts, strangeness = judges.verdicts(best, fitted, judged)
    known = {"model": best, "shrink": judges.shrink, "rounds": rounds, "fitted": len(fitted)}
    return _of_all(len(codes), judged, verdicts, strangeness, **known)


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
    few: tuple[np.ndarray, list[np.ndarray]] | None = None  # some rows, and their tables

    @classmethod
    def of(cls, task: JudgingTask, known: np.ndarray | None, most: int | None) -> _Judges:
        embeddings, labels = task.embeddings, task.labels
        classes, references = len(labels.classes), labels.codes[task.weights > 0]
        whole = None if known is None else torch.from_numpy(known)
        telling = task.weights if most is None else thinned(task, most)
        soft_means = SoftMeans.of(embeddings, labels, telling, whole)  # refuses what cannot judge
        counts = torch.bincount(references, minlength=classes).numpy()
        few = (counts < 2) & (counts > 0)
        return cls(
            Discriminant.of(embeddings, labels.codes, task.weights, classes),
            soft_means,
            labels.codes.numpy(),
            np.flatnonzero(few) if (counts >= 2).sum() >= 2 else np.zeros(0, int),
            float(counts[counts > 0].mean()),
            0.5,
            {},
        )

    def reweighted(self, task: JudgingTask, weights: Tensor) -> _Judges:
        """The judges under other weights of the same references."""
        return replace(
            self,
            discriminant=self.discriminant.reweighted(weights),
            soft_means=self.soft_means.reweighted(task.labels, weights),
            latest={},
            few=None,
        )

    def tables(self, index: np.ndarray) -> list[np.ndarray]:
        """(M, C) of the discriminant and of the soft means; the latest are kept, for rows that are
        asked for again."""
        if self.few is not None and self.few[0] is index:
            return self.few[1]
        held, kept = self.latest.get("tables", self.few) or (index[:0], [])
        if held is not index:
            place = np.full(len(self.codes), -1)
            place[held] = np.arange(len(held))
            place = place[index]
            new = index[place < 0]
            found = self._both(new, self.discriminant.table(torch.from_numpy(new), self.shrink))
            if len(new) < len(index):
                found = [_merged(part, place) for part in zip(found, kept, strict=True)]
            self.latest["tables"] = index, found
        return list(self.latest["tables"][1])

    def _both(self, index: np.ndarray, of_discriminant: Tensor) -> list[np.ndarray]:
        soft_means = self.soft_means.table(torch.from_numpy(index))
        tables = [table.cpu().numpy() for table in (of_discriminant, soft_means)]
        for table in tables:
            table[:, self.too_few] = -np.inf
        return tables

    def confusions(self, doubt: Tensor) -> Confusions:
        classes = int((self.discriminant.class_weights > 0).sum())
        most = max(_FEWEST_NEAREST, min(NEAREST, _PAIRS // classes))
        count = min(most, max(3, classes // 4), classes - 1)
        nearest = self.discriminant.nearest_classes(count, self.shrink, 1 - doubt)
        return Confusions.of(*(values.cpu().numpy() for values in nearest))

    def shrunk(self, few: np.ndarray) -> _Judges:
        """With the shrinkage under which the discriminant alone explains the labels of `few` best,
        and their tables."""
        tables = self.discriminant.tables(torch.from_numpy(few), SHRINKS)
        codes = self.codes[few]
        best = int(np.argmin(label_costs([table.cpu().numpy() for table in tables], codes)))
        return replace(self, shrink=SHRINKS[best], few=(few, self._both(few, tables[best])))

    def fit(
        self, fitted: np.ndarray, random_rate: float | None, half_trained: bool
    ) -> LabelModel | None:
        """The model, or None where the samples do not tell the classes apart."""
        tables = self.tables(fitted)
        codes, m = self.codes[fitted], np.arange(len(fitted))
        if not np.all([np.isfinite(table[m, codes]) for table in tables], 0).any():
            return None
        if not self._see(fitted, tables):
            return None
        # A wrong label draws two classes together, which then seem easily confused: what random
        # errors explain is left out of the distances.
        at_random = RandomErrors.of(tables, codes)
        doubt = torch.zeros(len(self.codes), dtype=torch.float64)
        doubt[fitted] = torch.from_numpy(at_random.doubt)
        confusions = self.confusions(doubt)
        return fit_label_model(
            tables, codes, confusions, self.support, random_rate, half_trained, at_random
        )

    def _see(self, fitted: np.ndarray, tables: list[np.ndarray]) -> bool:
        """Whether the samples tell the classes apart."""
        weights = self.discriminant.weights
        few = len(fitted) < FEWEST_TESTED or self.support < FEWEST_OF_CLASS
        if few and bool((weights[fitted] > 0).all()):  # what judges is judged, each left out
            told_by = (weights > 0).nonzero()[:, 0]
            return tells_apart_anew(self.soft_means.rows[told_by], self.codes[told_by.cpu()])
        return any(tells_apart(table, self.codes[fitted]) for table in tables)

    def refit(
        self,
        model: LabelModel,
        rows: np.ndarray,
        half_trained: bool,
        confusions: Confusions | None = None,
        how: Literal["on", "afresh", "counting"] = "on",
    ) -> LabelModel:
        """The model fitted anew, from where it is, to some rows; its confusions stay if None."""
        given = self.tables(rows), self.codes[rows], confusions or model.confusions, self.support
        return refit_label_model(model, *given, half_trained, how)

    def verdicts(
        self, model: LabelModel, fitted: np.ndarray, judged: np.ndarray
    ) -> tuple[Verdicts, np.ndarray]:
        """Judge `judged`, the first of which are `fitted`, in blocks; and how strange each is."""
        width, rest = len(self.discriminant.class_weights), judged[len(fitted) :]
        size = max(1, _BLOCK_VALUES // width)
        cuts = [fitted, *(rest[start : start + size] for start in range(0, len(rest), size))]
        parts, strangeness = [], []
        for part in cuts:
            tables = self.tables(part)
            parts.append(model.verdicts(tables, self.codes[part]))
            strangeness.append(-np.fmax.reduce(tables[0], 1).astype(np.float64))
        verdicts = Verdicts(*(np.concatenate(values) for values in zip(*parts, strict=True)))
        return verdicts, np.concatenate(strangeness)


def _merged(parts: tuple[np.ndarray, np.ndarray], place: np.ndarray) -> np.ndarray:
    """Rows of a table: the new ones, and those that have a place in the one that was kept."""
    new, kept = parts
    whole = np.empty((len(place), new.shape[1]), new.dtype)
    whole[place < 0], whole[place >= 0] = new, kept[place[place >= 0]]
    return whole


def _of_one_pass(task: JudgingTask) -> np.ndarray | None:
    """The soft means of all rows at once, for half the products, where most rows are judged by
    few enough classes."""
    n, classes = len(task.embeddings), len(task.labels.classes)
    on_host = task.embeddings.device.type == "cpu"
    if not on_host or n * classes > _ONE_PASS_VALUES or 2 * int(task.judged.sum()) <= n:
        return None
    tables = contrastive_tables(task.embeddings, task.labels, task.weights).tables
    return None if tables is None else tables.sharp


def _of_all(
    n: int, judged: np.ndarray, verdicts: Verdicts, strangeness: np.ndarray, **known: Any
) -> LabelErrors:
    """Scatter what is known of the judged rows back to (N,)."""

    def scatter(values: np.ndarray, fill: float) -> np.ndarray:
        full = np.full(n, fill, values.dtype)
        full[judged] = values
        return full

    return LabelErrors(
        odds=scatter(verdicts.odds, np.nan),
        wrong_probability=scatter(verdicts.wrong, np.nan),
        other_class=scatter(verdicts.other, -1),
        other_probability=scatter(verdicts.other_probability, np.nan),
        strangeness=scatter(strangeness, np.nan),
        **known,
    )


def _nothing(n: int, shrink: float, fitted: int) -> LabelErrors:
    """What is known where the samples do not tell the classes apart."""
    none, nobody = np.zeros(0), np.zeros(0, np.int64)
    verdicts = Verdicts(none, none, nobody, none, none)
    return _of_all(n, nobody, verdicts, none, model=None, shrink=shrink, rounds=0, fitted=fitted)
