"""Folders that change as a whole: filled out of sight first, then moved into place.

What is in the way is replaced or refused, never followed; of links see `bspml.files.atomic`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from bspml.errors import RunError
from bspml.files.atomic import Content, atomic_write, out_of_sight, refuse_link, remove_leftovers
from bspml.files.opening import refusals

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"),
)


def is_inside(name: str) -> bool:
    """Return whether a name can be that of a file in a folder: relative, and never upwards.

    Example:
        >>> is_inside("robin/1.jpg"), is_inside("../1.jpg"), is_inside("/etc/1.jpg"), is_inside("")
        (True, False, False, False)
    """
    return bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts


def leads_out(folder: Path, name: str) -> bool:
    """Return whether links in a folder lead from a name in it to somewhere outside.

    Args:
        folder: may be a link itself.
        name: for which `is_inside` holds.
    """
    return not os.path.realpath(folder / name).startswith(
        os.path.join(os.path.realpath(folder), "")  # noqa: PTH118  (ends in a separator)
    )


def file_in(folder: Path, name: str) -> Path | None:
    """Return the file of a name in a folder; None for no file, or one behind a link that leaves.

    Args:
        folder: where the names start from.
        name: from a list that anybody may have written.
    """
    path = folder / name
    # Not Path.is_file, which raises on odd names.
    is_there = is_inside(name) and os.path.isfile(path)  # noqa: PTH113
    return path if is_there and not leads_out(folder, name) else None


def is_image_name(name: str) -> bool:
    """Return whether a name ends as those of image files do, in whatever case."""
    return name.lower().endswith(IMAGE_SUFFIXES)


@contextlib.contextmanager
def aside(parent: Path) -> Iterator[Path]:
    """Make a hidden folder in `parent`, which is gone at the end with all that is still in it.

    Those that killed processes left there go first.

    Yields:
        The folder.

    Raises:
        RunError: of the block, with the place in it called as `parent`, which the user knows.
        OSError: it cannot be made.
    """
    remove_leftovers(parent)
    with out_of_sight(parent, Path.mkdir) as folder:
        try:
            yield folder
        except RunError as err:
            raise type(err)(str(err).replace(f"{folder}", f"{parent}")) from err


def write_files(folder: Path, contents: Mapping[str, Content]) -> list[Path]:
    """Write files that belong together: all of them are on the disk before one takes its place.

    Args:
        folder: made if it is not there, below one that the user named; files of these names in it
            are replaced.
        contents: {file name: its content}.

    Returns:
        The files.

    Raises:
        RunError: something cannot be written, or is a link; nothing was replaced, unless it is in
            the way.
    """
    for path in (folder, *(folder / name for name in contents)):
        refuse_link(path)
    with refusals(f"{folder}: cannot be written to"):
        folder.mkdir(parents=True, exist_ok=True)
        with aside(folder) as place:
            for name, content in contents.items():
                atomic_write(place / name, content)
            for name in contents:
                (place / name).replace(folder / name)
    return [folder / name for name in contents]


def check_new_folder(folder: Path, option: str) -> None:
    """Refuse to make a folder where something is already, or that cannot be made.

    Args:
        folder: to make; an empty one may be there.
        option: what the user calls it.

    Raises:
        RunError: there is a file, a link, or a folder with something in it; or no folder to make
            it in.
    """
    faults = (OSError, ValueError)  # ValueError: a name with NUL in it
    with refusals(f"{folder}: cannot be made", f"; name another {option}.", faults=faults):
        with contextlib.suppress(FileNotFoundError):
            folder.lstat()  # raises what is wrong with the name itself
        if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir()):
            raise RunError(f"{folder}: exists already and is no folder; name another {option}.")
        if folder.is_dir() and any(folder.iterdir()):
            raise RunError(
                f"{folder}: holds something already, and nothing is written over; name a new "
                f"folder, {option} NEW."
            )
        parent = folder.absolute().parent
        if not parent.is_dir():
            raise RunError(f"{folder}: there is no folder {parent} to make it in; make that first.")


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Make a folder that is either complete or not there.

    `check_new_folder` comes first.

    Args:
        folder: to make.

    Yields:
        A hidden folder beside it, to be filled: it takes the name if nothing was raised.

    Raises:
        RunError: something cannot be written, or came into being at `folder` in the meantime.
    """
    remedy = "; nothing is left of it. Free some space, or name another folder."
    with refusals(f"{folder}: cannot be made", remedy), aside(folder.absolute().parent) as place:
        yield place
        if hasattr(os, "sync"):
            os.sync()  # what a power cut must not empty, once and not for every file
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()
        place.rename(folder)


def cache_dir(root: str | os.PathLike[str] | None = None) -> Path:
    """Folder for what can be made again: `root`, or $BSPML_CACHE, or the platform's cache folder.

    Returns:
        The path; it need not exist yet.
    """
    if root is not None:
        return Path(root)
    if os.environ.get("BSPML_CACHE"):
        return Path(os.environ["BSPML_CACHE"])
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]) / "bspml"
    if sys.platform == "win32" and os.environ.get("LOCALAPPDATA"):
        return Path(os.environ["LOCALAPPDATA"]) / "bspml" / "Cache"
    home = Path("~").expanduser()
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "bspml"
