"""Where each file of a run lies, and who may make or open the folder."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bspml.errors import RunError
from bspml.files import atomic_write, is_leftover
from bspml.records.plain import to_json


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.  The constructor only names them; see `create` and `open`."""

    path: Path

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> RunFolder:
        """Make the folder of a new run; an empty one that is there already will do.

        Raises:
            RunError: there is something at `path`, or the folder cannot be made.
        """
        path = Path(path)
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise RunError(
                    f"{path}: the run folder exists already and is not empty. Go on with that run "
                    f"by --resume {path}, or choose another name, such as {_free_name(path)}."
                )
            (path / "figures").mkdir()
        except RunError:  # an OSError itself
            raise
        except (FileExistsError, NotADirectoryError) as err:
            raise RunError(
                f"{path}: a file is in the way of the run folder; choose another name."
            ) from err
        except OSError as err:
            raise RunError(
                f"{path}: the run folder cannot be made ({err.strerror or err}); choose a folder "
                "you may write to."
            ) from err
        return cls(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The folder of a run that was started before.

        Raises:
            RunError: no such folder, or it is not a run's.
        """
        folder = cls(Path(path))
        if not folder.path.is_dir():
            raise RunError(f"{path}: no such run folder{_runs_beside(folder.path)}.")
        if not folder.config.is_file():
            raise RunError(
                f"{path}: is not a run folder (no {folder.config.name} in it)"
                f"{_runs_beside(folder.path)}."
            )
        return folder

    @property
    def config(self) -> Path:
        """The complete configuration, as YAML."""
        return self.path / "config.yaml"

    @property
    def records(self) -> Path:
        """One JSON line per round and method."""
        return self.path / "records.jsonl"

    def checkpoint(self, method: str) -> Path:
        """The latest state of one method, enough to resume it."""
        return self.path / f"checkpoint-{method}.pt"

    @property
    def weights(self) -> Path:
        """The sample weights as a table."""
        return self.path / "weights.csv"

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

    def remove_leftovers(self) -> int:
        """Delete half-written hidden files of a killed process; returns how many there were.

        Only for the one process that continues the run: another's file in the making would go too.
        """
        leftovers = [path for path in self.path.rglob(".*.tmp") if is_leftover(path)]
        for path in leftovers:
            path.unlink(missing_ok=True)
        return len(leftovers)


def write_json(path: str | os.PathLike[str], value: Any) -> Path:
    """Write `value` as indented JSON, atomically; NaN and infinity as null."""
    return atomic_write(path, to_json(value, indent=2) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read what `write_json` wrote.

    Raises:
        RunError: missing, or not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8", errors="surrogatepass"))
    except OSError as err:
        raise RunError(f"{path}: cannot be read ({err.strerror or err}).") from err
    except ValueError as err:
        raise RunError(f"{path}: is not JSON ({err}).") from err


def _free_name(path: Path) -> str:
    number = 2
    while (path.parent / f"{path.name}-{number}").exists():
        number += 1
    return f"{path.name}-{number}"


def _runs_beside(path: Path) -> str:
    """'; runs has glyphs, glyphs-2' for the folder that holds `path`, or `path` itself."""
    for folder in (path, path.parent):
        if folder.is_dir():
            names = sorted(p.parent.name for p in folder.glob("*/config.yaml"))
            if names:
                return f"; {folder} has {', '.join(names[:8])}"
    return ""
