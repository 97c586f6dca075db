"""Where each file of a run lies, and who may make or open the folder."""

from __future__ import annotations

import contextlib
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bspml.errors import RunError
from bspml.files.atomic import (
    atomic_write,
    is_leftover,
    make_folder_in,
    refuse_link,
    remove_leftovers,
)
from bspml.files.opening import open_regular, reason, refusals
from bspml.files.run.lock import exclusive
from bspml.files.run.plain import parse_json, to_json


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.  The constructor only names them; see `create` and `open`.

    Attributes:
        path: the folder.
        made: whether `create` made it, so that `discard` may remove it.
    """

    path: Path
    made: bool = field(default=False, compare=False)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Make the folder of a new run; an empty one that is there already will do.

        A folder without files but those that a run killed in its first moment left is empty.

        Raises:
            RunError: there is something at `path`, or the folder cannot be made.
        """
        path = Path(path)
        try:
            made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            folder = cls(path, made)
            folder.refuse_if_used()
            make_folder_in(path, folder.figures.name)
        except RunError:  # an OSError itself
            raise
        except (FileExistsError, NotADirectoryError) as err:
            raise RunError(
                f"{path}: a file is in the way of the run folder; choose another name."
            ) from err
        except (OSError, ValueError) as err:  # ValueError: a null byte
            raise RunError(
                f"{path}: the run folder cannot be made ({reason(err)}); choose a folder "
                "you may write to."
            ) from err
        return folder

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Return the folder of a run that was started before.

        Raises:
            RunError: no such folder, not a run's, or not readable.
        """
        folder = cls(Path(path))
        with refusals(f"{path}: the run folder cannot be read", faults=(OSError, ValueError)):
            exists, is_run = folder.path.is_dir(), folder.config.is_file()
        if not exists and os.path.lexists(folder.path):
            raise RunError(f"{path}: is a file; name the folder of a run.")
        if not exists:
            raise RunError(f"{path}: no such run folder{_runs_beside(folder.path)}.")
        if not is_run:
            raise RunError(
                f"{path}: is not a run folder (no {folder.config.name} in it)"
                f"{_runs_beside(folder.path)}."
            )
        return folder

    def refuse_if_used(self) -> None:
        """Raise a RunError if the folder holds anything a new run would mix with."""
        for path in self.path.iterdir():
            empty = path == self.figures and path.is_dir() and not any(path.iterdir())
            if not (empty or path == self.lock or is_leftover(path)):
                raise RunError(
                    f"{self.path}: the run folder exists already and is not empty. Go on with that "
                    f"run by --resume {self.path}, or give the new one a name of its own, such as "
                    f"name={_free_name(self.path)}, or another folder by --output."
                )

    def refuse_links(self) -> None:
        """Raise a RunError if something in the folder is a symbolic link: a run makes none.

        Training would stop at the first that it had to write through, perhaps after hours.
        """
        for path in (*self.path.glob("*"), *self.figures.glob("*")):
            refuse_link(path)

    def locked(self) -> AbstractContextManager[None]:
        """Keep other processes from training in this folder while a block runs.

        Raises:
            BusyRunError: on entering: another process does.
            RunError: on entering: the folder is not writable.
        """
        return exclusive(self.lock)

    @property
    def lock(self) -> Path:
        """Held by the process that trains in this folder."""
        return self.path / ".lock"

    @property
    def config(self) -> Path:
        """The complete configuration, as YAML."""
        return self.path / "config.yaml"

    @property
    def records(self) -> Path:
        """One JSON line per round and method."""
        return self.path / "records.jsonl"

    def checkpoint(self, method: str) -> Path:
        """Return the latest state of one method, enough to resume it."""
        return self.path / f"checkpoint-{method.replace(':', '+')}.pt"

    @property
    def weights(self) -> Path:
        """The sample weights as a table; of the first method that has any, bspml before others."""
        return self.path / "weights.csv"

    def weights_of(self, method: str) -> Path:
        """Return the sample weights of a further method."""
        return self.path / f"weights-{method.replace(':', '+')}.csv"

    @property
    def summary(self) -> Path:
        """The final figures, as JSON; its presence means that the run is complete."""
        return self.path / "summary.json"

    @property
    def figures(self) -> Path:
        """Folder of PNG files."""
        return self.path / "figures"

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.summary.is_file()

    def remove_leftovers(self) -> None:
        """Remove what killed processes were making in the folder."""
        for folder in (self.path, self.figures):
            remove_leftovers(folder)

    def discard(self) -> None:
        """Remove what a run that ended before its first checkpoint left, and the folder if made.

        Only inside `locked`.  Files that no run writes stay, and then so does the folder.
        """
        with contextlib.suppress(OSError):
            self.remove_leftovers()
            for path in (self.config, self.records, self.lock):
                path.unlink(missing_ok=True)
            self.figures.rmdir()
            if self.made:
                self.path.rmdir()


def write_json(path: str | os.PathLike[str], value: Any) -> Path:
    """Write a value as indented JSON, atomically; NaN and infinity as null.

    Args:
        path: the file.
        value: as `to_json` takes it.

    Returns:
        `path`.

    Raises:
        RunError: the file cannot be written.
    """
    return atomic_write(path, to_json(value, indent=2) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read what `write_json` wrote.

    Raises:
        RunError: missing, or not JSON.
    """
    with open_regular(path, "a JSON file", RunError) as file:
        content = file.read()
    try:
        return parse_json(content)
    except ValueError as err:
        raise RunError(f"{path}: is not JSON ({err}).") from err


def _free_name(path: Path) -> str:
    number = 2
    while os.path.lexists(path.parent / f"{path.name}-{number}"):
        number += 1
    return f"{path.name}-{number}"


def _runs_beside(path: Path) -> str:
    """'; runs has glyphs, glyphs-2' for the folder that holds `path`, or `path` itself."""
    for folder in (path, path.parent):
        with contextlib.suppress(OSError, ValueError):  # only a hint
            names = sorted(p.parent.name for p in folder.glob("*/config.yaml"))
            if names:
                return f"; {folder} has {', '.join(names[:8])}"
    return ""
