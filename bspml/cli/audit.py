"""`bspml audit`: which labels are wrong, in one sentence, a table and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from bspml.auditing import AuditReport, audit
from bspml.auditing.decided import audit_decided
from bspml.auditing.embedding_map import check_map_method
from bspml.auditing.files import save_report
from bspml.auditing.folder import CORRECTED, MARK, check_folder, is_audit_folder, named_folder
from bspml.auditing.judging import is_approximate
from bspml.auditing.picture_hashes import WITHOUT, PictureHashes, hash_pictures
from bspml.auditing.pictures import check_pictures
from bspml.cli.audit_results import (
    Results,
    check_results,
    corrected_labels,
    placed,
    samples_of,
    save_corrected,
    write_results,
)
from bspml.cli.audit_source import AuditSource, read_source
from bspml.cli.exit_codes import EXCEEDED
from bspml.cli.options import AuditOptions, flags_of
from bspml.cli.terminal import note, put
from bspml.data.labels.carried import CarriedDecisions, carry_over
from bspml.data.labels.decision_words import counts_of_decisions, note_on_new_classes
from bspml.data.labels.decisions import Decision, apply_decisions, read_decisions
from bspml.distributed import from_main, is_main, joined
from bspml.errors import DataError, InputError, MissingDependencyError, about
from bspml.files.arrays import text_objects
from bspml.files.folders import file_in
from bspml.files.run.plain import to_json
from bspml.tensors.checks import check_number, check_whole
from bspml.words import counted, shown

_SHOWN = 10  # suspects on the terminal
_FOR_BSPML = ("audit.npz", "page.json")  # from which an audit is opened again


def run_audit(options: AuditOptions) -> None:
    """Audit, write, print; `typer.Exit(3)` if more labels are wrong than `options.fail_above`.

    Under torchrun the first process does so, and the others take their share of the work.
    """
    if options.fail_above is not None:
        check_number(options.fail_above, "--fail-above", 0, 1)
    with joined():
        if not is_main():
            work = from_main(lambda: None)  # of the first process
            if work is not None:
                _judged(work)
            return
        report = _run(options)
    if options.fail_above is not None:
        _judge(report, options.fail_above)


@dataclass(frozen=True)
class _Work:
    """What all processes audit together."""

    source: AuditSource
    carried: CarriedDecisions | None
    pictures: PictureHashes | None
    settings: dict[str, Any]


def _run(options: AuditOptions) -> AuditReport:
    quiet = options.quiet
    _check_options(options)
    decisions = None if options.apply is None else read_decisions(options.apply)
    carried, caution = None, ""
    is_earlier = bool(options.what) and is_audit_folder(Path(options.what))
    if is_earlier:
        from_main(lambda: None)  # nothing to share
        folder = named_folder(options.what if options.output is None else options.output)
        report, files, images = _again(options, folder, decisions)
    else:
        source = read_source(options)
        caution, images = source.caution, source.images
        earlier = options.decisions or source.decisions
        if earlier is not None:
            here = samples_of(source.labels, source.names, images)
            try:
                carried = carry_over(earlier, source.labels, source.names, here.pictures)
            except DataError as err:
                if options.decisions is not None:
                    raise
                note(f"note: what was decided before the training counts as open: {err}")
            else:
                source = replace(source, labels=carried.labels)
        usual = f"{Path(options.what).resolve().stem}-audit"
        folder = named_folder(usual if options.output is None else options.output)
        _refuse_before_the_work(source, folder, decisions, options)
        report, files = _audit(source, carried, folder, options)
    corrected = None
    if decisions is not None or carried is not None or options.copy_to is not None:
        samples = samples_of(report.labels, report.names, images, report.picture_keys)
        decisions, sentences = placed(decisions or [], samples)
        for sentence in sentences:
            note(f"note: {sentence}")
        corrected = corrected_labels(report, decisions, samples)
        for sentence in note_on_new_classes(report.labels, corrected):
            note(f"bspml: warning: {_safe_line(sentence, None)}")
    lines: list[str] = []
    is_new = options.apply is not None or carried is not None
    if corrected is not None and is_new:
        files = [*files, save_corrected(folder, corrected)]
        lines = [f"{folder / CORRECTED}: {counts_of_decisions(corrected)}"]
    elif files and (_flags_given(options) or not is_earlier) and (folder / CORRECTED).exists():
        note(
            f"note: {folder / CORRECTED} is of an earlier audit, or of other flags; --apply makes "
            "it anew"
        )
    results = write_results(options, report, corrected, folder, images)
    if options.json:
        put(_as_json(report, folder, files, caution, decisions, options, results))
    else:
        if options.apply is not None:
            lines += [_in_folder(folder, files)] if _for_people(files) else []
        else:
            lines = [_report_text(report, folder, files, quiet), *lines]
        put("\n".join([*lines, *results.lines]))
        _remarks(files, caution if options.apply is None and quiet else "")
    return report


def _flags_given(options: AuditOptions) -> bool:
    return options.flag is not None or options.flag_precision is not None


def _check_options(options: AuditOptions) -> None:
    is_approximate("auto" if options.search is None else options.search, 0, "--search")
    if options.map is not None:
        check_map_method(options.map, "--map")
    if options.flag is not None and options.flag_precision is not None:
        raise InputError(
            "--flag and --flag-precision both say how many labels to flag; got both. Give one."
        )
    if options.flag is not None:
        check_whole(options.flag, "--flag", 0)
    if options.flag_precision is not None:
        check_number(options.flag_precision, "--flag-precision", 0, 1, open_low=True)


def _flagged_as_asked(report: AuditReport, options: AuditOptions) -> AuditReport:
    given = _flags_given(options)
    return report.flagging(options.flag, options.flag_precision) if given else report


def _again(
    options: AuditOptions, folder: Path, decisions: list[Decision] | None
) -> tuple[AuditReport, list[Path], str | None]:
    """Load an earlier audit; return it, the files written anew, and the folder of its photos."""
    useless = (
        *("labels", "names", "map", "backbone", "weights", "decisions", "seed", "device"),
        *("workers", "search"),
    )
    flags = flags_of(options, *useless)
    if flags:
        raise InputError(
            f"{options.what} is the folder of an earlier audit, which has labels, names and "
            f"embeddings behind it: it does not go with {', '.join(flags)}. Leave that out, or "
            "audit the embeddings again."
        )
    report = _flagged_as_asked(AuditReport.load(options.what), options)
    # Refuse before anything is written.
    images = _photos(options, report)
    if decisions is not None or options.copy_to is not None:
        samples = samples_of(report.labels, report.names, images, report.picture_keys)
        corrected_labels(report, placed(decisions or [], samples)[0], samples)
    is_decided = decisions is not None or report.decided is not None
    check_results(options, report.names, report.texts, images, is_decided)
    is_new = (options.output, options.images, options.flag, options.flag_precision)
    if all(value is None for value in is_new):
        return report, [], images  # only the decisions are new
    if options.images is not None:
        lost = _lost(report.names.tolist(), options.images)[1]
        report = replace(report, notes=(*report.notes, *lost))
    files = save_report(report, folder, options.images, replacing=decisions is not None)
    return AuditReport.load(folder), files, images  # and what was found of the photos


def _photos(options: AuditOptions, report: AuditReport) -> str | None:
    """The folder of the photos of an earlier audit: as named now or then, if it is still there."""
    if options.images is not None or report.images is None or Path(report.images).is_dir():
        return options.images or report.images
    if options.export is not None or options.copy_to is not None:
        there = f"the photos of this audit were in {_safe_line(report.images, None)}"
        note(f"note: {there}, which is no folder here; name theirs with --images")
    return None


def _refuse_before_the_work(
    source: AuditSource, folder: Path, decisions: list[Decision] | None, options: AuditOptions
) -> None:
    if isinstance(source.images, str | Path) and folder.resolve() == Path(source.images).resolve():
        raise InputError(f"--output {folder} is the folder of the photos; name one for the audit.")
    if decisions is not None:
        samples = samples_of(source.labels, source.names, source.images)
        apply_decisions(source.labels, placed(decisions, samples)[0])
    is_decided = bool(decisions is not None or options.decisions or source.decisions)
    check_folder(folder, source.labels, replacing=is_decided)
    check_pictures(source.images, source.names, len(source.labels))
    check_results(options, source.names, source.texts, source.images, is_decided)


def _audit(
    source: AuditSource, carried: CarriedDecisions | None, folder: Path, options: AuditOptions
) -> tuple[AuditReport, list[Path]]:
    what, replacing = options.what, options.apply is not None or carried is not None
    if not options.hushed:
        note(f"auditing {counted(len(source.labels), 'label')} of {_safe_line(what)}")
    pictures, notes = _hashes(source)
    settings: dict[str, Any] = {
        "seed": options.seed or 0,
        "map_method": options.map or "pca",
        "search": options.search or "auto",
        "across_ranks": True,
    }
    work = _Work(replace(source, images=None), carried, pictures, settings)
    with about(what, InputError):
        report = _judged(from_main(lambda: work))
    report = _flagged_as_asked(report, options)
    report = replace(report, notes=(*report.notes, *notes))
    if source.caution:
        # The page and the summary must say it too.
        report = replace(report, notes=(source.caution, *report.notes))
    if source.texts is not None:
        report = replace(report, texts=text_objects(source.texts))
    title = f"Audit of {_safe_line(Path(what).name)}"
    return report, save_report(report, folder, source.images, title=title, replacing=replacing)


def _judged(work: _Work) -> AuditReport:
    """The audit, on every process."""
    source, settings = work.source, work.settings
    if work.carried is None:
        return audit(
            source.embeddings, source.labels, source.names, pictures=work.pictures, **settings
        )
    names = source.names or ()
    return audit_decided(source.embeddings, work.carried, names, work.pictures, **settings)


def _hashes(source: AuditSource) -> tuple[PictureHashes | None, list[str]]:
    """Hashes of the photos that lie in a folder, and what their absence means."""
    if not isinstance(source.images, str) or not source.names:
        return None, []
    files, notes = _lost(source.names, source.images)
    try:
        return hash_pictures(files), notes
    except MissingDependencyError:
        return None, [*notes, WITHOUT]


def _lost(names: Sequence[str], images: str) -> tuple[list[Path | None], list[str]]:
    """The file of each name in a folder, and what is said of names that have none."""
    files = [file_in(Path(images), str(name)) for name in names]
    lost = [shown(name) for name, file in zip(names, files, strict=True) if file is None]
    note = (
        f"{len(lost):,} of {len(files):,} names are no file in {images} (links out of it are not "
        f"followed): {', '.join(lost[:5])}{', ...' * (len(lost) > 5)}. These samples have no "
        "picture, and none was compared."
    )
    return files, [note] * bool(lost)


def _judge(report: AuditReport, fail_above: float) -> None:
    """Exit with 3 if the best estimate is above; nothing judged is no good news either."""
    if not report.testable.any():
        raise InputError(
            f"--fail-above {fail_above:g} cannot be answered. {report.sentence} Give embeddings "
            "that tell the classes apart, with two samples a class or more."
        )
    if report.total_rate > fail_above:
        low, high = report.total_interval
        note(
            f"bspml: the share of wrong labels {report.total_rate:.3f} (95 % interval {low:.3f} to "
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
    options: AuditOptions,
    results: Results,
) -> str:
    return to_json(
        {
            **report.summary(),
            "caution": caution or None,
            "folder": str(folder),
            "files": [path.name for path in files],
            "decisions": None if options.apply is None else len(decisions or []),
            **results.summary(options),
        }
    )


def _report_text(report: AuditReport, folder: Path, files: list[Path], quiet: bool) -> str:
    lines = [report.sentence]
    if not quiet:
        summary = report.summary()
        fit = counted(summary["fit_no_class"], "sample fits", "samples fit")
        lines += [f"note: {_safe_line(text, None)}" for text in report.notes]
        lines += [
            "",
            _counts_sentence(summary),
            f"Copies: {summary['exact_duplicates']} exact and "
            f"{counted(summary['near_duplicates'], 'near pair')}, "
            f"{summary['duplicates_with_different_labels']} under different labels.",
            *[f"Strangers: {fit} no class (a picture of something else, or a poor one)."]
            * (summary["fit_no_class"] > 0),
            f"Classes: {_looking(summary['classes_that_look_like_two'])} like two, "
            f"{_looking(summary['classes_that_look_like_another'])} the same as another.",
            *_suspects(report),
        ]
    return "\n".join([*lines, "", _in_folder(folder, files)] if files else lines)


def _counts_sentence(summary: Mapping[str, Any]) -> str:
    """Count samples, classes and suspects in one sentence."""
    suspects = summary["suspects"]
    looking = counted(summary["look_wrong"], "label flagged", "labels flagged")
    others = counted(summary["others_to_look_at"], "other is", "others are")
    wrong = summary["expected_wrong_among_them"]
    samples = counted(summary["samples"], "sample")
    classes = counted(summary["classes"], "class", "classes")
    remark = f"these {suspects:,} suspects are on the page, and some of them are right"
    if suspects == 1:
        remark = "this suspect is on the page, and may be right"
    return (
        f"{samples} in {classes}: {looking}, of which about {wrong:.0f} are expected to be wrong, "
        f"and {others} to look at; {remark}."
    )


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
    lines += [f"{'index':>8}  {'wrong':>6}  label -> suggested  (name)"]
    for i in doubtful.tolist():
        name = f"  ({_safe_line(report.names[i])})" if report.names[i] else ""
        lines.append(
            f"{i:>8}  {100 * report.wrong_probability[i]:>4.0f} %  "
            f"{_safe_line(report.labels[i])} -> {_safe_line(report.suggested_labels[i])}{name}"
        )
    return lines


def _safe_line(text: str | np.generic, most: int | None = 60) -> str:
    """Return text as one line without control characters, at most `most` characters long."""
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    return line if most is None or len(line) <= most else f"{line[: most - 3]}..."
