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
from typing import Any

import torch
from grid_file import UNTRAINED, Cell
from torch import Tensor

from bspml.errors import BusyRunError, UserError
from bspml.evaluation.retrieval import evaluate
from bspml.experiment.config import Config, dump_config, load_config
from bspml.experiment.data import ExperimentData, load_data
from bspml.experiment.run import run_experiment
from bspml.files.atomic import atomic_write
from bspml.files.run import EpochRecord, RecordLog, RunFolder, write_json
from bspml.networks import build_network, embed, feature_network
from bspml.report.tables import final_results
from bspml.tensors.checks import check_device

TIMING = "cell.json"  # in a run folder: what the cell took, for estimates
_SCRATCH = ("small-conv", "mlp")  # networks that know nothing before they are trained


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
        if RunFolder(folder).finished:
            if not cell.same_settings(load_config(RunFolder(folder).config)):
                error = f"{folder} was run under other defaults; remove it to run it anew"
        else:
            config = cell.config.model_copy(
                update={"name": cell.name[:100], "device": device, "threads": threads}
            )
            (_evaluate_untrained if cell.method == UNTRAINED else _train)(config, folder)
            write_json(folder / TIMING, {"seconds": time.perf_counter() - start})
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
        saved = load_config(RunFolder(path).config)
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
    embeddings, words = _features(config, data, data.test_images)
    gallery = None
    if data.gallery_images is not None:
        gallery = _features(config, data, data.gallery_images)[0]
    found = evaluate(
        embeddings,
        data.test_labels,
        ks=config.evaluation.ks,
        gallery=gallery,
        gallery_labels=data.gallery_labels,
        backend=config.evaluation.backend,
        clustering=config.evaluation.clustering,
        seed=config.seed,
    )
    record = EpochRecord(
        UNTRAINED, 0, recall_at_k=found.recall_at_k, map_at_r=found.map_at_r,
        r_precision=found.r_precision, nmi=found.nmi, ami=found.ami, notes=(words,),
    )  # fmt: skip
    atomic_write(folder.config, dump_config(config))
    log = RecordLog(folder.records)
    log.truncate(0)
    log.append(record)
    write_json(folder.summary, {"name": config.name, "results": final_results([record])})


def _features(config: Config, data: ExperimentData, images: Any) -> tuple[Tensor, str]:
    """(N, F) of a split, and what they are."""
    if isinstance(images, Tensor) and images.ndim == 2:
        return images, "pretrained, untrained"
    settings = config.network
    if settings.name in _SCRATCH:
        network = build_network(
            settings.name, settings.embedding_size, in_channels=data.width,
            weights=settings.weights, seed=config.seed,
        )  # fmt: skip
        words = "random weights, untrained" if settings.weights is None else "pretrained, untrained"
    else:
        network, words = feature_network(settings.name, settings.weights), "pretrained, untrained"
    device = check_device(config.device)
    found = embed(network.to(device), images, config.evaluation.batch_size, device, config.workers)
    return found, words
