"""Tasks and interface of Label Studio, read back with the standard library's readers."""

import json
import xml.etree.ElementTree as ET
from urllib.parse import parse_qs, urlsplit

from bspml.auditing.exports.label_studio import label_studio_files
from bspml.auditing.exports.suspects import Suspect, class_names, find_suspects


def read(files):
    return json.loads(files["tasks.json"]), ET.fromstring(files["config.xml"])


def test_tasks_fit_the_interface_and_link_the_photos(report, photos):
    suspects = find_suspects(report, photos)
    tasks, view = read(label_studio_files(suspects, class_names(report)))
    assert len(tasks) == len(suspects) >= 3
    (control,) = view.iter("Choices")
    (shown,) = view.iter("Image")
    choices = [choice.get("value") for choice in control]
    assert choices == [*class_names(report), "none of these"]
    assert shown.get("value") == "$image"
    ids = set()
    for task, suspect in zip(tasks, suspects, strict=True):
        (prediction,) = task["predictions"]
        (result,) = prediction["result"]
        assert (result["from_name"], result["to_name"]) == (control.get("name"), shown.get("name"))
        assert result["to_name"] == control.get("toName")
        assert result["type"] == "choices"
        assert result["value"]["choices"] == [suspect.suggested]
        assert suspect.suggested in choices
        assert suspect.label in choices
        assert 0 <= prediction["score"] <= 1
        ids.add(result["id"])
        data = task["data"]
        link = urlsplit(data["image"])
        assert link.path == "/data/local-files/"
        # From the document root, the folder that the folder of the photos lies in.
        assert (photos.parent / parse_qs(link.query)["d"][0]).is_file()
        assert data["label"] == suspect.label
        assert data["index"] == suspect.index
        assert {"margin", "p_value", "q_value"} <= set(data)
    assert len(ids) == len(tasks)


def test_texts_are_shown_as_text_and_addresses_as_they_are():
    read_it = Suspect(3, "", "7", "8", {"margin": -0.2}, text="a < b & c")
    tasks, view = read(label_studio_files([read_it], ["7", "8"]))
    assert tasks[0]["data"]["text"] == "a < b & c"
    assert tasks[0]["predictions"][0]["score"] == 0
    assert tasks[0]["predictions"][0]["result"][0]["to_name"] == "text"
    assert [tag.get("value") for tag in view.iter("Text")] == ["$text"]
    assert view.find("Image") is None
    linked = Suspect(3, "https://a.org/1.jpg?x=1&y=2", "7", "8", {})
    tasks, view = read(label_studio_files([linked], ["7", "8"]))
    assert tasks[0]["data"]["image"] == linked.name


def test_no_suspects_are_no_tasks():
    tasks, view = read(label_studio_files([], ["a", "b"]))
    assert tasks == []
    choices = [choice.get("value") for choice in view.iter("Choice")]
    assert choices == ["a", "b", "none of these"]
    _, view = read(label_studio_files([], ["none of these", "b"]))
    assert [c.get("value") for c in view.iter("Choice")] == ["none of these", "b"]  # each once
