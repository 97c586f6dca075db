"""Suspects as files that tools for labelling import: Label Studio, CVAT, FiftyOne.

None of these tools is needed here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bspml.auditing.exports.cvat import cvat_files
from bspml.auditing.exports.fiftyone import fiftyone_files
from bspml.auditing.exports.label_studio import label_studio_files
from bspml.auditing.exports.suspects import class_names, photo_folder, shown_suspects
from bspml.auditing.report import AuditReport
from bspml.errors import InputError
from bspml.files.folders import write_files

__all__ = ["TOOLS", "check_export", "write_export"]

TOOLS = {"label-studio": label_studio_files, "cvat": cvat_files, "fiftyone": fiftyone_files}


def check_export(
    tool: str, names: Sequence[str] | np.ndarray | None, texts: Any = None, images: Any = None
) -> None:
    """Refuse a tool that cannot show the samples, before anything is made of them.

    Args:
        tool: one of `TOOLS`.
        names: of the samples, None for none.
        texts: of the samples, None for none.
        images: folder that the names are files in; anything else counts as none.

    Raises:
        InputError: no such tool, or nothing that it could show.
    """
    if tool not in TOOLS:
        raise InputError(f"`--export` must be one of {', '.join(TOOLS)}; got {tool!r}.")
    name_list = [] if names is None else [str(name) for name in names]
    if tool == "label-studio":
        is_shown = texts is not None or (bool(name_list) and all("://" in n for n in name_list))
        remedy = "name the folder of the photos with --images, or a file of texts with --names"
    elif tool == "cvat":
        is_shown, remedy = any(name_list), "name the photos with --names"
    else:
        is_shown, remedy = False, "name the folder of the photos with --images"
    if not is_shown and (photo_folder(images) is None or not any(name_list)):
        raise InputError(f"--export {tool} has nothing to show of these samples; {remedy}.")


def write_export(
    report: AuditReport, tool: str, folder: str | os.PathLike[str], images: Any = None
) -> list[Path]:
    """Write the suspects of an audit for a tool; files of an earlier export are replaced.

    Args:
        report: the audit.
        tool: one of `TOOLS`.
        folder: of the audit; the files go to `to-TOOL` in it.
        images: folder that the names are files in, or None.

    Returns:
        The files.

    Raises:
        InputError: no such tool, or nothing that it could show.
        RunError: something cannot be written.

    Example:
        >>> import tempfile
        >>> from bspml.auditing import audit
        >>> rays = [[1, 0], [9, 1], [8, 1], [0, 1], [1, 9], [1, 8]] * 5
        >>> labels, names = ["a", "a", "a", "b", "b", "b"] * 4 + list("baabbb"), map(str, range(30))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     files = write_export(audit(rays, labels, list(names)), "cvat", folder)
        >>> [file.name for file in files]
        ['annotations.xml', 'labels.json', 'suspects.csv']
    """
    check_export(tool, report.names, report.texts, images)
    contents = TOOLS[tool](shown_suspects(report, tool, images), class_names(report))
    return write_files(Path(folder) / f"to-{tool}", contents)
