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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bspml.errors import DataError, import_optional
from bspml.files.opening import open_regular
from bspml.report.confusion_figure import MOST, confusion_matrix
from bspml.report.figures import BARS, class_bars, epoch_curves, p_value_histogram
from bspml.report.models import PageData
from bspml.report.payload import KEY, payload
from bspml.report.saving import inline_svg

_HERE = Path(__file__).parent
_SHORT = 60  # characters of a fact that has others beside it
# In this order: each reads names of those before it.
_SCRIPTS = ("basics", "decisions", "large", "flags", "gallery", "panels", "map", "start")


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
    scripts = "".join(_read_asset(f"{name}.js") for name in _SCRIPTS)
    script = f"{_read_asset('csv.js')}{{\n{scripts}}}\n"  # a block: its names are no globals
    measures = ("wrong_probability", "margin", "p", "q")
    measured = {m for m in measures if any(getattr(s, m) is not None for s in data.suspects)}
    # An audit flags the labels that are likely wrong; a run's suspects are those of low weight.
    flagged = "flagged" if "wrong_probability" in measured else "suspect"
    text = environment.get_template("page.html.j2").render(
        data=data,
        many_classes=sum(bool(c.share_flagged) for c in data.classes) > BARS,
        short_facts=[fact for fact in data.facts if len(fact[1]) <= _SHORT],
        long_facts=[fact for fact in data.facts if len(fact[1]) > _SHORT],
        has_chances="wrong_probability" in measured,
        measured=measured,
        flagged=flagged,
        drawn_classes=MOST,
        # The template takes what follows as it is: it is our own text, or escaped where it is made.
        style=_read_asset("page.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        payload=_as_script(payload(data)),
        histogram=inline_svg(p_value_histogram(data.histogram)) if data.histogram else "",
        curves=[inline_svg(figure) for figure in epoch_curves(data.curves)],
        class_bars=inline_svg(class_bars(data.classes, flagged)),
        confusion_matrix=inline_svg(confusion_matrix(data.confusions)),
    )
    # Without what UTF-8 cannot hold: lone surrogates, of file names.
    return text.encode("utf-8", "replace").decode("utf-8")


def is_page(path: str | os.PathLike[str]) -> bool:
    """Return whether this file was made by `render_page`."""
    with contextlib.suppress(DataError), open_regular(path, "a page") as file:
        return f'"{KEY}'.encode() in file.read()
    return False


def _read_asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _as_script(payload: Mapping[str, Any]) -> str:
    """JSON that cannot end its <script> block early, all ASCII."""
    text = json.dumps(payload, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
