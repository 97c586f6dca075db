"""An audit as what the page shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bspml.auditing.pictures import Pictures
from bspml.auditing.report import KEPT_Q, AuditReport
from bspml.errors import InputError
from bspml.words import counted

if TYPE_CHECKING:
    from bspml.report.page import PageData

__all__ = ["page_data"]

_BINS = 40  # of the p-value histogram
_SUSPECTS = 10_000
_PAIRS = 2_000


def page_data(
    report: AuditReport,
    folder: Path,
    images: Any = None,
    texts: Sequence[str] | None = None,
    title: str = "Audit of labels",
) -> PageData:
    """What `bspml.report.page.render_page` needs.

    Args:
        report: the audit.
        folder: where the page will lie.
        images: a folder that the names are files in, or pixels (N, channels, H, W), or None.
        texts: N texts, or None.
        title: of the page.
    """
    from bspml.report.page import PageData

    if texts is not None and len(texts) != len(report):
        raise InputError(f"`texts` must be one per sample, {len(report)}; got {len(texts)}.")
    pictures = Pictures(images, report.names, folder, report.pictures)
    samples = _Samples(report, pictures, texts)
    return PageData(
        title=title,
        sentence=report.sentence,
        facts=_facts(report),
        histogram=_histogram(report),
        curves=[],
        classes=_classes(report),
        suspects=[samples.suspect(i) for i in suspects(report)],
        duplicates=samples.duplicates(),
        integer_labels=report.labels.dtype.kind in "iu",
    )


def suspects(report: AuditReport) -> list[int]:
    """Samples that look wrong or fit another class better, most suspicious first."""
    order = report.order()
    return order[report.suspects[order]][:_SUSPECTS].tolist()


def _facts(report: AuditReport) -> list[tuple[str, str]]:
    found = report.summary()
    facts = [
        ("samples", f"{found['samples']} in {counted(found['classes'], 'class', 'classes')}"),
        ("labels that can be judged", str(found["testable"])),
        ("labels that look wrong", str(found["look_wrong"])),
        ("others that fit another class better", str(found["others_fit_another_class_better"])),
        ("suspects", _relation(found["suspects"], found["look_wrong"])),
        (f"fit their label (q < {KEPT_Q:g})", str(found["fit_their_label"])),
        (
            "copies",
            f"{found['exact_duplicates']} exact and "
            f"{counted(found['near_duplicates'], 'near pair')}, "
            f"{found['duplicates_with_different_labels']} under different labels",
        ),
        ("classes that look like two", str(found["classes_that_look_like_two"])),
        ("classes that look like another", str(found["classes_that_look_like_another"])),
    ]
    return facts + [("note", note) for note in report.notes]


def _relation(suspects: int, flagged: int) -> str:
    """How the suspects on the page relate to the estimate in its heading."""
    shown = f", the first {_SUSPECTS:,} of them shown" if suspects > _SUSPECTS else ""
    return (
        f"{suspects:,} to look at{shown}: the {flagged:,} that look wrong and the "
        f"{suspects - flagged:,} others that fit another class better. The heading estimates how "
        "many labels are wrong, not which: some suspects are right, and a wrong label may not be "
        "among them."
    )


def _histogram(report: AuditReport) -> dict[str, Any]:
    p = report.p_values[~np.isnan(report.p_values)]
    counts = np.histogram(p, bins=_BINS, range=(0, 1))[0]
    return {"counts": counts.tolist(), "null_level": report.noise_rate * len(p) / _BINS}


def _classes(report: AuditReport) -> list[dict[str, Any]]:
    columns = ["label", "support", "mean_weight", "share_flagged", "looks_like_two", "looks_like"]
    rows = report.classes[columns].to_dict("records")
    for row in rows:
        row["label"] = str(row["label"])
        if math.isnan(row["share_flagged"]):  # nothing to judge, so nothing flagged
            row["share_flagged"] = 0.0
    return rows


class _Samples:
    """Samples as the page's dictionaries."""

    def __init__(
        self, report: AuditReport, pictures: Pictures, texts: Sequence[str] | None
    ) -> None:
        self.report, self.pictures, self.texts = report, pictures, texts
        self.labels = report.labels.astype(str)
        self.suggested = report.suggested_labels.astype(str)

    def suspect(self, i: int) -> dict[str, Any]:
        report = self.report
        return {
            **self._sample(i),
            "name": str(report.names[i]),
            "suggested": self.suggested[i] if self.suggested[i] != self.labels[i] else "",
            "margin": _number(report.margins[i]),
            "p": _number(report.p_values[i]),
            "q": _number(report.q_values[i]),
            "weight": float(report.weights[i]),
            "own": [self._sample(j) for j in report.own_neighbours[i].tolist() if j >= 0],
            "other": [self._sample(j) for j in report.other_neighbours[i].tolist() if j >= 0],
        }

    def _sample(self, i: int) -> dict[str, Any]:
        return {
            "index": i,
            "label": str(self.labels[i]),
            "image": self.pictures(i),
            "text": None if self.texts is None else str(self.texts[i]),
        }

    def duplicates(self) -> list[dict[str, Any]]:
        shown = self.report.duplicates.head(_PAIRS)
        return [
            {
                "a": int(pair.first),
                "b": int(pair.second),
                "label_a": str(self.labels[pair.first]),
                "label_b": str(self.labels[pair.second]),
                "similarity": float(pair.similarity),
                "image_a": self.pictures(pair.first),
                "image_b": self.pictures(pair.second),
            }
            for pair in shown.itertuples()
        ]


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
