import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from bspml.errors import InputError
from bspml.files.run import EpochRecord, WeightsTable
from bspml.report import figures
from bspml.report.figures import (
    captions,
    contact_sheet,
    curves,
    epoch_curves,
    weight_histogram,
)
from bspml.report.models import ClassRow, Histogram
from bspml.report.samples import lowest_weights
from bspml.report.saving import inline_svg, save_figure

HOSTILE = [
    "$",
    "$x$",
    r"$\frac{1$",
    r"\$5$",
    "a" * 500,
    "line\nbreak\ttab\0nul",
    "\udce9.png",
    "日本語",
    "مرحبا",
    "<script>&amp;",
    "%s{}\\",
    "",
    "_hidden",
]


def table(labels, weights, **known):
    return WeightsTable(np.array(labels), np.array(weights), ((),) * len(weights), **known)


def records():
    return [
        EpochRecord(method, epoch, loss=1.0 / epoch, recall_at_k={1: 0.1 * epoch}, maw=0.7)
        for method in ("plain", "bspml")
        for epoch in (1, 2, 3)
    ]


def lines(axes):
    return {line.get_label(): line.get_xydata().tolist() for line in axes.lines}


def test_the_curves_show_what_the_records_hold():
    recall, loss, weights, noise = curves(records(), true_noise_rate=0.3).axes
    assert lines(recall) == {
        name: [[1, 0.1], [2, 0.2], [3, pytest.approx(0.3)]] for name in ("plain", "bspml")
    }
    assert lines(loss)["bspml"][1] == [2, 0.5]
    assert list(lines(weights)) == ["plain: MAW", "bspml: MAW"]
    assert list(lines(noise)) == ["true rate"]


def test_epochs_without_a_value_are_passed_over_and_an_empty_panel_says_so():
    given = [EpochRecord("a", 1, loss=1.0), EpochRecord("a", 2), EpochRecord("a", 3, loss=0.5)]
    recall, loss, *_ = curves(given).axes
    assert lines(loss) == {"a": [[1, 1.0], [3, 0.5]]}
    assert recall.texts[0].get_text() == "not measured"


def test_the_interval_of_the_noise_rate_is_a_band():
    record = EpochRecord("a", 1, noise_rate=0.3, noise_rate_low=0.2, noise_rate_high=0.4)
    *_, noise = curves([record]).axes
    assert len(noise.collections) == 1


@pytest.mark.parametrize(("draw", "panel"), [(lambda r: [curves(r)], 3), (epoch_curves, 0)])
def test_each_method_has_a_band_of_its_own(draw, panel):
    ends = {"a": (0.2, 0.4), "b": (0.6, 0.9)}
    given = [
        EpochRecord(method, epoch, noise_rate=low, noise_rate_low=low, noise_rate_high=high)
        for method, (low, high) in ends.items()
        for epoch in (1, 2, 3)
    ]
    axes = draw(given)[0].axes[panel]
    bands = [band.get_paths()[0].vertices[:, 1] for band in axes.collections]
    assert [(band.min(), band.max()) for band in bands] == [*ends.values()]
    colours = [band.get_facecolor()[0, :3].tolist() for band in axes.collections]
    assert colours == [list(to_rgb(line.get_color())) for line in axes.lines[:2]]


def test_the_histogram_counts_every_sample_and_splits_where_the_truth_is_known():
    weights = [0.0, 0.0, 0.04, 0.5, 1.0, 1.0]
    noisy = np.array([True, True, False, False, False, False])
    by_class, overall = weight_histogram(table([0, 0, 1, 1, 2, 2], weights, is_noisy=noisy)).axes
    clean, wrong = ([bar.get_height() for bar in group] for group in overall.containers)
    assert (sum(clean), sum(wrong)) == (4, 2)
    assert (clean[0], wrong[0], clean[-1]) == (1, 2, 2)
    # Class means .0, .27, 1: lowest first.
    assert [bar.get_width() for bar in by_class.containers[0]] == pytest.approx([0, 0.27, 1])


def test_many_classes_are_a_curve_from_the_lowest_mean_up():
    weights = np.linspace(1, 0, 100)
    by_class, _ = weight_histogram(table(np.arange(100), weights)).axes
    assert by_class.lines[0].get_ydata() == pytest.approx(np.sort(weights))


def test_the_lowest_weights_come_first_and_scores_settle_ties():
    given = table([0] * 5, [0.5, 0.0, 1.0, 0.0, 0.0])
    assert lowest_weights(given, 4).tolist() == [1, 3, 4, 0]
    scores = np.array([0.9, 0.1, 0.2, np.nan, 0.8])
    assert lowest_weights(given, 9, scores).tolist() == [4, 1, 3, 0, 2]


def test_captions_name_the_true_label_of_a_wrong_one():
    given = table(
        ["a", "b"], [0.25, 1], is_noisy=np.array([True, False]), true_labels=np.array(["c", "b"])
    )
    assert captions(given, np.array([0, 1])) == ["#0  w 0.25\na\n(is c)", "#1  w 1.00\nb"]


@pytest.mark.parametrize("shape", [(5, 6, 4), (5, 6, 4, 3), (5, 6, 4, 1), (0, 6, 4)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_the_contact_sheet_draws_grey_and_colour(shape, dtype):
    figure = contact_sheet(np.ones(shape, dtype), ["c"] * shape[0], "lowest", columns=4)
    (axes,) = figure.axes
    assert len(axes.images) == len(axes.texts) == shape[0]


def test_grey_levels_are_kept_and_normalised_floats_are_stretched():
    (axes,) = contact_sheet(
        np.array([[[0.0, 0.5]], [[-2.0, 2.0]], [[np.nan, 1.0]]]), ["", "", ""]
    ).axes
    shown = [image.get_array().tolist() for image in axes.images]
    assert shown == [[[0, 0.5]], [[0, 1]], [[0, 1]]]
    (axes,) = contact_sheet(np.array([[[51, 255]]], np.uint8), [""]).axes
    assert axes.images[0].get_array().tolist() == [[0.2, 1]]


def test_wrong_shapes_and_missing_captions_are_refused():
    with pytest.raises(InputError, match=r"`images` must be .* got \(2, 3, 8, 8\)"):
        contact_sheet(np.zeros((2, 3, 8, 8)), ["", ""])
    with pytest.raises(InputError, match="`captions` must be one per image, 2; got 1"):
        contact_sheet(np.zeros((2, 8, 8)), [""])


def test_hostile_labels_are_drawn_as_they_are(tmp_path):
    given = table(HOSTILE, np.zeros(len(HOSTILE)))
    rows = lowest_weights(given)
    save_figure(weight_histogram(given), tmp_path / "h.png", dpi=40)
    sheet = contact_sheet(np.zeros((len(rows), 4, 4)), captions(given, rows), "$\\frac{", 4)
    save_figure(sheet, tmp_path / "c.png", dpi=40)
    save_figure(
        curves([EpochRecord(label, 1, loss=1) for label in HOSTILE]), tmp_path / "k.png", 40
    )


# -- for the page --


def histogram_svg(counts, null_level):
    return inline_svg(figures.p_value_histogram(Histogram(counts=counts, null_level=null_level)))


def class_bars_svg(classes):
    return inline_svg(figures.class_bars([ClassRow(**c) for c in classes]))


def curves_svg(records):
    return [inline_svg(figure) for figure in figures.epoch_curves(records)]


def class_row(label="cat", **changes):
    entry = {
        "label": label, "support": 10, "mean_weight": 0.7, "share_flagged": 0.3,
        "looks_like_two": False, "looks_like": "",
    }  # fmt: skip
    return {**entry, **changes}


def test_the_fitted_part_of_the_histogram_is_at_its_level():
    # One bar of ten labels and a level of five: the line lies halfway up the bar.
    figure = histogram_svg([10, 0], 5.0)
    paths = re.findall(r'<path d="([^"]*)"[^>]*style="([^"]*)"', figure)
    heights = {}
    for shape, style in paths:
        ys = [float(y) for y in re.findall(r"[ML] [\d.]+ ([\d.]+)", shape)]
        if style.startswith("fill: var(--c1)"):
            heights.setdefault("bar", (min(ys), max(ys)))
        elif "stroke: var(--c2)" in style and "stroke-width: 1.6" in style:
            heights.setdefault("line", ys[0])
    top, bottom = heights["bar"]
    assert heights["line"] == pytest.approx((top + bottom) / 2, abs=0.01)
    assert "about 5.0 labels in each bin are wrong at random" in figure


def test_a_bar_far_above_the_fitted_part_is_cut_and_says_its_number():
    assert ">1,000 →</text>" in histogram_svg([1000, 5], 5.0)
    assert "→" not in histogram_svg([40, 5], 5.0)
    assert "→" not in histogram_svg([1000, 5], 0.0)


def test_the_bars_are_the_most_suspicious_classes_and_their_names_stay_text():
    classes = [class_row(f"class {i}", share_flagged=i / 100) for i in range(60)]
    figure = class_bars_svg([*classes, class_row("<b>#010203 $x$", share_flagged=0.9)])
    names = re.findall(r"<text[^>]*>(class \d+|&lt;b&gt;[^<]*)</text>", figure)
    assert names == ["&lt;b&gt;#010203 $x$", *(f"class {i}" for i in range(59, 48, -1))]
    assert class_bars_svg([class_row(share_flagged=0.0)]) == ""


def test_what_was_measured_once_or_never_has_no_curve():
    assert curves_svg([]) == []
    assert curves_svg([EpochRecord("bspml", 1, maw=0.5)]) == []
    only = curves_svg([EpochRecord("bspml", e, noise_rate=0.25, maw=None) for e in (1, 2)])
    assert len(only) == 1
    assert "bspml ends at 0.25" in only[0]
