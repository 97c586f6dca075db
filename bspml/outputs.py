"""What a finished run leaves behind: summary, weights as a table, figures, and the page."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bspml import __version__
from bspml.auditing.neighbours import nearest_in_class
from bspml.build import WEIGHTED, make_network
from bspml.checkpoints import State
from bspml.config import Config
from bspml.contrastive import contrastive_statistics
from bspml.errors import MissingDependencyError, RunError
from bspml.evaluation.neighbours import unit_rows
from bspml.experiment_data import ExperimentData
from bspml.files import atomic_write
from bspml.networks import embed
from bspml.records import EpochRecord, RunFolder, read_weights, write_json, write_weights
from bspml.report.figures import (
    captions,
    contact_sheet,
    curves,
    lowest_weights,
    save_figure,
    weight_histogram,
)
from bspml.report.page import render_page
from bspml.report.run_page import run_page, write_suspects
from bspml.report.tables import Results, final_results
from bspml.resuming import load_method

_SHEET = 48  # lowest-weight samples shown
_NEIGHBOURS = 4  # shown beside each suspect, of its class and of the suggested one


def write_outputs(
    config: Config,
    data: ExperimentData,
    folder: RunFolder,
    records: Sequence[EpochRecord],
    figures: bool = True,
) -> Results:
    """Write everything a person looks at; the summary last, since it marks the run as complete.

    Args:
        config: the run's.
        data: the run's.
        folder: with the checkpoints of every method in it.
        records: of every method.
        figures: False leaves out what only people look at: figures and page.

    Returns:
        {method: {column: value}}.
    """
    if figures:
        _make_folder(folder.figures)
        save_figure(curves(records, data.noise_rate), folder.figures / "curves.png")
    if WEIGHTED in config.training.methods:
        state = load_method(folder, WEIGHTED, data.fingerprint)["trainer"]
        p_values = state["curriculum"]["update"].get("p_values")
        weights = state["sample_weights"]["weights"].double()
        _write_table(folder, data, weights.numpy(), p_values)
        if figures:
            _draw_weights(folder, data, p_values)
            _write_suspects(config, data, folder, state, weights, p_values)
    results = final_results(records)
    write_json(
        folder.summary,
        {
            "name": config.name,
            "results": results,
            "true_noise_rate": data.noise_rate,
            "estimated_noise_rate": _estimate(records),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "versions": versions(),
        },
    )
    if figures:
        _write_page(folder)
    return results


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
    except OSError as err:
        raise RunError(f"{path}: cannot be made ({err.strerror or err}).") from err


def _estimate(records: Sequence[EpochRecord]) -> float | None:
    return next((r.noise_rate for r in reversed(records) if r.noise_rate is not None), None)


def _write_table(
    folder: RunFolder, data: ExperimentData, weights: np.ndarray, p_values: torch.Tensor | None
) -> None:
    untestable = np.zeros(len(weights), dtype=bool)
    if p_values is not None:
        untestable = p_values.isnan().numpy()
    flags = [
        ["decided"] if d else [*(["suspect"] if w < 0.5 else []), *(["untestable"] if u else [])]
        for w, u, d in zip(weights, untestable, _decided(data), strict=True)
    ]
    write_weights(
        folder.weights,
        data.labels,
        weights,
        flags=flags,
        is_noisy=data.is_noisy,
        true_labels=data.true_labels,
        names=data.names,
    )


def _decided(data: ExperimentData) -> np.ndarray:
    """(N,) bool, the samples whose weight is a person's word."""
    if data.decided is None:
        return np.zeros(len(data.labels), dtype=bool)
    return data.decided.fixed


def _draw_weights(folder: RunFolder, data: ExperimentData, p_values: torch.Tensor | None) -> None:
    table = read_weights(folder.weights)
    save_figure(weight_histogram(table), folder.figures / "weights.png")
    lowest = lowest_weights(table, _SHEET, None if p_values is None else p_values.numpy())
    pictures = data.pictures()
    if pictures is None:
        return
    images = np.stack([pictures[row] for row in lowest.tolist()])
    sheet = contact_sheet(images, captions(table, lowest), "samples of lowest weight")
    save_figure(sheet, folder.figures / "lowest_weights.png")


def _write_suspects(
    config: Config,
    data: ExperimentData,
    folder: RunFolder,
    state: State,
    weights: torch.Tensor,
    p_values: torch.Tensor | None,
) -> None:
    """Suggested labels and neighbours of the samples of low weight, for the page."""
    network = make_network(config, data.width, pretrained=False)
    network.load_state_dict(state["network"]["models"]["trunk"])
    size, workers = config.evaluation.batch_size, config.workers
    embeddings = embed(network, data.images, size, num_workers=workers)
    kept = weights.numpy() > 0
    codes = data.codes.numpy()
    extra: dict[str, Any] = {}
    if len(np.unique(codes[kept])) > 1:
        stats = contrastive_statistics(embeddings, data.codes, sample_weights=weights)
        other = stats.other_class.numpy()
        rows, low = unit_rows(embeddings), weights.numpy() < 0.5
        gallery = np.where(kept, codes, -1)
        extra = {
            "suggested": np.where(other < 0, "", np.unique(data.labels)[other]),
            "margins": stats.margin.numpy(),
            "own": nearest_in_class(rows, gallery, np.where(low, codes, -1), _NEIGHBOURS),
            "other": nearest_in_class(rows, gallery, np.where(low, other, -1), _NEIGHBOURS),
        }
    write_suspects(
        folder,
        data.labels,
        # What somebody decided is no suspect any more.
        np.where(_decided(data), 1.0, weights.numpy()),
        p_values=None if p_values is None else p_values.numpy(),
        noise_rate=state["curriculum"]["update"].get("noise_rate"),
        images=data.pictures(),
        names=data.names,
        **extra,
    )


def _write_page(folder: RunFolder) -> Path | None:
    try:
        return atomic_write(folder.path / "report.html", render_page(run_page(folder)))
    except MissingDependencyError:
        return None  # Jinja2 is an extra; `bspml report RUN` says how to get it


def versions() -> Mapping[str, str]:
    """Versions of what computed the numbers."""
    from importlib.metadata import version

    names = ("torch", "pytorch-metric-learning", "numpy", "scikit-learn")
    return {"bspml": __version__} | {name: version(name) for name in names}
