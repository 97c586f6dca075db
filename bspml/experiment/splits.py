"""The splits of an experiment, as its data section chooses them: read, shortened, held out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import Tensor

from bspml.data.catalogue import load_retrieval
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.errors import ConfigError, DataError, InputError, about
from bspml.experiment.config import Config


def read_data(config: Config) -> RetrievalData:
    """Read the data set as its files say, neither decoded nor shortened.

    Raises:
        ConfigError: an option that this data set does not have.
        DataError: files missing or damaged.
    """
    settings = config.data
    keys = ("layout", "label_column", "split_column", "content")
    options = {key: getattr(settings, key) for key in keys if getattr(settings, key) is not None}
    if settings.name == "glyphs" and settings.image_size is not None:
        options["image_size"] = settings.image_size
    with about("`data`", ConfigError, InputError):
        return load_retrieval(
            *(settings.name, settings.root, settings.incomplete, settings.classes),
            ignore=settings.ignore,
            **options,
        )


def load_splits(config: Config) -> RetrievalData:
    """Read the data set, with features if any are asked for, down to `data.subset` classes.

    Raises:
        DataError: files missing or damaged, or fewer classes than asked for.
    """
    settings, data = config.data, read_data(config)
    splits = list(data.splits)
    if settings.features is not None:
        # Of the whole splits: whatever part of them is used, features are made once.
        boxes = settings.crop_boxes
        splits = [replace(one, features=split_features(one, config, boxes)) for one in splits]
    if settings.subset is not None:
        chosen_by = [*splits[:2], splits[1]]  # a gallery is searched for its queries' classes
        splits = [_first_classes(*pair, config) for pair in zip(splits, chosen_by, strict=False)]
    return RetrievalData.of(data.name, splits, data.ks, data.notes)


def split_features(split: RetrievalSplit, config: Config, crop_boxes: bool = False) -> Tensor:
    """Return features of the backbone `data.features`, from the cache or made now.

    Args:
        split: of N images.
        config: the experiment, which names the backbone.
        crop_boxes: crop the images to their annotated boxes first.

    Returns:
        (N, D).
    """
    from bspml.networks.feature_cache.extraction import cached_features
    from bspml.networks.feature_cache.identity import FeatureSource

    settings = config.data
    assert settings.features is not None
    source = FeatureSource(
        settings.features, settings.features_weights, settings.image_size, crop_boxes
    )
    return cached_features(split, source, cache=settings.cache, num_workers=config.workers)


def _first_classes(
    split: RetrievalSplit, chosen_by: RetrievalSplit, config: Config
) -> RetrievalSplit:
    """Return the samples of the first classes of `chosen_by`."""
    names, first_rows = np.unique(chosen_by.labels, return_index=True)
    count = config.data.subset
    assert count is not None
    if count > len(names):
        raise DataError(
            f"`data.subset` is {count}, but the {split.name} split of {config.data.name} has "
            f"{len(names)} classes; lower it."
        )
    first_names = names[np.argsort(first_rows)][:count]  # in the data set's order
    return split.take(np.isin(split.labels, first_names))


def held_out_classes(labels: np.ndarray, share: float = 0.25) -> np.ndarray:
    """Choose a random share of the classes to hold out, the same at every call.

    Args:
        labels: (N,) class of each sample.
        share: of the classes, in [0, 1]; at least two are held out.

    Returns:
        (N,) bool, whether the sample's class is held out.

    Example:
        >>> held_out_classes(np.array(["a", "a", "b", "c", "d"]), 0.5)
        array([ True,  True, False,  True, False])
    """
    classes = np.unique(labels)
    count = max(2, int(share * len(classes) + 1e-9))  # .29 of 100 is 29
    numbers = np.random.default_rng(0).permutation(len(classes))[:count]
    return np.isin(labels, classes[numbers])


def hold_out(
    config: Config, labels: np.ndarray, share: float = 0.25, given: np.ndarray | None = None
) -> np.ndarray:
    """Return (N,) bool, the training samples of the held-out classes.

    Args:
        config: the experiment, for the message.
        labels: (N,) of the whole training split, as it was read: they choose the classes.
        share: of the classes, in [0, 1].
        given: (N,) labels that say which samples are of these; None: `labels`.

    Raises:
        ConfigError: too few classes are left, or no held-out class has two samples.
    """
    given = labels if given is None else given
    held_out = np.isin(given, labels[held_out_classes(labels, share)])
    left = len(np.unique(given[~held_out]))
    if left < 2:
        raise ConfigError(
            f"`data`: {config.data.name} trains on {len(np.unique(given))} classes, of "
            f"which holding out {len(np.unique(given[held_out]))} for validation leaves "
            f"{left}; train on more classes, or hold none out."
        )
    if np.unique(given[held_out], return_counts=True)[1].max(initial=0) < 2:
        one = np.unique(given, return_counts=True)[1].max() < 2
        remedy = "hold none out, as no class has two" if one else "hold more classes out, or none"
        raise ConfigError(
            "`data`: every class held out for validation has a single sample, so nothing can be "
            f"found; {remedy}."
        )
    return held_out
