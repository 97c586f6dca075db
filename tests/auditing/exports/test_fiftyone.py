"""FiftyOne's files, read as its documentation says they are."""

import json
from pathlib import Path

from bspml.auditing.exports.fiftyone import fiftyone_files
from bspml.auditing.exports.suspects import class_names, find_suspects


def test_ids_lead_to_photo_given_and_suggested_label(report, photos):
    suspects = find_suspects(report, photos)
    files = {name: json.loads(text) for name, text in
             fiftyone_files(suspects, class_names(report)).items()}  # fmt: skip
    data, given, suggested = (files[n] for n in ("data.json", "labels.json", "suggestions.json"))
    assert given["classes"] == suggested["classes"] == class_names(report)
    assert set(data) == set(given["labels"]) == set(suggested["labels"])
    assert len(data) == len(suspects) >= 3
    for suspect in suspects:
        key = str(suspect.index)
        # FiftyOne cuts a suffix off the ids of data.json, and not off those of the labels.
        assert Path(key).suffix == ""
        assert Path(data[key]).is_absolute()
        assert Path(data[key]).is_file()
        assert given["labels"][key] == {"label": suspect.label}
        found = suggested["labels"][key]
        assert found["label"] == suspect.suggested
        assert found["confidence"] == suspect.confidence
        assert found["attributes"] == {**suspect.scores, "sample_index": suspect.index}


def test_no_suspects_are_no_photos():
    files = fiftyone_files([], ["7", "8"])
    assert json.loads(files["data.json"]) == {}
    assert json.loads(files["labels.json"]) == {"classes": ["7", "8"], "labels": {}}
