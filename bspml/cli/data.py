"""`bspml data check`: what is missing, damaged or miscounted in the files of a data set."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import typer

from bspml.cli.exit_codes import MISTAKE
from bspml.cli.options import CheckOptions
from bspml.data.checking import CheckReport, check_dataset
from bspml.words import counted


def run_check(options: CheckOptions) -> None:
    """Print a sentence for each fault; `typer.Exit(2)` if there is one."""
    shown = None if options.quiet or not sys.stderr.isatty() else _bar
    decode_all = options.decode_all
    report = check_dataset(options.name, options.root, decode_all, options.subset, shown)
    print(json.dumps(report.as_dict()) if options.json else _text(report, decode_all))
    if not report.ok:
        raise typer.Exit(MISTAKE)


def _text(report: CheckReport, decode_all: bool) -> str:
    lines = [
        f"{split}: {counted(images, 'image')} of {counted(classes, 'class', 'classes')}"
        for split, (images, classes) in report.splits.items()
    ]
    lines += [f"problem: {problem.sentence}" for problem in report.problems]
    lines += [f"note: {note}" for note in report.notes]
    if report.ok:
        looked = "every image decodes" if decode_all else "every image opens and has its end"
        lines.append(f"{report.title} is complete{f': {looked}' if report.files_seen else ''}.")
    else:
        lines.append(f"{report.title} cannot be used like this. {report.source}")
    return "\n".join(lines)


def _bar(findings: Iterable[Any], total: int) -> Iterable[Any]:
    from tqdm import tqdm

    return tqdm(findings, total=total, unit=" images", leave=False)
