"""What the page gets of an audit: the agreed fields, in the order of the table."""

import base64
import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import bspml
from bspml.auditing.confusion_table import confusion_table
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
    wrong, others = (int(facts[name]) for name in ("labels flagged", "others to look at"))
    found = report.summary()
    assert wrong == found["look_wrong"] == report.flagged.sum()
    assert others == found["others_to_look_at"]
    assert facts["fit their label (q < 0.05)"] == str(found["fit_their_label"])
    assert wrong + others == len(data.suspects) == report.summary()["suspects"]
    assert facts["suspects"].startswith(f"{wrong + others} to look at: the {wrong} flagged")
    assert "or of a sample that fits no class" in facts["suspects"]


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


def test_copies_have_names_and_texts(report, tmp_path):
    data = page_data(report, tmp_path, texts=[f"text {i}" for i in range(40)])
    copies = next(d for d in data.duplicates if d.a == 30)
    assert (copies.name_a, copies.name_b) == ("30.png", "31.png")
    assert (copies.text_a, copies.text_b) == ("text 30", "text 31")


def test_confusions_are_those_of_the_table(report, tmp_path):
    found = page_data(report, tmp_path).confusions
    table = confusion_table(report)
    pairs = zip(table["label"].astype(str), table["suggested_label"].astype(str), strict=True)
    assert len(found) > 0
    assert [(c.label, c.suggested) for c in found] == list(pairs)
    assert [c.count for c in found] == table["count"].tolist()
    assert [c.high for c in found] == table["high"].tolist()


def test_cards_carry_the_chance_to_be_wrong(report, tmp_path):
    chances = report.wrong_probability.copy()
    flagged = report.flagged
    unknown = suspects(report)[1]
    assert flagged[unknown]  # a card without a chance is one all the same
    chances[unknown] = np.nan
    cards = page_data(replace(report, wrong_probability=chances), tmp_path).suspects
    by_index = {card.index: card.wrong_probability for card in cards}
    assert by_index.pop(unknown) is None
    assert by_index == {i: chances[i] for i in by_index}


def test_the_map_shows_all_samples_or_all_suspects_and_evenly_others(report, tmp_path, monkeypatch):
    whole = page_data(report, tmp_path).map
    assert (whole.total, whole.index) == (40, tuple(range(40)))
    assert whole.x == tuple(report.embedding_map[:, 0].tolist())
    assert whole.suggested[5] == str(report.suggested_labels[5]) != whole.label[5]
    assert whole.suggested[0] == ""  # the label it has
    assert whole.name[7] == "7.png"
    cards = suspects(report)
    monkeypatch.setattr("bspml.auditing.page_data._POINTS", len(cards) + 3)
    part = page_data(report, tmp_path).map
    assert (part.total, len(part.index)) == (40, len(cards) + 3)
    others = [i for i in range(40) if i not in cards]
    assert set(part.index) == {*cards, others[0], others[-1], others[(len(others) - 1) // 2]}
    monkeypatch.setattr("bspml.auditing.page_data._POINTS", 1)
    assert set(page_data(report, tmp_path).map.index) == set(cards)
    assert page_data(replace(report, embedding_map=None), tmp_path).map is None


def test_lists_that_are_cut_say_how_much_was_found(report, tmp_path, monkeypatch):
    """The panels counted what they showed, and the facts beside them what there was."""
    assert len(report.confusions) == 3
    several = replace(report, duplicates=pd.concat([report.duplicates] * 3))
    found, checks = len(several.duplicates), {"index": [4, 7], "score": [0.1, 0.2]}
    several = replace(
        several, photo_checks=pd.DataFrame({**checks, "problem": ["dark", "blurred"]})
    )
    notes = [text for name, text in page_data(several, tmp_path).facts if name == "note"]
    assert not any(text.endswith(" are shown") for text in notes)
    for name, most in (("_PAIRS", found - 1), ("_CONFUSIONS", 2), ("_PHOTOS", 1)):
        monkeypatch.setattr(f"bspml.auditing.page_data.{name}", most)
    data = page_data(several, tmp_path)
    assert (len(data.duplicates), len(data.confusions)) == (found - 1, 2)
    assert [photo.index for photo in data.photo_checks] == [4]
    assert {
        f"the first {found - 1} of {found} pairs of copies are shown",
        "the first 2 of 3 pairs of confused classes are shown",
        "the first 1 of 2 bad photos are shown",
    } <= {text for name, text in data.facts if name == "note"}


def test_cards_say_what_fits_no_class(report, tmp_path):
    scores = np.zeros(len(report.labels))
    strange = int(np.flatnonzero(~report.flagged)[0])
    scores[strange] = 9.0
    cards = page_data(replace(report, outlier_score=scores), tmp_path).suspects
    assert [card.index for card in cards if card.fits_no_class] == [strange]


def test_photos_with_most_problems_come_first_and_what_is_usual_is_a_note(report, tmp_path):
    usual = pd.DataFrame({"index": range(21), "problem": "nearly empty", "score": 0.1})
    rare = pd.DataFrame(
        {"index": [9, 3, 3], "problem": ["dark", "dark", "blurred"], "score": [0.1, 0.2, 0.3]}
    )
    checked = replace(report, photo_checks=pd.concat([usual, rare]))
    data = page_data(checked, tmp_path)
    assert [(p.index, p.problems) for p in data.photo_checks] == [
        (3, ("dark", "blurred")), (9, ("dark",)),
    ]  # fmt: skip
    assert data.photo_checks[0].name == "3.png"
    notes = [value for name, value in data.facts if name == "note"]
    assert [n for n in notes if "nearly empty" in n] == [
        "21 photos are called nearly empty: that is how these data are, and they are not listed"
    ]


def test_samples_without_pictures_have_none(report, tmp_path):
    data = page_data(report, tmp_path)
    assert all(s.image is None and s.text is None for s in data.suspects)
