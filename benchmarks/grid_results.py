"""What the finished cells of a grid say, one row a cell, and one a cell and epoch; as files."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from grid_file import UNTRAINED, Cell, Grid, files_digest
from published import published_set

from bspml import methods
from bspml.errors import RunError, UserError
from bspml.evaluation.selection import select_epochs
from bspml.experiment.config import load_config
from bspml.files.atomic import atomic_write
from bspml.files.run import EpochRecord, RecordLog, RunFolder, read_json
from bspml.report.tables import final_results

TIMING = "cell.json"  # in a run folder: what the cell took, for estimates, and of which files
VARIED = "vary "  # before the dotted key, in columns of what the grid varies

# Of the last record, as fractions or counts.
_LAST = (
    "epoch", "maw", "sdaw", "age", "noise_rate", "detection_auroc", "detection_precision",
    "detection_recall", "outlier_auroc", "outlier_recall",
)  # fmt: skip
_MEASURED = ("map_at_r", "r_precision", "nmi", "ami")


def result_rows(grid: Grid, out: Path, unfinished: Mapping[str, str] | None = None) -> pd.DataFrame:
    """One row a cell.

    Columns: what the cell is (dataset, title, method, method_title, noise, rate, seed, one a varied
    setting (`VARIED` and its key), embedding_size, epochs, split, published_set, run), its status
    (finished, missing, or damaged: finished, but its files cannot be read, or are of other
    settings, data or runs, as `note` says; else what `unfinished` says of that run, failed or
    running elsewhere), and of finished ones the metrics as fractions: of the last epoch by their
    names; `best_*` of the epoch that is best on the test classes, an oracle; `selected_*` of the
    one that validation classes choose, where the run recorded them; seconds of training.
    """
    known = unfinished or {}
    return pd.DataFrame([_row_or_fault(cell, out, known) for cell in grid.cells])


def curve_rows(grid: Grid, out: Path) -> pd.DataFrame:
    """One row a cell and evaluated epoch: what the cell is, epoch, recall_at_1, map_at_r.

    Epochs are those of `training.epochs`, of the network that stays: a warm-up whose networks were
    thrown away is before the first of them.
    """
    rows = []
    for cell in grid.cells:
        records = _records(cell, RunFolder(out / cell.name))
        before = max((record.epoch for record in records if record.is_temporary), default=0)
        for record in records:
            if record.recall_at_k and record.method == cell.method and not record.is_temporary:
                quality = {"recall_at_1": record.recall_at_k.get(1), "map_at_r": record.map_at_r}
                epoch = max(record.epoch - before, 0)
                rows.append(_identity(cell) | {"epoch": epoch} | quality)
    return pd.DataFrame(rows)


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """`path`.parquet and `path`.csv, each whole."""
    content = io.BytesIO()
    for column in [name for name in frame if str(name).startswith(VARIED)]:
        if frame[column].map(lambda value: isinstance(value, str)).any():
            # Parquet holds no words beside numbers.
            words = frame[column].map(lambda value: value if pd.isna(value) else str(value))
            frame = frame.assign(**{column: words})
    frame.to_parquet(content, index=False)
    atomic_write(path.with_name(path.name + ".parquet"), content.getvalue())
    atomic_write(path.with_name(path.name + ".csv"), frame.to_csv(index=False))


def _identity(cell: Cell) -> dict[str, Any]:
    config = cell.config
    return {
        "dataset": cell.dataset,
        "title": cell.title,
        "method": cell.method,
        "method_title": "Untrained" if cell.method == UNTRAINED else methods.title(cell.method),
        "noise": cell.noise,
        "rate": cell.rate,
        "seed": cell.seed,
        **{VARIED + key: _in_a_cell(value) for key, value in cell.varied.items()},
        "embedding_size": config.network.embedding_size,
        "epochs": config.training.epochs,
        "split": "validation" if config.data.validation else "test",
        "published_set": published_set(config),
        "run": cell.name,
    }


def _in_a_cell(value: Any) -> Any:
    """A varied setting as a table holds it: a list or a section as text."""
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def outdated(cell: Cell, folder: RunFolder) -> str | None:
    """Why what was run in the folder is not this cell any more; None if it is.

    Raises:
        UserError: its configuration cannot be read.
    """
    if not cell.same_settings(load_config(folder.config, unread_may_stand=True)):
        return f"{folder.path} was run under other defaults; remove it to run it anew"
    then, now = taken(folder).get("files"), files_digest(cell.config)
    if folder.finished and None not in (then, now) and not now.startswith(str(then)):
        return f"{folder.path} was run on other files of these names; remove it to run it anew"
    return None


def taken(folder: RunFolder) -> dict[str, Any]:
    """What `TIMING` says of a cell; {} if there is none, or it was cut."""
    try:
        found = json.loads((folder.path / TIMING).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _records(cell: Cell, folder: RunFolder) -> list[EpochRecord]:
    """Of a finished cell that can be read, else none: `result_rows` says what is wrong."""
    if not folder.finished:
        return []
    try:
        if outdated(cell, folder):
            return []
        return _recorded(folder, read_json(folder.summary))
    except (UserError, AttributeError):
        return []


def _recorded(folder: RunFolder, summary: Any) -> list[EpochRecord]:
    """The records of a finished run.

    Raises:
        RunError: not those that its summary was made of.
    """
    records = RecordLog(folder.records).read()
    selected = {
        method: epochs.get("selected", {}).get("epoch")
        for method, epochs in summary.get("epochs", {}).items()
    }
    found = final_results(records, selected)
    for method, said in summary.get("results", {}).items():
        mine = found.get(method)
        # Columns that one version has and another has not are no sign of other records.
        if mine is None or any(mine[key] != said[key] for key in mine.keys() & said.keys()):
            raise RunError(
                f"{folder.records} has other numbers of {method} than {folder.summary.name}: it "
                "was cut, edited, or is of another run."
            )
    return records


def _row_or_fault(cell: Cell, out: Path, unfinished: Mapping[str, str]) -> dict[str, Any]:
    try:
        return _row(cell, out, unfinished)
    except (UserError, AttributeError, IndexError) as err:  # cut, edited, or no records at all
        what = str(err) if isinstance(err, UserError) else "its records or summary are incomplete"
        words = what if cell.name in what else f"{out / cell.name}: {what}."
        remedy = f"Remove {out / cell.name} to run that cell anew."
        return _identity(cell) | {"status": "damaged", "note": f"{words} {remedy}"}


def _row(cell: Cell, out: Path, unfinished: Mapping[str, str]) -> dict[str, Any]:
    row, folder = _identity(cell), RunFolder(out / cell.name)
    if not folder.finished or cell.name in unfinished:
        return row | {"status": unfinished.get(cell.name, "missing")}
    if note := outdated(cell, folder):
        return row | {"status": "damaged", "note": note}
    summary = read_json(folder.summary)
    records = [r for r in _recorded(folder, summary) if r.method == cell.method]
    evaluated = [record for record in records if record.recall_at_k]
    last = records[-1]
    row |= {"status": "finished"} | _metrics(evaluated[-1])
    row |= {key: getattr(last, key) for key in _LAST} | {"note": "; ".join(last.notes)}
    row["estimated_noise_rate"] = row.pop("noise_rate")
    row["true_noise_rate"] = summary.get("true_noise_rate")
    row["seconds"] = sum(record.seconds or 0.0 for record in records)
    for kind, found in select_epochs(evaluated).items():
        if kind != "last" and found is not None and cell.method != UNTRAINED:
            row |= {f"{kind}_epoch": found.epoch, f"{kind}_recall_at_1": found.value}
    return row


def _metrics(record: EpochRecord) -> dict[str, Any]:
    recalls = {f"recall_at_{k}": value for k, value in record.recall_at_k.items()}
    return recalls | {key: getattr(record, key) for key in _MEASURED}
