"""An audit as files: the table, classes, copies, summary, the arrays, and the page; and back."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bspml.auditing.columns import (
    ARRAYS,
    SOMETIMES,
    column,
    index_arrays,
    read_arrays,
    table_arrays,
    texts_of_rows,
)
from bspml.auditing.confusion_table import confusion_table
from bspml.auditing.folder import MARK, check_folder, check_identity, complete_mark, write_together
from bspml.auditing.page_data import page_data
from bspml.auditing.photo_checks import photo_checks
from bspml.auditing.pictures import PagePictures
from bspml.data.picture_keys import keys_in
from bspml.errors import MissingDependencyError, RunError
from bspml.files.arrays import packed_texts
from bspml.files.atomic import Content
from bspml.files.cells import protected_cell
from bspml.files.opening import FAULTS, open_regular, reason
from bspml.files.run.plain import to_json
from bspml.report.models import load_page
from bspml.tensors.checks import some_of
from bspml.tensors.row_index import check_same_rows
from bspml.words import counted

if TYPE_CHECKING:
    from bspml.auditing.report import AuditReport

_RATES = ("noise_rate", "total_rate", "lower_bound", "upper_bound")
_INTERVALS = ("interval", "total_interval")
_SCALARS = (*_RATES, *_INTERVALS, "sentence", "notes", "title", "map_method")
_AGAIN = "Run the audit again."
# Columns of text somebody else wrote; numbers and our own words need no protection.
_FOREIGN = (
    "name", "label", "suggested_label", "other_label", "looks_like", "nearest_class",
    "most_frequent",
)  # fmt: skip


def save_report(
    report: AuditReport,
    folder: Path,
    images: Any = None,
    texts: Any = None,
    title: str | None = None,
    replacing: bool = False,
) -> list[Path]:
    """Write an audit's files, all of them together.

    Args:
        report: the audit.
        folder: to write to; need not exist.
        images: see `AuditReport.save`.
        texts: see `AuditReport.save`.
        title: see `AuditReport.save`.
        replacing: corrected labels in the folder will be made anew.

    Raises:
        RunError: see `AuditReport.save`.
    """
    check_same_rows(("the audited data", report.index), texts=texts)
    title = title or report.title or "Audit of labels"
    if texts is None and report.texts is not None:
        texts = report.texts.tolist()
    elif texts is not None:
        texts = texts_of_rows(texts, "texts", len(report)).tolist()
    photos = report.images
    if isinstance(images, str | os.PathLike):
        photos = os.fspath(images)
        files = PagePictures(images, report.names, folder).files()
        # Of what the page shows now: the photos that the decisions will be about.
        keys = np.zeros(len(report), "<U32")
        keys[[*files]] = keys_in(Path(images), report.names.tolist(), [*files])
        report = _with_pictures(report, keys, photos)
        with contextlib.suppress(MissingDependencyError):  # the page says what is missing
            report = replace(report, photo_checks=photo_checks(files))
    data = page_data(report, folder, images, texts, title)
    check_folder(folder, report.labels, replacing)
    scalars = {name: getattr(report, name) for name in _SCALARS} | {"title": title}
    arrays = {name: getattr(report, name) for name in ARRAYS}
    arrays |= packed_texts("names", report.names)
    arrays |= table_arrays("classes", report.classes)
    arrays |= table_arrays("duplicates", report.duplicates)
    arrays |= table_arrays("groups", report.groups)
    arrays |= index_arrays(report.index)
    if report.embedding_map is not None:
        arrays["embedding_map"] = report.embedding_map
    if report.photo_checks is not None:
        arrays |= table_arrays("photo_checks", report.photo_checks)
    if texts is not None:
        arrays |= packed_texts("texts", texts)
    sometimes = {name: getattr(report, name) for name in SOMETIMES}
    arrays |= {name: values for name, values in sometimes.items() if values is not None}
    fields = data.model_dump()
    identity = _identity(arrays, {"scalars": scalars, "page": fields})
    table = report.table().reset_index(drop=True)  # files have the column, not the index
    contents: dict[str, Content] = {
        "audit.npz": lambda file: np.savez_compressed(file, audit=np.array(identity), **arrays),
        "audit.csv": _as_csv(table),
        "audit.parquet": _as_parquet(table),
        "classes.csv": _as_csv(report.classes),
        "duplicates.csv": _as_csv(report.duplicates),
        "groups.csv": _as_csv(report.groups),
        "confusions.csv": _as_csv(confusion_table(report)),
        "summary.json": to_json({**report.summary(), "audit": identity}, indent=2) + "\n",
        "page.json": to_json({**fields, "audit": identity}, indent=2) + "\n",
    }
    if report.photo_checks is not None:
        names = column(report.names[report.photo_checks["index"].to_numpy()])
        contents["photo_checks.csv"] = _as_csv(report.photo_checks.assign(name=names))
    from bspml.report.page import render_page  # imports matplotlib, which a look does not need

    with contextlib.suppress(MissingDependencyError):  # of Jinja2
        contents["report.html"] = render_page(data)
    return write_together(folder, contents, scalars | {"images": photos}, identity)


def _with_pictures(report: AuditReport, keys: np.ndarray, photos: str) -> AuditReport:
    """Return the report of these photos; it says which are others than it was made with."""
    before, told = report.picture_keys, list(report.notes)
    if before is not None and (changed := (before != "") & (keys != "") & (keys != before)).any():
        told.append(
            f"{counted(int(changed.sum()), 'photo')} in {photos} changed since the audit, at rows "
            f"{some_of(np.flatnonzero(changed))}: its chances are about those of before."
        )
    return replace(report, picture_keys=keys, notes=tuple(dict.fromkeys(told)))


def _identity(arrays: Mapping[str, np.ndarray], rest: Any) -> str:
    """Return a hash of the content of an audit: equal for equal audits."""
    content = hashlib.sha256(to_json(rest).encode("utf-8", "surrogatepass"))
    for name, values in sorted(arrays.items()):
        content.update(f"{name} {values.dtype} {values.shape}".encode())
        content.update(np.ascontiguousarray(values).tobytes())
    return content.hexdigest()[:16]


def _as_csv(table: pd.DataFrame) -> str:
    # Protected, as a spreadsheet runs or rewrites text that looks like a formula or a number.
    texts = _foreign(table, lambda text: protected_cell(text) if text else "")
    protected_table = table.assign(**{name: column(values) for name, values in texts.items()})
    return str(protected_table.to_csv(index=False, lineterminator="\r\n"))


def _as_parquet(table: pd.DataFrame) -> bytes:
    # Parquet holds UTF-8; names of files may hold lone surrogates, and classes differ in them.
    texts = _foreign(table, lambda text: text.encode("utf-8", "backslashreplace").decode("utf-8"))
    content = io.BytesIO()
    table.assign(**texts).to_parquet(content, index=False)
    return content.getvalue()


def _foreign(table: pd.DataFrame, change: Callable[[str], str]) -> dict[str, list[str]]:
    """Return the columns with text from the user's data, each cell changed by `change`."""
    names = [n for n in _FOREIGN if n in table and table[n].dtype.kind not in "iub"]
    return {name: [change(str(text)) for text in table[name]] for name in names}


def load_fields(folder: Path) -> dict[str, Any]:
    """Read an audit's files.

    Returns:
        {field of `AuditReport`: its value}.

    Raises:
        RunError: not an audit's folder, damaged, or an audit was interrupted in it.
    """
    mark = complete_mark(folder)
    try:
        scalars: dict[str, Any] = {
            **{n: float(mark.get(n, mark["noise_rate"])) for n in _RATES},
            **{n: _as_text(mark[n]) for n in ("sentence", "title")},
            **{n: _as_interval(mark.get(n, mark["interval"])) for n in _INTERVALS},
            "map_method": _as_text(mark.get("map_method", "pca")),
            "notes": tuple(_as_text(note) for note in mark["notes"]),
            "images": None if mark.get("images") is None else _as_text(mark["images"]),
        }
    except FAULTS as err:
        raise RunError(f"{folder / MARK}: cannot be read ({reason(err)}). {_AGAIN}") from err
    page = load_page(folder / "page.json", mark["id"])
    # From the page, wherever the command runs: there may be another folder of that name there.
    near = os.path.normpath(folder / (page.image_folder or "."))
    if page.image_folder and scalars["images"] and os.path.isdir(near):  # noqa: PTH112
        scalars["images"] = near
    with open_regular(
        folder / "audit.npz",
        "the arrays of an audit",
        RunError,
        missing=f"no such file. {_AGAIN}",
        remedy=_AGAIN,
        faults=FAULTS,
    ) as file:
        identity, arrays = read_arrays(file)
    check_identity(folder, identity, mark)
    # Links start from the folder's page.
    pictures = {
        i: image if image.startswith("data:") else os.fspath(folder / image)
        for i, image in page.pictures().items()
    }
    return {**scalars, **arrays, "pictures": pictures}


def _as_interval(value: Any) -> tuple[float, float]:
    low, high = map(float, value)
    return low, high


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{MARK} holds {value!r:.40} where text should be")
    return value
