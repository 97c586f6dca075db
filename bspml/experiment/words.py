"""Sentences about an experiment: what it trains on, and under what conditions it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from bspml.data.labels.decision_words import counts_of_decisions
from bspml.evaluation.neighbours import find_faiss
from bspml.experiment.build import classes_per_batch
from bspml.experiment.config import Config
from bspml.experiment.data import ExperimentData, image_content, image_shape
from bspml.files.versions import versions_of
from bspml.networks.by_name import view_for
from bspml.words import counted

_LIBRARIES = ("torch", "torchvision", "pytorch-metric-learning", "numpy", "scikit-learn")


# --- before training ------------------------------------------------------------------------------


def opening_lines(config: Config, data: ExperimentData) -> list[str]:
    """Say what a run trains on, what is held out, what was changed about either.

    Args:
        config: the experiment.
        data: of the experiment, loaded.

    Returns:
        Lines to stand under the one that names the experiment.
    """
    lines = [sides(data)]
    if data.validation_labels is not None:
        held, known = data.validation_labels, data.is_noisy is not None
        classes, samples = _classes(len(np.unique(held))), counted(len(held), "sample")
        labels = "right labels" if known else "labels as given, of which some may be wrong"
        lines.append(
            f"{classes} more ({samples}) held out of the training: they select the epoch whose "
            f"network is kept, by their {labels}"
        )
    if data.decided is not None and (data.decided.decisions != "").any():
        lines.append(f"decided among the training samples: {counts_of_decisions(data.decided)}")
    if data.is_outlier is not None and data.is_outlier.any():
        outliers = counted(int(data.is_outlier.sum()), "sample is", "samples are")
        lines.append(
            f"{outliers} of no class that a label names: left out of AUROC and false alarms, and "
            "told from the right labels in figures of their own (outliers)"
        )
    single = int((np.unique(data.labels, return_counts=True)[1] == 1).sum())
    if single:
        classes = counted(single, "training class has", "training classes have")
        lines.append(f"{classes} one sample, which has no other of its class to be compared with")
    setting, count = config.sampler.classes_per_batch, classes_per_batch(config, data.trained_codes)
    if count < setting:
        lines.append(
            f"`sampler.classes_per_batch` is {setting}; there {'is' if count == 1 else 'are'} "
            f"{_classes(count)} to fill a batch with, so it has {count}"
        )
    return lines + [f"note: {note}" for note in data.notes]


def sides(data: ExperimentData) -> str:
    """Say how many classes and samples are trained on, and how many are held out.

    Classes under the labels that are trained on, right or wrong: 'training on 20 of 40 classes (240
    samples), 20 held out for the evaluation (240 samples), whose labels nobody judges'.
    """
    classes, test_classes = np.unique(data.labels), np.unique(data.test_labels)
    gallery = "" if data.gallery_labels is None else f" in {len(data.gallery_labels):,}"
    test = f"({counted(len(data.test_labels), 'sample')}{gallery})"
    trains = counted(len(data.labels), "sample")
    num_shared = len(np.intersect1d(classes, test_classes))
    if num_shared:
        return (
            f"training on {_classes(len(classes))} ({trains}), evaluated on "
            f"{_classes(len(test_classes))} {test}, {num_shared:,} of them trained on"
        )
    return (
        f"training on {len(classes):,} of {_classes(len(classes) + len(test_classes))} ({trains}), "
        f"{len(test_classes):,} held out for the evaluation {test}, whose labels nobody judges"
    )


def _classes(count: int) -> str:
    return counted(count, "class", "classes")


# --- beside the numbers ---------------------------------------------------------------------------


def versions() -> Mapping[str, str | None]:
    """Return versions of what computes the numbers; faiss is None where it is not installed."""
    faiss = find_faiss()
    faiss_version = None if faiss is None else str(faiss.__version__)
    return {**versions_of(_LIBRARIES), "faiss": faiss_version}


def seen_and_used(config: Config) -> dict[str, str]:
    """Say how a run views a test image, and what its network is."""
    data, network = config.data, config.network
    backbone = network.name
    if network.weights is not None:
        backbone += f", started from {network.weights}"
    elif network.name in ("small-conv", "mlp"):
        backbone += ", from scratch"
    if data.features is not None:
        backbone += f" on features of {data.features}"
    return {
        "test_transform": _test_transform(config),
        "backbone": f"{backbone}, {network.embedding_size or 'as many'} numbers",
    }


def in_lines(conditions: Mapping[str, Any], backend: str) -> list[str]:
    """Put the conditions of an evaluation into lines for a terminal.

    Args:
        conditions: `seen_and_used` and `versions`, the latter under "versions".
        backend: what searched, "faiss" or "torch".
    """
    lines = [
        f"{name.replace('_', ' ') + ':':<16}{text}"
        for name, text in conditions.items()
        if name != "versions"
    ]
    libraries = ", ".join(
        f"{name} {number or 'not installed'}" for name, number in conditions["versions"].items()
    )
    return [*lines, f"{'searched by:':<16}{backend}", f"{'versions:':<16}{libraries}"]


def _test_transform(config: Config) -> str:
    if config.data.name == "features":
        return "none: features as they are in the file"
    size, channels = image_shape(config)
    view = view_for(config.network.name, size, image_content(config))
    if config.data.features is not None:  # the backbone's own size where none is given
        view = view_for(config.data.features, config.data.image_size, image_content(config))
    boxes = "cropped to the annotated box, " if config.data.crop_boxes else ""
    colours = "grey" if channels == 1 else "colours"
    return f"{boxes}{view}, {colours}, values in [0, 1]"
