"""The page as HTML: strangers' words stay words, nothing is fetched, images are inside or near."""

import base64
import hashlib
import json
import os
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from bspml.errors import MissingDependencyError
from bspml.files.run import EpochRecord
from bspml.report.models import PageData
from bspml.report.page import image_url, render_page
from helpers.page_entries import class_row, suspect

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '" onload="alert(1)',
    "line\u2028separator\u2029",
    "\udce9.png",
    "{{ 7 * 7 }}{% raw %}",
    "<!--<script ",
    "</script ",
    'a,b"c\nd',
    "=cmd|' /C calc'!A0",
    "$x$",
    "",
]


class Parsed(HTMLParser):
    """Elements of a page, and the text of each script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.meta, self.text = [], {}, [], ""
        self._inside = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag == "script":
            self._inside = attributes.get("id", "code")
            self.scripts[self._inside] = ""

    def handle_endtag(self, tag):
        if tag == "script":
            self._inside = None

    def handle_data(self, data):
        if self._inside:
            self.scripts[self._inside] += data
        else:
            self.text += data


def payload(data):
    return json.loads(Parsed(render_page(data)).scripts["data"])


def hostile_page(**changes):
    return PageData(
        **{"title": HOSTILE[0], "sentence": HOSTILE[1], **changes},
        facts=[(text, text) for text in HOSTILE],
        curves=[EpochRecord(HOSTILE[0], e, maw=0.5) for e in (1, 2)],
        classes=[class_row(text, looks_like=HOSTILE[1]) for text in HOSTILE],
        suspects=[
            suspect(i, text, HOSTILE[1], name=text, text=text, image=text)
            for i, text in enumerate(HOSTILE)
        ],
    )


def test_hostile_text_adds_no_element_and_reaches_the_page_unchanged():
    plain, hostile = (
        Parsed(render_page(data))
        for data in (hostile_page(title="t", sentence="s"), hostile_page())
    )
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert len(hostile.scripts) == 2
    assert not [a for _, attributes in hostile.tags for a in attributes if a.startswith("on")]
    data = json.loads(hostile.scripts["data"])
    assert set(HOSTILE) <= set(data["labels"])
    assert [s["name"] for s in data["suspects"]] == HOSTILE
    assert HOSTILE[1] in hostile.text
    hostile.scripts["data"].encode("ascii")


def test_only_the_pages_own_script_may_run_and_nothing_is_fetched():
    text = render_page(hostile_page())
    parsed = Parsed(text)
    policy = next(a["content"] for t, a in parsed.tags if t == "meta" and "http-equiv" in a)
    digest = base64.b64encode(hashlib.sha256(parsed.scripts["code"].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not [a for t, a in parsed.tags if t in ("link", "iframe", "object", "embed", "base")]
    assert not [a for t, a in parsed.tags if "src" in a]
    assert "://" not in re.sub(r'xmlns="http://www\.w3\.org/2000/svg"', "", text)


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


def test_without_jinja_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'bspml\[report\]'"):
        render_page(PageData(title="t", sentence="s"))


def test_empty_parts_are_left_out():
    parsed = Parsed(render_page(PageData(title="t", sentence="s")))
    ids = {a.get("id") for _, a in parsed.tags}
    assert not ids & {"classes", "duplicates", "gallery"}
    assert "No label looks suspicious" in parsed.text
    assert not [t for t, _ in parsed.tags if t == "svg"]


def test_the_page_is_the_same_bytes_each_time():
    data = hostile_page(histogram={"counts": [1, 2], "null_level": 0.5})
    assert render_page(data) == render_page(data)
