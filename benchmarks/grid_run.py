"""Cells of a grid into run folders: read if finished, resumed if interrupted, several at a time."""

from __future__ import annotations

import logging
import multiprocessing
import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from grid_file import UNTRAINED, Cell, files_digest
from grid_results import TIMING, outdated

from bspml.errors import BusyRunError, UserError
from bspml.experiment.config import Config, dump_config, load_config
from bspml.experiment.data import ExperimentData, load_data
from bspml.experiment.measuring import Measuring
from bspml.experiment.run import run_experiment
from bspml.experiment.untrained import first_network, untrained_network
from bspml.files.atomic import atomic_write
from bspml.files.run import EpochRecord, RecordLog, RunFolder, write_json
from bspml.report.tables import final_results
from bspml.tensors.checks import check_device


@dataclass(frozen=True)
class Outcome:
    """What became of a cell: `error` is None if it is finished, else a line for a person.

    Attributes:
        elsewhere: another process, such as a second grid, is running it; no error.
        details: of an error that is not the user's, the traceback.
    """

    cell: Cell
    seconds: float
    error: str | None = None
    details: str = ""
    elsewhere: bool = False


Report = Callable[[Outcome], None]


def run_cells(
    cells: Sequence[Cell],
    out: Path,
    devices: Sequence[str] = ("cpu",),
    jobs: int = 1,
    threads: int = 1,
    report: Report = lambda outcome: None,
) -> list[Outcome]:
    """Run every cell that is not finished; one that fails does not stop the others.

    Args:
        cells: of a grid.
        out: folder of the run folders.
        devices: each runs `jobs` cells at a time.
        jobs: processes a device; one on one device runs in this process.
        threads: of each, on the CPU.
        report: told of each cell as it ends.

    Returns:
        Outcomes in order of their end.
    """
    out.mkdir(parents=True, exist_ok=True)
    places = [device for device in devices for _ in range(jobs)]
    if len(places) == 1:
        outcomes = []
        for cell in cells:
            outcomes.append(run_cell(cell, out, places[0], threads))
            report(outcomes[-1])
        return outcomes
    return _in_processes(cells, out, places, threads, report)


def _in_processes(
    cells: Sequence[Cell], out: Path, places: Sequence[str], threads: int, report: Report
) -> list[Outcome]:
    """A process a place, each fed by a thread; a process that dies costs its cell only."""
    waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    for cell in cells:
        waiting.put(cell)
    outcomes: list[Outcome] = []
    stopped, lock = threading.Event(), threading.Lock()

    def feed(place: str) -> None:
        # Spawned: a forked child of a process with threads, or with CUDA in use, can hang.
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(1, mp_context=context)
        try:
            while not stopped.is_set():
                try:
                    cell = waiting.get_nowait()
                except queue.Empty:
                    return
                start = time.perf_counter()
                try:
                    outcome = pool.submit(run_cell, cell, out, place, threads).result()
                except BrokenExecutor:
                    outcome = Outcome(
                        cell, time.perf_counter() - start, "its process died (out of memory?)"
                    )
                    pool = ProcessPoolExecutor(1, mp_context=context)
                with lock:
                    outcomes.append(outcome)
                    report(outcome)
        finally:
            pool.shutdown(cancel_futures=True)

    feeders = [threading.Thread(target=feed, args=(place,)) for place in places]
    for feeder in feeders:
        feeder.start()
    try:
        for feeder in feeders:
            feeder.join()
    finally:
        stopped.set()
    return outcomes


def run_cell(cell: Cell, out: Path, device: str = "cpu", threads: int = 1) -> Outcome:
    """Bring one cell to its end; never raises but for an interruption."""
    start = time.perf_counter()
    torch.set_num_threads(threads)
    logging.getLogger("PML").setLevel(logging.ERROR)  # repeats at every trainer what is intended
    error, details = None, ""
    try:
        folder = out / cell.name
        is_done = RunFolder(folder).finished
        goes_on = cell.method != UNTRAINED and RunFolder(folder).config.is_file()
        if is_done or goes_on:
            error = outdated(cell, RunFolder(folder))
        if error is None and not is_done:
            files = files_digest(cell.config)  # before they are read
            config = cell.config.model_copy(
                update={"name": cell.name[:100], "device": device, "threads": threads}
            )
            (_evaluate_untrained if cell.method == UNTRAINED else _train)(config, folder)
            seconds = time.perf_counter() - start
            write_json(folder / TIMING, {"seconds": seconds, "files": files})
    except BusyRunError:
        return Outcome(cell, time.perf_counter() - start, elsewhere=True)
    except UserError as err:
        error = str(err)
    except Exception as err:
        error, details = f"{type(err).__name__}: {err}", traceback.format_exc()
    return Outcome(cell, time.perf_counter() - start, error, details)


def _train(config: Config, path: Path) -> None:
    if RunFolder(path).config.is_file():
        # As it was started, but for where: a moved data set or another GPU is no other run.
        saved = load_config(RunFolder(path).config, unread_may_stand=True)
        moved = saved.data.model_copy(update={"root": config.data.root})
        config = saved.model_copy(update={"device": config.device, "data": moved})
        run_experiment(config, RunFolder.open(path), resume=True, figures=False)
    else:
        run_experiment(config, RunFolder.create(path), figures=False)


def _evaluate_untrained(config: Config, path: Path) -> None:
    """The row of a table that says what the training was worth: the features as they are."""
    data = load_data(config)
    folder = RunFolder.create(path) if not path.is_dir() else RunFolder(path)
    with folder.locked():
        _write_untrained(config, data, folder)


def _write_untrained(config: Config, data: ExperimentData, folder: RunFolder) -> None:
    device = check_device(config.device)
    network = first_network(config, data, device)
    bare = untrained_network(config, data, network)
    found = Measuring(config, data, device).evaluate(bare, config.evaluation.clustering)
    known = bare is not network or config.network.weights is not None
    found["notes"] = ("pretrained, untrained" if known else "random weights, untrained",)
    record = EpochRecord(UNTRAINED, 0, **found)
    atomic_write(folder.config, dump_config(config))
    log = RecordLog(folder.records)
    log.truncate(0)
    log.append(record)
    write_json(folder.summary, {"name": config.name, "results": final_results([record])})
