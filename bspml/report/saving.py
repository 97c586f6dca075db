"""The two looks of figures, and how each is saved: a PNG file, or SVG inside the page.

Figures for the page follow the reader's light or dark colours: matplotlib draws in stand-in
colours, which become CSS variables of the page (`var(--c1)`) and `currentColor` afterwards.  Text
stays text, so that it can be searched, copied and enlarged.
"""

from __future__ import annotations

import io
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from bspml.files.atomic import atomic_write

_SVG, _HREF = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_INK, PAPER = "#010203", "#040506"
SERIES = ("#010101", "#020202", "#030303", "#040404")  # var(--c1) to var(--c4)
_STAND_INS = {_INK: "currentColor", PAPER: "var(--surface)"} | {
    colour: f"var(--c{i})" for i, colour in enumerate(SERIES, 1)
}
PNG_STYLE: dict[Any, Any] = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
PAGE_STYLE: dict[Any, Any] = PNG_STYLE | {
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.15,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",
} | {
    f"{name}color": _INK
    for name in ("axes.edge", "axes.label", "axes.title", "xtick.", "ytick.", "text.", "grid.")
}  # fmt: skip


@contextmanager
def own_style(style: dict[Any, Any]) -> Iterator[None]:
    """Set matplotlib's defaults and `style` inside a block, whatever the user's matplotlibrc says.

    Figures must be drawn and saved under the same style: parts of them are made when they are
    saved.
    """
    with matplotlib.rc_context(), warnings.catch_warnings():
        # A script that the font lacks is drawn as boxes, or in the reader's own font on the page.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(style)
        yield


def plain_text(text: object, limit: int = 24) -> str:
    r"""Return `text` as matplotlib may draw it: one line, no mathtext.

    Labels come from files and folders.  A pair of $ would be parsed as a formula, and a lone
    surrogate (a file name that is not UTF-8) cannot be drawn at all.

    Args:
        text: anything that has a text.
        limit: characters at most.

    Example:
        >>> print(plain_text("$5\nper item", 9))
        \$5·per i…
    """
    drawable = str(text).encode("utf-8", "replace").decode("utf-8")
    line = "".join(c if c.isprintable() else "·" for c in drawable)
    if len(line) > limit:
        line = line[: limit - 1] + "…"
    return line.replace("$", r"\$")


@own_style(PNG_STYLE)
def save_figure(figure: Figure, path: str | os.PathLike[str], dpi: int = 120) -> Path:
    """Write `figure` as PNG, atomically.

    Args:
        figure: drawn for a file: `curves`, `weight_histogram` or `contact_sheet`.
        path: of the file.
        dpi: pixels per inch.

    Raises:
        RunError: the file cannot be written.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return atomic_write(path, buffer.getvalue())


def inline_svg(figure: Figure | None) -> str:
    """Return `figure` as an <svg> element for the middle of a page; '' for no figure.

    Args:
        figure: drawn for the page: `p_value_histogram`, `class_bars` or one of `epoch_curves`.  Its
            label becomes the element's description, for those who cannot see it.
    """
    if figure is None:
        return ""
    description = str(figure.get_label())
    buffer = io.StringIO()
    figure.patch.set_alpha(0)
    # The salt keeps the ids of two figures on a page apart, and the same from time to time.
    with own_style({**PAGE_STYLE, "svg.hashsalt": description}):
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    # Our own text, a moment old: the parser meets nothing that a stranger wrote as XML.
    root = ElementTree.fromstring(buffer.getvalue())
    for element in list(root):
        if element.tag == f"{_SVG}metadata" or element.find(f"{_SVG}style") is not None:
            root.remove(element)  # the style would apply to the whole page
    links = {e.get(_HREF, "")[1:] for e in root.iter()}
    links |= {e.get("clip-path", "")[5:-1] for e in root.iter()}
    for element in root.iter():
        _adapt(element, links)
    box = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib |= {"role": "img", "aria-label": description, "viewBox": box}
    root.attrib |= {"stroke-linejoin": "round"}
    ElementTree.register_namespace("", _SVG[1:-1])
    return ElementTree.tostring(root, encoding="unicode")


def _adapt(element: ElementTree.Element, links: set[str]) -> None:
    """Plain href, no unused id (they repeat from figure to figure), the page's colours and font."""
    if element.get("id") not in links:
        element.attrib.pop("id", None)
    if _HREF in element.attrib:
        element.set("href", element.attrib.pop(_HREF))
    style = element.get("style")
    if style:
        style = re.sub(r"font-family: [^;]*;? ?", "", style)
        style = re.sub(r"font: ([\d.]+px) [^;]*", r"font-size: \1", style)  # matplotlib < 3.10
        for colour, variable in _STAND_INS.items():
            style = style.replace(colour, variable)
        element.set("style", style)
