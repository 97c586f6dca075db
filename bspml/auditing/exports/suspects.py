"""The suspects of an audit as the tools for labelling take them: plain text, numbers, a photo."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from bspml.auditing.report import AuditReport
from bspml.files.folders import file_in

# What XML 1.0 cannot hold, not even escaped; lone surrogates are among it.
_NO_TEXT = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
SCORES = ("wrong_probability", "suggestion_probability", "margin", "p_value", "q_value")


@dataclass(frozen=True)
class Suspect:
    """A sample whose label should be looked at.

    Attributes:
        index: of the sample.
        name: its own, '' for none; the bytes of a file name that is no text are still in it.
        label: as given.
        suggested: the class that fits best, perhaps the given one.
        scores: the `SCORES` as in `audit.csv`, without those that are not known.
        text: to read, or None.
        photo: absolute path of its photo, or None.
        place: of the photo from the folder that the folder of the photos lies in, or None.
    """

    index: int
    name: str
    label: str
    suggested: str
    scores: dict[str, float]
    text: str | None = None
    photo: Path | None = None
    place: str | None = None

    @property
    def confidence(self) -> float:
        """The probability of the suggested label, in [0, 1]."""
        return self.scores.get("suggestion_probability", 0.0)


def find_suspects(report: AuditReport, images: Any = None) -> list[Suspect]:
    """Return the suspects of an audit, most suspicious first.

    Args:
        report: the audit.
        images: folder that the names are files in; anything else counts as none.

    Example:
        >>> from bspml.auditing import audit
        >>> import numpy as np
        >>> x = np.repeat(np.eye(4), 8, 0) + 0.2 * np.random.default_rng(0).normal(size=(32, 4))
        >>> report = audit(x, ["b", *"aaaaaaa", *"bbbbbbbb", *"cccccccc", *"dddddddd"])
        >>> first = find_suspects(report)[0]
        >>> first.index, first.label, first.suggested
        (0, 'b', 'a')
    """
    order = report.order()
    rows = order[report.suspects[order]].tolist()
    return [_suspect(report, i, photo_folder(images)) for i in rows]


def shown_suspects(report: AuditReport, tool: str, images: Any = None) -> list[Suspect]:
    """Return the suspects that a tool can show, most suspicious first.

    Args:
        report: the audit.
        tool: one of `TOOLS`: CVAT shows what has a name, FiftyOne photos, and Label Studio photos
            and web addresses, or else texts.
        images: see `find_suspects`.
    """
    suspects, linked = find_suspects(report, images), tool == "label-studio"
    if tool == "cvat":
        return [suspect for suspect in suspects if suspect.name]
    seen = [s for s in suspects if s.photo is not None or (linked and "://" in s.name)]
    return seen or [s for s in suspects if linked and s.text is not None]


def _suspect(report: AuditReport, i: int, folder: Path | None) -> Suspect:
    name = str(report.names[i])
    probable = (report.wrong_probability, report.suggestion_probability)
    columns = (*probable, report.margins, report.p_values, report.q_values)
    photo = None if folder is None else file_in(folder, name)
    return Suspect(
        index=i,
        name=name,
        label=plain_text(report.labels[i]),
        suggested=plain_text(report.suggested_labels[i]),
        scores={key: float(c[i]) for key, c in zip(SCORES, columns, strict=True) if isfinite(c[i])},
        text=None if report.texts is None else plain_text(report.texts[i]),
        photo=photo,
        place=None if folder is None or photo is None else f"{folder.name}/{name}",
    )


def photo_folder(images: Any) -> Path | None:
    """Return the folder of the photos as an absolute path, None where it is something else.

    Args:
        images: see `AuditReport.save`.
    """
    if not isinstance(images, str | os.PathLike):
        return None
    # Not resolved: a link keeps the name by which the user, and the tool, know it.
    return Path(os.path.abspath(images))  # noqa: PTH100


def plain_text(value: object) -> str:
    """Return text that JSON and XML can hold: what XML forbids is spelled out, so that classes that
    differ in it stay two.

    Example:
        >>> print(plain_text("a<b\\0"))
        a<b\\x00
    """
    return _NO_TEXT.sub(lambda found: ascii(found[0])[1:-1], str(value))


def class_names(report: AuditReport) -> list[str]:
    """Return the classes of an audit as plain text, each once."""
    return list(dict.fromkeys(plain_text(name) for name in report.classes["label"]))
