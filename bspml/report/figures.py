"""Figures of a run or an audit, from its records, its table of weights or a page's data alone.

Plain `Figure` objects, no pyplot: nothing global is opened, changed or left behind, and the user's
own matplotlib settings (LaTeX text, dark styles) neither break these figures nor change.  Those in
`PNG_STYLE` are for `save_figure`, those in `PAGE_STYLE` for `inline_svg`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from bspml.errors import InputError
from bspml.files.run import UNTRAINED, EpochRecord, WeightsTable
from bspml.report.models import ClassRow, Histogram
from bspml.report.saving import PAGE_STYLE, PAPER, PNG_STYLE, SERIES, own_style, plain_text

# Okabe and Ito's palette: told apart by colour-blind readers; line styles differ as well.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "x")
_CLEAN, _NOISY = "#0072B2", "#D55E00"
_DASHES = ("-", "--", "-.", ":")
_PITCH = 1.45  # height of a row of the contact sheet: an image of 0.9 and three lines of text
_NAMED_CLASSES = 40  # more classes than this are drawn as a curve without names
_TALLEST = 8  # null levels that fit on the histogram's axis; right labels would hide the rest
BARS = 12  # classes in the bar chart of the page; more are in the table

Value = Callable[[EpochRecord], float | int | None]


@dataclass(frozen=True)
class _Panel:
    """What is drawn by epoch: its title on the page and in the PNG, unit, (name, value) lines."""

    page_title: str
    title: str
    unit: str
    lines: tuple[tuple[str, Value], ...]


_RECALL = _Panel(
    "Recall@1 on the test classes",
    "Recall@1 on the test classes",
    "fraction",
    (("", lambda r: r.recall_at_k.get(1)),),
)
_LOSS = _Panel("Training loss", "training loss", "mean of the round", (("", lambda r: r.loss),))
_WEIGHTS = _Panel(
    "Sample weights",
    "sample weights over classes",
    "MAW, SDAW",
    (("MAW", lambda r: r.maw), ("SDAW", lambda r: r.sdaw)),
)
_NOISE = _Panel(
    "Estimated noise rate", "noise rate", "fraction", (("estimate", lambda r: r.noise_rate),)
)


@own_style(PNG_STYLE)
def curves(records: Sequence[EpochRecord], true_noise_rate: float | None = None) -> Figure:
    """Draw Recall@1, loss, MAW and SDAW, and the noise rate by epoch; the methods overlaid.

    Args:
        records: of one or more methods, in order of time.
        true_noise_rate: a dotted line in the last panel, where the truth is known.

    Example:
        >>> figure = curves([EpochRecord("bspml", e, loss=1 / e) for e in (1, 2)])
        >>> [axes.get_title() for axes in figure.axes][:2]
        ['Recall@1 on the test classes', 'training loss']
    """
    figure = Figure(figsize=(9, 6), layout="constrained")
    panels = (_RECALL, _LOSS, _WEIGHTS, _NOISE)
    for axes, panel in zip(figure.subplots(2, 2, sharex=True).ravel(), panels, strict=True):
        for i, j, method, name, points in _lines(records, panel):
            axes.plot(
                *zip(*points, strict=True),
                color=_COLOURS[i % len(_COLOURS)],
                marker=_MARKERS[i % len(_MARKERS)],
                markersize=3,
                linestyle=":" if j else "-",
                label=f"{method}: {name}" if name else method,
            )
        if panel is _NOISE:
            _noise_intervals(axes, records, _COLOURS)
            if true_noise_rate is not None:
                axes.axhline(true_noise_rate, color="black", linestyle=":", label="true rate")
        axes.set_title(panel.title)
        axes.set_ylabel(panel.unit)
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize=7, frameon=False)
        else:
            axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes)
        if panel in (_WEIGHTS, _NOISE):
            axes.set_xlabel("epochs")
            axes.set_ylim(bottom=0)
    return figure


@own_style(PAGE_STYLE)
def epoch_curves(records: Sequence[EpochRecord]) -> list[Figure]:
    """Draw MAW and SDAW, noise rate, Recall@1 and loss by epoch for the page, one figure each.

    What was not measured at two epochs at least is left out.

    Args:
        records: of one or more methods, in order of time.
    """
    figures = []
    for panel in (_WEIGHTS, _NOISE, _RECALL, _LOSS):
        if all(len(_points(records, value)) < 2 for _, value in panel.lines):
            continue
        figure = Figure(figsize=(4.2, 2.6), layout="constrained")
        axes, ends = figure.subplots(), []
        for i, j, method, name, points in _lines(records, panel):
            label = f"{method} {name}" if len(panel.lines) > 1 else method
            axes.plot(
                *zip(*points, strict=True),
                color=SERIES[i % len(SERIES)],
                linestyle=_DASHES[(i + 2 * j) % len(_DASHES)],
                marker="s" if j else "o",
                markersize=2.5,
                label=label,
            )
            ends.append(f"{label} ends at {points[-1][1]:.3g}")
        if panel is _NOISE:
            _noise_intervals(axes, records, SERIES, "95 % interval")
        axes.set_title(panel.page_title)
        axes.set_xlabel("epochs")
        axes.set_ylim(bottom=0)
        if len(axes.lines) > 1:
            axes.legend()
        figure.set_label(f"Curve by epoch: {panel.page_title}. {'; '.join(ends)}.")
        figures.append(figure)
    return figures


def _lines(
    records: Sequence[EpochRecord], panel: _Panel
) -> Iterator[tuple[int, int, str, str, list[tuple[float, float]]]]:
    """(number of the method, number of the line, method, name, points) of each measured curve."""
    for i, (method, own) in enumerate(_by_method(records)):
        for j, (name, value) in enumerate(panel.lines):
            points = _points(own, value)
            if points:
                yield i, j, plain_text(method), name, points


def _by_method(records: Sequence[EpochRecord]) -> list[tuple[str, list[EpochRecord]]]:
    # The untrained features last, so that they take no method's colour.
    names = dict.fromkeys(record.method for record in records)
    methods = sorted(names, key=lambda name: name == UNTRAINED)
    return [(method, [r for r in records if r.method == method]) for method in methods]


def _points(records: Sequence[EpochRecord], value: Value) -> list[tuple[float, float]]:
    """(epoch, value); epochs where nothing was measured are passed over."""
    points = [(record.epoch, value(record)) for record in records]
    return [(x, y) for x, y in points if y is not None and math.isfinite(y)]


def _noise_intervals(
    axes: Axes, records: Sequence[EpochRecord], colours: Sequence[str], label: str | None = None
) -> None:
    """The 95 % interval of each method's estimated noise rate as a band, where there is one."""
    for i, (_, own) in enumerate(_by_method(records)):
        band = [
            (record.epoch, record.noise_rate_low, record.noise_rate_high)
            for record in own
            if record.noise_rate_low is not None and record.noise_rate_high is not None
        ]
        if band:
            epochs, low, high = (list(column) for column in zip(*band, strict=True))
            look: dict[str, Any] = {"color": colours[i % len(colours)], "label": label}
            axes.fill_between(epochs, low, high, alpha=0.2, linewidth=0, **look)
            label = None  # one line of the legend for all


@own_style(PNG_STYLE)
def weight_histogram(table: WeightsTable) -> Figure:
    """Draw the mean weight of each class, lowest first, and the histogram of all weights.

    Where the truth is known, the histogram tells clean from noisy samples.

    Args:
        table: the weights.
    """
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    by_class, overall = figure.subplots(1, 2)
    _class_means(by_class, table)
    edges = np.linspace(0, 1, 21)
    if table.is_noisy is None:
        overall.hist(table.trust, bins=edges, color=_CLEAN)
    else:
        noisy = table.is_noisy
        overall.hist(
            [table.trust[~noisy], table.trust[noisy]],
            bins=edges,
            stacked=True,
            color=[_CLEAN, _NOISY],
            label=[f"label right ({(~noisy).sum()})", f"label wrong ({noisy.sum()})"],
        )
        overall.legend(frameon=False)
    overall.set_title(f"weights of {len(table)} samples")
    overall.set_xlabel("weight")
    overall.set_ylabel("samples")
    return figure


def _class_means(axes: Axes, table: WeightsTable) -> None:
    classes, codes = np.unique(table.labels, return_inverse=True)
    counts = np.bincount(codes, minlength=len(classes))
    means = np.bincount(codes, weights=table.trust, minlength=len(classes)) / counts
    order = np.argsort(means, kind="stable")
    axes.set_title(f"mean weight of each of {len(classes)} classes")
    if len(classes) <= _NAMED_CLASSES:
        names = [plain_text(c) for c in classes[order]]
        _bars(axes, names, means[order], 6, color=_CLEAN)
        axes.set_xlabel("mean weight")
    else:
        axes.plot(means[order], color=_CLEAN, drawstyle="steps-mid")
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("classes, lowest first")
        axes.set_ylabel("mean weight")


def _bars(axes: Axes, names: list[str], values: Any, fontsize: float, **look: Any) -> None:
    """Horizontal bars of values in [0, 1], the first on top."""
    places = np.arange(len(names))
    axes.barh(places, values, **look)
    axes.set_yticks(places, names, fontsize=fontsize)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)


@own_style(PAGE_STYLE)
def p_value_histogram(histogram: Histogram) -> Figure:
    """Draw the label p-values over [0, 1] for the page, the fitted share of wrong labels shaded.

    Bars far above the fitted part are cut and carry their number.
    """
    counts, level = histogram.counts, histogram.null_level
    figure = Figure(figsize=(5.6, 2.9), layout="constrained")
    axes = figure.subplots()
    width = 1 / len(counts)
    left = np.arange(len(counts)) / len(counts)
    axes.bar(left, counts, width * 0.92, align="edge", color=SERIES[0], label="labels")
    axes.axhspan(0, level, color=SERIES[1], alpha=0.3, linewidth=0)
    axes.axhline(level, color=SERIES[1], linewidth=1.6, label="wrong at random (fitted)")
    top = _TALLEST * level
    if 0 < top < max(counts):
        axes.set_ylim(0, top)
        look: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "top", "fontsize": 7}
        for place, count in zip(left, counts, strict=True):
            if count > top:  # cut, so its number stands in it
                axes.text(place + width / 2, 0.98 * top, f"{count:,} →", color=PAPER, **look)
    axes.set_xlim(0, 1)
    axes.set_xlabel("0: fits far better than a label drawn at random; 1: no better (p-value)")
    axes.set_ylabel("labels")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(loc="upper right", reverse=True)
    figure.set_label(
        f"Histogram of p-values of {sum(counts)} labels in {len(counts)} bins; about "
        f"{level:.1f} labels in each bin are wrong at random."
    )
    return figure


@own_style(PAGE_STYLE)
def class_bars(classes: Sequence[ClassRow], word: str = "flagged") -> Figure | None:
    """Draw the classes with the largest share of flagged labels for the page, largest on top.

    Args:
        classes: all of them.
        word: what the page calls such a label.

    Returns:
        The figure; None if no class has flagged labels.
    """
    flagged = [c for c in classes if c.share_flagged]
    flagged = sorted(flagged, key=lambda c: -(c.share_flagged or 0))[:BARS]
    if not flagged:
        return None
    figure = Figure(figsize=(5.6, 0.75 + 0.19 * len(flagged)), layout="constrained")
    axes = figure.subplots()
    names = [plain_text(c.label, 28) for c in flagged]
    _bars(axes, names, [c.share_flagged for c in flagged], 7.5, color=SERIES[1], height=0.7)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(len(flagged) - 0.4, -0.6)
    axes.set_xlim(0, min(1.0, 1.1 * (flagged[0].share_flagged or 0)))
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    axes.set_xlabel(f"share of the class's labels that are {word}")
    worst = f"{plain_text(flagged[0].label)} {flagged[0].share_flagged:.0%}"
    figure.set_label(f"Share of {word} labels in {len(flagged)} classes; {worst}.")
    return figure


def captions(table: WeightsTable, rows: np.ndarray) -> list[str]:
    """Return a text for each row: index, weight, label, and the true label if it differs.

    Args:
        table: the weights.
        rows: of the samples to describe.
    """
    lines = []
    for row in rows:
        label = plain_text(table.labels[row], 14)
        if table.is_noisy is not None and table.true_labels is not None and table.is_noisy[row]:
            label += f"\n(is {plain_text(table.true_labels[row], 14)})"
        lines.append(f"#{row}  w {table.trust[row]:.2f}\n{label}")
    return lines


@own_style(PNG_STYLE)
def contact_sheet(
    images: np.ndarray, captions: Sequence[str], title: str = "", columns: int = 8
) -> Figure:
    """Draw images in a grid, each above its caption.

    Args:
        images: (n, H, W) grey or (n, H, W, 3) colour; uint8, or floats in [0, 1].  Floats
            outside (normalised images) are stretched to [0, 1], image by image.
        captions: n texts that matplotlib can draw (see `plain_text`, `captions`).
        title: above the grid.
        columns: images in a row.

    Raises:
        InputError: another shape, or another number of captions.
    """
    images = np.asarray(images)
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] not in (1, 3)):
        raise InputError(
            f"`images` must be (n, H, W) or (n, H, W, 3); got {images.shape}. "
            "Move the channels last."
        )
    if len(captions) != len(images):
        raise InputError(f"`captions` must be one per image, {len(images)}; got {len(captions)}.")
    rows = max(1, math.ceil(len(images) / columns))
    figure = Figure(figsize=(1.3 * columns, 1.3 * _PITCH * rows + 0.4), layout="constrained")
    axes = figure.subplots()
    # One Axes for all: a grid of them takes seconds to lay out.
    for i, (image, caption) in enumerate(zip(images, captions, strict=True)):
        row, column = divmod(i, columns)
        axes.imshow(
            displayable(image),
            cmap="gray",
            vmin=0,
            vmax=1,
            extent=(column, column + 0.9, _PITCH * row + 0.9, _PITCH * row),
        )
        axes.text(column + 0.45, _PITCH * row + 0.95, caption, ha="center", va="top", fontsize=6)
    axes.set_xlim(0, columns)
    axes.set_ylim(_PITCH * rows, 0)
    axes.set_axis_off()
    axes.set_title(plain_text(title if len(images) else f"{title} (no samples)", 120))
    return figure


def displayable(image: np.ndarray) -> np.ndarray:
    """Return `image` as floats in [0, 1], grey without a channel axis."""
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    if image.dtype == np.uint8:
        return image / 255.0
    image = np.nan_to_num(image.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = image.min(initial=0.0), image.max(initial=1.0)
    return (image - low) / (high - low)
