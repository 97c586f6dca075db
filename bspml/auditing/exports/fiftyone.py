"""Suspects as two label fields of FiftyOne: the given label, and the suggested one with its score.

Format: `FiftyOneImageClassificationDataset` ("Importing data into FiftyOne", user_guide/
import_datasets): `labels.json` with `classes` and {id: label, confidence, attributes}, beside
`data.json` with {id: path of the photo}.  Both fields are of that one format, which says what its
files mean; `FiftyOneDataset`, which holds several fields in one file, is a dump of its data base
and differs from version to version.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bspml.auditing.exports.suspects import Suspect


def fiftyone_files(suspects: Sequence[Suspect], classes: Sequence[str]) -> dict[str, str]:
    """Write the photos, their given labels, and the suggested ones.

    Args:
        suspects: with photos.
        classes: to choose from.

    Returns:
        {file name: its content}.

    Example:
        >>> from pathlib import Path
        >>> scores = {"suggestion_probability": 0.25}
        >>> suspect = Suspect(7, "7.jpg", "cat", "dog", scores, photo=Path("/p/7.jpg"))
        >>> files = fiftyone_files([suspect], ["cat", "dog"])
        >>> json.loads(files["suggestions.json"])["labels"]["7"]["confidence"]
        0.25
    """
    # Ids are indices: FiftyOne cuts off what looks like a suffix.
    given = {str(s.index): {"label": s.label} for s in suspects}
    suggested: dict[str, Any] = {
        str(s.index): {
            "label": s.suggested,
            "confidence": s.confidence,
            "attributes": {**s.scores, "sample_index": s.index},
        }
        for s in suspects
    }
    return {
        "data.json": json.dumps({str(s.index): str(s.photo) for s in suspects}, indent=2),
        "labels.json": json.dumps({"classes": list(classes), "labels": given}, indent=2),
        "suggestions.json": json.dumps({"classes": list(classes), "labels": suggested}, indent=2),
    }
