"""What an audit found, as arrays, as a table sorted by suspicion, and as files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bspml.auditing.columns import KEPT_Q, column
from bspml.auditing.files import load_fields, save_report
from bspml.auditing.folder import named_folder


@dataclass(frozen=True)
class AuditReport:
    """The result of `bspml.audit`; N samples, C classes, k neighbours.

    Attributes:
        noise_rate: estimated share of labels wrong at random, in [0, 1].
        interval: its 95 % interval.
        lower_bound: at least this share of the labels is wrong: the interval's low end.
        upper_bound: at most this share, confusions between similar classes included.
        sentence: all of that in one sentence.
        notes: what was corrected or cannot be had, in words.
        labels: (N,) as given.
        names: (N,) text, '' where there are none.
        p_values: (N,) float64, small where the label fits far better than a random one; NaN where
            it cannot be judged.
        q_values: (N,) float64; keeping those below x keeps a share of about x of randomly wrong
            labels.
        weights: (N,) float64, 0 for the labels that fit worst, else 1: a share `noise_rate` of
            them, or fewer where the interval reaches down to 0 (a note says so).
        margins: (N,) float64, how much better the best other class fits than the label, in
            similarity; above 0 it is the suggested one.
        suggested_labels: (N,) the best fitting class, the given label included.
        other_labels: (N,) the best fitting class other than the label.
        testable: (N,) bool, whether the label can be judged.
        own_neighbours: (N, k) int64, nearest samples of the same label, -1 for none.
        other_neighbours: (N, k) int64, nearest samples labelled `other_labels`.
        classes: a row per class: label, support, mean_weight, share_flagged, looks_like_two,
            two_score, looks_like, same_p, same_distance, nearest_class.
        duplicates: a row per pair of copies: kind, first, second, similarity, different_label,
            group.
        texts: (N,) to read on the page, or None.
        title: of the page, '' for none yet.
        embedding_map: (N, 2) float32, the samples in the plane, or None; see
            `bspml.auditing.embedding_map`.
        map_method: how that was made.
        photo_checks: a row per photo and problem: index, problem, score; None where photos were not
            checked.
        pictures: {sample: data URI or path} of the page the report was loaded with.

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

    noise_rate: float
    interval: tuple[float, float]
    lower_bound: float
    upper_bound: float
    sentence: str
    notes: tuple[str, ...]
    labels: np.ndarray = field(repr=False)
    names: np.ndarray = field(repr=False)
    p_values: np.ndarray = field(repr=False)
    q_values: np.ndarray = field(repr=False)
    weights: np.ndarray = field(repr=False)
    margins: np.ndarray = field(repr=False)
    suggested_labels: np.ndarray = field(repr=False)
    other_labels: np.ndarray = field(repr=False)
    testable: np.ndarray = field(repr=False)
    own_neighbours: np.ndarray = field(repr=False)
    other_neighbours: np.ndarray = field(repr=False)
    classes: pd.DataFrame = field(repr=False)
    duplicates: pd.DataFrame = field(repr=False)
    texts: np.ndarray | None = field(default=None, repr=False)
    title: str = field(default="", repr=False)
    embedding_map: np.ndarray | None = field(default=None, repr=False)
    map_method: str = field(default="pca", repr=False)
    photo_checks: pd.DataFrame | None = field(default=None, repr=False)
    pictures: Mapping[int, str] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def flagged(self) -> np.ndarray:
        """Return which labels have weight 0, (N,) bool."""
        return self.weights == 0

    @property
    def suspects(self) -> np.ndarray:
        """Return which labels to look at, (N,) bool: flagged, or another class fits better."""
        return self.flagged | (self.margins > 0)

    @property
    def neighbours(self) -> tuple[np.ndarray, np.ndarray]:
        """Return `own_neighbours` and `other_neighbours`."""
        return self.own_neighbours, self.other_neighbours

    def order(self) -> np.ndarray:
        """Return (N,) samples by suspicion: largest margin first, those that cannot be judged last.

        The margin, not p: p knows random errors only, and takes a label that was confused with a
        similar one for right.
        """
        return np.argsort(np.where(np.isnan(self.margins), np.inf, -self.margins), kind="stable")

    def verdicts(self) -> np.ndarray:
        """Return (N,) a few words about each label."""
        changed = self.suggested_labels != self.labels
        return np.select(
            [
                ~self.testable,
                self.flagged & changed,
                self.flagged,
                changed,
                self.q_values < KEPT_Q,
            ],
            [
                "cannot be judged",
                "looks wrong, fits another class",
                "looks wrong",
                "fits another class better",
                "fits",
            ],
            "unclear",
        )

    def table(self) -> pd.DataFrame:
        """Return all samples by suspicion, a row each; neighbours are indices between spaces."""
        order = self.order()
        return pd.DataFrame(
            {
                "index": order,
                "name": column(self.names[order]),
                "label": column(self.labels[order]),
                "suggested_label": column(self.suggested_labels[order]),
                "margin": self.margins[order],
                "p_value": self.p_values[order],
                "q_value": self.q_values[order],
                "weight": self.weights[order],
                "testable": self.testable[order],
                "verdict": self.verdicts()[order],
                "own_neighbours": _listed(self.own_neighbours[order]),
                "other_label": column(self.other_labels[order]),
                "other_neighbours": _listed(self.other_neighbours[order]),
            }
        )

    def summary(self) -> dict[str, Any]:
        """Return the main figures, ready for JSON, named as the page words them."""
        pairs, classes = self.duplicates, self.classes
        return {
            "sentence": self.sentence,
            "noise_rate": self.noise_rate,
            "interval": list(self.interval),
            "lower_bound": self.lower_bound,
            "upper_bound": self.upper_bound,
            "notes": list(self.notes),
            "samples": len(self),
            "classes": len(classes),
            "testable": int(self.testable.sum()),
            "look_wrong": int(self.flagged.sum()),
            "others_fit_another_class_better": int((self.suspects & ~self.flagged).sum()),
            "suspects": int(self.suspects.sum()),
            "fit_their_label": int((self.q_values < KEPT_Q).sum()),
            "exact_duplicates": int((pairs["kind"] == "exact").sum()),
            "near_duplicates": int((pairs["kind"] == "near").sum()),
            "duplicates_with_different_labels": int(pairs["different_label"].sum()),
            "classes_that_look_like_two": int(classes["looks_like_two"].sum()),
            "classes_that_look_like_another": int((classes["looks_like"] != "").sum()),
        }

    def save(
        self,
        folder: str | os.PathLike[str],
        images: Any = None,
        texts: Sequence[str] | None = None,
        title: str | None = None,
    ) -> list[Path]:
        """Write audit.csv and .parquet (`table`), classes.csv, duplicates.csv, summary.json, the
        arrays (audit.npz), what the page shows (page.json), report.html if Jinja2 is installed, and
        photo_checks.csv if `images` is a folder and cleanvision is installed.

        All files change together: a process killed in between leaves a folder that `load` refuses.

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
            RunError: not an audit's folder, damaged, or an audit was interrupted in it.
        """
        return cls(**load_fields(Path(folder)))


def _listed(neighbours: np.ndarray) -> list[str]:
    return [" ".join(str(i) for i in row if i >= 0) for row in neighbours.tolist()]
