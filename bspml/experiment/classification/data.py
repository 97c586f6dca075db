"""The data of a classification or regression experiment: images, targets as given and as they are.

The noise is drawn over the whole training split first; what is held out or left out afterwards
keeps the labels it drew.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from bspml.data import noise
from bspml.data.image_split import ImageSplit, channels_first, held_out_rows
from bspml.data.labels.decisions import is_corrected, read_corrected
from bspml.data.sets.cifar import cifar10, cifar100
from bspml.data.sets.cifar_n import cifar_n
from bspml.data.sets.digits import digits
from bspml.errors import ConfigError, DataError, InputError
from bspml.experiment.config import ClassificationConfig
from bspml.experiment.labels import plant, read_given_labels
from bspml.files.checkpoints import fingerprint
from bspml.shapes import Tensor

_VALIDATION_SHARE = 0.2


@dataclass(frozen=True, eq=False)
class TaskData:
    """Training and test images with a target each.

    Attributes:
        images: (N, channels, H, W) uint8.
        targets: (N,) as given, possibly wrong: int64 classes, or float32 numbers.
        true_targets: (N,) as they are.
        is_noisy: (N,) bool, which of `targets` are wrong.
        classes: the C class names; () for a regression.
        test_images: (M, channels, H, W) uint8.
        test_targets: (M,); the true ones of the test split, or the given ones of the training
            samples held out for validation.
        held_out: what those are called: "test" or "validation".
        fingerprint: changes when the training images or targets do.
    """

    images: Tensor
    targets: Tensor
    true_targets: Tensor
    is_noisy: Tensor
    classes: tuple[str, ...]
    test_images: Tensor
    test_targets: Tensor
    held_out: str
    fingerprint: str

    @cached_property
    def measured(self) -> str:
        """A fingerprint of what is evaluated on."""
        return fingerprint(self.test_images, self.test_targets)

    @property
    def num_outputs(self) -> int:
        """C, or 1 for a regression."""
        return len(self.classes) or 1

    @property
    def noise_rate(self) -> float:
        """The share of wrong targets among those trained on."""
        return float(self.is_noisy.double().mean())

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        channels, height, width = self.images.shape[1:]
        return channels, height, width

    def channel_statistics(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel of the training images, in [0, 1]."""
        # Counts of the 256 levels: exact, and no copy of the images as floats.
        levels = torch.arange(256, dtype=torch.float64) / 255
        means, deviations = [], []
        for channel in range(self.images.shape[1]):
            counts = torch.bincount(self.images[:, channel].reshape(-1), minlength=256).double()
            share = counts / counts.sum()
            mean = (share * levels).sum()
            means.append(float(mean))
            deviations.append(float((share * (levels - mean) ** 2).sum().sqrt()) or 1.0)
        return means, deviations


def load_data(config: ClassificationConfig) -> TaskData:
    """Load the images and put in the wrong labels that the configuration asks for.

    Raises:
        DataError: files are missing or damaged, or labels do not fit the images.
        ConfigError: settings that cannot work with these images.
    """
    train = _split(config, "train")
    true = train.labels
    given, is_noisy = _given(config, train)
    rows = _rows(config, true)
    rows[_decided_wrong(config, len(true))] = ""
    kept = rows == "train"
    if config.data.validation:
        out = rows == "validation"
        test_images, test_labels = train.images[out], given[out]
    else:
        test = _split(config, "test")
        test_images, test_labels = test.images, test.labels
    images = channels_first(train.images[kept])
    targets = _targets(config, given[kept])
    return TaskData(
        images=images,
        targets=targets,
        true_targets=_targets(config, true[kept]),
        is_noisy=torch.from_numpy(is_noisy[kept]),
        classes=train.classes if config.task == "classification" else (),
        test_images=channels_first(test_images),
        test_targets=_targets(config, test_labels),
        held_out="validation" if config.data.validation else "test",
        fingerprint=fingerprint(images, targets),
    )


def _split(config: ClassificationConfig, split: str) -> ImageSplit:
    name, root = config.data.name, config.data.root
    if name == "digits":
        return digits(split)
    assert root is not None
    return (cifar10 if name == "cifar10" else cifar100)(root, split)


def _rows(config: ClassificationConfig, labels: np.ndarray) -> np.ndarray:
    """(N,) what each training sample is for: 'train', 'validation', or '' for nothing.

    Both choices are the same for every seed and noise: runs differ in what they learn from.
    """
    rows = np.full(len(labels), "train", dtype="<U10")
    if config.data.validation:
        rows[held_out_rows(labels, _VALIDATION_SHARE)] = "validation"
    if config.data.subset is not None:
        left = np.flatnonzero(rows == "train")
        if config.data.subset > len(left):
            raise ConfigError(
                f"`data.subset` is {config.data.subset}, but the training split of "
                f"{config.data.name} has {len(left)} samples; lower it."
            )
        # Not the generator of seed 0: its permutation decides who gets a wrong label.
        draw = np.random.default_rng([0, 1])
        rows[draw.permutation(left)[config.data.subset :]] = ""
    return rows


def _decided_wrong(config: ClassificationConfig, count: int) -> np.ndarray:
    """(N,) bool, the samples that somebody left out of a file of corrected labels."""
    file = config.noise.labels_file
    if file is None or not is_corrected(file):
        return np.zeros(count, dtype=bool)
    return read_corrected(file).dropped


def _given(config: ClassificationConfig, train: ImageSplit) -> tuple[np.ndarray, np.ndarray]:
    """(N,) targets as given, and (N,) bool, which are wrong."""
    settings, true = config.noise, train.labels
    if settings.labels_file is not None:
        given = _read_given(config, train)
        return given, given != true
    if settings.kind == "none":
        return true, np.zeros(len(true), dtype=bool)
    options = settings.model_dump(include={"exact", "keep_original", "per_class"})
    if settings.kind == "uniform":
        del options["per_class"]
        # As numbers with a fraction: a wrong target is any number between the least and the most.
        values = true.astype(np.float32)
        wrong = noise.targets(values, settings.rate, seed=config.noise_seed, **options)
        return wrong.targets, wrong.is_noisy
    noisy = plant(config, true, groups=train.superclass_of, **options)
    return noisy.labels, noisy.is_noisy


def _read_given(config: ClassificationConfig, train: ImageSplit) -> np.ndarray:
    """(N,) int64 labels from the file of the configuration."""
    file, label_set = config.noise.labels_file, config.noise.label_set
    assert file is not None
    if config.data.name != "digits" and Path(file).suffix.lower() in (".pt", ".npy"):
        try:
            return _as_codes(cifar_n(file, label_set, train.labels).labels, train.classes, file)
        except InputError as err:
            raise ConfigError(str(err).replace("`label_set`", "`noise.label_set`", 1)) from None
    if label_set is not None:
        raise ConfigError(
            f"`noise.label_set` is {label_set!r}, but {Path(file).name} is no file of CIFAR-N with "
            "several sets of labels; leave it out."
        )
    return _as_codes(read_given_labels(file, config.data.name, len(train)), train.classes, file)


def _as_codes(given: np.ndarray, classes: tuple[str, ...], file: str) -> np.ndarray:
    """Names of classes, or their numbers, as numbers."""
    if given.dtype.kind in "iu":
        codes = given.astype(np.int64)
        off = (codes < 0) | (codes >= len(classes))
    else:
        number = {name: code for code, name in enumerate(classes)}
        codes = np.array([number.get(str(name), -1) for name in given], dtype=np.int64)
        off = codes < 0
    if off.any():
        row = int(np.flatnonzero(off)[0])
        raise DataError(
            f"{file}: the label {str(given[row])[:40]!r} of sample {row} is none of the "
            f"{len(classes)} classes, {classes[0]} to {classes[-1]} or 0 to {len(classes) - 1}."
        )
    return codes


def _targets(config: ClassificationConfig, labels: np.ndarray) -> Tensor:
    dtype = np.int64 if config.task == "classification" else np.float32
    return torch.from_numpy(np.ascontiguousarray(labels, dtype=dtype))
