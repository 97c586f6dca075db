"""`bspml audit`: which labels are wrong, in one sentence, a table and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from bspml.auditing import AuditReport, audit
from bspml.auditing.files import save_report
from bspml.auditing.folder import CORRECTED, MARK, check_folder, is_audit_folder, named_folder
from bspml.auditing.pictures import check_pictures
from bspml.cli.audit_source import AuditSource, read_source
from bspml.cli.exit_codes import EXCEEDED
from bspml.cli.options import AuditOptions, flags_of
from bspml.cli.terminal import note, put
from bspml.data.labels.decision_words import counts_of_decisions, note_on_new_classes
from bspml.data.labels.decisions import (
    CorrectedLabels,
    Decision,
    apply_decisions,
    read_decisions,
    write_corrected,
)
from bspml.data.labels.own_labels import located
from bspml.data.retrieval import Origin
from bspml.errors import InputError
from bspml.files.run.plain import to_json
from bspml.tensors.checks import check_number
from bspml.words import counted

_SHOWN = 10  # suspects on the terminal
_FOR_BSPML = ("audit.npz", "page.json")  # from which an audit is opened again


def run_audit(options: AuditOptions) -> None:
    """Audit, write, print; `typer.Exit(3)` if the noise rate exceeds `options.fail_above`."""
    fail_above, quiet = options.fail_above, options.quiet
    if fail_above is not None:
        check_number(fail_above, "--fail-above", 0, 1)
    decisions = None if options.apply is None else read_decisions(options.apply)
    caution = ""
    if _is_audit(options.what):
        folder = named_folder(options.what if options.output is None else options.output)
        report, files = _again(options, folder, decisions)
    else:
        source = read_source(options)
        caution = source.caution
        usual = f"{Path(options.what).resolve().stem}-audit"
        folder = named_folder(usual if options.output is None else options.output)
        _refuse_before_the_work(source, folder, decisions)
        report, files = _audit(source, folder, options)
    corrected = None
    if decisions is not None:
        decisions, sentences = _placed(decisions, report.labels, report.names)
        for sentence in sentences:
            note(f"note: {sentence}")
        corrected = apply_decisions(report.labels, decisions, report.weights, report.names)
        for sentence in note_on_new_classes(report.labels, corrected):
            note(f"bspml: warning: {_safe_line(sentence, None)}")
        files = [*files, write_corrected(folder / CORRECTED, corrected)]
    if options.json:
        put(_as_json(report, folder, files, caution, decisions))
    else:
        if corrected is None:
            put(_report_text(report, folder, files, quiet))
        else:
            put(_applied(corrected, folder, files))
        _remarks(files, caution if corrected is None and quiet else "")
    if fail_above is not None:
        _judge(report, fail_above)


def _is_audit(what: str) -> bool:
    return bool(what) and is_audit_folder(Path(what))


def _again(
    options: AuditOptions, folder: Path, decisions: list[Decision] | None
) -> tuple[AuditReport, list[Path]]:
    """Load an earlier audit; return it and the files written anew."""
    useless = ("labels", "names", "map", "backbone", "weights", "seed", "device", "workers")
    flags = flags_of(options, *useless)
    if flags:
        raise InputError(
            f"{options.what} is the folder of an earlier audit, which has labels, names and "
            f"embeddings behind it: it does not go with {', '.join(flags)}. Leave that out, or "
            "audit the embeddings again."
        )
    report = AuditReport.load(options.what)
    if decisions is not None:
        # Refuse before anything is written.
        apply_decisions(report.labels, _placed(decisions, report.labels, report.names)[0])
    if options.output is None and options.images is None:
        return report, []  # only the decisions are new
    return report, save_report(report, folder, options.images, replacing=decisions is not None)


def _refuse_before_the_work(
    source: AuditSource, folder: Path, decisions: list[Decision] | None
) -> None:
    if decisions is not None:
        names = source.names or ()
        apply_decisions(source.labels, _placed(decisions, source.labels, names)[0])
    check_folder(folder, source.labels, replacing=decisions is not None)
    check_pictures(source.images, source.names, len(source.labels))


def _placed(
    decisions: list[Decision], labels: np.ndarray, names: Sequence[str] | np.ndarray
) -> tuple[list[Decision], list[str]]:
    """The decisions at the samples they name, and notes; by their index where they name none."""
    if not all(made.name for made in decisions) or len(names) == 0 or not all(names):
        return decisions, []
    return located(decisions, Origin(labels.astype(str), tuple(map(str, names))))


def _audit(
    source: AuditSource, folder: Path, options: AuditOptions
) -> tuple[AuditReport, list[Path]]:
    what, replacing = options.what, options.apply is not None
    if not options.hushed:
        note(f"auditing {counted(len(source.labels), 'label')} of {_safe_line(what)}")
    try:
        report = audit(
            source.embeddings,
            source.labels,
            source.names,
            seed=options.seed or 0,
            map_method="pca" if options.map is None else options.map,
        )
    except InputError as err:
        raise InputError(f"{what}: {err}") from err
    if source.caution:
        # The page and the summary must say it too.
        report = replace(report, notes=(source.caution, *report.notes))
    title = f"Audit of {_safe_line(Path(what).name)}"
    return report, save_report(report, folder, source.images, source.texts, title, replacing)


def _judge(report: AuditReport, fail_above: float) -> None:
    """Exit with 3 if the best estimate is above; nothing judged is no good news either."""
    if not report.testable.any():
        raise InputError(
            f"--fail-above {fail_above:g} cannot be answered. {report.sentence} Give embeddings "
            "that tell the classes apart, with two samples a class or more."
        )
    if report.noise_rate > fail_above:
        low, high = report.interval
        note(
            f"bspml: the noise rate {report.noise_rate:.3f} (95 % interval {low:.3f} to "
            f"{high:.3f}) is above --fail-above {fail_above:g}"
        )
        raise typer.Exit(EXCEEDED)


# --- words ----------------------------------------------------------------------------------------


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


def _report_text(
    report: AuditReport,
    folder: Path,
    files: list[Path],
    quiet: bool,
) -> str:
    lines = [report.sentence]
    if not quiet:
        summary = report.summary()
        lines += [f"note: {_safe_line(text, None)}" for text in report.notes]
        lines += [
            "",
            _counts_sentence(summary),
            f"Copies: {summary['exact_duplicates']} exact and "
            f"{counted(summary['near_duplicates'], 'near pair')}, "
            f"{summary['duplicates_with_different_labels']} under different labels.",
            f"Classes: {_looking(summary['classes_that_look_like_two'])} like two, "
            f"{_looking(summary['classes_that_look_like_another'])} the same as another.",
            *_suspects(report),
        ]
    return "\n".join([*lines, "", _in_folder(folder, files)] if files else lines)


def _applied(corrected: CorrectedLabels, folder: Path, files: list[Path]) -> str:
    """What the decisions changed and where it is; what the audit found is on its page."""
    lines = [f"{folder / CORRECTED}: {counts_of_decisions(corrected)}"]
    return "\n".join([*lines, _in_folder(folder, files)] if _for_people(files) else lines)


def _counts_sentence(summary: Mapping[str, Any]) -> str:
    """Count samples, classes and suspects in one sentence."""
    suspects = summary["suspects"]
    looking = counted(summary["look_wrong"], "label looks", "labels look")
    fitting = counted(summary["others_fit_another_class_better"], "other fits", "others fit")
    samples = counted(summary["samples"], "sample")
    classes = counted(summary["classes"], "class", "classes")
    remark = f"these {suspects:,} suspects are on the page, and some of them are right"
    if suspects == 1:
        remark = "this suspect is on the page, and may be right"
    return f"{samples} in {classes}: {looking} wrong, {fitting} another class better; {remark}."


def _looking(count: int) -> str:
    return counted(count, "looks", "look")


def _in_folder(folder: Path, files: list[Path]) -> str:
    """List the files written, except the corrected labels, which have a line of their own."""
    return (
        f"{folder}: {', '.join(_for_people(files))}; for bspml itself "
        f"{', '.join((MARK, *_FOR_BSPML))}"
    )


def _for_people(files: list[Path]) -> list[str]:
    return [path.name for path in files if path.name not in (CORRECTED, *_FOR_BSPML)]


def _remarks(files: list[Path], caution: str) -> None:
    if caution:
        note(f"note: {caution}")
    names = _for_people(files)
    if names and "report.html" not in names:
        note("no page: it needs Jinja2, `pip install 'bspml[report]'`")


def _suspects(report: AuditReport) -> list[str]:
    order = report.order()
    doubtful = order[report.suspects[order]][:_SHOWN]
    if len(doubtful) == 0:
        return []
    lines = ["", "Most suspicious:"]
    lines += [f"{'index':>8}  {'margin':>6}  {'p':>7}  label -> suggested  (name)"]
    for i in doubtful.tolist():
        name = f"  ({_safe_line(report.names[i])})" if report.names[i] else ""
        lines.append(
            f"{i:>8}  {report.margins[i]:>6.3f}  {report.p_values[i]:>7.1g}  "
            f"{_safe_line(report.labels[i])} -> {_safe_line(report.suggested_labels[i])}{name}"
        )
    return lines


def _safe_line(text: str | np.generic, most: int | None = 60) -> str:
    """Return text as one line without control characters, at most `most` characters long."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    return line if most is None or len(line) <= most else f"{line[: most - 3]}..."
