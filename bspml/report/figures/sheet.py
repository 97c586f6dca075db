"""The samples of lowest weight and their pictures in a grid, each above its caption."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from bspml.errors import InputError
from bspml.files.run import WeightsTable
from bspml.report.figures.saving import PNG_STYLE, own_style, plain_text

__all__ = ["captions", "contact_sheet", "displayable", "lowest_weights"]

_PITCH = 1.45  # height of a row of the contact sheet: an image of 0.9 and three lines of text


def lowest_weights(
    table: WeightsTable, count: int = 48, scores: np.ndarray | None = None
) -> np.ndarray:
    """Return the rows of the `count` smallest weights, smallest first.

    Args:
        table: the weights.
        count: how many rows at most.
        scores: (N,) large where a label is suspicious; orders equal weights (many are exactly
            0).  NaN counts as not suspicious.  Without scores the data set's order decides.
    """
    suspicion = np.zeros(len(table)) if scores is None else np.nan_to_num(scores, nan=-np.inf)
    return np.lexsort((np.arange(len(table)), -suspicion, table.weights))[:count]


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
        lines.append(f"#{row}  w {table.weights[row]:.2f}\n{label}")
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
