"""CIFAR-10 and CIFAR-100 from their published files; nothing is downloaded.

Both versions of the files are read, and hold the same images in the same order:

- binary (`cifar-10-batches-bin`, `cifar-100-binary`): plain bytes, preferred.  Checked by their
  length, the range of the labels, and equally many images of every class.
- Python (`cifar-10-batches-py`, `cifar-100-python`): pickles.  Opened only if the checksum is the
  published one, and even then only through `array_pickles`, which runs no code.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bspml.data import array_pickles
from bspml.data.image_split import ImageSplit
from bspml.errors import DataError
from bspml.files.opening import open_regular
from bspml.tensors.checks import check_choice

SPLITS = ("train", "test")

CIFAR10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)

# The five confusions of CIFAR-10's asymmetric noise [Patrini 2017]: truck -> automobile,
# bird -> airplane, deer -> horse, cat <-> dog.  For `bspml.noise.asymmetric(mapping=...)`.
CIFAR10_CONFUSIONS = {9: 1, 2: 0, 4: 7, 3: 5, 5: 3}

# CIFAR-100's superclasses and their five classes each.  Both lists of labels are alphabetical.
_CIFAR100 = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
_SUPERCLASS_NAME = {name: group for group, names in _CIFAR100.items() for name in names}

CIFAR100_CLASSES = tuple(sorted(_SUPERCLASS_NAME))
CIFAR100_SUPERCLASSES = tuple(sorted(_CIFAR100))
# (100,) int64, the superclass of each class, as positions; read-only.
CIFAR100_SUPERCLASS_OF = np.array(
    [CIFAR100_SUPERCLASSES.index(_SUPERCLASS_NAME[name]) for name in CIFAR100_CLASSES],
    dtype=np.int64,
)
CIFAR100_SUPERCLASS_OF.flags.writeable = False

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE  # bytes per image: red, green, blue, each row by row

# Pixels uint8, and label columns (N, 1 or 2): the class last, its superclass before it.
_Content = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class _Version:
    """One way the files of a data set come in.

    Attributes:
        folder: as the archive unpacks.
        archive: its name.
        rows: file -> images in it, for each split.
        columns: labels per image: 1, or superclass and class.
        md5: file -> published checksum; empty for the binary version, whose files have none.
    """

    folder: str
    archive: str
    rows: dict[str, dict[str, int]]
    columns: int
    md5: dict[str, str] = field(default_factory=dict)


_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))

CIFAR10_VERSIONS = (
    _Version(
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
        {"train": {f"{name}.bin": 10_000 for name in _BATCHES}, "test": {"test_batch.bin": 10_000}},
        columns=1,
    ),
    _Version(
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        {"train": dict.fromkeys(_BATCHES, 10_000), "test": {"test_batch": 10_000}},
        columns=1,
        md5={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
)
CIFAR100_VERSIONS = (
    _Version(
        "cifar-100-binary",
        "cifar-100-binary.tar.gz",
        {"train": {"train.bin": 50_000}, "test": {"test.bin": 10_000}},
        columns=2,
    ),
    _Version(
        "cifar-100-python",
        "cifar-100-python.tar.gz",
        {"train": {"train": 50_000}, "test": {"test": 10_000}},
        columns=2,
        md5={
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
    ),
)


def cifar10(root: str | os.PathLike[str], split: str = "train") -> ImageSplit:
    """Read CIFAR-10 [Krizhevsky 2009]: 50,000 training and 10,000 test images of 10 classes.

    Args:
        root: the unpacked folder, or the one that holds it.
        split: "train" or "test".

    Returns:
        `ImageSplit`, images (N, 32, 32, 3), in the order of the files (data_batch_1 first), which
        is torchvision's and CIFAR-10N's.

    Raises:
        InputError: another split.
        DataError: files missing, truncated, of another checksum or with other contents.
    """
    pixels, labels = _load_split(root, split, CIFAR10_VERSIONS, "CIFAR-10")
    return ImageSplit(pixels, _check_labels(labels[:, -1], 10, root, "CIFAR-10"), CIFAR10_CLASSES)


def cifar100(root: str | os.PathLike[str], split: str = "train") -> ImageSplit:
    """Read CIFAR-100 [Krizhevsky 2009]: 100 classes in 20 superclasses of five.

    `superclass_of` is what `bspml.noise.sibling_flip` and `sibling_swap` take as groups.

    Args:
        root: the unpacked folder, or the one that holds it.
        split: "train" or "test".

    Returns:
        `ImageSplit`, in the order of the files, as `cifar10`.

    Raises:
        InputError: another split.
        DataError: as `cifar10`, or a class under another superclass.
    """
    pixels, labels = _load_split(root, split, CIFAR100_VERSIONS, "CIFAR-100")
    fine = _check_labels(labels[:, 1], 100, root, "CIFAR-100")
    if (CIFAR100_SUPERCLASS_OF[fine] != labels[:, 0]).any():
        raise DataError(
            f"{root}: is not CIFAR-100: some classes are listed under another superclass. "
            "Download the files again."
        )
    return ImageSplit(pixels, fine, CIFAR100_CLASSES, CIFAR100_SUPERCLASSES, CIFAR100_SUPERCLASS_OF)


def _load_split(
    root: str | os.PathLike[str], split: str, versions: tuple[_Version, ...], name: str
) -> _Content:
    """Images (N, 32, 32, 3) and label columns of one split, its files one after another."""
    check_choice(split, "split", SPLITS)
    version, folder = _find_version(Path(root), versions, name)
    reader = _pickled if version.md5 else _binary
    total = sum(version.rows[split].values())
    images = np.empty((total, _SIDE, _SIDE, 3), np.uint8)
    labels = np.empty((total, version.columns), np.int64)
    start = 0
    for file, rows in version.rows[split].items():  # one at a time: all hold 150 MB
        part = slice(start, start + rows)
        pixels, labels[part] = reader(folder / file, rows, version)
        images[part] = pixels.reshape(rows, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1)
        start += rows
    return images, labels


def _find_version(root: Path, versions: tuple[_Version, ...], name: str) -> tuple[_Version, Path]:
    for version in versions:
        files = [file for rows in version.rows.values() for file in rows]
        for folder in (root / version.folder, root):
            if any((folder / file).is_file() for file in files):
                return version, folder
    folders = " or ".join(v.folder for v in versions)
    archives = " or ".join(v.archive for v in versions)
    what = "has no" if root.is_dir() else "is no folder; expected one with"
    raise DataError(
        f"{root}: {what} {folders}, the files of {name}. Download {archives} from "
        "www.cs.toronto.edu/~kriz/cifar.html and unpack it there: `tar xzf FILE`."
    )


def _read_bytes(path: Path) -> bytes:
    missing = (
        "is missing, while other files of the data set are there. Unpack the whole archive again."
    )
    with open_regular(path, "a file of CIFAR", missing=missing) as file:
        return file.read()


def _binary(path: Path, rows: int, version: _Version) -> _Content:
    data = _read_bytes(path)
    width = version.columns + _PIXELS
    if len(data) != rows * width:
        fault = "is truncated" if len(data) < rows * width else "is too long"
        raise DataError(
            f"{path}: {fault}: {len(data):,} bytes, where {rows:,} images of {width:,} bytes make "
            f"{rows * width:,}. Unpack {version.archive} again, or download it again."
        )
    table = np.frombuffer(data, np.uint8).reshape(rows, width)
    return table[:, version.columns :], table[:, : version.columns]


def _pickled(path: Path, rows: int, version: _Version) -> _Content:
    data = _read_bytes(path)
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if md5 != version.md5[path.name]:
        raise DataError(
            f"{path}: its MD5 checksum is {md5}, the published one {version.md5[path.name]}. The "
            "file is a pickle and is not opened. It is damaged, or another one: unpack "
            f"{version.archive} again, or use the binary version."
        )
    try:
        content = array_pickles.loads(data)
        names = ("coarse_labels", "fine_labels") if version.columns == 2 else ("labels",)
        pixels = np.asarray(content["data"])
        labels = np.stack([np.asarray(content[name]) for name in names], axis=1)
        if pixels.shape != (rows, _PIXELS) or pixels.dtype != np.uint8:
            raise ValueError(f"its images are {pixels.shape} of {pixels.dtype}")
        if labels.shape != (rows, len(names)) or labels.dtype.kind not in "iu":
            raise ValueError(f"its labels are {labels.shape} of {labels.dtype}")
    except (pickle.UnpicklingError, KeyError, TypeError, ValueError) as err:
        raise DataError(f"{path}: does not hold what CIFAR's files do ({err}).") from err
    return pixels, labels


def _check_labels(labels: np.ndarray, classes: int, root: object, name: str) -> np.ndarray:
    """Return the labels, or refuse them unless each of [0, classes) is equally frequent."""
    in_range = ((labels >= 0) & (labels < classes)).all()
    if not in_range or len(set(np.bincount(labels, minlength=classes).tolist())) != 1:
        counts = f"{len(np.unique(labels))} labels from {labels.min()} to {labels.max()}"
        raise DataError(
            f"{root}: is not {name}: it has {counts}, where each of 0 to {classes - 1} must occur "
            "equally often. A file may be damaged, or a copy of another."
        )
    return labels
