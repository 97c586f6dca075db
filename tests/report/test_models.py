"""A page as models: what files hold of it, and what is said of a file that holds something else."""

import json

import numpy as np
import pytest

from bspml.errors import RunError
from bspml.files.run import EpochRecord, write_json
from bspml.report.models import Histogram, PageData, RunSuspects, check_record, load_page, save_page
from bspml.report.page import render_page

NEAR = {"index": 1, "name": "", "label": "b", "image": None, "text": None, "picture": ""}
SUSPECT = {
    "index": 0, "name": "", "label": "a", "image": None, "text": None, "picture": "0a",
    "suggested": "b", "margin": 0.1, "p": 0.5, "q": None, "weight": 0.0, "wrong_probability": 0.75,
    "suggestion_probability": 0.5, "fits_no_class": False, "own": [],
    "other": [NEAR],
}  # fmt: skip
CLASS = {
    "label": "a", "support": 2, "mean_weight": 0.5, "share_flagged": 0.5, "looks_like_two": False,
    "looks_like": "",
}  # fmt: skip
PAIR = {
    "a": 1, "b": 2, "label_a": "cat", "label_b": "dog", "similarity": 0.99, "image_a": "a.png",
    "image_b": None, "name_a": "a.png", "name_b": "", "text_a": None, "text_b": "words",
    "picture_a": "1b", "picture_b": "",
}  # fmt: skip
CONFUSION = {
    "label": "a", "suggested": "b", "count": 2, "share": 0.5, "low": 0.1, "high": 0.9,
}  # fmt: skip
MAP = {
    "method": "PCA", "total": 3, "index": [0, 2], "x": [0.5, -1.0], "y": [0.0, 2.0],
    "label": ["a", "b"], "suggested": ["b", ""], "name": ["a.png", ""],
}  # fmt: skip
PHOTO = NEAR | {"problems": ["dark"]}
PAGE = {
    "title": "</script>", "sentence": "\udce9", "warnings": ["w"], "facts": [["a", "b"]],
    "histogram": {"counts": [3, 1], "null_level": 1.0}, "curves": [], "classes": [CLASS],
    "suspects": [SUSPECT], "duplicates": [PAIR], "confusions": [CONFUSION], "map": MAP,
    "photo_checks": [PHOTO], "image_folder": "../photos", "integer_labels": True,
}  # fmt: skip


def test_a_saved_page_reads_back(tmp_path):
    curves = [EpochRecord("bspml", e, maw=0.5, recall_at_k={1: 0.25}) for e in (1, 2)]
    data = PageData(**PAGE | {"curves": curves})
    again = load_page(save_page(data, tmp_path / "page.json"))
    assert again == data
    assert render_page(again) == render_page(data)


def test_a_page_is_written_with_the_keys_and_values_it_was_read_with(tmp_path):
    path = write_json(tmp_path / "old.json", PAGE)
    save_page(load_page(path), tmp_path / "new.json")
    assert (tmp_path / "new.json").read_bytes() == path.read_bytes()


def test_keys_that_may_be_unknown_may_be_missing():
    card = {"index": 0, "label": "a", "own": [], "other": []}
    data = PageData(title="t", sentence="s", suspects=[card])
    assert data.suspects[0].margin is None
    assert render_page(data)


def test_a_page_of_an_earlier_version_is_read(tmp_path):
    near = {"index": 1, "label": "b", "image": None, "text": None}
    new = ("wrong_probability", "suggestion_probability", "fits_no_class", "name_a", "name_b")
    new += ("text_a", "text_b")
    card = {k: v for k, v in SUSPECT.items() if k not in new} | {"other": [near]}
    pair = {k: v for k, v in PAIR.items() if k not in new}
    parts = ("confusions", "map", "photo_checks", "image_folder")
    old = {k: v for k, v in PAGE.items() if k not in parts} | {
        "suspects": [card],
        "duplicates": [pair],
    }
    data = load_page(write_json(tmp_path / "page.json", old))
    assert (data.map, data.confusions, data.suspects[0].wrong_probability) == (None, (), None)
    assert (data.duplicates[0].name_a, data.suspects[0].other[0].name) == ("", "")
    assert render_page(data)


def test_the_pictures_are_those_of_all_samples_on_the_page():
    shown = SUSPECT | {"image": "0.png", "own": [NEAR | {"image": "1.png"}]}
    data = PageData(
        title="t",
        sentence="s",
        suspects=[shown],
        duplicates=[PAIR | {"a": 5}],
        photo_checks=[PHOTO | {"index": 8, "image": "8.png"}],
    )
    assert data.pictures() == {0: "0.png", 1: "1.png", 5: "a.png", 8: "8.png"}


def test_the_histogram_counts_judged_labels_and_its_level_is_the_wrong_ones_share():
    histogram = Histogram.of(np.array([0.01, np.nan, 0.9, 1.0]), 0.5)
    assert (len(histogram.counts), sum(histogram.counts)) == (40, 3)
    assert histogram.counts[0] == histogram.counts[-1] == 1
    assert histogram.null_level == pytest.approx(0.5 * 3 / 40)


@pytest.mark.parametrize("image", ["../../etc/passwd", "/etc/passwd", "a.png/../b", "c"])
def test_an_image_that_is_no_picture_is_refused(tmp_path, image):
    for change in (
        {"suspects": [SUSPECT | {"image": image}]},
        {"duplicates": [PAIR | {"image_b": image}]},
    ):
        path = write_json(tmp_path / "page.json", PAGE | change)
        with pytest.raises(RunError, match=r"the image of sample [02] is .*, no file of a picture"):
            load_page(path)
    for fine in ("data:image/png;base64,AA", "../photos/a.JPG"):
        load_page(write_json(path, PAGE | {"suspects": [SUSPECT | {"image": fine}]}))


@pytest.mark.parametrize("content", ["[]", '{"title": "t"}', '{"title":"","sentence":"","x":1}'])
def test_another_file_is_not_taken_for_a_page(tmp_path, content):
    (tmp_path / "page.json").write_text(content)
    with pytest.raises(RunError, match=r"page\.json: is not a saved page"):
        load_page(tmp_path / "page.json")


@pytest.mark.parametrize(
    "change",
    [
        {"facts": 5}, {"facts": [["a"]]}, {"suspects": [1]}, {"classes": [{}]}, {"title": None},
        {"curves": [{"a": 1}]}, {"curves": 5}, {"duplicates": [{"a": 1}]}, {"integer_labels": "x"},
    ],
)  # fmt: skip
def test_an_edited_page_is_one_line(tmp_path, change):
    path = write_json(tmp_path / "page.json", {"title": "t", "sentence": "s"} | change)
    with pytest.raises(RunError, match=rf"page\.json: {next(iter(change))}"):
        load_page(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"suspects": 5}, "suspects must be a list; got 5"),
        ({"suspects": [SUSPECT, SUSPECT | {"p": "x"}]}, r"suspects[1].p must be a number; got 'x'"),
        ({"suspects": [SUSPECT | {"p": True}]}, "suspects[0].p must be a number; got True"),
        ({"suspects": [SUSPECT | {"index": -1}]}, "suspects[0].index must be at least 0; got -1"),
        ({"suspects": [SUSPECT | {"own": [NEAR, {}]}]}, "suspects[0].own[1].index is missing"),
        ({"classes": [CLASS | {"support": 1.5}]}, "classes[0].support must be a whole number"),
        ({"classes": [CLASS | {"looks_like_two": 1}]}, "looks_like_two must be true or false"),
        ({"duplicates": [PAIR | {"label_a": 3}]}, "duplicates[0].label_a must be text; got 3"),
        ({"facts": [["a", "b", "c"]]}, "facts[0] must be a pair"),
        ({"histogram": {"counts": [], "null_level": 1}}, "histogram.counts must be of at least 1"),
        ({"curves": [{"method": "m"}]}, "curves[0] is no record of a run (no `method` text and"),
        ({"map": MAP | {"x": [0.5]}}, "map is no map (its columns are of different lengths)"),
        ({"map": MAP | {"x": [0.5, None]}}, "map.x[1] must be a number; got None"),
        ({"photo_checks": [NEAR]}, "photo_checks[0].problems is missing"),
        ({"confusions": [CONFUSION | {"count": -1}]}, "confusions[0].count must be at least 0"),
        ({"curves": [5]}, "curves[0] must be an object; got 5"),
    ],
)
def test_a_damaged_file_is_named_with_row_and_field(tmp_path, change, message):
    path = write_json(tmp_path / "page.json", PAGE | change)
    with pytest.raises(RunError) as err:
        load_page(path)
    assert str(err.value).startswith(f"{path}: ")
    assert message in str(err.value)
    assert str(err.value).endswith(". Was the file edited? Make it again.")
    assert "\n" not in str(err.value)


def test_a_number_that_json_does_not_know_is_unknown(tmp_path):
    (tmp_path / "page.json").write_text(json.dumps(PAGE | {"classes": [CLASS | {"support": 2}]}))
    text = (tmp_path / "page.json").read_text().replace('"margin": 0.1', '"margin": NaN')
    (tmp_path / "page.json").write_text(text)
    assert load_page(tmp_path / "page.json").suspects[0].margin is None


def test_pictures_that_are_no_text_are_refused():
    values = {"histogram": None, "suspects": [], "pictures": {"1": 5}}
    with pytest.raises(RunError, match=r"suspects\.json: pictures\.1 must be text; got 5"):
        check_record(RunSuspects, values, "suspects.json")
