"""The labels an experiment trains on: as given, planted, listed, or decided on by the user."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from torch import Tensor

from bspml.data import noise
from bspml.data.labels.decision_words import note_on_new_classes
from bspml.data.labels.decisions import (
    CorrectedLabels,
    apply_decisions,
    is_corrected,
    read_decisions,
)
from bspml.data.labels.noise_lists import read_noise_list
from bspml.data.labels.own_labels import OwnLabels, as_read, located, own_labels, placed
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.data.sets.cifar import CIFAR10_CONFUSIONS
from bspml.errors import ConfigError, DataError
from bspml.experiment.config import ClassificationConfig, Config
from bspml.files.tables import read_labels

_KINDS: dict[str, Callable[..., noise.NoisyLabels]] = {
    "symmetric": noise.symmetric,
    "pair-flip": noise.pair_flip,
    "cifar10-pairs": partial(noise.asymmetric, mapping=CIFAR10_CONFUSIONS),
    "sibling-flip": noise.sibling_flip,
    "sibling-swap": noise.sibling_swap,
    "open-set": noise.open_set,
    "small-cluster": noise.small_cluster,
    "instance-dependent": noise.instance_dependent,
    "semantic": noise.semantic,
}


@dataclass(frozen=True)
class GivenLabels:
    """Labels to train on, and what is known about them.

    Attributes:
        labels: (N,) text, possibly wrong.
        is_noisy: (N,) bool, or None where the truth is not known.
        is_outlier: (N,) bool, the noisy ones whose true class no label names; None likewise.
        decided: what the user decided about single labels, or None.
        notes: what a reader of the results should know.
    """

    labels: np.ndarray
    is_noisy: np.ndarray | None
    is_outlier: np.ndarray | None
    decided: CorrectedLabels | None
    notes: tuple[str, ...]

    def taken(self, rows: np.ndarray, true_labels: np.ndarray) -> GivenLabels:
        """Return those of some samples.

        Args:
            rows: (N,) bool.
            true_labels: (n,) labels of these samples as the data set has them.
        """
        labels, is_noisy, is_outlier, decided = self.labels[rows], None, None, self.decided
        if self.is_noisy is not None:  # a class may be named by samples no more that stay away
            is_noisy = self.is_noisy[rows]
            is_outlier = is_noisy & ~np.isin(true_labels, labels)
        decided = None if decided is None else decided.taken(rows)
        return replace(
            self, labels=labels, is_noisy=is_noisy, is_outlier=is_outlier, decided=decided
        )

    @property
    def judges(self) -> np.ndarray:
        """(N,) bool, the samples that may stand in an evaluation: not those known to be wrong."""
        judges = np.ones(len(self.labels), dtype=bool)
        if self.decided is not None:
            judges = ~self.decided.dropped
        if self.is_noisy is None:
            return judges
        return judges & ~self.is_noisy

    @property
    def learned(self) -> np.ndarray:
        """Return what a resumed run must find unchanged: the labels, then the fixed weights."""
        if self.decided is None:
            return self.labels
        # A verdict of "unsure" changes nothing.
        words = np.where(self.decided.fixed, self.decided.weights.astype(str), "")
        return np.concatenate([self.labels, words])


def corrected_data(config: Config, data: RetrievalData) -> OwnLabels | None:
    """Return the user's own data under the labels they corrected; None where they gave none.

    Args:
        config: the experiment.
        data: the splits as read.
    """
    settings = config.noise
    files = (settings.labels_file, settings.decisions_file)
    if not config.data.is_own or settings.list_file is not None or files == (None, None):
        return None
    _check_one_source(config)
    return own_labels(data, *files)


def given_labels(
    config: Config, split: RetrievalSplit, features: Tensor | None, own: OwnLabels | None
) -> GivenLabels:
    """Return the labels to train on, with the noise and the decisions the settings ask for.

    Args:
        config: the experiment.
        split: of training; where `own` labels are given, under its corrected labels.
        features: (N, F) of the split, or None.
        own: of `corrected_data`.

    Raises:
        DataError: files damaged, or of another number of labels than samples.
        ConfigError: noise that needs features, without any.
    """
    if own is not None:
        return GivenLabels(split.labels, None, None, own.decided, own.notes)
    labels, is_noisy, notes = _before_decisions(config, split, features)
    decided, passed = _decisions(config, split, labels)
    if decided is not None:
        notes = (*notes, *passed, *note_on_new_classes(labels, decided))
        corrected_labels = decided.labels.astype(str)
        is_noisy = np.where(corrected_labels == labels, is_noisy, corrected_labels != split.labels)
        labels = corrected_labels
    settings = config.noise
    if config.data.is_own and settings.kind == "none" and not settings.list_file:
        return GivenLabels(labels, None, None, decided, notes)
    is_named = np.isin(split.labels, labels)  # a decision may name a class first, or last
    return GivenLabels(labels, is_noisy, is_noisy & ~is_named, decided, notes)


def _before_decisions(
    config: Config, split: RetrievalSplit, features: Tensor | None
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return the labels before the user's decisions, (N,) bool of the wrong ones, and notes."""
    settings, true_labels = config.noise, split.labels
    if settings.list_file is not None:
        noise_list = read_noise_list(settings.list_file, split)
        return noise_list.labels, noise_list.is_noisy, noise_list.notes
    if settings.labels_file is not None:
        found, told = _from_file(settings.labels_file, config, split)
        labels = found.labels.astype(str)
        return labels, labels != true_labels, tuple(told)
    if settings.kind == "none":
        return true_labels, np.zeros(len(true_labels), dtype=bool), ()
    if features is None and settings.kind == "instance-dependent":
        raise ConfigError(
            "`noise.kind` instance-dependent mislabels what looks like another class, so it needs "
            "features to look with: set `data.features` to a backbone."
        )
    noisy = plant(config, true_labels, per_class=settings.per_class, embeddings=features)
    return np.asarray(noisy.labels).astype(str), np.asarray(noisy.is_noisy), ()


def read_given_labels(file: str, data_name: str, count: int) -> np.ndarray:
    """Read a file of labels to train on, (N,) text or integers.

    Args:
        file: a table or an array.
        data_name: of the data set whose labels these are, for the message.
        count: N, the samples of its training split.

    Raises:
        DataError: it cannot be read, or has another number of labels.
    """
    labels = read_labels(file)
    _check_count(labels, file, data_name, count)
    return labels


def _check_count(labels: np.ndarray, file: str, data_name: str, count: int) -> None:
    if len(labels) != count:
        raise DataError(
            f"{file}: has {len(labels)} labels; the training split of {data_name} has {count} "
            "samples."
        )


def plant(
    config: Config | ClassificationConfig, labels: np.ndarray, **options: Any
) -> noise.NoisyLabels:
    """Put in the wrong labels of the configuration's kind of noise.

    Args:
        config: the experiment.
        labels: (N,) the true ones.
        options: of any kind; one takes those that are its own.
    """
    kind = _KINDS[config.noise.kind]
    own = {key: options[key] for key in inspect.signature(kind).parameters if key in options}
    return kind(labels, config.noise.rate, seed=config.noise_seed, **own)


def _from_file(
    file: str, config: Config, split: RetrievalSplit
) -> tuple[CorrectedLabels, list[str]]:
    """Read labels, by the names that file and split have, in any order; else by rows."""
    found = as_read(file)
    if split.names is not None and found.names is not None:
        return placed(found, file, replace(split, whole=None, whole_rows=None))
    _check_count(found.labels, file, config.data.name, len(split))
    return found, []


def _decisions(
    config: Config, split: RetrievalSplit, labels: np.ndarray
) -> tuple[CorrectedLabels | None, list[str]]:
    """Read the user's verdicts from their own file, or from corrected labels made from one.

    Samples are found by their names, where the file and the split have them.
    """
    settings = config.noise
    corrected = _check_one_source(config)
    if settings.decisions_file is not None:
        read = read_decisions(settings.decisions_file)
        # Refuses rows that can be read in two ways; pictures are looked at below, once.
        located([replace(one, picture="") for one in read], split.origin, split.rows)
        own = replace(split, labels=labels, whole=None, whole_rows=None).origin
        decisions, passed = located(read, own)
        return apply_decisions(labels, decisions), passed
    # What is to be noted of the file was, where its labels were read.
    return (None if corrected is None else _from_file(corrected, config, split)[0]), []


def _check_one_source(config: Config) -> str | None:
    """Return the file of corrected labels, if any; refuse a second file with decisions."""
    settings, file = config.noise, config.noise.labels_file
    corrected = file if file is not None and is_corrected(file) else None
    if corrected is not None and settings.decisions_file is not None:
        raise DataError(
            f"{file} already holds decisions; put those of {settings.decisions_file} into it with "
            "`bspml audit FOLDER --apply`, and leave `noise.decisions_file` out."
        )
    return corrected
