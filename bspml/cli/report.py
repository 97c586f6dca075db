"""`bspml report`: the page of a run or of an audit, made again from what it left behind."""

from __future__ import annotations

import json
from pathlib import Path

from bspml.errors import RunError
from bspml.files import atomic_write
from bspml.records import RunFolder
from bspml.report.page import PageData, load_page, render_page
from bspml.report.run_page import run_page

_SAVED = "page.json"


def run_report(what: str, as_json: bool) -> None:
    """Write report.html into the folder and print its path."""
    data = _read(Path(what))
    path = atomic_write(Path(what) / "report.html", render_page(data))
    if as_json:
        print(json.dumps({"file": str(path), "suspects": len(data.suspects)}))
    else:
        print(f"{path}: {data.sentence}")


def _read(folder: Path) -> PageData:
    if (folder / _SAVED).is_file():
        return load_page(folder / _SAVED)
    try:
        return run_page(RunFolder.open(folder))
    except RunError as err:
        if folder.is_dir() and not (folder / "config.yaml").exists():
            raise RunError(f"{err} An audit's folder holds {_SAVED}.") from err
        raise
