"""Suspects in order, with scores, as text that XML can hold."""

import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from bspml.auditing.exports.suspects import (
    class_names,
    find_suspects,
    photo_folder,
    plain_text,
    shown_suspects,
)


def test_suspects_are_those_of_the_report_in_its_order(report, photos):
    found = find_suspects(report, photos)
    order = [i for i in report.order().tolist() if report.suspects[i]]
    assert [suspect.index for suspect in found] == order
    assert {0, 13, 30} <= set(order)
    for suspect in found:
        i = suspect.index
        assert (suspect.label, suspect.suggested) == (report.labels[i], report.suggested_labels[i])
        assert suspect.scores["margin"] == report.margins[i]
        assert suspect.photo == photos / report.names[i]
        assert suspect.place == f"ph otos/{report.names[i]}"
        assert 0 <= suspect.confidence <= 1


def test_scores_that_are_not_known_are_left_out(report):
    blank = replace(report, p_values=np.full(36, math.nan), weights=np.zeros(36))
    nothing = np.full(36, math.nan)
    blank = replace(blank, margins=nothing, suggestion_probability=nothing)
    assert list(find_suspects(blank)[0].scores) == ["wrong_probability", "q_value"]
    assert find_suspects(blank)[0].confidence == 0


@pytest.mark.parametrize("name", ["/etc/passwd", "../x.jpg", "", "gone.jpg", 'k "l"'])
def test_a_name_that_is_no_file_in_the_folder_is_no_photo(report, photos, name):
    found = find_suspects(replace(report, names=np.full(36, name)), photos)
    assert {suspect.photo for suspect in found} == {None}


def test_a_tool_gets_the_suspects_that_it_can_show(report, photos):
    names, texts = np.array(report.names), np.full(36, "words")
    names[0], names[13] = "gone.jpg", ""
    some = replace(report, names=names, texts=texts)

    def shown(tool, audited=some, images=photos):
        return {suspect.index for suspect in shown_suspects(audited, tool, images)}

    every = set(np.flatnonzero(report.suspects).tolist())
    assert shown("cvat") == every - {13}
    assert shown("fiftyone") == shown("label-studio") == every - {0, 13}
    names[0] = "https://a.org/1.jpg"
    assert shown("fiftyone") == every - {0, 13}
    assert shown("label-studio") == every - {13}
    assert shown("label-studio", replace(report, texts=texts), None) == every
    assert shown("fiftyone", replace(report, texts=texts), None) == set()


def test_every_character_becomes_text_that_xml_gives_back():
    text = "".join(map(chr, (*range(0x300), 0xD800, 0xDFFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x1F600)))
    plain = plain_text(text)
    assert len({*map(plain_text, text)}) == len(text)
    back = ET.fromstring(ET.tostring(ET.Element("a", b=plain), encoding="unicode")).get("b")
    assert back == plain
    assert plain_text("größe, 鳥 & <b>") == "größe, 鳥 & <b>"


def test_a_folder_of_photos_is_absolute_and_pixels_are_none(monkeypatch, tmp_path, report):
    monkeypatch.chdir(tmp_path)
    assert photo_folder("photos") == tmp_path / "photos"
    assert photo_folder(np.zeros((2, 3, 4, 4))) is None
    assert class_names(report) == sorted(set(report.labels.tolist()))
