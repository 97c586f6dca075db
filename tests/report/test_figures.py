import struct

import matplotlib
import numpy as np
import pytest

from bspml.errors import InputError, RunError
from bspml.files.run import EpochRecord, WeightsTable
from bspml.report.figures import captions, contact_sheet, curves, weight_histogram
from bspml.report.samples import lowest_weights
from bspml.report.saving import plain_text, save_figure

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


def test_a_figure_is_written_as_png_and_a_missing_folder_is_refused(tmp_path):
    path = save_figure(curves(records()), tmp_path / "curves.png", dpi=50)
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24]) == (450, 300)
    with pytest.raises(RunError, match="cannot be written"):
        save_figure(curves([]), tmp_path / "none" / "a.png", dpi=50)


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


def test_plain_text_is_one_short_line_without_mathtext():
    assert plain_text("$x$") == r"\$x\$"
    assert plain_text("a\nb\x1b[0m") == "a·b·[0m"
    assert plain_text("x" * 100, 10) == "x" * 9 + "…"
    assert plain_text(7) == "7"


def test_the_users_matplotlib_settings_neither_matter_nor_change(tmp_path):
    with matplotlib.rc_context({"text.usetex": True, "figure.facecolor": "black"}):
        figure = weight_histogram(table(["$a"], [1.0]))
        save_figure(figure, tmp_path / "a.png", dpi=40)
        assert figure.get_facecolor() == (1, 1, 1, 1)
        assert matplotlib.rcParams["text.usetex"] is True
