"""An audit's folder: whose files are in it, and how all of them change together.

audit.json marks the folder as an audit's, so that a run's summary.json or a user's own audit.csv
is never written over.  An audit is written beside its place first and then moved in.  While files
move, the mark says from where, and it names the audit that audit.npz, page.json and summary.json
must be of: where a process was killed in between, whoever opens the folder next moves the rest, and
a mixture is never believed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bspml.errors import InputError, RunError, UserError
from bspml.files.atomic import Content, atomic_write, is_leftover, refuse_link, taken_over
from bspml.files.folders import aside
from bspml.files.opening import is_special, open_regular, refusals
from bspml.files.run import read_json, write_json
from bspml.files.run.plain import parse_json

MARK = "audit.json"
CORRECTED = "labels-corrected.csv"
FILES = (
    "audit.npz", "audit.csv", "audit.parquet", "classes.csv", "confusions.csv", "duplicates.csv",
    "groups.csv", "photo_checks.csv", "summary.json", "page.json", "report.html",
)  # fmt: skip
_FORMAT = "bspml audit 1"
_PATIENCE = 20  # tenths of a second, for another reader that moves the files in


def is_audit_folder(folder: Path) -> bool:
    """Return whether an audit wrote to this folder, complete or not."""
    return bool(_mark(folder))


def _mark(folder: Path) -> dict[str, Any]:
    """Return the content of the mark file, {} without one."""
    try:
        with open_regular(folder / MARK, "the mark of an audit") as file:
            content = parse_json(file.read())
    except ValueError:  # a DataError among them
        return {}
    return content if isinstance(content, dict) and content.get("format") == _FORMAT else {}


def complete_mark(folder: Path) -> dict[str, Any]:
    """Return the mark of an audit that was written to its end.

    One whose process was killed while its files moved in is moved in to the end first.

    Raises:
        RunError: not an audit's folder, or an audit was interrupted while it wrote there.
    """
    mark = _mark(folder)
    if not mark:
        raise RunError(f"{folder}: is not the folder of an audit (no {MARK} of one in it).")
    if mark.get("state") == "writing":
        mark = _finished(folder, mark)
    missing = [name for name in ("audit.npz", "page.json") if not (folder / name).exists()]
    if mark.get("state") != "complete" or missing:
        raise _interrupted(folder)
    if (folder / "summary.json").is_file():
        summary = read_json(folder / "summary.json")
        check_identity(folder, summary.get("audit") if isinstance(summary, dict) else None, mark)
    return mark


def check_identity(folder: Path, identity: Any, mark: Mapping[str, Any]) -> None:
    """Refuse a file of another audit than the one that the folder's mark names.

    Args:
        folder: of the audit.
        identity: of the audit that the file says it belongs to.
        mark: of the folder.

    Raises:
        RunError: they differ.
    """
    if identity != mark.get("id"):
        raise _interrupted(folder)


def _interrupted(folder: Path) -> RunError:
    return RunError(
        f"{folder}: the audit in it was interrupted, or its files are of different audits; run it "
        "again."
    )


def named_folder(name: str | os.PathLike[str]) -> Path:
    """Return `name` as a path; refuse an empty one, which would be the current folder.

    Raises:
        InputError: it is no path.
        RunError: it is empty.

    Example:
        >>> named_folder("my-audit").name
        'my-audit'
    """
    if not isinstance(name, str | os.PathLike):
        got = type(name).__name__
        raise InputError(f"`folder` must be the path of the audit's folder; got {got}.")
    if not os.fspath(name):
        raise RunError("the name of the audit's folder is empty; name one.")
    return Path(name)


def check_folder(folder: Path, labels: np.ndarray, replacing: bool = False) -> None:
    """Refuse a folder that an audit of `labels` must not or cannot write to; changes nothing.

    Args:
        folder: to write to; need not exist.
        labels: (N,) of the audit.
        replacing: the corrected labels in it will be made anew.

    Raises:
        RunError: files in it are not an audit's, something is in the way, it cannot be made, or
            its corrected labels are of other data.
    """
    _check_can_be_made(folder)
    names = [name for name in (MARK, *FILES, CORRECTED) if os.path.lexists(folder / name)]
    if names and not is_audit_folder(folder):
        raise RunError(
            f"{folder / names[0]}: exists already and is not an audit's; choose another folder."
        )
    for name in names:
        refuse_link(folder / name)
        if is_special(folder / name) or (folder / name).is_dir():
            raise RunError(f"{folder / name}: is in the way of the file of that name; remove it.")
    if CORRECTED in names and not replacing and not _are_of(folder / CORRECTED, labels):
        raise RunError(
            f"{folder / CORRECTED}: holds decisions about other labels than these; move it away, "
            "or choose another folder."
        )


def _check_can_be_made(folder: Path) -> None:
    try:
        ancestor = next(p for p in (folder, *folder.absolute().parents) if os.path.lexists(p))
        limit = os.pathconf(ancestor, "PC_NAME_MAX") if hasattr(os, "pathconf") else 255
    except OSError as err:
        raise _cannot_be_made(folder, err.strerror or err) from err
    if "\0" in os.fspath(folder):
        raise _cannot_be_made(folder, "a null byte in its name")
    if not ancestor.is_dir():
        raise _cannot_be_made(folder, f"{ancestor} is a file")
    if any(len(os.fsencode(part)) > limit for part in folder.parts):
        raise _cannot_be_made(f"{str(folder)[:60]}...", "name too long")
    if not os.access(ancestor, os.W_OK | os.X_OK):
        raise _cannot_be_made(folder, f"no permission to write to {ancestor}")


def _cannot_be_made(folder: Path | str, reason: object) -> RunError:
    return RunError(f"{folder}: the folder of the audit cannot be made ({reason}); choose another.")


def _are_of(path: Path, labels: np.ndarray) -> bool:
    """Return whether the corrected labels equal `labels`, apart from those called wrong."""
    # Needs torch, which a look at the mark does not.
    from bspml.data.labels.decisions import read_corrected

    try:
        corrected = read_corrected(path)
    except UserError:
        return False
    is_kept = corrected.decisions != "wrong"
    return len(is_kept) == len(labels) and np.array_equal(
        corrected.labels[is_kept].astype(str), labels[is_kept].astype(str)
    )


def _move_in(folder: Path, mark: Mapping[str, Any]) -> dict[str, Any]:
    """Move what is left of the files that a mark says are moving; return the complete mark."""
    place = folder / mark["from"]
    for name in FILES:
        if name not in mark["files"]:
            (folder / name).unlink(missing_ok=True)  # an older audit's
        elif os.path.lexists(place / name):
            (place / name).replace(folder / name)
    kept = {key: value for key, value in mark.items() if key not in ("from", "files")}
    complete = {**kept, "state": "complete"}
    write_json(folder / MARK, complete)
    return complete


def _finished(folder: Path, mark: dict[str, Any]) -> dict[str, Any]:
    """The mark after the files of a killed process have moved in; as it is where that cannot be."""
    for _ in range(_PATIENCE):
        place: Any = mark.get("from")
        if mark.get("state") != "writing" or not _is_whole(folder, place, mark.get("files")):
            return mark
        try:
            with taken_over(folder / place) as is_ours:  # not while its process lives
                if is_ours and _mark(folder) == mark:
                    return _move_in(folder, mark)
        except OSError:  # nothing may be written here: what has not moved stays where it is
            return mark
        time.sleep(0.1)  # another one moves them
        mark = _mark(folder)
    return mark


def _is_whole(folder: Path, place: Any, files: Any) -> bool:
    """Whether a mark names files of an audit that are all there, as files, and nothing outside."""
    if not isinstance(place, str) or Path(place).name != place or not is_leftover(Path(place)):
        return False
    if not isinstance(files, list) or not all(isinstance(name, str) for name in files):
        return False
    if not {"audit.npz", "page.json"} <= set(files) <= set(FILES):
        return False
    there = (folder, folder / place)
    return all(
        any((at / name).is_file() for at in there)
        and not any((at / name).is_symlink() for at in there)
        for name in files
    )


def write_together(
    folder: Path, contents: Mapping[str, Content], mark: Mapping[str, Any], identity: str
) -> list[Path]:
    """Make the files of `FILES` those of one audit; those without content are removed.

    `check_folder` comes first.

    Args:
        folder: made if it is not there.
        contents: {file name: its content}.
        mark: what the mark says besides its format, identity and state.
        identity: of the audit.

    Returns:
        The files written, but for the mark.

    Raises:
        RunError: something cannot be written.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise _cannot_be_made(folder, err.strerror or err) from err
    try:
        with (
            refusals(f"{folder}: the audit cannot be written", "; run it again."),
            aside(folder) as place,
        ):
            for name, content in contents.items():
                atomic_write(place / name, content)
            where = {"state": "writing", "from": place.name, "files": list(contents)}
            moving = {"format": _FORMAT, "id": identity, **mark, **where}
            write_json(folder / MARK, moving)
            try:
                _move_in(folder, moving)
            except KeyboardInterrupt:  # a few renames, which nobody waits for
                _move_in(folder, moving)
                raise
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # what was written keeps it
                folder.rmdir()
    return [folder / name for name in FILES if name in contents]
