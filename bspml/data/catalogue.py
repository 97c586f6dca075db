"""The retrieval data sets by name, complete or refused.

`load_retrieval` reads a set's lists and then holds them to what its authors published: the number
of images and classes of every split, and every listed image on the disk.  A copy with fewer is
taken only by whoever says `subset`: a result on it is not a result on the data set.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bspml.data.completeness import Counts, count_faults, halves, missing_paths, present
from bspml.data.image_split import channels_first
from bspml.data.retrieval import RetrievalData, RetrievalSplit
from bspml.data.sets import (
    cars98n,
    cars196,
    cifar,
    class_folders,
    cub,
    features,
    food101n,
    glyphs,
    in_shop,
    omniglot,
    path_table,
    saved_datasets,
    sop,
)
from bspml.errors import DataError, InputError
from bspml.files.opening import reason
from bspml.tensors.arguments import check_flags, check_kind
from bspml.tensors.checks import check_choice
from bspml.words import counted, did_you_mean, shown


@dataclass(frozen=True)
class Entry:
    """A data set that can be named.

    Attributes:
        title: for people.
        read: root and options to `RetrievalData`, without any check of completeness.
        source: where to get it, one or two sentences.
        counts: what its authors published, or None for one's own images.
    """

    title: str
    read: Callable[..., RetrievalData]
    source: str
    counts: Counts | None = None


def _glyphs(root: str | os.PathLike[str] | None = None, image_size: int = 24) -> RetrievalData:
    """The glyphs drawn at `image_size` pixels; `root` is the cache folder."""
    splits = []
    for name in ("train", "test"):
        data = glyphs.Glyphs(name, root, image_size)
        names = np.array(data.names, dtype=str)
        splits.append(
            RetrievalSplit(
                name, names[data.labels.numpy()], pixels=data.images, content="character"
            )
        )
    return RetrievalData.of("glyphs", splits)


def _cifar(name: str, load: Callable[..., Any]) -> Callable[..., RetrievalData]:
    def read(root: str | os.PathLike[str]) -> RetrievalData:
        splits = []
        for split in ("train", "test"):
            arrays = load(root, split)
            labels = np.array(arrays.classes, dtype=str)[arrays.labels]
            pixels = channels_first(arrays.images)
            splits.append(RetrievalSplit(split, labels, pixels=pixels, content="tile"))
        return RetrievalData.of(name, splits)

    return read


def _cars98n(root: str | os.PathLike[str], layout: str = "auto") -> RetrievalData:
    """The web photographs train; the test is that of the Cars196 in `root` or a folder of it."""
    train = cars98n.read_web_cars(root)
    below = [Path(root) / name for name in ("cars196", "Cars196", "CARS_196", "CARS")]
    cars = cars196.read_cars196(next((path for path in below if path.is_dir()), root), layout)
    # A slash in a name is a dash in a folder's.
    tested = np.intersect1d(train.classes, np.char.replace(cars.test.classes, "/", "-"))
    if len(tested):
        raise DataError(
            f"{train.root}: holds {counted(len(tested), 'class', 'classes')} of the test, such as "
            f"{tested[0]}; classes 1 to 98 of Cars196 train. {cars98n.SOURCE}"
        )
    return RetrievalData("cars98n", train, cars.test, notes=cars.notes)


_CIFAR_SOURCE = (
    "Get the binary or Python version from www.cs.toronto.edu/~kriz/cifar.html and unpack it."
)
_SUBSET = "subset=True (in `bspml train`: data.incomplete=true)"
_OWN = "bspml draws it from matplotlib's fonts; there is nothing to get."

CATALOGUE: dict[str, Entry] = {
    "cub": Entry("CUB-200-2011", cub.read_cub, cub.SOURCE, cub.COUNTS),
    "cars196": Entry("Cars196", cars196.read_cars196, cars196.SOURCE, cars196.COUNTS),
    "cars98n": Entry("CARS-98N", _cars98n, cars98n.SOURCE, cars98n.COUNTS),
    "food101n": Entry("Food-101N", food101n.read_food101n, food101n.SOURCE, food101n.COUNTS),
    "in-shop": Entry(
        "In-shop Clothes Retrieval", in_shop.read_in_shop, in_shop.SOURCE, in_shop.COUNTS
    ),
    "sop": Entry("Stanford Online Products", sop.read_sop, sop.SOURCE, sop.COUNTS),
    "omniglot": Entry("Omniglot", omniglot.read_omniglot, omniglot.SOURCE, omniglot.COUNTS),
    "cifar10": Entry(
        "CIFAR-10",
        _cifar("cifar10", cifar.cifar10),
        _CIFAR_SOURCE,
        {"train": (50_000, 10), "test": (10_000, 10)},
    ),
    "cifar100": Entry(
        "CIFAR-100",
        _cifar("cifar100", cifar.cifar100),
        _CIFAR_SOURCE,
        {"train": (50_000, 100), "test": (10_000, 100)},
    ),
    "glyphs": Entry("glyphs", _glyphs, _OWN, {"train": (4_096, 256), "test": (4_112, 257)}),
    "folder": Entry("a folder of images", class_folders.read_class_folders, class_folders.SOURCE),
    "table": Entry("a table of images", path_table.read_path_table, path_table.SOURCE),
    "huggingface": Entry(
        "a Hugging Face data set", saved_datasets.read_saved_images, saved_datasets.SOURCE
    ),
    "features": Entry("features", features.read_features, features.SOURCE),
}
# Other spellings of the same.
ALIASES = {
    **{"cars": "cars196", "inshop": "in-shop", "cub200": "cub", "cub-200-2011": "cub"},
    **{"cars-98n": "cars98n", "food-101n": "food101n"},
}


def load_retrieval(
    name: str,
    root: str | os.PathLike[str] | None = None,
    subset: bool = False,
    classes: str = "official",
    ignore: Any = (),
    **options: Any,
) -> RetrievalData:
    """Load a data set of the catalogue, and refuse it where it is not complete.

    Args:
        name: cub, cars196, in-shop, sop, omniglot, cifar10, cifar100, glyphs, cars98n, food101n,
            folder, table, huggingface or features.
        root: its folder (for glyphs the cache folder, or None).
        subset: accept fewer images than published: those that are listed and on the disk.
        classes: "official": which classes train is the data set's; "half": the first half, by
            name, of the classes that are there, only with `subset`.
        ignore: labels that count nowhere, such as ("-1",): their samples are left out of every
            split.
        **options: of that data set: `layout` (cars196, cars98n), `image_size` (glyphs),
            `label_column` (table, huggingface), `split_column` (table), `content` (folder, table,
            huggingface).

    Raises:
        InputError: another name or option.
        DataError: files missing, damaged, or not as many as published; says which and what to do.

    Example:
        >>> data = load_retrieval("glyphs")
        >>> len(data.train), len(data.test), data.ks
        (4096, 4112, (1, 2, 4, 8, 16, 32))
    """
    check_flags(subset=subset)
    entry = catalogue_entry(name)
    check_choice(classes, "classes", ("official", "half"))
    if classes == "half" and not subset:
        raise InputError(f"`classes` 'half' is not the official split; it needs {_SUBSET}.")
    data = read_entry(entry, name, root, options)
    if subset:
        return _regroup(present(data).without(ignore), classes, entry)
    if faults := count_faults(data, entry.counts):
        raise DataError(
            f"{root}: is not the whole of {entry.title}: {'; '.join(faults)}. {entry.source} To "
            f"use what is there all the same, say {_SUBSET}."
        )
    for split in data.splits:
        if missing := missing_paths(split):
            raise DataError(
                f"{split.root}: {len(missing):,} of {len(split):,} images of the {split.name} "
                f"split are missing, the first is {missing[0]}. `bspml data check {name} --root "
                f"{root}` lists what is wrong. {entry.source}"
            )
    return data.without(ignore)


def catalogue_entry(name: str) -> Entry:
    """Return the entry called `name`.

    Raises:
        InputError: no such data set; suggests the nearest name.
    """
    key = ALIASES.get(name.lower(), name.lower()) if isinstance(name, str) else name
    if not isinstance(key, str) or key not in CATALOGUE:
        hint = did_you_mean(key, [*CATALOGUE, *ALIASES]) or "."
        raise InputError(f"`name` must be one of {', '.join(CATALOGUE)}; got {shown(name)}{hint}")
    return CATALOGUE[key]


def read_entry(entry: Entry, name: str, root: Any, options: Mapping[str, Any]) -> RetrievalData:
    """Read what the lists of a data set say, without checking it.

    Args:
        entry: of the catalogue.
        name: as the user called it, for messages.
        root: path of the data set's folder, or None.
        options: of its reader.

    Raises:
        InputError: no root, or an option that this data set has not.
        DataError: see the reader.
    """
    parameters = inspect.signature(entry.read).parameters
    names = [option for option in parameters if option != "root"]
    for option in options:
        if option not in names:
            raise InputError(
                f"{name} has no option `{option}`; it has {', '.join(names) or 'none'}."
            )
    is_read = parameters["root"].default is inspect.Parameter.empty  # else it is a cache
    if root is None and is_read:
        raise InputError(f"`root` must name the folder of {entry.title}. {entry.source}")
    if root is not None:
        check_kind(root, "root", str | os.PathLike, f"the path of {entry.title}, as text or Path")
    if is_read and not Path(root).is_absolute() and not os.path.lexists(Path(root)):
        raise DataError(
            f"{root!s:.200}: there is no such path in {Path.cwd()}, where this one, which is "
            "relative, starts. Run this where it holds, or write the whole path."
        )
    try:
        return entry.read(root, **options)
    except OSError as err:
        # A name that is too long, a disk that went away.
        raise DataError(f"{root!s:.200}: cannot be read ({reason(err)}).") from err


def _regroup(data: RetrievalData, classes: str, entry: Entry) -> RetrievalData:
    if classes == "half":
        if data.gallery is not None or data.train.root != data.test.root:
            raise InputError("`classes` 'half' needs one folder of images and no gallery.")
        data = halves(data)
    if empty := [split.name for split in data.splits if len(split) == 0]:
        raise DataError(
            f"This subset of {entry.title} leaves no image in {' and '.join(empty)}. To train on "
            "half of the classes that are there, say classes='half'."
        )
    return data
