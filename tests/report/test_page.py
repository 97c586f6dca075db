"""The page as HTML: strangers' words stay words, nothing is fetched, images are inside or near."""

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser

import pytest

from bspml.errors import MissingDependencyError
from bspml.files.run import EpochRecord
from bspml.report.models import PageData
from bspml.report.page import render_page
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
    assert {name for *_, name, _, _ in data["samples"]} == set(HOSTILE)
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


def test_without_jinja_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'bspml\[report\]'"):
        render_page(PageData(title="t", sentence="s"))


def test_empty_parts_are_left_out():
    parsed = Parsed(render_page(PageData(title="t", sentence="s")))
    ids = {a.get("id") for _, a in parsed.tags}
    assert not ids & {"classes", "duplicates", "gallery"}
    assert "No label is a suspect" in parsed.text
    assert not [t for t, _ in parsed.tags if t == "svg"]


def test_the_page_is_the_same_bytes_each_time():
    data = hostile_page(histogram={"counts": [1, 2], "null_level": 0.5})
    assert render_page(data) == render_page(data)
