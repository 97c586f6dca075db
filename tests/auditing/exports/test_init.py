"""Exports of an audit: which tool can show what, and where the files go."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bspml.auditing.exports import TOOLS, check_export, write_export
from bspml.errors import InputError


@pytest.mark.parametrize("tool", list(TOOLS))
def test_each_tool_has_a_folder_whose_files_are_replaced(report, photos, tmp_path, tool):
    first = write_export(report, tool, tmp_path, photos)
    assert {path.parent for path in first} == {tmp_path / f"to-{tool}"}
    contents = {path: path.read_bytes() for path in first}
    kept = replace(report, decided=np.full(36, "right"))
    assert write_export(kept, tool, tmp_path, photos) == first  # no suspect is left
    assert any(path.read_bytes() != contents[path] for path in first)
    assert sorted(first) == sorted((tmp_path / f"to-{tool}").iterdir())


def test_labels_that_are_numbers_are_texts_there(case, photos, tmp_path):
    import bspml

    x, labels, names = case
    numbers = np.unique(labels, return_inverse=True)[1]
    numbered = bspml.audit(x, numbers, names)
    write_export(numbered, "label-studio", tmp_path, photos)
    tasks = json.loads((tmp_path / "to-label-studio/tasks.json").read_text("utf-8"))
    assert len(tasks) >= 3
    assert {type(task["data"]["label"]) for task in tasks} == {str}


@pytest.mark.parametrize(
    ("tool", "names", "texts", "images", "message"),
    [
        ("cvta", ["a"], None, None, "must be one of label-studio, cvat, fiftyone; got 'cvta'"),
        ("label-studio", ["a.jpg"], None, None, "nothing to show .* --images"),
        ("label-studio", None, None, "photos", "nothing to show"),
        ("cvat", None, ["words"], None, "nothing to show .* --names"),
        ("fiftyone", ["a.jpg"], ["words"], None, "nothing to show .* --images"),
        ("fiftyone", ["a.jpg"], None, np.zeros((1, 1, 2, 2)), "nothing to show"),
    ],
)
def test_what_a_tool_cannot_show_is_refused(tool, names, texts, images, message):
    with pytest.raises(InputError, match=message):
        check_export(tool, names, texts, images)


def test_what_a_tool_can_show_is_not_refused():
    check_export("label-studio", None, ["words"])
    check_export("label-studio", ["https://a.org/1.jpg"])
    check_export("label-studio", ["1.jpg"], None, "photos")
    check_export("cvat", ["1.jpg"])
    check_export("fiftyone", ["1.jpg"], None, "photos")
