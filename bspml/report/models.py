"""What a page shows, as checked records, and the JSON files that hold them.

An audit and a run both fill a `PageData`: cards of suspects with their neighbours, rows of classes,
pairs of copies and more.  Every file is checked when it is read, as users edit files: a fault ends
in one sentence that names the file, the row and the field.
"""

from __future__ import annotations

import json
import math
import os
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    StrictBool,
    StrictStr,
    ValidationError,
    model_validator,
)

from bspml.errors import RunError
from bspml.files.folders import is_image_name
from bspml.files.run import EpochRecord, read_json, write_json

_BINS = 40  # of the p-value histogram
_OF_BOTH = ("name", "label", "image", "text", "picture")  # what a pair says of each
# Pydantic's error type -> what was expected; its own words speak of tuples and dictionaries.
_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "is_instance_of": "an object",
    "too_short": "of at least 1 entry",
    "too_long": "a pair",
    "greater_than_equal": "at least 0",
}


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _epoch_record(value: Any) -> Any:
    """An `EpochRecord` from the fields that a file holds of it."""
    if not isinstance(value, Mapping):
        return value
    try:
        return EpochRecord.from_line(json.dumps(value))
    except (TypeError, KeyError, AttributeError, OverflowError) as err:
        raise ValueError(str(err)) from err


Whole = Annotated[int, Field(strict=True, ge=0)]
# NaN and infinity, which JSON does not know, are unknown.
Number = Annotated[
    Annotated[float, Field(strict=True)] | None, BeforeValidator(_finite_or_none), Field()
]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Curve = Annotated[InstanceOf[EpochRecord], BeforeValidator(_epoch_record), PlainSerializer(asdict)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Neighbour(_Record):
    """A sample as the page shows it.

    Attributes:
        index: of the sample in the data set.
        name: of the sample, '' or None for none.
        label: as given, possibly wrong.
        image: a path relative to the page, or a data URI; others are left out of the page.
        text: to read instead of a picture.
        picture: digest of its photo, '' or None for none.
    """

    index: Whole
    name: StrictStr | None = ""
    label: StrictStr
    image: StrictStr | None = None
    text: StrictStr | None = None
    picture: StrictStr | None = ""

    def samples(self) -> tuple[Neighbour, ...]:
        """Return all samples that are shown with this one, itself the first."""
        return (self,)


class Suspect(Neighbour):
    """The card of a label to look at; None where a number is not known.

    Attributes:
        suggested: the label that fits better, '' or None for none.
        margin: how much better it fits.
        p: p-value of the given label, small where it fits.
        q: q-value of the given label.
        weight: of the sample, in [0, 1].
        wrong_probability, suggestion_probability: that the given label is wrong, the other right.
        fits_no_class: whether it is like the samples of no class, so that none is suggested.
        own: nearest samples under the given label.
        other: nearest samples under the suggested one, or the one that fits next best.
    """

    suggested: StrictStr | None = ""
    margin: Number = None
    p: Number = None
    q: Number = None
    weight: Number = None
    wrong_probability: Number = None
    suggestion_probability: Number = None
    fits_no_class: StrictBool = False
    own: tuple[Neighbour, ...]
    other: tuple[Neighbour, ...]

    def samples(self) -> tuple[Neighbour, ...]:
        """Return the suspect and its neighbours."""
        return (self, *self.own, *self.other)


class ClassRow(_Record):
    """A row of the table of classes.

    Attributes:
        label: of the class.
        support: samples under it.
        mean_weight: of these samples.
        share_flagged: of its labels, how many are suspicious, in [0, 1].
        looks_like_two: whether it looks like two classes under one label.
        looks_like: the label of a class it looks the same as, '' or None for none.
    """

    label: StrictStr
    support: Whole
    mean_weight: Number = None
    share_flagged: Number = None
    looks_like_two: StrictBool
    looks_like: StrictStr | None = ""


class Confusion(_Record):
    """How many labels of a class look like those of another.

    Attributes:
        label: of the class.
        suggested: label of the other class.
        count: flagged labels.
        share: of the labels of the class, in [0, 1].
        low: low end of the share's 95 % interval.
        high: its high end.
    """

    label: StrictStr
    suggested: StrictStr
    count: Whole
    share: Number = None
    low: Number = None
    high: Number = None


class PhotoCheck(Neighbour):
    """A photo that is bad as a picture, and what is wrong with it in a few words."""

    problems: tuple[StrictStr, ...] = Field(min_length=1)


class SampleMap(_Record):
    """Samples as points in the plane, column by column.

    Attributes:
        method: how they were placed, for readers.
        total: samples of the data set, of which these are a part.
        index: of each shown sample.
        x: place of each.
        y: place of each.
        label: as given.
        suggested: the label that fits better, '' for none.
        name: of each, '' for none; or no names at all.
    """

    method: StrictStr
    total: Whole
    index: tuple[Whole, ...] = Field(min_length=1)
    x: tuple[Finite, ...]
    y: tuple[Finite, ...]
    label: tuple[StrictStr, ...]
    suggested: tuple[StrictStr, ...]
    name: tuple[StrictStr, ...] = ()

    @model_validator(mode="after")
    def _check_lengths(self) -> SampleMap:
        lengths = {len(c) for c in (self.index, self.x, self.y, self.label, self.suggested)}
        if len(lengths | ({len(self.name)} if self.name else set())) > 1:
            raise ValueError("its columns are of different lengths")
        return self


class Duplicate(_Record):
    """A pair of copies: sample indices, labels, similarity in [-1, 1]; and of both, where there
    are any, the pictures, names, texts and digests.
    """

    a: Whole
    b: Whole
    label_a: StrictStr
    label_b: StrictStr
    similarity: Number = None
    image_a: StrictStr | None = None
    image_b: StrictStr | None = None
    name_a: StrictStr | None = ""
    name_b: StrictStr | None = ""
    text_a: StrictStr | None = None
    text_b: StrictStr | None = None
    picture_a: StrictStr | None = ""
    picture_b: StrictStr | None = ""

    def samples(self) -> tuple[Neighbour, ...]:
        """Return both samples."""
        return tuple(
            Neighbour(index=index, **{k: getattr(self, f"{k}_{side}") for k in _OF_BOTH})
            for index, side in ((self.a, "a"), (self.b, "b"))
        )


class Histogram(_Record):
    """The histogram of p-values over [0, 1].

    Attributes:
        counts: labels per bin, bins of equal width.
        null_level: labels per bin that are wrong at random; their p-values are uniform.
    """

    counts: tuple[Whole, ...] = Field(min_length=1)
    null_level: float = Field(strict=True, allow_inf_nan=False)

    @classmethod
    def of(cls, p_values: np.ndarray, noise_rate: float) -> Histogram:
        """Count p-values.

        Args:
            p_values: (N,) in [0, 1], NaN where a label was not judged.
            noise_rate: estimated share of the judged labels that are wrong at random, in [0, 1].

        Example:
            >>> histogram = Histogram.of(np.array([0.01, 0.02, 0.9, np.nan]), noise_rate=0.5)
            >>> histogram.counts[0], sum(histogram.counts), histogram.null_level
            (2, 3, 0.0375)
        """
        judged = p_values[~np.isnan(p_values)]
        counts = np.histogram(judged, _BINS, (0, 1))[0]
        return cls(counts=counts.tolist(), null_level=noise_rate * len(judged) / _BINS)


class PageData(_Record):
    """All that a page shows.  Empty parts are left out of it.

    Attributes:
        title: of the page.
        sentence: the noise rate in one sentence.
        warnings: sentences under it, such as that a training made a network worse.
        facts: (name, value) pairs under it.
        histogram: of the p-values, or None.
        curves: records of a run by epoch, in order of time.
        classes: rows of the table of classes.
        suspects: most suspicious first.
        duplicates: pairs of copies.
        confusions: pairs of classes that are taken for each other, the most frequent first.
        map: samples as points in the plane, or None.
        photo_checks: photos that are bad as pictures.
        image_folder: path from the page to the folder that names are files in, to show pictures
            at their full size; None where there is none.
        integer_labels: labels are whole numbers, and are written so in the decisions file.
    """

    title: StrictStr
    sentence: StrictStr
    warnings: tuple[StrictStr, ...] = ()
    facts: tuple[tuple[StrictStr, StrictStr], ...] = ()
    histogram: Histogram | None = None
    curves: tuple[Curve, ...] = ()
    classes: tuple[ClassRow, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    duplicates: tuple[Duplicate, ...] = ()
    confusions: tuple[Confusion, ...] = ()
    map: SampleMap | None = None
    photo_checks: tuple[PhotoCheck, ...] = ()
    image_folder: StrictStr | None = None
    integer_labels: StrictBool = False

    def pictures(self) -> dict[int, str]:
        """Return {sample index: its picture} of all samples on the page that have one."""
        entries: Iterable[Neighbour | Duplicate]
        entries = (*self.suspects, *self.duplicates, *self.photo_checks)
        return {s.index: s.image for entry in entries for s in entry.samples() if s.image}


class RunSuspects(_Record):
    """What a run keeps for its page beside its records, in suspects.json.

    Attributes:
        histogram: of the p-values, or None.
        suspects: most suspicious first, without pictures.
        pictures: {sample index as text: data URI}; each picture once, as neighbours repeat.
    """

    histogram: Histogram | None
    suspects: tuple[Suspect, ...]
    pictures: dict[StrictStr, StrictStr]


Model = TypeVar("Model", bound=BaseModel)


def check_record(kind: type[Model], values: object, path: str | os.PathLike[str]) -> Model:
    """Make a record of what a file holds.

    Args:
        kind: of record.
        values: the file's JSON value.
        path: the file.

    Raises:
        RunError: the values are not such a record; names the file, the row and the field.

    Example:
        >>> check_record(Histogram, {"counts": [3, 1], "null_level": 1.0}, "page.json").counts
        (3, 1)
    """
    try:
        return kind.model_validate(values)
    except ValidationError as err:
        fault = err.errors(include_url=False)[0]
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in fault["loc"])[1:]
        expected = _EXPECTED.get(fault["type"], fault["msg"].removeprefix("Input should be "))
        sentence = f"must be {expected}; got {reprlib.repr(fault['input'])}"
        if fault["type"] == "missing":
            sentence = "is missing"
        elif fault["type"] == "value_error":
            kind_of = "no map" if place == "map" else "no record of a run"
            sentence = f"is {kind_of} ({fault['ctx']['error']})"
        raise RunError(f"{path}: {place} {sentence}. Was the file edited? Make it again.") from err


def save_page(data: PageData, path: str | os.PathLike[str]) -> Path:
    """Write a page's data as JSON, atomically.

    Args:
        data: of the page.
        path: of the file.

    Raises:
        RunError: the file cannot be written.
    """
    return write_json(path, data.model_dump())


def load_page(path: str | os.PathLike[str], audit: str | None = None) -> PageData:
    """Read what `save_page` wrote.

    Args:
        path: the file.
        audit: the audit it must belong to, if any.

    Raises:
        RunError: missing, not such a file, damaged, or of another audit.
    """
    values = read_json(path)
    identity = values.pop("audit", None) if isinstance(values, dict) else None
    if audit is not None and identity != audit:
        raise RunError(f"{path}: is of another audit than the files beside it; run it again.")
    fields = PageData.model_fields.keys()
    if not isinstance(values, dict) or not {"title", "sentence"} <= values.keys() <= fields:
        raise RunError(
            f"{path}: is not a saved page; expected a JSON object with title and sentence and at "
            f"most {', '.join(sorted(fields))}. Run the audit again."
        )
    page = check_record(PageData, values, path)
    for sample_index, image in page.pictures().items():
        if not image.startswith("data:") and not is_image_name(image):
            raise RunError(
                f"{path}: the image of sample {sample_index} is {image!r:.80}, no file of a "
                "picture. Was the file edited? Make it again."
            )
    return page
