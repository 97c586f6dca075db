"""CVAT's XML, labels and list, read back with the standard library's readers."""

import csv
import io
import json
import xml.etree.ElementTree as ET

import pytest
from PIL import Image

from bspml.auditing.exports.cvat import cvat_files
from bspml.auditing.exports.suspects import Suspect, class_names, find_suspects


def test_tags_keep_the_given_label_and_carry_the_suggestion(report, photos):
    suspects = find_suspects(report, photos)
    classes = class_names(report)
    files = cvat_files(suspects, classes)
    root = ET.fromstring(files["annotations.xml"])
    assert root.findtext("version") == "1.1"
    assert root.findtext("meta/task/size") == str(len(suspects))
    labels = root.findall("meta/task/labels/label")
    assert [label.findtext("name") for label in labels] == classes
    known = {a.findtext("name") for a in labels[0].iter("attribute")}
    images = root.findall("image")
    assert [image.get("id") for image in images] == [str(i) for i in range(len(suspects))]
    assert len(images) >= 3
    for image, suspect in zip(images, suspects, strict=True):
        assert image.get("name") == suspect.name
        assert (image.get("width"), image.get("height")) == ("20", "10")
        (tag,) = image.findall("tag")
        assert tag.get("label") == suspect.label
        values = {a.get("name"): a.text for a in tag}
        assert set(values) == known
        assert values["suggested"] == suspect.suggested
        assert float(values["margin"]) == pytest.approx(suspect.scores["margin"], rel=1e-3)


def test_the_raw_labels_are_those_of_the_annotations(report):
    files = cvat_files(find_suspects(report), class_names(report))
    raw = json.loads(files["labels.json"])
    labels = ET.fromstring(files["annotations.xml"]).findall("meta/task/labels/label")
    assert [label["name"] for label in raw] == [label.findtext("name") for label in labels]
    assert {label["type"] for label in raw} == {"tag"}
    assert [a["name"] for a in raw[0]["attributes"]] == [
        a.findtext("name") for a in labels[0].iter("attribute")
    ]
    assert {a["input_type"] for a in raw[0]["attributes"]} == {"text"}


def test_the_list_names_every_suspect(report):
    suspects = find_suspects(report)
    rows = list(csv.DictReader(io.StringIO(cvat_files(suspects, [])["suspects.csv"], newline="")))
    assert [row["name"] for row in rows] == [suspect.name for suspect in suspects]
    assert [row["suggested_label"] for row in rows] == [suspect.suggested for suspect in suspects]


def test_an_unreadable_photo_has_no_size_and_no_suspects_are_no_images(tmp_path):
    (tmp_path / "1.jpg").write_text("no image")
    broken = Suspect(1, "1.jpg", "7", "8", {}, photo=tmp_path / "1.jpg")
    files = cvat_files([broken], ["7", "8"])
    (image,) = ET.fromstring(files["annotations.xml"]).findall("image")
    assert dict(image.attrib) == {"id": "0", "name": "1.jpg"}
    assert ET.fromstring(cvat_files([], ["7"])["annotations.xml"]).findall("image") == []


def test_an_image_is_called_as_cvat_calls_the_frame_of_a_listed_file():
    listed = Suspect(0, "./birds/1.jpg", "7", "8", {})
    (image,) = ET.fromstring(cvat_files([listed], ["7", "8"])["annotations.xml"]).findall("image")
    assert image.get("name") == "birds/1.jpg"


def test_the_size_of_a_photo_is_that_of_the_upright_one(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 20)).save(tmp_path / "1.jpg", exif=exif)
    turned = Suspect(1, "1.jpg", "7", "8", {}, photo=tmp_path / "1.jpg")
    (image,) = ET.fromstring(cvat_files([turned], ["7"])["annotations.xml"]).findall("image")
    assert (image.get("width"), image.get("height")) == ("20", "40")
