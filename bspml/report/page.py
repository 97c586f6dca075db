"""One self-contained HTML page: how many labels are wrong, which, and a place to decide on each.

`render_page` returns text and opens nothing; whoever has the numbers (a run, an audit) fills a
`PageData`.  Labels, names and texts are strangers' words: they reach the page as JSON and are shown
as text, never as HTML, and a Content-Security-Policy lets no script but the page's own run.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bspml.errors import DataError, MissingDependencyError, RunError
from bspml.files.opening import open_regular
from bspml.files.run import EpochRecord, read_json, write_json
from bspml.report.page_check import check_page
from bspml.report.svg import BARS, class_bars_svg, curves_svg, histogram_svg

__all__ = [
    "PageData",
    "image_url",
    "is_page",
    "load_page",
    "page_fields",
    "pictures_of",
    "render_page",
    "save_page",
]

_HERE = Path(__file__).parent
_KEY = "bspml-decisions-"  # of what a browser keeps for a page
_DATA_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|bmp|avif);base64,[A-Za-z0-9+/]+={0,2}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


@dataclass(frozen=True)
class PageData:
    """What the page shows.  Empty parts are left out of it.

    Attributes:
        title: of the page.
        sentence: the noise rate in one sentence.
        facts: (name, value) pairs under it.
        histogram: {"counts": labels per bin of the p-values, "null_level": labels per bin that
            are wrong at random}, or None.
        curves: `EpochRecord`s, or dicts of their fields.
        classes: dicts of label, support, mean_weight, share_flagged, looks_like_two (bool),
            looks_like (another label or '').
        suspects: most suspicious first; dicts of index, name, label, suggested ('' for none),
            margin, p, q (each None where unknown), weight, image, text, and own and other: lists
            of neighbours (index, label, image, text) under the label and under the suggested one.
            An image is a relative path from the page, or a data URI; others are left out.
        duplicates: dicts of a, b (indices), label_a, label_b, similarity, image_a, image_b.
        integer_labels: labels are whole numbers, and are written so in the decisions file.
    """

    title: str
    sentence: str
    facts: Sequence[tuple[str, str]] = ()
    histogram: Mapping[str, Any] | None = None
    curves: Sequence[EpochRecord | Mapping[str, Any]] = ()
    classes: Sequence[Mapping[str, Any]] = ()
    suspects: Sequence[Mapping[str, Any]] = ()
    duplicates: Sequence[Mapping[str, Any]] = field(default=())
    integer_labels: bool = False


def save_page(data: PageData, path: str | os.PathLike[str]) -> Path:
    """Write `data` as JSON, atomically.

    Raises:
        RunError: the file cannot be written.
    """
    return write_json(path, page_fields(data))


def load_page(path: str | os.PathLike[str], audit: str | None = None) -> PageData:
    """Read what `save_page` wrote.

    Args:
        path: the file.
        audit: the audit it must belong to, if any.

    Raises:
        RunError: missing, not such a file, damaged, or of another audit.
    """
    values = read_json(path)
    found = values.pop("audit", None) if isinstance(values, dict) else None
    if audit is not None and found != audit:
        raise RunError(f"{path}: is of another audit than the files beside it; run it again.")
    known = {f.name for f in dataclasses.fields(PageData)}
    if not isinstance(values, dict) or not {"title", "sentence"} <= values.keys() <= known:
        raise RunError(
            f"{path}: is not a saved page; expected a JSON object with title and sentence and at "
            f"most {', '.join(sorted(known))}. Run the audit again."
        )
    check_page(values, path)
    curves = values.get("curves", [])
    if not isinstance(curves, list) or not all(isinstance(entry, dict) for entry in curves):
        raise RunError(f"{path}: curves is not a list of records. Make it again.")
    try:
        values["curves"] = [_record(entry) for entry in curves]
    except RunError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as err:
        raise RunError(f"{path}: curves holds no records of a run ({err}).") from err
    values["facts"] = [(name, value) for name, value in values.get("facts", ())]
    return PageData(**values)


def render_page(data: PageData) -> str:
    """The page as HTML text; write it as UTF-8.

    Raises:
        MissingDependencyError: Jinja2 is not installed.
        KeyError: an entry of `suspects`, `classes` or `duplicates` lacks a field.
    """
    try:
        import jinja2
    except ImportError as err:
        raise MissingDependencyError(
            "the page needs Jinja2, which is not installed; `pip install 'bspml[report]'`."
        ) from err
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _read("csv.js") + _read("page.js")
    records = [_record(entry) for entry in data.curves]
    histogram = data.histogram
    return environment.get_template("page.html.j2").render(
        title=_well_formed(data.title),
        sentence=_well_formed(data.sentence),
        facts=[(_well_formed(name), _well_formed(value)) for name, value in data.facts],
        suspects=len(data.suspects),
        classes=len(data.classes),
        duplicates=len(data.duplicates),
        many_classes=sum(bool(c["share_flagged"]) for c in data.classes) > BARS,
        # Our own text, or escaped where it was made.
        style=_safe(_read("page.css")),
        script=_safe(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        payload=_safe(_as_script(_payload(data))),
        histogram=_safe(histogram_svg(histogram["counts"], histogram["null_level"]))
        if histogram
        else "",
        curves=[_safe(svg) for svg in curves_svg(records)],
        class_bars=_safe(class_bars_svg(data.classes)),
    )


def image_url(image: str | None) -> str | None:
    """A URL that can only name an image inside the page or a file beside it, or None.

    Raster data URIs pass.  A path must be relative: no scheme, no drive, no leading slash or
    backslash; it is percent-encoded byte by byte, so that names with #, ?, % or bytes that are not
    UTF-8 find their file and nothing in a name acts as part of a URL.
    """
    if not image:
        return None
    if _DATA_IMAGE.fullmatch(image):
        return image
    if image[0] in "/\\" or _SCHEME.match(image) or "\0" in image:
        return None
    try:
        return quote(os.fsencode(image), safe="/")
    except UnicodeEncodeError:  # half a surrogate pair that no file system gave
        return None


def pictures_of(data: PageData) -> dict[int, str]:
    """{sample: its picture}, of all samples that the page shows."""
    shown = [entry for s in data.suspects for entry in (s, *s["own"], *s["other"])]
    pairs = [(entry["index"], entry.get("image")) for entry in shown]
    for pair in data.duplicates:
        pairs += [(pair["a"], pair.get("image_a")), (pair["b"], pair.get("image_b"))]
    return {int(index): image for index, image in pairs if image}


def is_page(path: str | os.PathLike[str]) -> bool:
    """Whether this file was made by `render_page`."""
    with contextlib.suppress(DataError), open_regular(path, "a page") as file:
        return f'"{_KEY}'.encode() in file.read()
    return False


def _read(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _safe(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def page_fields(data: PageData) -> dict[str, Any]:
    """`data` as plain values."""
    values = {f.name: getattr(data, f.name) for f in dataclasses.fields(data)}
    values["curves"] = [
        dataclasses.asdict(r) if isinstance(r, EpochRecord) else r for r in data.curves
    ]
    return values


def _record(entry: EpochRecord | Mapping[str, Any]) -> EpochRecord:
    if isinstance(entry, EpochRecord):
        return entry
    return EpochRecord.from_line(json.dumps(dict(entry)))


def _well_formed(text: object) -> str:
    """Text with what UTF-8 cannot hold (lone surrogates, of file names) replaced."""
    return str(text).encode("utf-8", "replace").decode("utf-8")


def _as_script(payload: Mapping[str, Any]) -> str:
    """JSON that cannot end its <script> block early, all ASCII."""
    text = json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _payload(data: PageData) -> dict[str, Any]:
    """The page's data; labels, images and samples that repeat are stored once."""
    labels, images = _Numbering(), _Numbering()
    samples = _Numbering()

    def sample(entry: Mapping[str, Any]) -> int:
        image = image_url(entry.get("image"))
        text = entry.get("text")
        return samples(
            (
                int(entry["index"]),
                labels(str(entry["label"])),
                -1 if image is None else images(image),
                None if text is None else str(text),
            )
        )

    suspects = [
        {
            "sample": sample(s),
            "name": str(s.get("name") or ""),
            "suggested": -1 if s["suggested"] in (None, "") else labels(str(s["suggested"])),
            "margin": _number(s["margin"]),
            "p": _number(s["p"]),
            "q": _number(s["q"]),
            "weight": _number(s["weight"]),
            "own": [sample(other) for other in s["own"]],
            "other": [sample(other) for other in s["other"]],
        }
        for s in data.suspects
    ]
    classes = [
        {
            "label": labels(str(c["label"])),
            "support": int(c["support"]),
            "weight": _number(c["mean_weight"]),
            "flagged": _number(c["share_flagged"]),
            "two": bool(c["looks_like_two"]),
            "like": -1 if c["looks_like"] in (None, "") else labels(str(c["looks_like"])),
        }
        for c in data.classes
    ]
    duplicates = [
        {
            "a": sample({"index": d["a"], "label": d["label_a"], "image": d.get("image_a")}),
            "b": sample({"index": d["b"], "label": d["label_b"], "image": d.get("image_b")}),
            "similarity": _number(d["similarity"]),
        }
        for d in data.duplicates
    ]
    identity = [data.title, [[int(s["index"]), str(s["label"])] for s in data.suspects]]
    return {
        "key": _KEY + hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24],
        "integers": data.integer_labels,
        "labels": labels.values,
        "images": images.values,
        "samples": samples.values,
        "suspects": suspects,
        "classes": classes,
        "duplicates": duplicates,
    }


class _Numbering:
    """Numbers distinct values 0, 1, 2 in the order they come."""

    def __init__(self) -> None:
        self._place: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        return self._place.setdefault(value, len(self._place))

    @property
    def values(self) -> list[Any]:
        return list(self._place)


def _number(value: Any) -> float | None:
    """A plain float; None for unknown and for what JSON does not know."""
    return float(value) if value is not None and math.isfinite(value) else None
