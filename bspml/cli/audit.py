"""`bspml audit`: which labels are wrong, in one sentence, a table and a page."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import typer

from bspml.auditing import AuditReport, audit
from bspml.auditing.files import is_audit_folder
from bspml.checks import check_device, check_number
from bspml.cli.audit_source import AuditSource, Options, read_source
from bspml.data.decisions import (
    CorrectedLabels,
    Decision,
    apply_decisions,
    read_decisions,
    write_corrected,
)
from bspml.errors import InputError
from bspml.records.plain import to_json

EXCEEDED = 3
CORRECTED = "labels-corrected.csv"
_SHOWN = 10  # suspects on the terminal


def run_audit(
    what: str,
    labels: str | None,
    output: str | None,
    apply: str | None,
    fail_above: float | None,
    images: str | None,
    names: str | None,
    backbone: str | None,
    weights: str | None,
    seed: int,
    device: str | None,
    workers: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Audit, write, print; `typer.Exit(3)` if the noise rate exceeds `fail_above`."""
    if fail_above is not None:
        check_number(fail_above, "--fail-above", 0, 1)
    decisions = None if apply is None else read_decisions(apply)
    caution = ""
    if is_audit_folder(Path(what)):
        if labels or backbone or weights:
            raise InputError(
                f"{what} is the folder of an earlier audit, which has labels and embeddings "
                "behind it; leave LABELS, --backbone and --weights out."
            )
        folder = Path(output or what)
        report = AuditReport.load(what)
        # Only the decisions are new, unless the page shall be made anew.
        files = [] if output is None and images is None else report.save(folder, images)
    else:
        chosen = check_device(device or "auto")
        hushed = quiet or as_json
        options = Options(labels, images, names, backbone, weights, chosen, workers, hushed)
        source = read_source(what, options)
        caution = source.caution
        if decisions is not None:
            apply_decisions(source.labels, decisions)  # refuse before the work, not after
        folder = Path(output or f"{Path(what).resolve().stem}-audit")
        report, files = _audit(source, folder, seed, what, hushed)
    corrected = None
    if decisions is not None:
        corrected = apply_decisions(report.labels, decisions, report.weights)
        files = [*files, write_corrected(folder / CORRECTED, corrected)]
    if as_json:
        print(_as_json(report, folder, files, caution, decisions))
    else:
        _print(report, folder, files, caution, corrected, quiet)
    if fail_above is not None and report.noise_rate > fail_above:
        print(
            f"bspml: the noise rate {report.noise_rate:.3f} is above --fail-above {fail_above:g}",
            file=sys.stderr,
        )
        raise typer.Exit(EXCEEDED)


def _audit(
    source: AuditSource, folder: Path, seed: int, what: str, hushed: bool
) -> tuple[AuditReport, list[Path]]:
    if not hushed:
        print(f"auditing {len(source.labels)} labels of {_plain(what)}", file=sys.stderr)
    report = audit(source.embeddings, source.labels, source.names, seed=seed)
    if source.caution:
        # The page and the summary must say it too.
        notes = (source.caution, *report.notes)
        report = AuditReport(**{**vars(report), "notes": notes})
    title = f"Audit of {_plain(Path(what).name)}"
    return report, report.save(folder, source.images, source.texts, title)


def _as_json(
    report: AuditReport,
    folder: Path,
    files: list[Path],
    caution: str,
    decisions: list[Decision] | None,
) -> str:
    return to_json(
        {
            **report.summary(),
            "caution": caution or None,
            "folder": str(folder),
            "files": [path.name for path in files],
            "decisions": None if decisions is None else len(decisions),
        }
    )


def _print(
    report: AuditReport,
    folder: Path,
    files: list[Path],
    caution: str,
    corrected: CorrectedLabels | None,
    quiet: bool,
) -> None:
    print(report.sentence)
    if not quiet:
        found = report.summary()
        for note in report.notes:
            print(f"note: {note}")
        print(
            f"\n{found['samples']} samples in {found['classes']} classes: {found['flagged']} "
            f"labels look wrong, {found['fit_another_class_better']} fit another class better.\n"
            f"Copies: {found['exact_duplicates']} exact and {found['near_duplicates']} near pairs, "
            f"{found['duplicates_with_different_labels']} under different labels.\n"
            f"Classes: {found['classes_that_look_like_two']} look like two, "
            f"{found['classes_that_look_like_another']} look the same as another."
        )
        _print_suspects(report)
    if corrected is not None:
        said = {word: int((corrected.decisions == word).sum()) for word in ("right", "wrong")}
        print(
            f"\n{folder / CORRECTED}: {said['right']} labels confirmed, {said['wrong']} wrong "
            f"({int(((corrected.decisions == 'wrong') & (corrected.weights > 0)).sum())} with a "
            "new label)"
        )
    elif quiet and caution:
        print(f"note: {caution}", file=sys.stderr)
    written = [path.name for path in files if path.name not in (CORRECTED, "audit.npz")]
    if written:
        print(f"\n{folder}: {', '.join(written)}")
        if "report.html" not in written:
            print("no page: it needs Jinja2, `pip install bspml[report]`", file=sys.stderr)


def _print_suspects(report: AuditReport) -> None:
    order = report.order()
    doubtful = order[(report.flagged | (report.margins > 0))[order]][:_SHOWN]
    if len(doubtful) == 0:
        return
    print(f"\nMost suspicious:\n{'index':>8}  {'margin':>6}  {'p':>7}  label -> suggested  (name)")
    for i in doubtful.tolist():
        name = f"  ({_plain(report.names[i])})" if report.names[i] else ""
        print(
            f"{i:>8}  {report.margins[i]:>6.3f}  {report.p_values[i]:>7.1g}  "
            f"{_plain(report.labels[i])} -> {_plain(report.suggested_labels[i])}{name}"
        )


def _plain(text: str | np.generic) -> str:
    """One short line that a terminal shows and does not obey."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text)
    )
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
