"""Suspects as tasks of Label Studio, each with the suggested label as a pre-annotation.

Formats: "Import pre-annotated data into Label Studio" (guide/predictions) and "Get data into Label
Studio" (guide/tasks): `data`, `predictions` with a `score` in [0, 1].  Photos are linked as "Local
storage" (guide/storage) serves them, `/data/local-files/?d=PATH`, where PATH starts from
LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT: here, the folder that the folder of the photos lies in,
since Label Studio wants a storage below that root.

A prediction is not a label yet: a task nobody has looked at stays without one.
"""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from bspml.auditing.exports.suspects import Suspect, plain_text

_CONTROL = "choice"
_NONE = "none of these"  # of a sample that fits no class


def label_studio_files(suspects: Sequence[Suspect], classes: Sequence[str]) -> dict[str, str]:
    """Write tasks to import and the labelling interface that they fit.

    Args:
        suspects: all with a photo or a web address for a name, or all with a text.
        classes: to choose from.

    Returns:
        {file name: its content}.

    Example:
        >>> scores = {"suggestion_probability": 0.25}
        >>> suspect = Suspect(7, "", "cat", "dog", scores, text="it barks")
        >>> files = label_studio_files([suspect], ["cat", "dog"])
        >>> json.loads(files["tasks.json"])[0]["predictions"][0]["score"]
        0.25
    """
    shown = [k for k in ("image", "text") if any(k in _content(s) for s in suspects)] or ["text"]
    tasks = [_task(suspect, shown[0]) for suspect in suspects]
    return {"tasks.json": json.dumps(tasks, indent=2), "config.xml": _interface(shown, classes)}


def _content(suspect: Suspect) -> dict[str, str]:
    """What there is to see of a sample."""
    content = {}
    if suspect.place is not None:
        content["image"] = f"/data/local-files/?d={quote(os.fsencode(suspect.place))}"
    elif "://" in suspect.name:
        content["image"] = suspect.name
    if suspect.text is not None:
        content["text"] = suspect.text
    return content


def _task(suspect: Suspect, shown: str) -> dict[str, Any]:
    known = {"index": suspect.index, "label": suspect.label, **suspect.scores}
    choice = {
        "id": f"suggested-{suspect.index}",
        "from_name": _CONTROL,
        "to_name": shown,
        "type": "choices",
        "value": {"choices": [suspect.suggested]},
    }
    prediction = {"model_version": "bspml-audit", "score": suspect.confidence, "result": [choice]}
    return {
        "data": {**_content(suspect), "name": plain_text(suspect.name), **known},
        "predictions": [prediction],
    }


def _interface(shown: Sequence[str], classes: Sequence[str]) -> str:
    view = ET.Element("View")
    ET.SubElement(view, "Header", value="Given label: $label")
    for kind in shown:
        ET.SubElement(view, kind.capitalize(), name=kind, value=f"${kind}")
    attributes = {"name": _CONTROL, "toName": shown[0], "choice": "single", "showInline": "true"}
    choices = ET.SubElement(view, "Choices", attributes)
    for label in dict.fromkeys((*classes, _NONE)):
        ET.SubElement(choices, "Choice", value=label)
    ET.indent(view)
    return ET.tostring(view, encoding="unicode") + "\n"
