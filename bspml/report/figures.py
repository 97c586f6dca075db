"""Figures of a run, from its records and its table of weights alone.

Plain `Figure` objects, no pyplot: nothing global is opened, changed or left behind, and the user's
own matplotlib settings (LaTeX text, dark styles) neither break these figures nor change.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bspml.errors import InputError
from bspml.files.atomic import atomic_write
from bspml.files.run import EpochRecord, WeightsTable

# Okabe and Ito's palette: told apart by colour-blind readers; line styles differ as well.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "x")
_CLEAN, _NOISY = "#0072B2", "#D55E00"
_STYLE: dict[Any, Any] = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
_PITCH = 1.45  # height of a row of the contact sheet: an image of 0.9 and three lines of text
_NAMED_CLASSES = 40  # more classes than this are drawn as a curve without names


@contextmanager
def _own_style() -> Iterator[None]:
    """matplotlib's defaults and ours, whatever the user's matplotlibrc says."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def plain_text(text: object, limit: int = 24) -> str:
    """`text` as matplotlib may draw it: one line, at most `limit` characters, no mathtext.

    Labels come from files and folders.  A pair of $ would be parsed as a formula, and a lone
    surrogate (a file name that is not UTF-8) cannot be drawn at all.
    """
    drawable = str(text).encode("utf-8", "replace").decode("utf-8")
    line = "".join(c if c.isprintable() else "·" for c in drawable)
    if len(line) > limit:
        line = line[: limit - 1] + "…"
    return line.replace("$", r"\$")


@_own_style()
def save_figure(figure: Figure, path: str | os.PathLike[str], dpi: int = 120) -> Path:
    """Write `figure` as PNG, atomically.

    Raises:
        RunError: the file cannot be written.
    """
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A label in a script that the font lacks is drawn as boxes; not worth a warning each.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="png", dpi=dpi)
    return atomic_write(path, buffer.getvalue())


@_own_style()
def curves(records: Sequence[EpochRecord], true_noise_rate: float | None = None) -> Figure:
    """Recall@1, loss, MAW and SDAW, and the noise rate by epoch; the methods overlaid.

    Args:
        records: of one or more methods, in order of time.
        true_noise_rate: a dotted line in the last panel, where the truth is known.
    """
    figure = Figure(figsize=(9, 6), layout="constrained")
    recall, loss, weights, noise = figure.subplots(2, 2, sharex=True).ravel()
    methods = list(dict.fromkeys(record.method for record in records))
    for i, method in enumerate(methods):
        own = [record for record in records if record.method == method]
        colour = _COLOURS[i % len(_COLOURS)]
        look = {"color": colour, "marker": _MARKERS[i % len(_MARKERS)], "markersize": 3}
        name = plain_text(method)
        _line(recall, own, lambda r: r.recall_at_k.get(1), look, name)
        _line(loss, own, lambda r: r.loss, look, name)
        _line(weights, own, lambda r: r.maw, look, f"{name}: MAW")
        _line(weights, own, lambda r: r.sdaw, {**look, "linestyle": ":"}, f"{name}: SDAW")
        _line(noise, own, lambda r: r.noise_rate, look, f"{name}: estimate")
        noise_interval(noise, own, colour)
    if true_noise_rate is not None:
        noise.axhline(true_noise_rate, color="black", linestyle=":", label="true rate")
    _finish(recall, "Recall@1 on the test classes", "fraction")
    _finish(loss, "training loss", "mean of the round")
    _finish(weights, "sample weights over classes", "MAW, SDAW")
    _finish(noise, "noise rate", "fraction")
    for axes in (weights, noise):
        axes.set_xlabel("epochs")
        axes.set_ylim(bottom=0)
    return figure


def _line(
    axes: Axes,
    records: Sequence[EpochRecord],
    value: Callable[[EpochRecord], float | None],
    look: dict[str, Any],
    name: str,
) -> None:
    """One curve; epochs where nothing was measured are passed over, no epoch means no curve."""
    points = [(record.epoch, value(record)) for record in records]
    measured = [(x, y) for x, y in points if y is not None and math.isfinite(y)]
    if measured:
        axes.plot(*zip(*measured, strict=True), label=name, **look)


def noise_interval(
    axes: Axes, records: Sequence[EpochRecord], colour: str, label: str | None = None
) -> None:
    """The 95 % interval of the estimated noise rate as a band; nothing where there is none."""
    band = [
        (record.epoch, record.noise_rate_low, record.noise_rate_high)
        for record in records
        if record.noise_rate_low is not None and record.noise_rate_high is not None
    ]
    if band:
        epochs, low, high = (list(column) for column in zip(*band, strict=True))
        axes.fill_between(epochs, low, high, color=colour, alpha=0.2, linewidth=0, label=label)


def _finish(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(fontsize=7, frameon=False)
    else:
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes)


@_own_style()
def weight_histogram(table: WeightsTable) -> Figure:
    """Mean weight of each class, lowest first, and the histogram of all weights.

    Where the truth is known, the histogram tells clean from noisy samples.
    """
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    by_class, overall = figure.subplots(1, 2)
    _class_means(by_class, table)
    edges = np.linspace(0, 1, 21)
    if table.is_noisy is None:
        overall.hist(table.weights, bins=edges, color=_CLEAN)
    else:
        noisy = table.is_noisy
        overall.hist(
            [table.weights[~noisy], table.weights[noisy]],
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
    means = np.bincount(codes, weights=table.weights, minlength=len(classes)) / counts
    order = np.argsort(means, kind="stable")
    axes.set_title(f"mean weight of each of {len(classes)} classes")
    if len(classes) <= _NAMED_CLASSES:
        places = np.arange(len(classes))
        axes.barh(places, means[order], color=_CLEAN)
        axes.set_yticks(places, [plain_text(c) for c in classes[order]], fontsize=6)
        axes.invert_yaxis()  # the lowest on top
        axes.set_xlim(0, 1)
        axes.set_xlabel("mean weight")
    else:
        axes.plot(means[order], color=_CLEAN, drawstyle="steps-mid")
        axes.set_ylim(0, 1.02)
        axes.set_xlabel("classes, lowest first")
        axes.set_ylabel("mean weight")


def lowest_weights(
    table: WeightsTable, count: int = 48, scores: np.ndarray | None = None
) -> np.ndarray:
    """Rows of the `count` smallest weights, smallest first.

    Args:
        table: the weights.
        count: how many rows at most.
        scores: (N,) large where a label is suspicious; orders equal weights (many are exactly
            0).  NaN counts as not suspicious.  Without scores the data set's order decides.
    """
    suspicion = np.zeros(len(table)) if scores is None else np.nan_to_num(scores, nan=-np.inf)
    return np.lexsort((np.arange(len(table)), -suspicion, table.weights))[:count]


def captions(table: WeightsTable, rows: np.ndarray) -> list[str]:
    """A text for each row: its index and weight, its label, and the true one if it differs."""
    lines = []
    for row in rows:
        label = plain_text(table.labels[row], 14)
        if table.is_noisy is not None and table.true_labels is not None and table.is_noisy[row]:
            label += f"\n(is {plain_text(table.true_labels[row], 14)})"
        lines.append(f"#{row}  w {table.weights[row]:.2f}\n{label}")
    return lines


@_own_style()
def contact_sheet(
    images: np.ndarray, captions: Sequence[str], title: str = "", columns: int = 8
) -> Figure:
    """Images in a grid, each above its caption.

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
            _displayable(image),
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


def _displayable(image: np.ndarray) -> np.ndarray:
    """`image` as floats in [0, 1], grey without a channel axis."""
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[:, :, 0]
    if image.dtype == np.uint8:
        return image / 255.0
    image = np.nan_to_num(image.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = image.min(initial=0.0), image.max(initial=1.0)
    return (image - low) / (high - low)
