"""Figures of a run or an audit, drawn once; saved as PNG or put into the page as inline SVG.

Plain `Figure` objects, no pyplot: nothing global is opened, changed or left behind, and the user's
own matplotlib settings (LaTeX text, dark styles) neither break these figures nor change.
"""

from bspml.report.figures.drawing import (
    BARS,
    class_bars,
    curves,
    epoch_curves,
    p_value_histogram,
    weight_histogram,
)
from bspml.report.figures.saving import inline_svg, plain_text, save_figure
from bspml.report.figures.sheet import captions, contact_sheet, displayable, lowest_weights

__all__ = [
    "BARS",
    "captions",
    "class_bars",
    "contact_sheet",
    "curves",
    "displayable",
    "epoch_curves",
    "inline_svg",
    "lowest_weights",
    "p_value_histogram",
    "plain_text",
    "save_figure",
    "weight_histogram",
]
