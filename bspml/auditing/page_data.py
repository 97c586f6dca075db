"""An audit as what the page shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bspml.auditing.columns import KEPT_Q
from bspml.auditing.pictures import PagePictures
from bspml.report.models import ClassRow, Duplicate, Histogram, PageData
from bspml.report.samples import Samples
from bspml.words import counted

if TYPE_CHECKING:
    from bspml.auditing.report import AuditReport

_SUSPECTS = 10_000
_PAIRS = 2_000


def page_data(
    report: AuditReport,
    folder: Path,
    images: Any = None,
    texts: Sequence[str] | None = None,
    title: str = "Audit of labels",
) -> PageData:
    """Make the page of an audit.

    Args:
        report: the audit.
        folder: where the page will lie.
        images: a folder that the names are files in, or pixels (N, channels, H, W), or None.
        texts: N texts, or None.
        title: of the page.

    Raises:
        InputError: texts or pixels of another number than the samples.
        DataError: no such folder, or none of the names is a file in it.
    """
    samples = Samples(
        labels=report.labels,
        weights=report.weights,
        names=report.names,
        suggested=report.suggested_labels,
        margins=report.margins,
        p_values=report.p_values,
        q_values=report.q_values,
        own=report.own_neighbours,
        other=report.other_neighbours,
        texts=texts,
        picture=PagePictures(images, report.names, folder, report.pictures),
    )
    return PageData(
        title=title,
        sentence=report.sentence,
        facts=tuple(_audit_facts(report)),
        histogram=Histogram.of(report.p_values, report.noise_rate),
        classes=_class_rows(report),
        suspects=tuple(samples.card(i) for i in suspects(report)),
        duplicates=_duplicates(report, samples),
        integer_labels=report.labels.dtype.kind in "iu",
    )


def suspects(report: AuditReport) -> list[int]:
    """Return the samples that look wrong or fit another class better, most suspicious first."""
    order = report.order()
    return order[report.suspects[order]][:_SUSPECTS].tolist()


def _audit_facts(report: AuditReport) -> list[tuple[str, str]]:
    summary = report.summary()
    facts = [
        ("samples", f"{summary['samples']} in {counted(summary['classes'], 'class', 'classes')}"),
        ("labels that can be judged", str(summary["testable"])),
        ("labels that look wrong", str(summary["look_wrong"])),
        ("others to look at", str(summary["others_to_look_at"])),
        ("suspects", _relation(summary["suspects"], summary["look_wrong"])),
        (f"fit their label (q < {KEPT_Q:g})", str(summary["fit_their_label"])),
        (
            "copies",
            f"{summary['exact_duplicates']} exact and "
            f"{counted(summary['near_duplicates'], 'near pair')}, "
            f"{summary['duplicates_with_different_labels']} under different labels",
        ),
        ("classes that look like two", str(summary["classes_that_look_like_two"])),
        ("classes that look like another", str(summary["classes_that_look_like_another"])),
    ]
    return facts + [("note", note) for note in report.notes]


def _relation(suspects: int, flagged: int) -> str:
    """Explain how the suspects on the page relate to the estimate in its heading."""
    remark = f", the first {_SUSPECTS:,} of them shown" if suspects > _SUSPECTS else ""
    return (
        f"{suspects:,} to look at{remark}: the {flagged:,} that look wrong and the "
        f"{suspects - flagged:,} others that are wrong with a chance of 1 in 5 or more. The "
        "heading estimates how many labels are wrong, not which: some suspects are right, and a "
        "wrong label may not be among them."
    )


def _class_rows(report: AuditReport) -> tuple[ClassRow, ...]:
    # Where there was nothing to judge, nothing is flagged.
    table = report.classes[list(ClassRow.model_fields)].fillna({"share_flagged": 0.0})
    return tuple(
        ClassRow(**{**row, "label": str(row["label"])}) for row in table.to_dict("records")
    )


def _duplicates(report: AuditReport, samples: Samples) -> tuple[Duplicate, ...]:
    pairs = []
    for pair in report.duplicates.head(_PAIRS).itertuples():
        a, b = samples.neighbour(int(pair.first)), samples.neighbour(int(pair.second))
        pairs.append(
            Duplicate(
                a=a.index,
                b=b.index,
                label_a=a.label,
                label_b=b.label,
                similarity=float(pair.similarity),
                image_a=a.image,
                image_b=b.image,
            )
        )
    return tuple(pairs)
