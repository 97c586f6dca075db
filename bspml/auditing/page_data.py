"""An audit as what the page shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bspml.auditing.columns import KEPT_Q
from bspml.auditing.confusion_table import confusion_table
from bspml.auditing.pictures import PagePictures
from bspml.report.models import (
    ClassRow,
    Confusion,
    Duplicate,
    Histogram,
    PageData,
    PhotoCheck,
    SampleMap,
)
from bspml.report.samples import Samples
from bspml.words import counted

if TYPE_CHECKING:
    from bspml.auditing.report import AuditReport

_SUSPECTS = 10_000
_PAIRS = 2_000
_CONFUSIONS = 1_000
_PHOTOS = 2_000
_POINTS = 20_000  # of the map: more are slow to draw on a phone, and hide each other
_USUAL = 0.5  # what more of the photos than this have is how these data are, and not listed
_MAP_METHODS = {"pca": "the two directions that vary most (PCA)", "umap": "UMAP"}


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
    pictures = PagePictures(images, report.names, folder, report.pictures)
    samples = Samples(
        labels=report.labels,
        weights=report.weights,
        names=report.names,
        suggested=report.suggested_labels,
        margins=report.margins,
        p_values=report.p_values,
        q_values=report.q_values,
        wrong_probability=report.wrong_probability,
        suggestion_probability=report.suggestion_probability,
        fits_no_class=report.fits_nothing,
        own=report.own_neighbours,
        other=report.other_neighbours,
        texts=texts,
        key=lambda i: "" if report.picture_keys is None else str(report.picture_keys[i]),
        picture=pictures,
    )
    photos, notes = _photo_checks(report, samples, pictures.folder is not None)
    cards, confusions = suspects(report), _confusions(report)
    notes += _cut(len(report.duplicates), _PAIRS, "pairs of copies")
    notes += _cut(len(confusions), _CONFUSIONS, "pairs of confused classes")
    return PageData(
        title=title,
        sentence=report.sentence,
        facts=(*_audit_facts(report), *(("note", note) for note in notes)),
        histogram=Histogram.of(report.p_values, report.noise_rate),
        classes=_class_rows(report),
        suspects=tuple(samples.card(i) for i in cards),
        duplicates=_duplicates(report, samples),
        confusions=confusions[:_CONFUSIONS],
        map=_sample_map(report, cards),
        photo_checks=photos,
        image_folder=pictures.folder,
        integer_labels=report.labels.dtype.kind in "iu",
    )


def suspects(report: AuditReport) -> list[int]:
    """Return the suspects, flagged or to be looked at, most suspicious first."""
    order = report.order()
    return order[report.suspects[order]][:_SUSPECTS].tolist()


def _audit_facts(report: AuditReport) -> list[tuple[str, str]]:
    summary = report.summary()
    facts = [
        ("samples", f"{summary['samples']} in {counted(summary['classes'], 'class', 'classes')}"),
        ("labels that can be judged", str(summary["testable"])),
        ("labels flagged", str(summary["look_wrong"])),
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
        f"{suspects:,} to look at{remark}: the {flagged:,} flagged and the "
        f"{suspects - flagged:,} others that are wrong with a chance of 1 in 5 or more, or of a "
        "sample that fits no class. The heading estimates how many labels are wrong, not which: "
        "some suspects are right, and a wrong label may not be among them."
    )


def _class_rows(report: AuditReport) -> tuple[ClassRow, ...]:
    # Where there was nothing to judge, nothing is flagged.
    table = report.classes[list(ClassRow.model_fields)].fillna({"share_flagged": 0.0})
    return tuple(
        ClassRow(**{**row, "label": str(row["label"])}) for row in table.to_dict("records")
    )


def _confusions(report: AuditReport) -> tuple[Confusion, ...]:
    table = confusion_table(report).rename(columns={"suggested_label": "suggested"})
    return tuple(
        Confusion(**{**row, "label": str(row["label"]), "suggested": str(row["suggested"])})
        for row in table.to_dict("records")
    )


def _sample_map(report: AuditReport, cards: Sequence[int]) -> SampleMap | None:
    """The map of all suspects on the page and, where all are too many, evenly of the others."""
    if report.embedding_map is None:
        return None
    others = np.setdiff1d(np.arange(len(report)), cards)
    room = max(0, _POINTS - len(cards))
    if len(others) > room:
        others = others[np.linspace(0, len(others) - 1, room).astype(int)]
    shown = np.sort(np.concatenate([np.asarray(cards, np.int64), others]))
    changed = report.suggested_labels != report.labels
    suggested = np.where(changed, report.suggested_labels.astype(str), "")
    x, y = report.embedding_map[shown].astype(np.float64).T.tolist()
    return SampleMap(
        method=_MAP_METHODS.get(report.map_method, report.map_method),
        total=len(report),
        index=shown.tolist(),
        x=x,
        y=y,
        label=report.labels[shown].astype(str).tolist(),
        suggested=suggested[shown].tolist(),
        name=report.names[shown].tolist() if (report.names != "").any() else (),
    )


def _photo_checks(
    report: AuditReport, samples: Samples, at_hand: bool
) -> tuple[tuple[PhotoCheck, ...], list[str]]:
    """The photos with problems, those with most of them first, and what to know about them."""
    table = report.photo_checks
    if table is None:
        missing = (
            "photos were not checked for being dark, blurred, empty, or of odd size or shape: that "
            "needs `pip install 'bspml[photo-checks]'`"
        )
        return (), [missing] if at_hand else []
    counts = table["problem"].value_counts()
    usual = counts.index[counts > _USUAL * len(report)].tolist()
    notes = [
        f"{counts[problem]:,} photos are called {problem}: that is how these data are, and they "
        "are not listed"
        for problem in usual
    ]
    listed = table[~table["problem"].isin(usual)]
    problems = listed.groupby("index", sort=False)["problem"].agg(tuple)
    problems = problems.loc[problems.map(len).sort_values(ascending=False, kind="stable").index]
    photos = tuple(
        PhotoCheck(**dict(samples.neighbour(int(i))), problems=found)
        for i, found in problems.head(_PHOTOS).items()
    )
    return photos, notes + _cut(len(problems), _PHOTOS, "bad photos")


def _cut(found: int, most: int, what: str) -> list[str]:
    """Say that a list of the page is not all that was found."""
    return [f"the first {most:,} of {found:,} {what} are shown"] * (found > most)


def _duplicates(report: AuditReport, samples: Samples) -> tuple[Duplicate, ...]:
    pairs = []
    for pair in report.duplicates.head(_PAIRS).itertuples():
        a, b = samples.neighbour(int(pair.first)), samples.neighbour(int(pair.second))
        sides = {
            f"{name}_{side}": value
            for side, sample in (("a", a), ("b", b))
            for name, value in sample.model_dump(exclude={"index"}).items()
        }
        pairs.append(Duplicate(a=a.index, b=b.index, similarity=float(pair.similarity), **sides))
    return tuple(pairs)
