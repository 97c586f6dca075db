"""Run a grid of experiments and make its tables: data set x method x noise x seed.

    python benchmarks/grid.py configs/benchmarks/table2_cub50.yaml --root DATA --out runs/grid
    python benchmarks/grid.py GRID.yaml --root DATA --out runs/grid --dry-run --time

Each cell is a run folder of --out, named after what it is and a digest of its settings: finished
cells are read, interrupted ones go on, and grids that share cells share their runs.  A cell that
fails is reported and does not stop the others; the exit status is then 1.  One that another grid on
the same --out is running is passed over.  --jobs and --devices run
several at a time.  Results: NAME.parquet and .csv (one row a cell), NAME-curves (one a cell and
epoch), NAME.md and NAME.tex (tables).  The grid file is explained in grid_file.py.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from grid_file import UNTRAINED, Cell, Grid, read_grid
from grid_results import curve_rows, result_rows, taken, write_frame
from grid_run import Outcome, run_cell, run_cells
from grid_tables import make_tables, missing_notes, to_latex, to_markdown

from bspml.errors import ConfigError, UserError
from bspml.experiment.config.reading import parse_yaml
from bspml.experiment.data import load_data
from bspml.files.atomic import atomic_write
from bspml.files.run import RecordLog, RunFolder
from bspml.words import counted

_TIMED_STEPS = 20  # of the short run that estimates a cell's time


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, 1 if a cell failed, 2 for a mistake in the grid file, arguments or data."""
    options = _parser().parse_args(arguments)
    try:
        grid = _read(options)
        if not options.dry_run:
            options.out.mkdir(parents=True, exist_ok=True)
    except (UserError, OSError) as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    if options.dry_run:
        return _dry_run(grid, options)
    outcomes = [] if options.report else _run(grid, options)
    failed = [outcome for outcome in outcomes if outcome.error]
    elsewhere = [outcome for outcome in outcomes if outcome.elsewhere]
    try:
        damaged = _write(grid, options.out, failed, elsewhere)
    except OSError as err:
        print(f"error: {err}", file=sys.stderr)
        return 2
    for note in damaged:
        print(f"damaged: {note}", file=sys.stderr)
    for outcome in failed:
        print(f"failed: {outcome.cell.name}: {outcome.error}", file=sys.stderr)
        if outcome.details:
            print(outcome.details, file=sys.stderr)
    if elsewhere:
        count = counted(len(elsewhere), "cell was", "cells were")
        print(
            f"{count} running elsewhere; when that is done, --report makes the tables with "
            f"{'it' if len(elsewhere) == 1 else 'them'}",
            file=sys.stderr,
        )
    return 1 if failed or damaged else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else None,
        epilog="The settings of a grid file can be changed with --set, for every cell.",
    )
    parser.add_argument("grid", type=Path, help="YAML, see configs/benchmarks/")
    parser.add_argument("--out", type=Path, default=Path("runs/grid"), help="run folders, results")
    parser.add_argument("--root", type=Path, help="folder of the data sets' folders, or of one")
    parser.add_argument("--cache", help="folder of extracted features (data.cache)")
    parser.add_argument("--jobs", type=int, default=1, help="processes a device")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each")
    parser.add_argument("--devices", default="cpu", help="such as cuda:0,cuda:1")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="data sets, methods")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--dry-run", action="store_true", help="print the cells and an estimate")
    parser.add_argument("--time", action="store_true", help="dry run: time a short cell first")
    parser.add_argument("--report", action="store_true", help="tables of what is finished only")
    return parser


def _read(options: argparse.Namespace) -> Grid:
    for name in ("jobs", "threads"):
        if getattr(options, name) < 1:
            raise ConfigError(f"--{name} must be at least 1; got {getattr(options, name)}")
    settings = {}
    for text in options.settings:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set wants KEY=VALUE such as training.epochs=5; got {text!r}")
        settings[key] = parse_yaml(value, f"--set {key}")
    if options.cache is not None:
        settings["data.cache"] = options.cache
    grid = read_grid(options.grid, options.root, settings)
    wanted = set(options.only)
    datasets = {cell.dataset for cell in grid.cells} & wanted
    methods = {cell.method for cell in grid.cells} & wanted
    unknown = wanted - datasets - methods
    if unknown:
        raise ConfigError(f"--only: the grid has no data set or method {sorted(unknown)[0]!r}")
    cells = tuple(
        cell
        for cell in grid.cells
        if (not datasets or cell.dataset in datasets) and (not methods or cell.method in methods)
    )
    return Grid(grid.name, cells, grid.tables, grid.chosen_by)


def _run(grid: Grid, options: argparse.Namespace) -> list[Outcome]:
    finished = [cell for cell in grid.cells if RunFolder(options.out / cell.name).finished]
    print(f"{grid.name}: {len(grid.cells)} cells, {len(finished)} finished before", flush=True)
    devices = options.devices.split(",")
    if options.jobs * len(devices) > 1:
        _extract_features([cell for cell in grid.cells if cell not in finished])
    done = Counter[str]()

    def report(outcome: Outcome) -> None:
        done["cells"] += 1
        word = f"FAILED: {outcome.error}" if outcome.error else f"{outcome.seconds:.1f} s"
        if outcome.elsewhere:
            word = "running elsewhere"
        print(f"[{done['cells']}/{len(grid.cells)}] {outcome.cell.name}: {word}", flush=True)

    return run_cells(grid.cells, options.out, devices, options.jobs, options.threads, report)


def _extract_features(cells: Sequence[Cell]) -> None:
    """Fill the cache once, rather than in every process at the same time."""
    wanted = {cell.config.data.model_dump_json(): cell for cell in cells}
    for cell in wanted.values():
        if cell.config.data.features is not None:
            try:
                load_data(cell.config)
            except Exception as err:  # the cells will fail by it, one by one, and say so
                print(f"{cell.dataset}: {err}", flush=True)


def _write(
    grid: Grid, out: Path, failed: Sequence[Outcome], elsewhere: Sequence[Outcome]
) -> list[str]:
    """Results and tables; what is wrong with finished cells that cannot be read."""
    unfinished = {outcome.cell.name: "failed" for outcome in failed}
    unfinished |= {outcome.cell.name: "running elsewhere" for outcome in elsewhere}
    results = result_rows(grid, out, unfinished)
    curves = curve_rows(grid, out)
    out.mkdir(parents=True, exist_ok=True)
    write_frame(results, out / grid.name)
    write_frame(curves, out / f"{grid.name}-curves")
    tables = [table for kind in grid.tables for table in make_tables(kind, results, curves)]
    for table in tables:
        table.notes += missing_notes(results)
    notes = [f"Settings of {key} chosen by: {words}" for key, words in grid.chosen_by.items()]
    text = "\n".join([*map(to_markdown, tables), *(f"{note}  " for note in notes)])
    atomic_write(out / f"{grid.name}.md", text + "\n")
    atomic_write(out / f"{grid.name}.tex", "\n".join(map(to_latex, tables)))
    print(f"\n{text}\n{out / grid.name}.{{parquet,csv,md,tex}}", flush=True)
    return [str(note) for note in results[results.status == "damaged"].get("note", [])]


# --- estimates ------------------------------------------------------------------------------------


def _dry_run(grid: Grid, options: argparse.Namespace) -> int:
    timed = _finished_seconds(grid, options.out)
    lost: dict[str, str] = {}  # data set: why it cannot be read
    total, unknown, open_ = 0.0, 0, 0
    kinds = {
        (cell.dataset, cell.method)
        for cell in grid.cells
        if not RunFolder(options.out / cell.name).finished
    }
    if options.time and kinds - timed.keys():
        count = counted(len(kinds - timed.keys()), "pair", "pairs")
        print(
            f"first, a short cell of each of {count} of data set and method: its data are read, "
            f"{_TIMED_STEPS} steps trained and the test evaluated, which takes its time",
            file=sys.stderr,
            flush=True,
        )
    for cell in grid.cells:
        if RunFolder(options.out / cell.name).finished:
            print(f"{cell.name}: finished")
            continue
        open_ += 1
        kind = (cell.dataset, cell.method)
        if options.time and kind not in timed and cell.dataset not in lost:
            try:
                timed[kind] = _timed(cell, options.devices.split(",")[0], options.threads)
            except UserError as err:
                lost[cell.dataset] = str(err)
        seconds = timed.get(kind) or timed.get((cell.dataset, ""))
        started = "goes on, " if RunFolder(options.out / cell.name).config.is_file() else ""
        shown = "time unknown" if seconds is None else f"about {seconds:.0f} s"
        print(f"{cell.name}: {started}{shown}", flush=True)
        total, unknown = total + (seconds or 0.0), unknown + (seconds is None)
    places = options.jobs * len(options.devices.split(","))
    estimate = (
        f"about {total / 60:.0f} min of one process, {total / 60 / places:.0f} min on {places}"
    )
    hint = "" if options.time else " (--time estimates them)"
    rest = f"{unknown} of unknown time{hint}"
    said = [estimate] * (unknown < open_ or not open_) + [rest] * (unknown > 0)
    print(f"\n{grid.name}: {open_} of {len(grid.cells)} cells to run, {', and '.join(said)}")
    for dataset, why in lost.items():
        print(
            f"error: {dataset} cannot be read, so nothing of it was timed. {why}", file=sys.stderr
        )
    if lost and options.root is None:
        print("Name the folder of the data sets' folders with --root.", file=sys.stderr)
    return 2 if lost else 0


def _finished_seconds(grid: Grid, out: Path) -> dict[tuple[str, str], float]:
    """{(data set, method): mean seconds}, and under (data set, "") those of any trained method."""
    found: dict[tuple[str, str], list[float]] = {}
    for cell in grid.cells:
        seconds = taken(RunFolder(out / cell.name)).get("seconds")
        if isinstance(seconds, int | float):  # else the file was cut, which costs an estimate only
            found.setdefault((cell.dataset, cell.method), []).append(seconds)
            if cell.method != UNTRAINED:
                found.setdefault((cell.dataset, ""), []).append(seconds)
    return {key: float(np.mean(seconds)) for key, seconds in found.items()}


def _timed(cell: Cell, device: str, threads: int) -> float | None:
    """Seconds of a cell from a short run of it: its steps scaled up, the rest once an epoch.

    Raises:
        UserError: its data cannot be read.
    """
    config = cell.config
    start = time.perf_counter()
    samples = len(load_data(config).codes)
    loading = time.perf_counter() - start
    if cell.method != UNTRAINED:
        batch = config.sampler.classes_per_batch * config.sampler.samples_per_class
        steps = config.training.batches_per_epoch or max(1, samples // batch)
        few = {"batches_per_epoch": min(steps, _TIMED_STEPS), "epochs": 1}
        short = config.model_copy(update={"training": config.training.model_copy(update=few)})
        cell = Cell(**{**vars(cell), "config": short})
    folder = Path(tempfile.mkdtemp(prefix="grid-"))
    try:
        outcome = run_cell(cell, folder, device, threads)
        if outcome.error is not None:
            print(f"{cell.name}: {outcome.error}", file=sys.stderr)
            return None
        if cell.method == UNTRAINED:
            return outcome.seconds
        records = RecordLog(folder / cell.name / "records.jsonl").read()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    # The first rounds that are recorded are those before the first step.
    seconds = next(record.seconds for record in records if record.seconds is not None)
    step = seconds / few["batches_per_epoch"]
    rest = outcome.seconds - loading - seconds
    return loading + config.training.epochs * (steps * step + rest)


if __name__ == "__main__":
    sys.exit(main())
