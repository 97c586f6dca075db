"""What an audit found, as arrays, as a table sorted by suspicion, and as files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bspml.auditing.class_shares import flagged_by_class
from bspml.auditing.columns import KEPT_Q, column
from bspml.auditing.files import load_fields, save_report
from bspml.auditing.folder import named_folder
from bspml.auditing.selection import Selection, choose

_SUSPECT_ABOVE = 0.2  # probability of being wrong
_DOUBTFUL_ABOVE = 0.1  # probability of being wrong, of a sample that lies far out
_OUTLIER, _OUTLIER_IF_DOUBTFUL = 1.3, 1.0  # outlier scores


def fits_nothing(wrong_probability: np.ndarray, outlier_score: np.ndarray) -> np.ndarray:
    """Return (N,) bool: samples far from every class, or rather far and of a doubtful label.

    Args:
        wrong_probability: (N,) in [0, 1] or NaN.
        outlier_score: (N,); beyond 1 lies 1 of 100 samples that belong to a class.

    Example:
        >>> fits_nothing(np.array([0.0, 0.0, 0.9]), np.array([2.5, 1.2, 1.2])).tolist()
        [True, False, True]
    """
    doubtful = wrong_probability > _DOUBTFUL_ABOVE
    return (outlier_score > _OUTLIER) | (doubtful & (outlier_score > _OUTLIER_IF_DOUBTFUL))


def no_groups() -> pd.DataFrame:
    """Return the table of groups of copies where none are known."""
    return pd.DataFrame({"placeholder": np.zeros(0, bool), "rows": column(np.zeros(0, str))})


@dataclass(frozen=True)
class Findings:
    """What is known of N labels: the part of an `AuditReport` that statistics tell."""

    noise_rate: float
    interval: tuple[float, float]
    total_rate: float
    total_interval: tuple[float, float]
    lower_bound: float
    upper_bound: float
    sentence: str
    notes: tuple[str, ...]
    p_values: np.ndarray = field(repr=False)
    margins: np.ndarray = field(repr=False)
    wrong_probability: np.ndarray = field(repr=False)
    outlier_score: np.ndarray = field(repr=False)
    outlier_p: np.ndarray = field(repr=False)
    testable: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class AuditReport(Findings):
    """The result of `bspml.audit`; N samples, C classes, k neighbours.

    Attributes:
        noise_rate: estimated share of labels wrong at random, or as copies under several labels
            tell, in [0, 1].
        interval: its 95 % interval.
        total_rate: the best estimate of the share of wrong labels, confusions between similar
            classes included, in [0, 1].
        total_interval: its 95 % interval.
        lower_bound: at least this share of the labels is wrong: the low end of `interval`, or of
            `total_interval` where that is lower.
        upper_bound: at most this share, counting every sample that could as well be of a similar
            class.
        sentence: all of that in one sentence.
        notes: what was corrected or cannot be had, in words.
        labels: (N,) as given.
        names: (N,) text, '' where there are none.
        p_values: (N,) float64, small where the label fits far better than a random one; NaN where
            it cannot be judged.
        q_values: (N,) float64; keeping those below x keeps a share of about x of wrong labels.
        weights: (N,) float64, 0 for the flagged labels, else 1.
        margins: (N,) float64, how much more similar the sample is to the best other class than to
            its own, before anything is weighed.
        wrong_probability: (N,) float64, that the label is wrong, by the label model; NaN where it
            cannot be judged.
        suggested_labels: (N,) the class that is most probably right, the given label included.
        suggestion_probability: (N,) float64 of that.
        other_labels: (N,) the most probable class other than the label.
        outlier_score: (N,) float64, how far the sample is from every class: 0 in the middle of the
            samples with right labels, 1 where 1 of 100 of these is further; see `fits_nothing`.
        outlier_p: (N,) float64, the share of samples with right labels that are as far.
        testable: (N,) bool, whether the label's class has another sample to compare with.
        own_neighbours: (N, k) int64, nearest samples of the same label, -1 for none.
        other_neighbours: (N, k) int64, nearest samples labelled `other_labels`.
        classes: a row per class: label, support, mean_weight, share_flagged, looks_like_two,
            two_score, looks_like, same_p, same_distance, nearest_class.
        duplicates: a row per pair of copies: kind, first, second, similarity, different_label,
            group.
        groups: a row per group of copies: group, samples, labels (how many), most_frequent,
            placeholder, rows.
        texts: (N,) to read on the page, or None.
        decided: (N,) text, "right" or "wrong" where a person said so before this audit, else '';
            None where nobody did.
        given_labels: (N,) as they were before these decisions, or None.
        title: of the page, '' for none yet.
        embedding_map: (N, 2) float32, the samples in the plane, or None; see
            `bspml.auditing.embedding_map`.
        map_method: how that was made.
        photo_checks: a row per photo and problem: index, problem, score; None where photos were not
            checked.
        pictures: {sample: data URI or path} of the page the report was loaded with.
        picture_keys: (N,) text, a digest of each sample's photo, '' for none; None for no photos.
        images: the folder of the photos, found from the audit's or as it was given, or None.
        index: the pandas index of the data given, or None; files keep whole numbers and text.

    Example:
        >>> import tempfile, bspml
        >>> report = bspml.audit([[1, 0], [9, 1], [0, 1], [1, 9]] * 5, ["a", "a", "b", "b"] * 5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = report.save(folder)
        ...     again = AuditReport.load(folder)
        >>> again.summary()["samples"], again.flagged.sum().item(), "audit.csv" in map(
        ...     lambda path: path.name, files
        ... )
        (20, 0, True)
    """

    labels: np.ndarray = field(repr=False)
    names: np.ndarray = field(repr=False)
    q_values: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    suggested_labels: np.ndarray = field(repr=False)
    suggestion_probability: np.ndarray = field(repr=False)
    other_labels: np.ndarray = field(repr=False)
    own_neighbours: np.ndarray = field(repr=False)
    other_neighbours: np.ndarray = field(repr=False)
    classes: pd.DataFrame = field(repr=False)
    duplicates: pd.DataFrame = field(repr=False)
    groups: pd.DataFrame = field(default_factory=no_groups, repr=False)
    texts: np.ndarray | None = field(default=None, repr=False)
    decided: np.ndarray | None = field(default=None, repr=False)
    given_labels: np.ndarray | None = field(default=None, repr=False)
    title: str = field(default="", repr=False)
    embedding_map: np.ndarray | None = field(default=None, repr=False)
    map_method: str = field(default="pca", repr=False)
    photo_checks: pd.DataFrame | None = field(default=None, repr=False)
    pictures: Mapping[int, str] = field(default_factory=dict, repr=False)
    picture_keys: np.ndarray | None = field(default=None, repr=False)
    images: str | None = field(default=None, repr=False)
    index: pd.Index | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_decided(self) -> np.ndarray:
        """Return which labels a person decided on before, (N,) bool."""
        return np.zeros(len(self), bool) if self.decided is None else self.decided != ""

    @property
    def flagged(self) -> np.ndarray:
        """Return which labels the audit gives weight 0, (N,) bool."""
        return (self.weights == 0) & ~self.is_decided

    @property
    def suspects(self) -> np.ndarray:
        """Return which labels to look at, (N,) bool: flagged, wrong with a chance of 1 in 5, or of
        a sample that fits nothing."""
        doubtful = (self.wrong_probability > _SUSPECT_ABOVE) & self.testable
        doubtful |= self.fits_nothing
        return (self.flagged | doubtful) & ~self.is_decided

    @property
    def fits_nothing(self) -> np.ndarray:
        """Return which samples look like none of the classes, (N,) bool: no label is suggested."""
        return fits_nothing(self.wrong_probability, self.outlier_score)

    def select(self, n: int | None = None, precision: float | None = None) -> Selection:
        """Choose labels to look at: those flagged, the n most suspect, or as many as are wrong.

        Args:
            n: so many, at most all that can be judged.
            precision: as many of the most suspect as are wrong with this mean probability, in
                (0, 1].

        Raises:
            InputError: both, or a number outside its range.

        Example:
            >>> import bspml
            >>> x = np.repeat(np.eye(4), 8, 0) + 0.2 * np.random.default_rng(0).normal(size=(32, 4))
            >>> report = bspml.audit(x, ["b", *"aaaaaaa", *"bbbbbbbb", *"cccccccc", *"dddddddd"])
            >>> report.select(n=1).rows.tolist()
            [0]
        """
        order = self.order()
        is_open = ~np.isnan(self.wrong_probability) & ~self.is_decided
        return choose(order[is_open[order]], self.wrong_probability, self.flagged, n, precision)

    def flagging(self, n: int | None = None, precision: float | None = None) -> AuditReport:
        """Return the report with the labels that `select` chooses flagged instead.

        Args:
            n: see `select`.
            precision: see `select`.

        Raises:
            InputError: both, or a number outside its range.
        """
        weights = np.where(self.is_decided, self.weights, 1.0)
        weights[self.select(n, precision).rows] = 0.0
        return replace(self, weights=weights, classes=flagged_by_class(self, weights))

    @property
    def neighbours(self) -> tuple[np.ndarray, np.ndarray]:
        """Return `own_neighbours` and `other_neighbours`."""
        return self.own_neighbours, self.other_neighbours

    @property
    def confusions(self) -> pd.DataFrame:
        """Return which classes are taken for which; see `bspml.auditing.confusion_table`."""
        from bspml.auditing.confusion_table import confusion_table

        return confusion_table(self)

    def order(self) -> np.ndarray:
        """Return (N,) samples by suspicion: most probably wrong first; last what is decided or
        cannot be judged.

        Equal probabilities go by the margin.
        """
        is_last = np.isnan(self.wrong_probability) | self.is_decided
        margins = np.nan_to_num(self.margins, nan=-np.inf)
        return np.lexsort((-margins, -np.nan_to_num(self.wrong_probability, nan=0.0), is_last))

    def verdicts(self) -> np.ndarray:
        """Return (N,) a few words about each label."""
        changed = self.suggested_labels != self.labels
        return np.select(
            [
                self.is_decided,
                np.isnan(self.wrong_probability),
                self.fits_nothing,
                self.flagged & changed,
                self.flagged,
                changed,
                ~self.testable,
                self.wrong_probability > _SUSPECT_ABOVE,
                self.q_values < KEPT_Q,
            ],
            [
                "decided",
                "cannot be judged",
                "fits no class",
                "looks wrong, fits another class",
                "looks wrong",
                "fits another class better",
                "alone in its class (low support)",
                "unclear",
                "fits",
            ],
            "unclear",
        )

    def table(self) -> pd.DataFrame:
        """Return all samples by suspicion, a row each; neighbours are indices between spaces.

        Its index is that of the data the audit was given, else the sample's number: joined to
        these data, every sample gets its own verdict, if the index tells the samples apart.

        Example:
            >>> import bspml
            >>> report = bspml.audit(np.eye(2)[[0, 1, 0, 1]], pd.Series(list("abab"), list("wxyz")))
            >>> report.table()["index"]["z"].item()
            3
        """
        order = self.order()
        table = pd.DataFrame(
            {
                "index": order,
                "name": column(self.names[order]),
                "label": column(self.labels[order]),
                "suggested_label": column(self.suggested_labels[order]),
                "suggestion_probability": self.suggestion_probability[order],
                "wrong_probability": self.wrong_probability[order],
                "margin": self.margins[order],
                "p_value": self.p_values[order],
                "q_value": self.q_values[order],
                "weight": self.weights[order],
                "testable": self.testable[order],
                "outlier_score": self.outlier_score[order],
                "outlier_p": self.outlier_p[order],
                "verdict": self.verdicts()[order],
                "own_neighbours": _listed(self.own_neighbours[order]),
                "other_label": column(self.other_labels[order]),
                "other_neighbours": _listed(self.other_neighbours[order]),
            }
        )
        return table.set_axis(pd.Index(order) if self.index is None else self.index[order])

    def summary(self) -> dict[str, Any]:
        """Return the main figures, ready for JSON, named as the page words them."""
        pairs, classes = self.duplicates, self.classes
        looked_at = self.suspects | self.is_decided  # or about to be
        return {
            "sentence": self.sentence,
            "total_rate": self.total_rate,
            "total_interval": list(self.total_interval),
            "noise_rate": self.noise_rate,
            "interval": list(self.interval),
            "lower_bound": self.lower_bound,
            "upper_bound": self.upper_bound,
            "notes": list(self.notes),
            "samples": len(self),
            "classes": len(classes),
            "testable": int(self.testable.sum()),
            "decided": int(self.is_decided.sum()),
            "look_wrong": int(self.flagged.sum()),
            "expected_wrong_among_them": self.select().wrong,
            "others_to_look_at": int((self.suspects & ~self.flagged).sum()),
            "suspects": int(self.suspects.sum()),
            "fit_no_class": int((self.fits_nothing & ~self.is_decided).sum()),
            "fit_their_label": int(((self.q_values < KEPT_Q) & ~looked_at).sum()),
            "exact_duplicates": int((pairs["kind"] == "exact").sum()),
            "near_duplicates": int((pairs["kind"] == "near").sum()),
            "placeholders": int(self.groups["placeholder"].sum()),
            "duplicates_with_different_labels": int(pairs["different_label"].sum()),
            "classes_that_look_like_two": int(classes["looks_like_two"].sum()),
            "classes_that_look_like_another": int((classes["looks_like"] != "").sum()),
        }

    def save(
        self,
        folder: str | os.PathLike[str],
        images: Any = None,
        texts: Any = None,
        title: str | None = None,
    ) -> list[Path]:
        """Write audit.csv and .parquet (`table`), classes.csv, duplicates.csv, summary.json, the
        arrays (audit.npz), what the page shows (page.json), report.html if Jinja2 is installed, and
        photo_checks.csv if `images` is a folder and cleanvision is installed.

        All files change together: where a process was killed in between, whoever opens the folder
        next moves the rest in.

        Args:
            folder: made if it is not there; files of an earlier audit in it are replaced.
            images: for the page: a folder that `names` are files in, or a tensor
                (N, channels, H, W) in [0, 1]; a loaded report has the pictures it was loaded with.
            texts: for the page: N texts; `self.texts` if None.
            title: of the page; `self.title` if None.

        Returns:
            The files written.

        Raises:
            RunError: the folder holds files of these names that no audit wrote, or corrected
                labels of other data, or cannot be written.
        """
        return save_report(self, named_folder(folder), images, texts, title)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> AuditReport:
        """Read what `save` wrote.

        Args:
            folder: of the audit.

        Raises:
            InputError: no path.
            RunError: not an audit's folder, damaged, or an audit was interrupted in it.
        """
        return cls(**load_fields(named_folder(folder)))


def _listed(neighbours: np.ndarray) -> list[str]:
    return [" ".join(str(i) for i in row if i >= 0) for row in neighbours.tolist()]
