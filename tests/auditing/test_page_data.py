"""What the page gets of an audit: the agreed fields, in the order of the table."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

import bspml
from bspml.auditing.page_data import page_data, suspects
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
    wrong, others = (int(facts[name]) for name in ("labels that look wrong", "others to look at"))
    found = report.summary()
    assert wrong == found["look_wrong"] == report.flagged.sum()
    assert others == found["others_to_look_at"]
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


def test_samples_without_pictures_have_none(report, tmp_path):
    data = page_data(report, tmp_path)
    assert all(s.image is None and s.text is None for s in data.suspects)
