"""Figures as PNG files and as SVG of the page: their looks, and whose settings matter."""

import re
import struct

import matplotlib
import numpy as np
import pytest

from bspml.errors import RunError
from bspml.files.run import EpochRecord, WeightsTable
from bspml.report.figures import (
    class_bars,
    curves,
    epoch_curves,
    p_value_histogram,
    weight_histogram,
)
from bspml.report.models import ClassRow, Histogram
from bspml.report.saving import inline_svg, plain_text, save_figure


def page_figures():
    row = ClassRow(label="cat", support=10, share_flagged=0.3, looks_like_two=False)
    return [
        p_value_histogram(Histogram(counts=[9, 3, 1, 1], null_level=1.0)),
        class_bars([row]),
        *epoch_curves([EpochRecord("bspml", e, maw=0.5, loss=1.0) for e in (1, 2)]),
    ]


def test_a_figure_is_written_as_png_and_a_missing_folder_is_refused(tmp_path):
    records = [EpochRecord("bspml", e, loss=1.0 / e) for e in (1, 2)]
    path = save_figure(curves(records), tmp_path / "curves.png", dpi=50)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24]) == (450, 300)
    with pytest.raises(RunError, match=r"there is no folder .*none to write in; make that first"):
        save_figure(curves([]), tmp_path / "none" / "a.png", dpi=50)


def test_figures_follow_the_pages_colours_and_share_no_ids():
    figures = [inline_svg(figure) for figure in page_figures()]
    assert len(figures) == 4
    ids = [i for figure in figures for i in re.findall(r' id="([^"]+)"', figure)]
    assert len(ids) == len(set(ids))
    for figure in figures:
        assert "currentColor" in figure
        assert not re.search(r"#0[0-9]0[0-9]0[0-9]", figure)
        assert "<style" not in figure
        assert 'role="img"' in figure


def test_a_figure_in_the_page_says_what_it_shows_and_is_the_same_each_time():
    first, again = ([inline_svg(figure) for figure in page_figures()] for _ in range(2))
    assert first == again
    assert 'aria-label="Histogram of p-values of 14 labels in 4 bins' in first[0]
    assert 'aria-label="Curve by epoch: Sample weights. bspml MAW ends at 0.5."' in first[2]
    assert inline_svg(None) == ""


def test_the_users_matplotlib_settings_neither_matter_nor_change(tmp_path):
    table = WeightsTable(np.array(["$a"]), np.array([1.0]), ((),))
    with matplotlib.rc_context({"text.usetex": True, "figure.facecolor": "black"}):
        figure = weight_histogram(table)
        save_figure(figure, tmp_path / "a.png", dpi=40)
        assert figure.get_facecolor() == (1, 1, 1, 1)
        assert matplotlib.rcParams["text.usetex"] is True


def test_plain_text_is_one_short_line_without_mathtext():
    assert plain_text("$x$") == r"\$x\$"
    assert plain_text("a\nb\x1b[0m") == "a·b·[0m"
    assert plain_text("x" * 100, 10) == "x" * 9 + "…"
    assert plain_text(7) == "7"
