"""An audit as files: the table, classes, copies, summary, the arrays, and the page; and back."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bspml.auditing.folder import (
    MARK,
    check_folder,
    check_identity,
    complete_mark,
    is_audit_folder,
    write_together,
)
from bspml.auditing.report import AuditReport, column
from bspml.errors import MissingDependencyError, RunError
from bspml.files.atomic import Content
from bspml.files.cells import protected_cell
from bspml.files.opening import FAULTS, open_regular, reason
from bspml.files.run.plain import to_json

__all__ = ["MARK", "is_audit_folder", "load_report", "save_report"]

_ARRAYS = (
    "labels", "names", "p_values", "q_values", "weights", "margins", "suggested_labels",
    "other_labels", "testable", "own_neighbours", "other_neighbours",
)  # fmt: skip
_SCALARS = ("noise_rate", "interval", "lower_bound", "upper_bound", "sentence", "notes", "title")
_AGAIN = "Run the audit again."
_NUMBERS = ("p_values", "q_values", "weights", "margins")
# Columns of text somebody else wrote; numbers and our own words need no protection.
_FOREIGN = ("name", "label", "suggested_label", "other_label", "looks_like", "nearest_class")


def save_report(
    report: AuditReport,
    folder: Path,
    images: Any = None,
    texts: Sequence[str] | None = None,
    title: str | None = None,
    replacing: bool = False,
) -> list[Path]:
    """See `AuditReport.save`; `replacing`: corrected labels in the folder will be made anew."""
    from bspml.auditing.page_data import page_data
    from bspml.report.page import page_fields

    title = title or report.title or "Audit of labels"
    if texts is None and report.texts is not None:
        texts = report.texts.tolist()
    data = page_data(report, folder, images, texts, title)
    check_folder(folder, report.labels, replacing)
    scalars = {name: getattr(report, name) for name in _SCALARS} | {"title": title}
    arrays = {name: getattr(report, name) for name in _ARRAYS}
    arrays |= _columns("classes", report.classes) | _columns("duplicates", report.duplicates)
    if texts is not None:
        arrays["texts"] = np.array([str(text) for text in texts], dtype=str)
    fields = page_fields(data)
    identity = _identity(arrays, {"scalars": scalars, "page": fields})
    table = report.table()
    contents: dict[str, Content] = {
        "audit.npz": lambda file: np.savez_compressed(file, audit=np.array(identity), **arrays),
        "audit.csv": _csv(table),
        "audit.parquet": _parquet(table),
        "classes.csv": _csv(report.classes),
        "duplicates.csv": _csv(report.duplicates),
        "summary.json": to_json({**report.summary(), "audit": identity}, indent=2) + "\n",
        "page.json": to_json({**fields, "audit": identity}, indent=2) + "\n",
    }
    page = _page(data)
    if page is not None:
        contents["report.html"] = page
    return write_together(folder, contents, scalars, identity)


def _identity(arrays: Mapping[str, np.ndarray], rest: Any) -> str:
    """A hash of everything an audit says: the same audit has the same one."""
    content = hashlib.sha256(to_json(rest).encode("utf-8", "surrogatepass"))
    for name, values in sorted(arrays.items()):
        content.update(f"{name} {values.dtype} {values.shape}".encode())
        content.update(np.ascontiguousarray(values).tobytes())
    return content.hexdigest()[:16]


def _page(data: Any) -> str | None:
    """The page, or None without Jinja2."""
    from bspml.report.page import render_page

    try:
        return render_page(data)
    except MissingDependencyError:
        return None


def _columns(prefix: str, table: pd.DataFrame) -> dict[str, np.ndarray]:
    return {
        f"{prefix}.{name}": values.to_numpy(str)
        if values.dtype.kind not in "iufb"
        else values.to_numpy()
        for name, values in table.items()
    }


def _csv(table: pd.DataFrame) -> str:
    shown = table.copy()
    for name in _FOREIGN:
        if name in shown and shown[name].dtype.kind not in "iub":
            shown[name] = column([protected_cell(str(v)) if str(v) else "" for v in shown[name]])
    return str(shown.to_csv(index=False, lineterminator="\r\n"))


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
    mark = complete_mark(folder)
    with _reading(folder / MARK):
        scalars: dict[str, Any] = {
            **{n: float(mark[n]) for n in ("noise_rate", "lower_bound", "upper_bound")},
            **{n: _text(mark[n]) for n in ("sentence", "title")},
            "interval": _pair(mark["interval"]),
            "notes": tuple(_text(note) for note in mark["notes"]),
        }
    pictures = _pictures(folder, mark)
    with open_regular(
        folder / "audit.npz",
        "the arrays of an audit",
        RunError,
        missing=f"no such file. {_AGAIN}",
        remedy=_AGAIN,
        faults=FAULTS,
    ) as file:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        identity = str(arrays.pop("audit", ""))
        tables = {}
        for prefix in ("classes", "duplicates"):
            names = [name for name in arrays if name.startswith(f"{prefix}.")]
            columns = {name.partition(".")[2]: column(arrays.pop(name)) for name in names}
            tables[prefix] = pd.DataFrame(columns)
        arrays = {name: arrays[name] for name in (*_ARRAYS, "texts") if name in arrays}
        report = AuditReport(**arrays, **scalars, **tables, pictures=pictures)
        _check(report)
    check_identity(folder, identity, mark)
    return report


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """One sentence for whatever damaged or edited contents raise."""
    try:
        yield
    except FAULTS as err:
        raise RunError(f"{path}: cannot be read ({reason(err)}). {_AGAIN}") from err


def _pair(values: Any) -> tuple[float, float]:
    low, high = values
    return float(low), float(high)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{MARK} holds {value!r:.40} where text should be")
    return value


def _check(report: AuditReport) -> None:
    """Raise a ValueError if the arrays are not those of N samples."""
    n = len(report.labels)
    for name in (*_ARRAYS, "texts"):
        values = getattr(report, name)
        wide = name.endswith("_neighbours")
        if values is not None and (values.ndim != 1 + wide or len(values) != n):
            raise ValueError(f"`{name}` has the shape {values.shape}, for {n} samples")
        if name in _NUMBERS and values.dtype.kind != "f":
            raise ValueError(f"`{name}` holds no numbers")
        if wide and (values.dtype.kind != "i" or not ((values >= -1) & (values < n)).all()):
            raise ValueError(f"`{name}` names samples that do not exist")
    for table, needed in ((report.classes, "looks_like"), (report.duplicates, "different_label")):
        if needed not in table:
            raise ValueError(f"a table lacks the column `{needed}`")


def _pictures(folder: Path, mark: Mapping[str, Any]) -> dict[int, str]:
    """{sample: the picture that the folder's page has of it}; links start from here."""
    from bspml.report.page import load_page, pictures_of

    data = load_page(folder / "page.json", mark["id"])
    return {
        i: image if image.startswith("data:") else os.fspath(folder / image)
        for i, image in pictures_of(data).items()
    }
