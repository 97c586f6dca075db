"""The page's figures as inline SVG that follows the reader's light or dark colours.

matplotlib draws in stand-in colours, which become CSS variables of the page (`var(--c1)`) and
`currentColor` afterwards.  Text stays text, so that it can be searched, copied and enlarged.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from bspml.files.run import EpochRecord
from bspml.report.figures import noise_interval, plain_text

_SVG, _HREF = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_INK, _PAPER = "#010203", "#040506"
_SERIES = ("#010101", "#020202", "#030303", "#040404")  # var(--c1) to var(--c4)
_STAND_INS = {_INK: "currentColor", _PAPER: "var(--surface)"} | {
    colour: f"var(--c{i})" for i, colour in enumerate(_SERIES, 1)
}
_DASHES = ("-", "--", "-.", ":")
_TALLEST = 8  # null levels that fit on the histogram's axis; right labels would hide the rest
BARS = 12  # classes in the bar chart; more are in the table
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
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
}

Value = Callable[[EpochRecord], float | int | None]


@contextmanager
def _own_style(salt: str) -> Iterator[None]:
    """matplotlib's defaults and ours; `salt` keeps the ids of two figures on a page apart."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({**_STYLE, "svg.hashsalt": salt})
        yield


def histogram_svg(counts: Sequence[int], null_level: float) -> str:
    """Histogram of the label p-values over [0, 1], the fitted share of wrong labels shaded.

    Bars far above the fitted part are cut and carry their number.

    Args:
        counts: labels per bin, bins of equal width.
        null_level: labels per bin that are wrong at random; their p-values are uniform.
    """
    with _own_style("histogram"):
        figure = Figure(figsize=(5.6, 2.9), layout="constrained")
        axes = figure.subplots()
        left = np.arange(len(counts)) / len(counts)
        width = 1 / len(counts)
        axes.bar(left, counts, width * 0.92, align="edge", color=_SERIES[0], label="labels")
        axes.axhspan(0, null_level, color=_SERIES[1], alpha=0.3, linewidth=0)
        axes.axhline(null_level, color=_SERIES[1], linewidth=1.6, label="wrong at random (fitted)")
        top = _TALLEST * null_level
        if 0 < top < max(counts):
            axes.set_ylim(0, top)
            look: dict[str, Any] = {
                "color": _PAPER,
                "rotation": 90,
                "ha": "center",
                "va": "top",
                "fontsize": 7,
            }
            for place, count in zip(left, counts, strict=True):
                if count > top:  # cut, so its number stands in it
                    axes.text(place + width / 2, 0.98 * top, f"{count:,} →", **look)
        axes.set_xlim(0, 1)
        axes.set_xlabel("p-value: 0 fits far better than a random label, 1 no better")
        axes.set_ylabel("labels")
        axes.legend(loc="upper right", reverse=True)
        return _inline(
            figure,
            f"Histogram of p-values of {sum(counts)} labels in {len(counts)} bins; about "
            f"{null_level:.1f} labels in each bin are wrong at random.",
        )


def curves_svg(records: Sequence[EpochRecord]) -> list[str]:
    """MAW and SDAW, noise rate, Recall@1 and loss by epoch, one figure each.

    What was not measured at two epochs at least is left out.

    Args:
        records: of one or more methods, in order of time.
    """
    panels: list[tuple[str, list[tuple[str, Value]]]] = [
        ("Sample weights", [("MAW", lambda r: r.maw), ("SDAW", lambda r: r.sdaw)]),
        ("Estimated noise rate", [("", lambda r: r.noise_rate)]),
        ("Recall@1 on the test classes", [("", lambda r: r.recall_at_k.get(1))]),
        ("Training loss", [("", lambda r: r.loss)]),
    ]
    figures = []
    for title, lines in panels:
        if all(len(_points(records, value)) < 2 for _, value in lines):
            continue
        with _own_style(title):
            figure = Figure(figsize=(4.2, 2.6), layout="constrained")
            _panel(figure.subplots(), records, title, lines)
            figures.append(_inline(figure, f"Curve by epoch: {title}. {_ends(records, lines)}"))
    return figures


def _ends(records: Sequence[EpochRecord], lines: Sequence[tuple[str, Value]]) -> str:
    """The last value of each curve, for those who cannot see it."""
    parts = []
    for method in dict.fromkeys(record.method for record in records):
        own = [record for record in records if record.method == method]
        for name, value in lines:
            points = _points(own, value)
            if points:
                parts.append(
                    f"{plain_text(method)} {name}".strip() + f" ends at {points[-1][1]:.3g}"
                )
    return "; ".join(parts) + "."


def _panel(
    axes: Axes, records: Sequence[EpochRecord], title: str, lines: Sequence[tuple[str, Value]]
) -> None:
    methods = list(dict.fromkeys(record.method for record in records))
    for i, method in enumerate(methods):
        own = [record for record in records if record.method == method]
        for j, (name, value) in enumerate(lines):
            points = _points(own, value)
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    color=_SERIES[i % len(_SERIES)],
                    linestyle=_DASHES[(i + 2 * j) % len(_DASHES)],
                    marker="o" if j == 0 else "s",
                    markersize=2.5,
                    label=f"{plain_text(method)} {name}".strip(),
                )
    if title.startswith("Estimated"):
        noise_interval(axes, records, _SERIES[1], "95 % interval")
    axes.set_title(title)
    axes.set_xlabel("epochs")
    axes.set_ylim(bottom=0)
    if len(axes.lines) > 1:
        axes.legend()


def _points(records: Sequence[EpochRecord], value: Value) -> list[tuple[float, float]]:
    points = [(record.epoch, value(record)) for record in records]
    return [(x, y) for x, y in points if y is not None and math.isfinite(y)]


def class_bars_svg(classes: Sequence[Mapping[str, Any]]) -> str:
    """The classes with the largest share of suspicious labels, largest on top; '' for none.

    Args:
        classes: `PageData.classes`.
    """
    flagged = [c for c in classes if c.get("share_flagged")]
    flagged.sort(key=lambda c: -c["share_flagged"])
    flagged = flagged[:BARS]
    if not flagged:
        return ""
    with _own_style("classes"):
        figure = Figure(figsize=(5.6, 0.75 + 0.19 * len(flagged)), layout="constrained")
        axes = figure.subplots()
        places = np.arange(len(flagged))
        axes.barh(places, [c["share_flagged"] for c in flagged], color=_SERIES[1], height=0.7)
        axes.set_yticks(places, [plain_text(c["label"], 28) for c in flagged], fontsize=7.5)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.invert_yaxis()  # the largest on top
        axes.set_ylim(len(flagged) - 0.4, -0.6)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the class's labels that are suspicious")
        worst = f"{plain_text(flagged[0]['label'])} {flagged[0]['share_flagged']:.0%}"
        return _inline(figure, f"Share of suspicious labels in {len(flagged)} classes; {worst}.")


def _inline(figure: Figure, description: str) -> str:
    """`figure` as an <svg> element for the middle of a page."""
    buffer = io.StringIO()
    figure.patch.set_alpha(0)
    with warnings.catch_warnings():
        # The reader's browser has the fonts of scripts that are missing here.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
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
