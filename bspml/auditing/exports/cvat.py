"""Suspects as tags of images in the format "CVAT for images 1.1".

Formats: "XML annotation format", version 1.1 (docs/other/xml_format), which CVAT's "Upload
annotations" takes; and the labels as its "Raw" constructor takes them ("Labels and attributes").

What CVAT imports is an annotation, not a suggestion, so the tag is the given label: an image nobody
has looked at keeps it.  The suggested label and the scores are attributes of the tag.
"""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

from bspml.auditing.exports.suspects import SCORES, Suspect, plain_text
from bspml.data.images import upright_size
from bspml.files.cells import protected_cell
from bspml.files.opening import open_regular

_ATTRIBUTES = ("suggested", *SCORES, "index")


def cvat_files(suspects: Sequence[Suspect], classes: Sequence[str]) -> dict[str, str]:
    """Write annotations to upload, the labels of their task, and the list of its images.

    Args:
        suspects: with names, by which CVAT finds their images in the task.
        classes: to choose from.

    Returns:
        {file name: its content}.

    Example:
        >>> suspect = Suspect(7, "cat/7.jpg", "cat", "dog", {"suggestion_probability": 0.25})
        >>> root = ET.fromstring(cvat_files([suspect], ["cat", "dog"])["annotations.xml"])
        >>> root.find("image").get("name"), root.find("image/tag").get("label")
        ('cat/7.jpg', 'cat')
    """
    return {
        "annotations.xml": _annotations(suspects, classes),
        "labels.json": json.dumps([_raw_label(name) for name in classes], indent=2),
        "suspects.csv": _listed(suspects),
    }


def _annotations(suspects: Sequence[Suspect], classes: Sequence[str]) -> str:
    root = ET.Element("annotations")
    ET.SubElement(root, "version").text = "1.1"
    task = ET.SubElement(ET.SubElement(root, "meta"), "task")
    for key, value in (("name", "suspects"), ("size", str(len(suspects))), ("mode", "annotation")):
        ET.SubElement(task, key).text = value
    labels = ET.SubElement(task, "labels")
    for name in classes:
        _add_label(labels, name)
    for number, suspect in enumerate(suspects):
        name = plain_text(suspect.name).removeprefix("./")  # so CVAT calls what `find .` lists
        image = ET.SubElement(root, "image", id=str(number), name=name)
        for key, pixels in zip(("width", "height"), _size(suspect.photo), strict=False):
            image.set(key, str(pixels))
        tag = ET.SubElement(image, "tag", label=suspect.label, source="manual")
        scores = {key: f"{value:.4g}" for key, value in suspect.scores.items()}
        known = {"suggested": suspect.suggested, **scores, "index": str(suspect.index)}
        for key, shown in known.items():
            ET.SubElement(tag, "attribute", name=key).text = shown
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_label(labels: ET.Element, name: str) -> None:
    label = ET.SubElement(labels, "label")
    ET.SubElement(label, "name").text = name
    ET.SubElement(label, "type").text = "tag"
    attributes = ET.SubElement(label, "attributes")
    for key in _ATTRIBUTES:
        attribute = ET.SubElement(attributes, "attribute")
        for part, text in (("name", key), ("mutable", "False"), ("input_type", "text")):
            ET.SubElement(attribute, part).text = text
        ET.SubElement(attribute, "default_value")
        ET.SubElement(attribute, "values")


def _raw_label(name: str) -> dict[str, object]:
    attribute = {"mutable": False, "input_type": "text", "default_value": "", "values": [""]}
    return {
        "name": name,
        "type": "tag",
        "attributes": [{"name": key, **attribute} for key in _ATTRIBUTES],
    }


def _size(photo: Path | None) -> tuple[int, ...]:
    """Width and height of a photo, nothing where it cannot be read."""
    from PIL import Image

    if photo is None:
        return ()
    try:
        with open_regular(photo, "an image") as file, Image.open(file) as image:
            return upright_size(image)
    except Exception:  # decoders raise what they like on damage; the tag stands without a size
        return ()


def _listed(suspects: Sequence[Suspect]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("name", "label", "suggested_label", "index", *SCORES))
    for suspect in suspects:
        foreign = (suspect.name, suspect.label, suspect.suggested)
        scores = [suspect.scores.get(key, "") for key in SCORES]
        writer.writerow((*map(protected_cell, foreign), suspect.index, *scores))
    return text.getvalue()
