"""The YAML files that come with the package, by name: `glyphs`, `classification/digits`."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "configs"


def shipped_configs() -> dict[str, Path]:
    """Return the files by name, those right in the folder first.

    Example:
        >>> list(shipped_configs())[0]
        'cars196'
    """
    files = [*sorted(FOLDER.glob("*.yaml")), *sorted(FOLDER.glob("*/*.yaml"))]
    return {path.relative_to(FOLDER).with_suffix("").as_posix(): path for path in files}


def config_path(name: str | os.PathLike[str]) -> Path:
    """Return the file that a name stands for: one of the user's, else one that is shipped.

    Args:
        name: a path, or the name of a shipped file.

    Example:
        >>> config_path("glyphs").name
        'glyphs.yaml'
    """
    path = Path(name)
    of_users = os.path.lexists(path) and not path.is_dir()  # a folder of that name is no file
    return path if of_users else shipped_configs().get(os.fspath(name), path)
