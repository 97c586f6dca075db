"""What `bspml audit` leaves beside the audit: corrected labels, photos in folders, exports."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bspml.auditing import AuditReport
from bspml.auditing.exports import check_export, write_export
from bspml.auditing.exports.suspects import photo_folder, shown_suspects
from bspml.auditing.folder import CORRECTED
from bspml.cli.options import AuditOptions
from bspml.cli.terminal import note
from bspml.data.labels.decisions import (
    CorrectedLabels,
    Decision,
    apply_decisions,
    read_corrected,
    write_corrected,
)
from bspml.data.labels.own_labels import at_rows, located, refuse_other_pictures
from bspml.data.labels.photo_tree import LISTED, CopiedPhotos, check_photos, copy_photos
from bspml.data.picture_keys import keys_in
from bspml.data.retrieval import Origin
from bspml.errors import DataError, InputError
from bspml.files.atomic import remove_leftovers
from bspml.words import counted


@dataclass(frozen=True)
class Results:
    """What was written beside the audit.

    Attributes:
        copied: the photos in folders, or None.
        exported: the files for a tool.
        lines: that say so.
    """

    copied: CopiedPhotos | None = None
    exported: list[Path] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def summary(self, options: AuditOptions) -> dict[str, Any]:
        """Return it for JSON.

        Args:
            options: of the command.
        """
        copied = None
        if self.copied is not None:
            fields = ("count", "classes", "dropped")
            copied = {"folder": options.copy_to} | {n: getattr(self.copied, n) for n in fields}
        exported = [str(path) for path in self.exported] if options.export else None
        return {"copied": copied, "exported": exported}


def samples_of(
    labels: np.ndarray,
    names: Sequence[str] | np.ndarray | None,
    images: Any,
    known: np.ndarray | None = None,
) -> Origin:
    """The samples of an audit, among which those decided on are looked for.

    Args:
        labels: (N,) of the audit.
        names: N names, or None.
        images: folder that the names are files in, or something else.
        known: N digests of an earlier audit, where the photos are not at hand; or None.
    """
    own, photos = None if names is None else tuple(map(str, names)), photo_folder(images)
    if photos is None and known is not None:
        return Origin(labels.astype(str), own, lambda rows: known[list(rows)].tolist())
    return Origin(labels.astype(str), own, partial(keys_in, photos, own))


def placed(decisions: list[Decision], origin: Origin) -> tuple[list[Decision], list[str]]:
    """The decisions at the samples they name, and notes; by their index where they name none.

    Args:
        decisions: of a file.
        origin: the samples of the audit.
    """
    if not any(made.name for made in decisions) or not origin.names:
        return at_rows(decisions, np.array([d.index for d in decisions], object), origin), []
    found, notes = located(decisions, origin)
    said = {made.where: made.index for made in decisions}
    moved = [made for made in found if made.index != said[made.where]]
    if moved:
        notes.append(
            f"{moved[0].where}: {counted(len(moved), 'decision stands', 'decisions stand')} at "
            f"another index than the name has here, the first is {moved[0].name!r}; the name counts"
        )
    return found, notes


def corrected_labels(
    report: AuditReport, decisions: list[Decision], origin: Origin
) -> CorrectedLabels:
    """The labels of an audit after decisions, of which the report may hold earlier ones.

    Args:
        report: the audit.
        decisions: new ones, at the samples of the report.
        origin: these samples, with what their photos show.

    Raises:
        DataError: see `apply_decisions`; or a photo of an earlier decision is another one now.
    """
    corrected = apply_decisions(report.labels, decisions, report.weights, report.names)
    pictures = np.array(corrected.pictures or [""] * len(report), dtype="<U32")
    if report.decided is not None:
        is_open = corrected.decisions == ""
        decisions_made = np.where(is_open, report.decided, corrected.decisions)
        corrected = replace(corrected, decisions=decisions_made, given=report.given_labels)
        if report.picture_keys is not None:
            pictures[is_open] = report.picture_keys[is_open]
            pictures[decisions_made == ""] = ""
            every = np.arange(len(report))
            refuse_other_pictures(pictures.tolist(), every, origin, ["the audit"] * len(report))
    rows = np.flatnonzero((corrected.decisions != "") & (pictures == ""))
    assert origin.pictures is not None
    pictures[rows] = origin.pictures(rows.tolist())
    return replace(corrected, pictures=tuple(pictures.tolist()) if (pictures != "").any() else None)


def save_corrected(folder: Path, corrected: CorrectedLabels) -> Path:
    """Write the corrected labels into the folder of the audit; say if others were there.

    Args:
        folder: of the audit.
        corrected: the labels.
    """
    path = folder / CORRECTED
    before = path.read_bytes() if path.is_file() else None
    earlier: set[str | int] = set()
    with contextlib.suppress(DataError):  # damaged, or another file of that name
        earlier = _decided(read_corrected(path))
    remove_leftovers(folder)
    write_corrected(path, corrected)
    if before is not None and before != path.read_bytes():
        note(
            f"note: {path}: an earlier one was replaced; decisions of it that the new one lacks: "
            f"{len(earlier - _decided(corrected))} of {len(earlier)}"
        )
    return path


def _decided(labels: CorrectedLabels) -> set[str | int]:
    """The samples that somebody decided on, by name where they have one."""
    rows = np.flatnonzero(labels.decisions != "").tolist()
    return {labels.names[i] if labels.names else i for i in rows}


def check_results(
    options: AuditOptions,
    names: Sequence[str] | np.ndarray | None,
    texts: Any,
    images: Any,
    is_decided: bool,
) -> None:
    """Refuse, before the work, what cannot be written after it.

    Args:
        options: of the command.
        names: of the samples, or None.
        texts: of the samples, or None.
        images: folder that the names are files in, or something else.
        is_decided: there are decisions.

    Raises:
        UserError: an export of samples that the tool cannot show, or photos that cannot be copied.
    """
    if options.export is not None:
        check_export(options.export, names, texts, images)
    if options.copy_to is None:
        return
    if not is_decided:
        raise InputError(
            "--copy-to lays out the photos by their corrected labels; name the decisions with "
            "--apply."
        )
    photos = photo_folder(images)
    if photos is None:
        raise InputError("--copy-to needs the photos; name their folder with --images.")
    check_photos(photos, names, Path(options.copy_to))


def write_results(
    options: AuditOptions,
    report: AuditReport,
    corrected: CorrectedLabels | None,
    folder: Path,
    images: Any,
) -> Results:
    """Copy the photos and export the suspects, where the options ask for it.

    Args:
        options: of the command.
        report: the audit.
        corrected: labels after the decisions, or None.
        folder: of the audit.
        images: folder that the names are files in, or something else.

    Raises:
        UserError: something cannot be written.
    """
    results = Results()
    photos = photo_folder(images)
    if options.copy_to is not None and corrected is not None and photos is not None:
        if not options.hushed:
            note(f"copying photos to {options.copy_to}")
        # As the folders have them: those of the report may hold earlier decisions already.
        given = report.labels if corrected.given is None else corrected.given
        copied = copy_photos(corrected, given, photos, Path(options.copy_to))
        for sentence in copied.notes:
            note(f"note: {sentence}")
        line = (
            f"{options.copy_to}: {counted(copied.count, 'photo')} in "
            f"{counted(copied.classes, 'class', 'classes')}, {copied.dropped} left out as wrong; "
            f"{LISTED} says which photo each is"
        )
        results = replace(results, copied=copied, lines=[line])
    if options.export is not None:
        files = write_export(report, options.export, folder, images)
        line = (
            f"{files[0].parent}: {', '.join(path.name for path in files)}; "
            f"{len(shown_suspects(report, options.export, images)):,} of "
            f"{counted(int(report.suspects.sum()), 'suspect')} for {options.export}"
        )
        results = replace(results, exported=files, lines=[*results.lines, line])
    return results
