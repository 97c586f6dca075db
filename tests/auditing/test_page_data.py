"""What the page gets: the agreed fields, the right pictures, nothing from outside the folder."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

import bspml
from bspml.auditing import pictures
from bspml.auditing.page_data import page_data, suspects
from bspml.auditing.pictures import PagePictures
from bspml.report.page import render_page


@pytest.fixture(scope="module")
def report():
    rng = np.random.default_rng(1)
    x = np.repeat(np.eye(4), 10, 0) + 0.15 * rng.standard_normal((40, 4))
    labels = np.repeat(np.arange(4), 10)
    labels[[5, 15, 25]] = [2, 3, 0]
    x[30] = x[31]
    return bspml.audit(x, labels, [f"{i}.png" for i in range(40)])


def opened(uri):
    return Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1])))


def test_suspects_are_in_order_of_the_table(report):
    listed = suspects(report)
    assert set(listed[:3]) == {5, 15, 25}
    assert listed == [i for i in report.order().tolist() if i in set(listed)]


def test_the_counts_on_the_page_add_up(report, tmp_path):
    data = page_data(report, tmp_path)
    facts = dict(data.facts)
    wrong, others = (
        int(facts[name])
        for name in ("labels that look wrong", "others that fit another class better")
    )
    found = report.summary()
    assert wrong == found["look_wrong"] == report.flagged.sum()
    assert others == found["others_fit_another_class_better"]
    assert facts["fit their label (q < 0.05)"] == str(found["fit_their_label"])
    assert wrong + others == len(data.suspects) == report.summary()["suspects"]
    assert facts["suspects"].startswith(f"{wrong + others} to look at: the {wrong} that look wrong")


def test_fields_are_those_of_the_page(report, tmp_path):
    pixels = np.random.default_rng(0).random((40, 1, 8, 8))
    data = page_data(report, tmp_path, pixels, [f"text {i}" for i in range(40)], "A title")
    assert data.title == "A title"
    assert data.sentence == report.sentence
    assert data.integer_labels
    assert len(data.histogram.counts) == 40
    assert sum(data.histogram.counts) == 40
    assert data.histogram.null_level == pytest.approx(report.noise_rate)  # 40 labels, 40 bins
    first = data.suspects[0]
    i = first.index
    assert first.label == str(report.labels[i])
    assert first.suggested == str(report.suggested_labels[i])
    assert first.text == f"text {i}"
    assert [s.index for s in first.own] == report.own_neighbours[i].tolist()
    assert {s.label for s in first.other} == {str(report.other_labels[i])}
    shown = np.asarray(opened(first.image))
    assert shown == pytest.approx(np.round(pixels[i, 0] * 255), abs=1)
    copies = next(d for d in data.duplicates if d.a == 30)
    assert (copies.b, copies.similarity, copies.label_a) == (31, 1.0, "3")
    assert len(data.classes) == 4
    assert "A title" in render_page(data)


def test_only_files_inside_the_folder_are_shown(tmp_path):
    inside = tmp_path / "images"
    (inside / "sub").mkdir(parents=True)
    secret = tmp_path / "secret.png"
    for path in (secret, inside / "a.png", inside / "sub" / "b#%.png"):
        Image.new("RGB", (200, 100), (255, 0, 0)).save(path)
    (inside / "broken.png").write_bytes(b"no image")
    names = np.array(
        ["a.png", "sub/b#%.png", "../secret.png", str(secret), "", "none.png", "sub", "x\0y",
         "broken.png", "n" * 5000]
    )  # fmt: skip
    shown = PagePictures(inside, names, tmp_path / "out")
    small = opened(shown(0))
    assert small.size == (96, 48)
    assert small.getpixel((5, 5))[0] > 240
    assert shown(1).startswith("data:image/jpeg")
    assert [shown(i) for i in (2, 3, 4, 5, 6, 7, 9)] == [None] * 7
    assert shown(8) == "../images/broken.png"  # not readable as a picture here: a link to it


def test_a_heavy_page_links_to_the_rest(tmp_path, monkeypatch):
    for name in ("a.png", "b.png"):
        Image.new("L", (10, 10)).save(tmp_path / name)
    monkeypatch.setattr(pictures, "_BUDGET", 1)
    shown = PagePictures(tmp_path, np.array(["a.png", "b.png"]), tmp_path / "out")
    assert shown(0).startswith("data:")
    assert shown(1) == "../b.png"
    assert shown(0).startswith("data:")  # made once
    pixels = PagePictures(np.zeros((2, 3, 4, 4)), np.array(["", ""]), tmp_path)
    assert pixels(0).startswith("data:image/png")
    assert pixels(1) is None


@pytest.mark.parametrize("place", range(8, 60, 8))
@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF"])
def test_a_picture_damaged_anywhere_is_a_link_at_worst(tmp_path, kind, place):
    whole = io.BytesIO()
    Image.new("RGB", (16, 16), (9, 99, 9)).save(whole, kind)
    damaged = bytearray(whole.getvalue())
    damaged[place : place + 4] = b"\xf8\xf3\x89\x85"
    (tmp_path / "a").write_bytes(damaged)
    shown = PagePictures(tmp_path, np.array(["a"]), tmp_path)(0)
    assert shown == "a" or shown.startswith("data:image/jpeg")


def test_a_picture_that_stops_early_is_a_link(tmp_path):
    whole = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(whole, "PNG")
    damaged = bytearray(whole.getvalue())
    damaged[35] -= 1  # 256 bytes fewer than there are: Pillow answers with a SyntaxError
    (tmp_path / "a.png").write_bytes(damaged)
    assert PagePictures(tmp_path, np.array(["a.png"]), tmp_path)(0) == "a.png"


def test_samples_without_pictures_have_none(report, tmp_path):
    data = page_data(report, tmp_path)
    assert all(s.image is None and s.text is None for s in data.suspects)
