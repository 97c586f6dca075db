"""What the page's script gets: nothing twice, no number JSON lacks, no URL that leads away."""

import json
import os

import numpy as np
import pytest

from bspml.report.models import PageData
from bspml.report.payload import image_url, payload as unchecked_payload
from helpers.page_entries import suspect


def payload(data):
    """As the page holds it: JSON, without NaN."""
    return json.loads(json.dumps(unchecked_payload(data), allow_nan=False))


def test_numbers_json_does_not_know_become_unknown():
    data = payload(
        PageData(
            title="t",
            sentence="s",
            suspects=[suspect(margin=float("nan"), p=None, q=np.float64(0.5))],
        )
    )
    assert data["suspects"][0]["margin"] is None
    assert data["suspects"][0]["p"] is None
    assert data["suspects"][0]["q"] == 0.5


def test_a_picture_or_sample_that_repeats_is_stored_once():
    near = {"index": 7, "label": "cat", "image": "a/7.png", "text": None}
    data = payload(
        PageData(
            title="t", sentence="s", suspects=[suspect(i, own=[near, near]) for i in range(50)]
        )
    )
    assert data["images"] == ["a/7.png"]
    assert len(data["samples"]) == 51
    assert data["labels"] == ["cat", "dog"]


def test_a_page_belongs_to_its_suspects():
    one, same, other = (
        payload(PageData(title="t", sentence=sentence, suspects=[suspect(index)]))["key"]
        for sentence, index in (("a", 1), ("b", 1), ("a", 2))
    )
    assert one == same != other


@pytest.mark.parametrize(
    ("image", "url"),
    [
        ("a/b.png", "a/b.png"),
        ("../data/x y.png", "../data/x%20y.png"),
        ("50%#1?.png", "50%25%231%3F.png"),
        ("caf\udce9.png", "caf%E9.png"),
        ("日.png", "%E6%97%A5.png"),
        ('"><script>.png', "%22%3E%3Cscript%3E.png"),
        ("12:30.png", "12%3A30.png"),
        ("data:image/png;base64,iVBORw0KGgo=", "data:image/png;base64,iVBORw0KGgo="),
        ("", None),
        (None, None),
        ("javascript:alert(1)", None),
        ("JaVaScript:alert(1)", None),
        ("http://host/x.png", None),
        ("//host/x.png", None),
        ("\\\\host\\x.png", None),
        ("/etc/x.png", None),
        ("C:\\x.png", None),
        ("file:///x.png", None),
        ("data:text/html,<script>alert(1)</script>", None),
        ("data:image/svg+xml;base64,AAAA", None),
        ("data:image/png;base64,AA AA", None),
        ("a\0.png", None),
        ("\ud800.png", None),
    ],
)
def test_an_image_is_inside_the_page_or_beside_it(image, url):
    assert image_url(image) == url


@pytest.mark.skipif(os.name == "nt", reason="such names exist on POSIX only")
def test_a_leading_blank_or_control_character_hides_no_scheme():
    # Browsers skip them in front of a URL; encoded they are part of a relative name.
    assert image_url(" javascript:alert(1)").startswith("%20")
    assert image_url("\tjavascript:alert(1)").startswith("%09")


def test_a_sample_has_the_file_of_its_picture_where_the_folder_is_known():
    inside = "data:image/png;base64,iVBORw0KGgo="
    cards = [
        suspect(0, name="a b.png", image=inside),
        suspect(1, name="c.png"),
        suspect(2, image=inside, name=""),
    ]
    page = {"title": "t", "sentence": "s", "suspects": cards}
    data = payload(PageData(**page, image_folder="../photos"))
    assert data["images"] == [inside, "../photos/a%20b.png"]
    assert [row[2] for row in data["samples"]] == [0, -1, 0]
    assert [row[5] for row in data["samples"]] == [1, -1, -1]
    assert payload(PageData(**page))["images"] == [inside]


def test_the_map_keeps_its_shape_on_a_grid():
    shown = {
        "method": "PCA", "total": 9, "index": [4, 5, 7],
        "x": [-1.0, 1.0, 0.0], "y": [0.5, 0.5, 1.5],
        "label": ["a", "b", "a"], "suggested": ["", "a", ""], "name": ["", "n", ""],
    }  # fmt: skip
    data = payload(PageData(title="t", sentence="s", map=shown))
    found = data["map"]
    assert (found["x"], found["y"]) == ([0, 4095, 2048], [0, 0, 2048])
    assert [data["labels"][i] for i in found["label"]] == ["a", "b", "a"]
    assert found["suggested"] == [-1, 0, -1]
    point = shown | {
        "index": [4],
        "x": [3.0],
        "y": [2.0],
        "label": ["a"],
        "suggested": [""],
        "name": [],
    }
    assert payload(PageData(title="t", sentence="s", map=point))["map"]["x"] == [0]
