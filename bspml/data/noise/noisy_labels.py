"""Labels beside the truth: which are wrong, what became of each class, and a file of it all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from bspml.errors import DataError, InputError, about
from bspml.files.arrays import Archive
from bspml.files.atomic import atomic_write
from bspml.files.opening import FAULTS, open_regular
from bspml.tensors.arguments import check_flags, check_kind
from bspml.tensors.checks import Labels, encode_labels
from bspml.tensors.row_index import check_same_rows

_LARGEST_MATRIX = 4_096  # classes whose (C, C) transition matrix is written out: 134 MB


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Labels with known mistakes.

    Attributes:
        labels: (N,) given labels, some wrong: array, or tensor if a tensor came in.
        true_labels: (N,) the labels that came in.
        is_noisy: (N,) bool, which of `labels` are wrong.
        is_outlier: (N,) bool, which samples belong to no class that still occurs in `labels`.  They
            are noisy too (no given label fits), so they are not among the clean samples.
        rate: the noise rate asked for, in [0, 1].
        classes: (C,) the distinct true labels, sorted.
    """

    labels: Any
    true_labels: Any
    is_noisy: Any
    is_outlier: Any
    rate: float
    classes: np.ndarray

    @property
    def actual_rate(self) -> float:
        """The share of wrong labels.

        `rate` up to rounding to whole samples (or classes), but less where `rate` counts something
        else: draws that may keep the original, the samples of the classes that are confused.
        """
        return float(np.mean(_numpy(self.is_noisy)))

    @overload
    def transition_matrix(self, sparse: Literal[False] = ...) -> np.ndarray: ...
    @overload
    def transition_matrix(self, sparse: Literal[True]) -> csr_array: ...
    def transition_matrix(self, sparse: bool = False) -> np.ndarray | csr_array:
        """Share of the samples of each true class (row) that got each label (column).

        (C, C) in the order of `classes`; rows sum to 1.  `sparse=True` for many classes: 11,318
        of them make a dense matrix of 1 GB.
        """
        check_flags(sparse=sparse)
        rows = np.searchsorted(self.classes, _plain_labels(self.true_labels))
        columns = np.searchsorted(self.classes, _plain_labels(self.labels))
        c = len(self.classes)
        matrix = csr_array((np.ones(len(rows)), (rows, columns)), shape=(c, c))  # counts, so exact
        matrix.data /= np.repeat(np.bincount(rows, minlength=c), np.diff(matrix.indptr))
        return matrix if sparse else matrix.toarray()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything to an .npz file without pickles, atomically.

        Arrays: `labels`, `true_labels`, `is_noisy`, `is_outlier`, `rate`, `classes`, and
        `transition_matrix` (C, C) unless there are more than 4,096 classes.  `bspml.noise.load`
        reads it, and so does everything that takes a file of labels.

        Raises:
            InputError: another suffix.
            RunError: the file cannot be written.
        """
        check_kind(path, "path", (str, os.PathLike), "the path of a file")
        path = Path(path)
        if path.suffix.lower() != ".npz":
            raise InputError(f"`path` must end in .npz; got {path.name!r}.")
        arrays: dict[str, Any] = {
            "labels": _plain_labels(self.labels),
            "true_labels": _plain_labels(self.true_labels),
            "is_noisy": _numpy(self.is_noisy),
            "is_outlier": _numpy(self.is_outlier),
            "rate": np.float64(self.rate),
            "classes": self.classes,
        }
        if len(self.classes) <= _LARGEST_MATRIX:
            arrays["transition_matrix"] = self.transition_matrix()
        return atomic_write(path, lambda file: np.savez_compressed(file, **arrays))


def from_labels(labels: Any, true_labels: Any) -> NoisyLabels:
    """Return `NoisyLabels` of labels whose truth is known, such as those that people gave [Wei
    2022].

    Args:
        labels: (N,) as given.
        true_labels: (N,) the truth, of the same kind.

    Returns:
        `NoisyLabels` whose `rate` is the share that differs.

    Raises:
        InputError: other lengths or kinds, or a label that no true label is.

    Example:
        >>> from_labels(["cat", "dog", "dog"], ["cat", "cat", "dog"]).rate
        0.3333333333333333
    """
    check_same_rows(labels=labels, true_labels=true_labels)
    true = encode_labels(true_labels, name="true_labels")
    noisy = encode_labels(labels, name="labels")
    if len(noisy.codes) != len(true.codes) or len(true.codes) == 0:
        raise InputError(
            "`labels` and `true_labels` must be equally long, at least 1; got "
            f"{len(noisy.codes)} and {len(true.codes)}."
        )
    text = noisy.classes.dtype.kind == "U"
    if text != (true.classes.dtype.kind == "U"):
        raise InputError(
            f"`labels` are {'text' if text else 'numbers'}, `true_labels` "
            f"{'numbers' if text else 'text'}; pass both as one kind."
        )
    strangers = noisy.classes[~np.isin(noisy.classes, true.classes)]
    if len(strangers):
        raise InputError(
            f"`labels` has {len(strangers)} labels that no true label is, such as {strangers[0]!s}."
        )
    wrong: Any = noisy.classes[noisy.codes.numpy()] != true.classes[true.codes.numpy()]
    outlier: Any = ~np.isin(true.classes, noisy.classes)[true.codes.numpy()]
    rate = float(wrong.mean())
    if isinstance(labels, Tensor):
        wrong, outlier = (torch.from_numpy(flags).to(labels.device) for flags in (wrong, outlier))
    given, truth = copy_of(labels, noisy), copy_of(true_labels, true)
    return NoisyLabels(given, truth, wrong, outlier, rate, true.classes)


def load(path: str | os.PathLike[str]) -> NoisyLabels:
    """Read back what `NoisyLabels.save` wrote, as arrays.

    Raises:
        DataError: missing, damaged, or not such a file; names it.

    Example:
        >>> noisy = load("noisy.npz")  # doctest: +SKIP
    """
    missing = "no such file of noisy labels."
    with open_regular(path, "noisy labels", missing=missing, faults=FAULTS) as file, about(path):
        try:
            archive = Archive(file)
            content = {n: archive.read(n) for n in archive.names if n != "transition_matrix"}
            return _checked_content(content)
        except KeyError as err:
            raise DataError(f"is not a file of `NoisyLabels.save`: it lacks {err}.") from err


def _checked_content(content: Mapping[str, np.ndarray]) -> NoisyLabels:
    noisy = NoisyLabels(
        labels=content["labels"],
        true_labels=content["true_labels"],
        is_noisy=content["is_noisy"],
        is_outlier=content["is_outlier"],
        rate=float(content["rate"]),
        classes=content["classes"],
    )
    shapes = {a.shape for a in (noisy.labels, noisy.true_labels, noisy.is_noisy, noisy.is_outlier)}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError("its arrays differ in length")
    if noisy.is_noisy.dtype != np.bool_ or noisy.is_outlier.dtype != np.bool_:
        raise ValueError("its flags are not bool")
    names = np.concatenate([noisy.labels, noisy.true_labels])
    if not np.isin(names, noisy.classes).all():
        raise ValueError("it has labels outside its classes")
    return noisy


def copy_of(labels: Any, encoded: Labels) -> Any:
    """Return (N,) the same labels of the same kind: a tensor, or an array.

    Args:
        labels: (N,) of any kind.
        encoded: the same.
    """
    if isinstance(labels, Tensor):
        return labels.detach().clone()
    array = np.array(labels)  # its text is what an enum's `__str__` says
    return encoded.classes[encoded.codes.numpy()] if array.dtype.kind == "U" else array


def _numpy(values: Any) -> np.ndarray:
    return values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _plain_labels(labels: Any) -> np.ndarray:
    """Labels in the dtype of `NoisyLabels.classes`."""
    encoded = encode_labels(labels)
    return encoded.classes[encoded.codes.numpy()]
