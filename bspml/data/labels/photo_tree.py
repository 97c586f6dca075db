"""Photos laid out by their corrected labels: FOLDER/LABEL/NAME, which any reader of class folders
takes.

A photo that keeps its label keeps its path; one that moves keeps what follows its old class folder.
Two photos that come to the same place, and labels that cannot be the name of a folder, get another
name, which is told and stands in `copied.csv`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from bspml.data.labels.decisions import CorrectedLabels
from bspml.data.retrieval import NAMES as SPLITS
from bspml.errors import DataError, InputError, RunError
from bspml.files.cells import protected_cell
from bspml.files.delimited import write_table
from bspml.files.folders import check_new_folder, file_in, new_folder
from bspml.files.opening import open_regular, refusals
from bspml.words import counted

LISTED = "copied.csv"
_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*\ud800-\udfff]')
_OURS = "|".join(map(re.escape, (*SPLITS, LISTED)))  # in whatever case, as it is read
_RESERVED = re.compile(rf"(con|prn|aux|nul|com\d|lpt\d)(\..*)?|{_OURS}", re.IGNORECASE)  # Windows
_LONGEST = 200  # bytes of a folder's name; file systems allow 255
_BLOCK = 2**20  # bytes
_SHOWN = 3  # changed names that a sentence lists


@dataclass(frozen=True)
class CopiedPhotos:
    """What was laid out.

    Attributes:
        count: photos.
        classes: folders.
        dropped: photos left out, as their label is wrong and no other is known.
        notes: names that had to change, in sentences.
    """

    count: int
    classes: int
    dropped: int
    notes: tuple[str, ...]


def check_photos(photos: Path, names: Sequence[str] | np.ndarray | None, folder: Path) -> None:
    """Refuse what `copy_photos` would, before any work.

    Args:
        photos: folder of the photos.
        names: of the samples: files in it, None for none.
        folder: to make.

    Raises:
        InputError: no names, or the new folder would be among the photos.
        DataError: a name that is no file in the folder of the photos.
        RunError: see `check_new_folder`.
    """
    check_new_folder(folder, "--copy-to")
    root = photos.resolve()
    if folder.resolve().is_relative_to(root):
        raise InputError(
            f"--copy-to {folder} lies in {photos}, the folder of the photos, where it would be "
            "taken for a class; name one outside."
        )
    if names is None or len(names) == 0:
        raise InputError("--copy-to finds the photos by their names, and these data have none.")
    missing = [name for name in map(str, names) if file_in(photos, name) is None]
    if missing:
        raise DataError(
            f"{photos}: {counted(len(missing), 'sample is', 'samples are')} no file in it, the "
            f"first is {missing[0]!r}; nothing was copied. Name the folder that the names start "
            "from; links out of it are not followed."
        )


def copy_photos(
    corrected: CorrectedLabels, given: np.ndarray, photos: Path, folder: Path
) -> CopiedPhotos:
    """Copy photos into a folder per corrected label; the folder appears complete or not at all.

    The photos themselves are only read.  Those whose label is wrong and has no better one are left
    out.  `copied.csv` in the folder lists what each copy was made of.

    Args:
        corrected: N labels with names.
        given: (N,) labels before the decisions.
        photos: folder that the names are files in.
        folder: to make.

    Raises:
        InputError: see `check_photos`.
        DataError: likewise.
        RunError: the folder cannot be made, or a photo cannot be read; nothing is left of it.
    """
    check_photos(photos, corrected.names, folder)
    assert corrected.names is not None
    names, labels = corrected.names, corrected.labels.astype(str)
    given = given.astype(str)
    stays = labels == given
    classes = set(given.tolist())
    is_dropped = corrected.dropped
    rows = np.flatnonzero(~is_dropped)
    rows = rows[np.argsort(~stays[rows], kind="stable")]  # who stays keeps the name
    # Decisions name photos by where they stood: none may come to stand at another one's place.
    stood = {path.replace(os.sep, "/") for path in map(str, names)}
    stood |= {path.removeprefix("train/") for path in stood}
    copies: dict[int, str] = {}
    renamed: list[str] = []
    with new_folder(folder) as place:
        folders = _class_folders(place, sorted(set(labels[rows].tolist())))
        others = {place / path for path in stood}
        for row in rows.tolist():
            wanted = _below_class(names[row], classes)
            path = _free(place / folders[labels[row]] / wanted, () if stays[row] else others)
            _copy(photos / names[row], path)
            copies[row] = path.relative_to(place).as_posix()
            if path.name != wanted.name:
                renamed.append(f"{names[row]!r} is {copies[row]!r}")
        listed = sorted(copies)
        write_table(
            place / LISTED,
            {
                "path": [protected_cell(copies[row]) for row in listed],
                "name": [protected_cell(names[row]) for row in listed],
                "decision": corrected.decisions[listed].tolist(),
            },
        )
    notes = [
        *_told("label cannot be the name of a folder", "labels cannot be names of folders",
               [f"{label!r} is {name!r}" for label, name in folders.items() if label != name]),
        *_told("photo got another name, as its place was taken",
               "photos got other names, as their places were taken", renamed),
    ]  # fmt: skip
    return CopiedPhotos(len(rows), len(folders), int(is_dropped.sum()), tuple(notes))


def _told(one: str, several: str, changes: list[str]) -> Iterator[str]:
    if changes:
        ending = ", ..." if len(changes) > _SHOWN else ""
        yield f"{counted(len(changes), one, several)}: {', '.join(changes[:_SHOWN])}{ending}"


def _class_folders(place: Path, labels: Sequence[str]) -> dict[str, str]:
    """Make a folder per label; labels that can be folders come first and keep their name."""
    folders = {}
    for label in sorted(labels, key=lambda label: _safe(label) != label):
        path = _free(place / _safe(label))
        path.mkdir()
        folders[label] = path.name
    return folders


def _safe(label: str) -> str:
    """Return a name that every system takes for a folder, and no reader for hidden or a split."""
    name = _UNSAFE.sub("_", label).strip(" ").rstrip(". ")
    if len(os.fsencode(name)) > _LONGEST:
        name = os.fsencode(name)[:_LONGEST].decode("utf-8", "ignore").rstrip(". ")
    is_taken = not name or name.startswith(".") or _RESERVED.fullmatch(name)
    return f"_{name}" if is_taken else name


def _below_class(name: str, classes: Container[str]) -> PurePosixPath:
    """Return the path of a photo below the folder of its class; its name if it is in no such."""
    first, _, rest = name.replace(os.sep, "/").partition("/")
    return PurePosixPath(rest if rest and first in classes else PurePosixPath(name).name)


def _free(path: Path, others: Container[Path] = ()) -> Path:
    """Return `path`, or with a number where that is taken: by the rules of the file system, which
    may take capitals for small letters, or as one of `others`.
    """
    free, number = path, 1
    while os.path.lexists(free) or free in others:
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


def _copy(photo: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    remedy = "; nothing is left of the copies. Free some space, or name another folder."
    with (
        open_regular(photo, "a photo", RunError, remedy="Remove or replace it.") as source,
        refusals(f"{photo}: cannot be copied", remedy),
        path.open("xb") as target,
    ):
        shutil.copyfileobj(source, target, _BLOCK)
