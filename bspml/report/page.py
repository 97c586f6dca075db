"""One self-contained HTML page: how many labels are wrong, which, and a place to decide on each.

`render_page` returns text and opens nothing; whoever has the numbers (a run, an audit) fills a
`PageData`.  Labels, names and texts are strangers' words: they reach the page as JSON and are shown
as text, never as HTML, and a Content-Security-Policy lets no script but the page's own run.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bspml.errors import DataError, import_optional
from bspml.files.opening import open_regular
from bspml.report.figures import BARS, class_bars, epoch_curves, p_value_histogram
from bspml.report.models import Neighbour, PageData
from bspml.report.saving import inline_svg

_HERE = Path(__file__).parent
_KEY = "bspml-decisions-"  # of what a browser keeps for a page
_DATA_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|bmp|avif);base64,[A-Za-z0-9+/]+={0,2}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")


def render_page(data: PageData) -> str:
    """Return the page as HTML text; write it as UTF-8.

    Raises:
        MissingDependencyError: Jinja2 is not installed.

    Example:
        >>> text = render_page(PageData(title="My audit", sentence="Few labels are wrong."))
        >>> text.count("<h1>Few labels are wrong.</h1>")
        1
    """
    missing = "the page needs Jinja2, which is not installed; `pip install 'bspml[report]'`."
    jinja2 = import_optional("jinja2", missing)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _read_asset("csv.js") + _read_asset("page.js")
    text = environment.get_template("page.html.j2").render(
        data=data,
        many_classes=sum(bool(c.share_flagged) for c in data.classes) > BARS,
        # The template takes what follows as it is: it is our own text, or escaped where it is made.
        style=_read_asset("page.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        payload=_as_script(_payload(data)),
        histogram=inline_svg(p_value_histogram(data.histogram)) if data.histogram else "",
        curves=[inline_svg(figure) for figure in epoch_curves(data.curves)],
        class_bars=inline_svg(class_bars(data.classes)),
    )
    # Without what UTF-8 cannot hold: lone surrogates, of file names.
    return text.encode("utf-8", "replace").decode("utf-8")


def image_url(image: str | None) -> str | None:
    """Return a URL that can only name an image inside the page or a file beside it, or None.

    Raster data URIs pass.  A path must be relative: no scheme, no drive, no leading slash or
    backslash; it is percent-encoded byte by byte, so that names with #, ?, % or bytes that are not
    UTF-8 find their file and nothing in a name acts as part of a URL.

    Example:
        >>> image_url("birds/50% #1.png"), image_url("javascript:alert(1)")
        ('birds/50%25%20%231.png', None)
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


def is_page(path: str | os.PathLike[str]) -> bool:
    """Return whether this file was made by `render_page`."""
    with contextlib.suppress(DataError), open_regular(path, "a page") as file:
        return f'"{_KEY}'.encode() in file.read()
    return False


def _read_asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _as_script(payload: Mapping[str, Any]) -> str:
    """JSON that cannot end its <script> block early, all ASCII."""
    text = json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _payload(data: PageData) -> dict[str, Any]:
    """The page's data; labels, images and samples that repeat are stored once."""
    labels: dict[str, int] = {}
    images: dict[str, int] = {}
    samples: dict[tuple[int, int, int, str | None], int] = {}

    def label(text: str | None) -> int:
        return _place_of(text, labels) if text else -1

    def sample(shown: Neighbour) -> int:
        image = image_url(shown.image)
        place = -1 if image is None else _place_of(image, images)
        return _place_of((shown.index, _place_of(shown.label, labels), place, shown.text), samples)

    suspects = [
        {
            "sample": sample(s),
            "name": s.name or "",
            "suggested": label(s.suggested),
            **s.model_dump(include={"margin", "p", "q", "weight"}),
            "own": [sample(other) for other in s.own],
            "other": [sample(other) for other in s.other],
        }
        for s in data.suspects
    ]
    classes = [
        {
            "label": _place_of(c.label, labels),
            "support": c.support,
            "weight": c.mean_weight,
            "flagged": c.share_flagged,
            "two": c.looks_like_two,
            "like": label(c.looks_like),
        }
        for c in data.classes
    ]
    duplicates = []
    for pair in data.duplicates:
        a, b = map(sample, pair.samples())
        duplicates.append({"a": a, "b": b, "similarity": pair.similarity})
    identity = [data.title, [[s.index, s.label] for s in data.suspects]]
    return {
        "key": _KEY + hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24],
        "integers": data.integer_labels,
        "labels": list(labels),
        "images": list(images),
        "samples": list(samples),
        "suspects": suspects,
        "classes": classes,
        "duplicates": duplicates,
    }


def _place_of(value: Any, values: dict[Any, int]) -> int:
    """The place of a value among distinct ones, in the order they come."""
    return values.setdefault(value, len(values))
