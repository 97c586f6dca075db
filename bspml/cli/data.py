"""`bspml data check`: what is missing, damaged or miscounted in the files of a data set."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import typer

from bspml.cli.exit_codes import MISTAKE
from bspml.data.checking import CheckReport, check_dataset
from bspml.words import counted


def run_check(
    name: str, root: str | None, decode_all: bool, subset: bool, as_json: bool, quiet: bool
) -> None:
    """Print a sentence for each fault; `typer.Exit(2)` if there is one.

    Args:
        name: of the data set.
        root: its folder, or a table's file; None for the usual one.
        decode_all: decode every image, not only its header.
        subset: fewer images than published are no problem.
        as_json: print JSON.
        quiet: show no progress.
    """
    seen = sys.stderr is not None and sys.stderr.isatty()
    progress = _bar if seen and not quiet else None
    report = check_dataset(name, root, decode_all, subset, progress)
    print(json.dumps(report.as_dict()) if as_json else _report_text(report, decode_all))
    if not report.ok:
        raise typer.Exit(MISTAKE)


def _report_text(report: CheckReport, decode_all: bool) -> str:
    lines = [
        f"{split}: {counted(images, 'image')} of {counted(classes, 'class', 'classes')}"
        for split, (images, classes) in report.splits.items()
    ]
    lines += [f"problem: {problem.sentence}" for problem in report.problems]
    notes = (*report.notes, *(copies.sentence for copies in report.copies))
    lines += [f"note: {note}" for note in notes]
    if report.ok:
        looked = "every image decodes" if decode_all else "every image opens and has its end"
        lines.append(f"{report.title} is complete{f': {looked}' if report.files_seen else ''}.")
    else:
        lines.append(f"{report.title} cannot be used like this. {report.source}")
    return "\n".join(lines)


def _bar(findings: Iterable[Any], total: int) -> Iterable[Any]:
    from tqdm import tqdm

    return tqdm(findings, total=total, unit=" images", leave=False)
