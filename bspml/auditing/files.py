"""An audit's folder: the table, classes, copies, summary, the arrays, and the page.

audit.json is written first and marks the folder as an audit's, so that a run's summary.json or
somebody's own audit.csv is never written over.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bspml.auditing.report import AuditReport, column
from bspml.data.decisions import protected_cell
from bspml.errors import MissingDependencyError, RunError
from bspml.files import atomic_write, is_special
from bspml.records import read_json, write_json

__all__ = ["MARK", "is_audit_folder", "load_report", "save_report"]

MARK = "audit.json"
_FORMAT = "bspml audit 1"
_ARRAYS = (
    "labels", "names", "p_values", "q_values", "weights", "margins", "suggested_labels",
    "other_labels", "testable", "own_neighbours", "other_neighbours",
)  # fmt: skip
_SCALARS = ("noise_rate", "interval", "lower_bound", "upper_bound", "sentence", "notes")
_FILES = (
    "audit.npz", "audit.csv", "audit.parquet", "classes.csv", "duplicates.csv", "summary.json",
    "report.html",
)  # fmt: skip
# Columns of text somebody else wrote; numbers and our own words need no protection.
_FOREIGN = ("name", "label", "suggested_label", "other_label", "looks_like", "nearest_class")


def is_audit_folder(folder: Path) -> bool:
    """Whether `save_report` wrote to this folder."""
    if is_special(folder / MARK):
        return False
    try:
        return json.loads((folder / MARK).read_text("utf-8")).get("format") == _FORMAT
    except (OSError, ValueError, AttributeError):
        return False


def save_report(
    report: AuditReport, folder: Path, images: Any, texts: Sequence[str] | None, title: str
) -> list[Path]:
    """See `AuditReport.save`."""
    from bspml.auditing.page_data import page_data

    _prepare(folder)
    data = page_data(report, folder, images, texts, title)
    scalars = {name: getattr(report, name) for name in _SCALARS}
    write_json(folder / MARK, {"format": _FORMAT, **scalars})
    arrays = {name: getattr(report, name) for name in _ARRAYS}
    arrays |= _columns("classes", report.classes) | _columns("duplicates", report.duplicates)
    table = report.table()
    written = [
        atomic_write(folder / "audit.npz", lambda file: np.savez_compressed(file, **arrays)),
        _write_csv(folder / "audit.csv", table),
        atomic_write(folder / "audit.parquet", _parquet(table)),
        _write_csv(folder / "classes.csv", report.classes),
        _write_csv(folder / "duplicates.csv", report.duplicates),
        write_json(folder / "summary.json", report.summary()),
    ]
    page = _page(data)
    if page is None:
        (folder / "report.html").unlink(missing_ok=True)  # an older audit's
        return written
    return [*written, atomic_write(folder / "report.html", page)]


def _page(data: Any) -> str | None:
    """The page, or None without Jinja2."""
    from bspml.report.page import render_page

    try:
        return render_page(data)
    except MissingDependencyError:
        return None


def _prepare(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as err:
        raise RunError(
            f"{folder}: the folder of the audit cannot be made ({err.strerror or err}); choose "
            "another."
        ) from err
    taken = [name for name in (MARK, *_FILES) if (folder / name).exists()]
    if taken and not is_audit_folder(folder):
        raise RunError(
            f"{folder / taken[0]}: exists already and is not an audit's; choose another folder."
        )


def _columns(prefix: str, table: pd.DataFrame) -> dict[str, np.ndarray]:
    return {
        f"{prefix}.{name}": values.to_numpy(str)
        if values.dtype.kind not in "iufb"
        else values.to_numpy()
        for name, values in table.items()
    }


def _write_csv(path: Path, table: pd.DataFrame) -> Path:
    shown = table.copy()
    for name in _FOREIGN:
        if name in shown and shown[name].dtype.kind not in "iub":
            shown[name] = column([protected_cell(str(v)) if str(v) else "" for v in shown[name]])
    return atomic_write(path, shown.to_csv(index=False, lineterminator="\r\n"))


def _parquet(table: pd.DataFrame) -> bytes:
    shown = table.copy()
    for name in _FOREIGN:
        if name in shown and shown[name].dtype.kind not in "iub":
            # Parquet holds UTF-8; names of files may hold lone surrogates.
            shown[name] = [str(v).encode("utf-8", "replace").decode("utf-8") for v in shown[name]]
    content = io.BytesIO()
    shown.to_parquet(content, index=False)
    return content.getvalue()


def load_report(folder: Path) -> AuditReport:
    """See `AuditReport.load`."""
    if not is_audit_folder(folder):
        raise RunError(f"{folder}: is not the folder of an audit (no {MARK} of one in it).")
    scalars = read_json(folder / MARK)
    path = folder / "audit.npz"
    if is_special(path):
        raise RunError(f"{path}: is a pipe or a device. Run the audit again.")
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        tables = {}
        for prefix in ("classes", "duplicates"):
            names = [name for name in arrays if name.startswith(f"{prefix}.")]
            columns = {name.partition(".")[2]: column(arrays.pop(name)) for name in names}
            tables[prefix] = pd.DataFrame(columns)
        return AuditReport(
            **{name: arrays[name] for name in _ARRAYS},
            **{name: scalars[name] for name in ("noise_rate", "lower_bound", "upper_bound")},
            interval=tuple(scalars["interval"]),
            sentence=scalars["sentence"],
            notes=tuple(scalars["notes"]),
            **tables,
        )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as err:
        raise RunError(f"{path}: cannot be read ({err}). Run the audit again.") from err
