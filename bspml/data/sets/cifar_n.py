"""CIFAR-10N and CIFAR-100N: labels of CIFAR's training images given by people [Wei 2022].

Read from the published files: `CIFAR-10_human.pt`, `CIFAR-100_human.pt`, their `.npy` twins, or a
plain `.npy` array of labels.  Neither format may run code: `.pt` is loaded with
`weights_only=True`, and both build arrays with `array_pickles` alone.

Order: the `.pt` files follow CIFAR's own files, as `cifar10`, `cifar100` and torchvision do.  The
files called `..._human_ordered.npy` follow TensorFlow's data sets instead; give `order`, the
published `image_order_c10.npy` or `image_order_c100.npy`, to bring them back.  With `true_labels`
given, a file in another order is refused.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bspml.data import array_pickles
from bspml.errors import DataError, InputError, MissingDependencyError
from bspml.files.arrays import HEADERS
from bspml.files.opening import open_regular
from bspml.tensors.checks import check_choice, encode_labels

# Our names of the label sets -> the keys in the files.  CIFAR-100N's .npy spells its key otherwise.
LABEL_SETS = {
    "aggre": ("aggre_label",),  # majority of three annotators
    "random1": ("random_label1",),  # each image's first annotator
    "random2": ("random_label2",),
    "random3": ("random_label3",),
    "worse": ("worse_label",),  # a wrong label wherever one of the three gave one
    "noisy": ("noisy_label", "noise_label"),  # CIFAR-100N's only set
}
_TRUTH = "clean_label"


@dataclass(frozen=True, eq=False)
class HumanLabels:
    """One label set of CIFAR-N.

    Attributes:
        labels: (N,) int64, as given by people.
        true_labels: (N,) int64, CIFAR's own; None for a plain array without `true_labels`.
        label_set: its name in `LABEL_SETS`, or "array".
    """

    labels: np.ndarray
    true_labels: np.ndarray | None
    label_set: str

    @property
    def is_noisy(self) -> np.ndarray | None:
        """(N,) bool, where the two differ; None where the truth is not known."""
        return None if self.true_labels is None else self.labels != self.true_labels


def cifar_n(
    path: str | os.PathLike[str],
    label_set: str | None = None,
    true_labels: Any = None,
    order: Any = None,
) -> HumanLabels:
    """Read one label set.

    Args:
        path: a `.pt` or `.npy` file.
        label_set: for CIFAR-10N "aggre", "random1", "random2", "random3" or "worse" (the keys in
            the file, `aggre_label`, ..., are understood too); for CIFAR-100N "noisy".  None for a
            file with a single set.
        true_labels: (N,) labels of the images in hand, `ImageSplit.labels`: the file must fit them.
        order: (N,) place of each of the file's rows in CIFAR's own order, or the `.npy` file of it.

    Raises:
        InputError: no such label set in the file, or none named where there are several.
        DataError: missing, damaged or foreign file; another number of labels; another order.
        MissingDependencyError: a `.pt` file, and torch is older than 2.6.

    Example:
        >>> human = cifar_n("CIFAR-10_human.pt", "worse", train.labels)  # doctest: +SKIP
        >>> human.is_noisy.mean()  # doctest: +SKIP
        np.float64(0.40208)
    """
    path = Path(path)
    content = _read_content(path)
    if isinstance(content, np.ndarray):
        if label_set not in (None, "array"):
            raise InputError(
                f"`label_set` is {label_set!r}, but {path.name} is one plain array; leave it out."
            )
        sets, label_set = {"array": content}, "array"
    else:
        key_sets = LABEL_SETS.items()
        sets = {name: content[key] for name, keys in key_sets for key in keys if key in content}
        label_set = _choose_set(label_set, sets, path)
    labels = _codes(sets[label_set], path, label_set)
    file_truth = None if isinstance(content, np.ndarray) else content.get(_TRUTH)
    true_codes = None if file_truth is None else _codes(file_truth, path, _TRUTH)
    if true_codes is not None and len(true_codes) != len(labels):
        raise DataError(f"{path}: has {len(labels)} labels, but {len(true_codes)} true ones.")
    if order is not None:
        rows = _rows_by_place(order, len(labels))
        labels, true_codes = labels[rows], None if true_codes is None else true_codes[rows]
    if true_labels is not None:
        own_codes = _own_codes(true_labels)
        _check_fit(labels, true_codes, own_codes, path)
        true_codes = own_codes
    return HumanLabels(labels, true_codes, label_set)


# --- what is in the file --------------------------------------------------------------------------


def _choose_set(label_set: str | None, sets: dict[str, Any], path: Path) -> str:
    if not sets:
        raise DataError(f"{path}: has none of CIFAR-N's label sets ({', '.join(LABEL_SETS)}).")
    if label_set is None:
        if len(sets) > 1:
            raise InputError(
                f"`label_set` must say which labels of {path.name} are meant: {', '.join(sets)}."
            )
        return next(iter(sets))
    for name, keys in LABEL_SETS.items():
        if label_set in keys:
            label_set = name
    return check_choice(label_set, "label_set", tuple(sets))


def _codes(values: Any, path: Path, key: str) -> np.ndarray:
    """(N,) class numbers; lists and tensors pass, text, fractions and negatives do not."""
    try:
        encoded = encode_labels(values)
    except InputError as err:
        raise DataError(f"{path}: its labels ({key}) are not class numbers: {err}") from err
    labels = encoded.classes[encoded.codes.numpy()]
    if labels.dtype.kind not in "iu" or len(labels) == 0 or labels.min() < 0:
        raise DataError(f"{path}: its labels ({key}) must be class numbers 0, 1, ...")
    return labels.astype(np.int64)


def _own_codes(true_labels: Any) -> np.ndarray:
    encoded = encode_labels(true_labels, name="true_labels")
    labels = encoded.classes[encoded.codes.numpy()]
    if labels.dtype.kind not in "iu":
        raise InputError("`true_labels` must be class numbers, not names. Pass `split.labels`.")
    return labels.astype(np.int64)


def _check_fit(labels: np.ndarray, truth: Any, true_labels: np.ndarray, path: Path) -> None:
    """Refuse labels that are not for these images in this order."""
    if len(labels) != len(true_labels):
        raise DataError(
            f"{path}: has {len(labels)} labels; `true_labels` has {len(true_labels)}. CIFAR-N "
            "labels the 50,000 training images."
        )
    if truth is not None:
        share = float(np.mean(truth == true_labels))
        fits = share == 1
    else:
        # People are right more often than not, and labels in another order only by chance.
        share = float(np.mean(labels == true_labels))
        fits = share > 1.5 / len(np.unique(true_labels))
    if not fits:
        raise DataError(
            f"{path}: its {'true ' if truth is not None else ''}labels agree with `true_labels` on "
            f"only {share:.1%} of the images: another order, or another data set. Files called "
            "..._ordered.npy follow TensorFlow's order: give `order`, image_order_c10.npy."
        )


def _rows_by_place(order: Any, n: int) -> np.ndarray:
    """Return (N,) the file's row for each place, given the place of each row."""
    place = order
    if isinstance(order, str | os.PathLike):
        place = _read_content(Path(order))
    place = np.asarray(place.cpu() if isinstance(place, torch.Tensor) else place)
    if place.dtype.kind not in "iu" or not np.array_equal(np.sort(place, None), np.arange(n)):
        raise DataError(
            f"`order` must hold each of 0 to {n - 1} once, a place per label; got shape "
            f"{place.shape} of {place.dtype}."
        )
    return np.argsort(place)


# --- files ----------------------------------------------------------------------------------------


def _read_content(path: Path) -> Any:
    """Read the file: a dictionary of label sets, or one array."""
    readers = {".pt": _torch_file, ".npy": _numpy_file}
    if path.suffix.lower() not in readers:
        raise DataError(
            f"{path}: cannot tell its format; expected CIFAR-N's labels as {' or '.join(readers)}."
        )
    missing = (
        "no such file. The labels are CIFAR-10_human.pt and CIFAR-100_human.pt of "
        "github.com/UCSC-REAL/cifar-10-100n (research use only)."
    )
    # Damage shows as anything.
    kind = f"{path.suffix} of labels"
    with open_regular(path, kind, missing=missing, faults=(Exception,)) as file:
        content = readers[path.suffix.lower()](file)
    if not isinstance(content, dict | np.ndarray):
        raise DataError(
            f"{path}: must hold a dictionary of label sets, or an array; got "
            f"{type(content).__name__}."
        )
    return content


def _torch_file(file: BufferedReader) -> Any:
    if torch.__version__ < "2.6":  # compares as a version
        raise MissingDependencyError(
            f"{file.name}: safe loading of numpy arrays needs torch 2.6; this is "
            f"{torch.__version__}. `pip install -U torch`, or save the labels as .npy."
        )
    with _only_arrays_allowed():
        content = array_pickles.finished(torch.load(file, map_location="cpu", weights_only=True))
    return content.numpy() if isinstance(content, torch.Tensor) else content


@contextlib.contextmanager
def _only_arrays_allowed() -> Iterator[None]:
    """Let `weights_only` load our stand-ins under numpy's names, and only these, in the block.

    To allow numpy's own classes would be to allow `ndarray` over raw bytes, see `array_pickles`.
    """
    # What the user allowed may go by the same names
    user_globals = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        with torch.serialization.safe_globals(array_pickles.TORCH_STAND_INS):
            yield
    finally:
        torch.serialization.add_safe_globals(user_globals)


def _numpy_file(file: BufferedReader) -> Any:
    shape, _, dtype = HEADERS[np.lib.format.read_magic(file)](file)
    if not dtype.hasobject:
        file.seek(0)
        return np.load(file, allow_pickle=False)
    content = array_pickles.loads(file.read())
    # numpy pickles a dictionary as an array without dimensions that holds it.
    if shape == () and isinstance(content, list) and len(content) == 1:
        return content[0]
    raise pickle.UnpicklingError("it holds neither labels nor a dictionary of them")
