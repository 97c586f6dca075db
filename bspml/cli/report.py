"""`bspml report`: the page of a run or of an audit, made again from what it left behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

from bspml.errors import RunError
from bspml.files.atomic import atomic_write, remove_leftovers
from bspml.files.run import RunFolder
from bspml.report.models import PageData, load_page
from bspml.report.page import is_page, render_page
from bspml.report.run_page import run_page

_SAVED = "page.json"
_PAGE = "report.html"


def run_report(what: str, as_json: bool) -> None:
    """Write report.html into the folder and print its path.

    Args:
        what: folder of a run or of an audit.
        as_json: print JSON.
    """
    folder = Path(what)
    data = _read_page(folder)
    if os.path.lexists(folder / _PAGE) and not is_page(folder / _PAGE):
        raise RunError(
            f"{folder / _PAGE}: exists already and is not a page that bspml made; move it away."
        )
    remove_leftovers(folder)
    path = atomic_write(folder / _PAGE, render_page(data))
    if as_json:
        print(json.dumps({"file": str(path), "suspects": len(data.suspects)}))
    else:
        print(f"{path}: {data.sentence}")


def _read_page(folder: Path) -> PageData:
    from bspml.auditing.folder import complete_mark, is_audit_folder

    if is_audit_folder(folder):
        return load_page(folder / _SAVED, complete_mark(folder)["id"])
    try:
        run = RunFolder.open(folder)
    except RunError as err:
        if os.path.isfile(folder / _SAVED):  # noqa: PTH113 - of `save_page`; raises on no name
            return load_page(folder / _SAVED)
        if folder.is_dir() and not (folder / "config.yaml").exists():
            raise RunError(f"{err} An audit's folder holds {_SAVED}.") from err
        raise
    if not run.records.is_file():
        raise RunError(
            f"{folder}: holds no records of a run ({run.records.name}): it is not a run's folder, "
            "or the run did not come to its first round."
        )
    return run_page(run)
