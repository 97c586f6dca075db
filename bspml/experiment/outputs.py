"""What a finished run leaves behind: summary, weights as a table, figures, and the page."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bspml.auditing.neighbours import nearest_in_class
from bspml.errors import MissingDependencyError, RunError
from bspml.evaluation.neighbours import unit_rows
from bspml.evaluation.selection import (
    SelectedEpoch,
    metric_of,
    select_epochs,
    selection_columns,
)
from bspml.experiment.build import make_network
from bspml.experiment.conditions import versions
from bspml.experiment.config import Config
from bspml.experiment.data import ExperimentData
from bspml.experiment.judgements import Judgement, judgements
from bspml.files.atomic import atomic_write
from bspml.files.run import (
    EpochRecord,
    RunFolder,
    WeightsTable,
    read_weights,
    write_json,
    write_weights,
)
from bspml.networks import embed
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
from bspml.statistics.contrastive import contrastive_statistics
from bspml.tensors.checks import check_device

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
    tables: dict[str, str] = {}
    for judgement in judgements(config, data, folder):
        file = folder.weights_of(judgement.method) if tables else folder.weights
        _write_table(file, data, judgement)
        if figures and not tables:  # of one method: the pictures and the page
            _draw_weights(folder, data, judgement)
            _write_suspects(config, data, folder, judgement)
        tables[judgement.method] = file.name
    results, epochs = final_results(records), {}
    metric = f"recall_at_{config.evaluation.ks[0]}"
    for method, row in results.items():
        found = _selected(records, method, metric)
        columns = selection_columns({kind: found[kind] for kind in found if kind != "last"}, metric)
        results[method] = row | columns  # the last epoch is what the row is of
        epochs[method] = {kind: _epoch(one, metric) for kind, one in found.items() if one}
    write_json(
        folder.summary,
        {
            "name": config.name,
            "results": results,
            "epochs": epochs,
            "weights": tables,
            "true_noise_rate": data.noise_rate,
            "estimated_noise_rate": _estimate(records),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "versions": versions(),
        },
    )
    if figures:
        _write_page(folder)
    return results


def _selected(
    records: Sequence[EpochRecord], method: str, metric: str
) -> dict[str, SelectedEpoch | None]:
    """The last, best and validation-selected epoch; {} where nothing was measured (NaN)."""
    own = [record for record in records if record.method == method]
    if all(metric_of(record, metric) is None for record in own):
        return {}
    return select_epochs(own, metric)


def _epoch(selected: SelectedEpoch, metric: str) -> dict[str, Any]:
    """One way to choose an epoch, for the summary."""
    found = {
        "chosen_by": selected.chosen_by,
        "epoch": selected.epoch,
        "metric": metric,
        "value": selected.value,
    }
    if selected.validation is not None:
        found["validation"] = selected.validation
    return found


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
    except OSError as err:
        raise RunError(f"{path}: cannot be made ({err.strerror or err}).") from err


def _estimate(records: Sequence[EpochRecord]) -> float | None:
    return next((r.noise_rate for r in reversed(records) if r.noise_rate is not None), None)


def _write_table(file: Path, data: ExperimentData, judgement: Judgement) -> None:
    weights, outliers = judgement.weights.numpy(), data.is_outlier
    flags = [
        ["decided"] if d else [*(["suspect"] if w < 0.5 else []), *(["untestable"] if u else [])]
        for w, u, d in zip(weights, judgement.untestable, _decided(data), strict=True)
    ]
    table = WeightsTable(
        data.labels,
        weights,
        flags=flags,
        is_noisy=data.is_noisy,
        # A column where there are any, as in the table of figures.
        is_outlier=outliers if outliers is not None and outliers.any() else None,
        true_labels=data.true_labels,
        names=data.names,
        sigma=None if judgement.sigma is None else judgement.sigma.cpu().numpy(),
    )
    write_weights(file, table)


def _decided(data: ExperimentData) -> np.ndarray:
    """(N,) bool, the samples whose weight is a person's word."""
    if data.decided is None:
        return np.zeros(len(data.labels), dtype=bool)
    return data.decided.fixed


def _draw_weights(folder: RunFolder, data: ExperimentData, judgement: Judgement) -> None:
    p_values = judgement.p_values
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
    judgement: Judgement,
) -> None:
    """Suggested labels and neighbours of the samples of low weight, for the page."""
    network = make_network(config, data.width, pretrained=False)
    network.load_state_dict(judgement.network)
    size, workers = config.evaluation.batch_size, config.workers
    network.to(check_device(config.device))
    embeddings = embed(network, data.images, size, num_workers=workers)
    weights, p_values = judgement.weights, judgement.p_values
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
        noise_rate=judgement.noise_rate,
        images=data.pictures(),
        names=data.names,
        **extra,
    )


def _write_page(folder: RunFolder) -> Path | None:
    try:
        return atomic_write(folder.path / "report.html", render_page(run_page(folder)))
    except MissingDependencyError:
        return None  # Jinja2 is an extra; `bspml report RUN` says how to get it
