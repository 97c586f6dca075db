"""What a run says first: what it trains on, what is held out, what was changed about either."""

from __future__ import annotations

import numpy as np

from bspml.data.labels.decision_words import counts_of_decisions
from bspml.experiment.build import classes_per_batch
from bspml.experiment.config import Config
from bspml.experiment.data import ExperimentData
from bspml.words import counted


def opening_lines(config: Config, data: ExperimentData) -> list[str]:
    """The lines under the one that names the experiment."""
    lines = [sides(data)]
    if data.decided is not None and data.decided.decisions.any():
        lines.append(f"decided among the training samples: {counts_of_decisions(data.decided)}")
    if data.is_outlier is not None and data.is_outlier.any():
        outliers = counted(int(data.is_outlier.sum()), "sample is", "samples are")
        lines.append(
            f"{outliers} of no class that a label names: left out of AUROC and false alarms, and "
            "told from the right labels in figures of their own (outliers)"
        )
    wanted, used = config.sampler.classes_per_batch, classes_per_batch(config, data.codes)
    if used < wanted:
        lines.append(
            f"`sampler.classes_per_batch` is {wanted}; there {'is' if used == 1 else 'are'} "
            f"{_classes(used)} to fill a batch with, so it has {used}"
        )
    return lines + [f"note: {note}" for note in data.notes]


def sides(data: ExperimentData) -> str:
    """'training on 20 of 40 classes (240 samples), 20 held out for the evaluation (240 samples)'.

    Classes under the labels that are trained on, right or wrong.
    """
    trained, tested = np.unique(data.labels), np.unique(data.test_labels)
    searched = "" if data.gallery_labels is None else f" in {len(data.gallery_labels):,}"
    test = f"({counted(len(data.test_labels), 'sample')}{searched})"
    trains = counted(len(data.labels), "sample")
    both = len(np.intersect1d(trained, tested))
    if both:
        return (
            f"training on {_classes(len(trained))} ({trains}), evaluated on "
            f"{_classes(len(tested))} {test}, {both:,} of them trained on"
        )
    return (
        f"training on {len(trained):,} of {_classes(len(trained) + len(tested))} ({trains}), "
        f"{len(tested):,} held out for the evaluation {test}"
    )


def _classes(count: int) -> str:
    return counted(count, "class", "classes")
