"""A page's data as its script reads it: JSON in which nothing stands twice."""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any
from urllib.parse import quote

from bspml.report.models import Neighbour, PageData, SampleMap

KEY = "bspml-decisions-"  # of what a browser keeps for a page
_DATA_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp|bmp|avif);base64,[A-Za-z0-9+/]+={0,2}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_GRID = 4095  # places of the map along each axis


def payload(data: PageData) -> dict[str, Any]:
    """Return the page's data; labels, images and samples that repeat are stored once.

    A sample is a list: index, place of its label, place of its picture, text or null, name, place
    of the file of its picture, digest of its photo; -1 for no picture.

    Example:
        >>> content = payload(PageData(title="t", sentence="s"))
        >>> content["suspects"], content["map"]
        ([], None)
    """
    labels: dict[str, int] = {}
    images: dict[str, int] = {}
    samples: dict[tuple[int, int, int, str | None, str, int, str], int] = {}

    def label(text: str | None) -> int:
        return _place_of(text, labels) if text else -1

    def image(path: str | None) -> int:
        url = image_url(path)
        return -1 if url is None else _place_of(url, images)

    def sample(shown: Neighbour) -> int:
        name = shown.name or ""
        whole = None
        if data.image_folder is not None and name and shown.image:
            whole = f"{data.image_folder}/{name}"
        row = (
            shown.index,
            _place_of(shown.label, labels),
            image(shown.image),
            shown.text,
            name,
            image(whole),
            shown.picture or "",
        )
        return _place_of(row, samples)

    suspects = [
        {
            "sample": sample(s),
            "suggested": label(s.suggested),
            **s.model_dump(include={"margin", "p", "q", "weight"}),
            "chance": s.wrong_probability,
            "sure": s.suggestion_probability if s.suggested else None,
            "stranger": s.fits_no_class,
            "own": [sample(other) for other in s.own],
            "other": [sample(other) for other in s.other],
        }
        for s in data.suspects
    ]
    classes = [
        {
            "label": _place_of(c.label, labels),
            "support": c.support,
            "weight": c.mean_weight,
            "flagged": c.share_flagged,
            "two": c.looks_like_two,
            "like": label(c.looks_like),
        }
        for c in data.classes
    ]
    duplicates = []
    for pair in data.duplicates:
        a, b = map(sample, pair.samples())
        duplicates.append({"a": a, "b": b, "similarity": pair.similarity})
    confusions = [
        {
            "label": _place_of(c.label, labels),
            "suggested": _place_of(c.suggested, labels),
            **c.model_dump(include={"count", "share", "low", "high"}),
        }
        for c in data.confusions
    ]
    photos = [{"sample": sample(p), "problems": p.problems} for p in data.photo_checks]
    identity = [data.title, [[s.index, s.label] for s in data.suspects]]
    return {
        "key": KEY + hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24],
        "integers": data.integer_labels,
        "map": None if data.map is None else _map(data.map, labels),
        "labels": list(labels),
        "images": list(images),
        "samples": list(samples),
        "suspects": suspects,
        "classes": classes,
        "duplicates": duplicates,
        "confusions": confusions,
        "photos": photos,
    }


def _map(shown: SampleMap, labels: dict[str, int]) -> dict[str, Any]:
    """The points on a grid with the same unit on both axes, from 0; y grows upwards."""
    left, low = min(shown.x), min(shown.y)
    unit = max(max(shown.x) - left, max(shown.y) - low) / _GRID or 1.0
    return {
        "method": shown.method,
        "total": shown.total,
        "index": shown.index,
        "x": [round((x - left) / unit) for x in shown.x],
        "y": [round((y - low) / unit) for y in shown.y],
        "label": [_place_of(text, labels) for text in shown.label],
        "suggested": [_place_of(text, labels) if text else -1 for text in shown.suggested],
        "name": shown.name,
    }


def image_url(image: str | None) -> str | None:
    """Return a URL that can only name an image inside the page or a file beside it, or None.

    Raster data URIs pass.  A path must be relative: no scheme, no drive, no leading slash or
    backslash; it is percent-encoded byte by byte, so that names with #, ?, % or bytes that are not
    UTF-8 find their file and nothing in a name acts as part of a URL.

    Example:
        >>> image_url("birds/50% #1.png"), image_url("javascript:alert(1)")
        ('birds/50%25%20%231.png', None)
    """
    if not image:
        return None
    if _DATA_IMAGE.fullmatch(image):
        return image
    if image[0] in "/\\" or _SCHEME.match(image) or "\0" in image:
        return None
    try:
        return quote(os.fsencode(image), safe="/")
    except UnicodeEncodeError:  # half a surrogate pair that no file system gave
        return None


def _place_of(value: Any, values: dict[Any, int]) -> int:
    """The place of a value among distinct ones, in the order they come."""
    return values.setdefault(value, len(values))
