"""What a finished run leaves behind: summary, weights as a table, figures, and the page."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bspml.auditing.neighbours import nearest_in_class
from bspml.data.picture_keys import keys_in
from bspml.errors import MissingDependencyError
from bspml.evaluation.selection import SelectedEpoch, metric_of, select_epochs, selection_columns
from bspml.experiment.config import Config
from bspml.experiment.data import ExperimentData
from bspml.experiment.engine import Outputs, Workplace
from bspml.experiment.words import versions
from bspml.files.atomic import atomic_write, make_folder_in
from bspml.files.opening import refusals
from bspml.files.run import SUSPECT_BELOW, RunFolder, WeightsTable, read_weights, write_weights
from bspml.networks import embed
from bspml.report.figures import captions, contact_sheet, curves, weight_histogram
from bspml.report.page import render_page
from bspml.report.run_page import run_page, run_suspects, write_suspects
from bspml.report.samples import Samples, lowest_weights
from bspml.report.saving import save_figure
from bspml.report.tables import final_results
from bspml.statistics.contrastive import contrastive_statistics
from bspml.tensors.unit_rows import grid_unit_rows

_SHEET = 48  # lowest-weight samples shown
_NEIGHBOURS = 4  # shown beside each suspect, of its class and of the suggested one


@dataclass(frozen=True)
class LabelQuality:
    """What a trained method thinks of the training labels: a weight for each sample, and why.

    Attributes:
        weights: (N,) float64 in [0, 1]; below `SUSPECT_BELOW` the label is doubted.
        network: as trained.
        p_values: (N,) of "this label is a random one", NaN where untestable; None: not computed.
        noise_rate: the share wrong at random, estimated from them, or None.  Confused labels have
            small p-values: they are no part of a histogram's even share.
        sigma: (N,) of a SuperLoss, which may exceed 1; NaN where no batch met the sample.
        current: (N,) codes that the samples were trained under, where a curriculum repairs labels;
            the weights are theirs.
    """

    weights: Tensor
    network: nn.Module
    p_values: Tensor | None = None
    noise_rate: float | None = None
    sigma: Tensor | None = None
    current: Tensor | None = None

    def trust(self, codes: Tensor) -> Tensor:
        """Return (N,) the weights of the given labels: 0 where another took its place.

        Args:
            codes: (N,) of the given labels.
        """
        return torch.where(self.repaired(codes), 0, self.weights)

    def repaired(self, codes: Tensor) -> Tensor:
        """Return (N,) bool, the samples trained under another label than the given one.

        Args:
            codes: (N,) of the given labels.
        """
        if self.current is None:
            return torch.zeros(len(codes), dtype=torch.bool)
        return self.current != codes

    @property
    def tested(self) -> np.ndarray | None:
        """(N,) p-values in memory of the CPU, or None."""
        return None if self.p_values is None else self.p_values.cpu().numpy()

    @property
    def untestable(self) -> np.ndarray:
        """(N,) bool, the samples that nothing could be compared with."""
        return np.zeros(len(self.weights), bool) if self.tested is None else np.isnan(self.tested)


def write_outputs(
    config: Config,
    data: ExperimentData,
    place: Workplace,
    qualities: Mapping[str, LabelQuality],
    kept: Mapping[str, float | None],
    figures: bool = True,
) -> Outputs:
    """Write the tables of weights and the figures of a run.

    Args:
        config: the run's.
        data: the run's.
        place: of the run, with the records of every method.
        qualities: of the methods that judge labels; the first gives the figures.
        kept: {method: epoch of the network that is kept, None for the last}.
        figures: False leaves out what only people look at.

    Returns:
        The final table, how the epochs were chosen, and the names of the tables of weights.
    """
    folder, records = place.folder, place.log.read()
    if figures:
        with refusals(f"{folder.figures}: cannot be made"):
            make_folder_in(folder.path, folder.figures.name)
        save_figure(curves(records, data.noise_rate), folder.figures / "curves.png")
    tables: dict[str, str] = {}
    for method, quality in qualities.items():
        file = folder.weights_of(method) if tables else folder.weights
        _write_table(file, data, quality)
        if figures and not tables:  # of one method: the pictures and the page
            _draw_weights(folder, data, quality)
            _write_suspects(config, data, folder, quality)
        tables[method] = file.name
    results, epochs = final_results(records, kept), {}
    metric = f"recall_at_{config.evaluation.ks[0]}"
    for method in kept:
        row = results[method]
        rounds = [record for record in records if record.method == method]
        # It may be NaN in all of them.
        is_measured = any(metric_of(record, metric) is not None for record in rounds)
        by_kind = select_epochs(rounds, metric) if is_measured else {}
        # Without a selection, the last epoch is what the row is of.
        selected = by_kind.get("selected") is not None
        others = {kind: epoch for kind, epoch in by_kind.items() if kind != "last" or selected}
        results[method] = row | selection_columns(others, metric)
        epochs[method] = {kind: _epoch(epoch, metric) for kind, epoch in by_kind.items() if epoch}
    found = {"results": results, "epochs": epochs, "weights": tables, "samples": len(data.labels)}
    return Outputs(found, versions())


def _epoch(selected: SelectedEpoch, metric: str) -> dict[str, Any]:
    """Return one choice of an epoch as an entry of summary.json."""
    values = {"chosen_by": selected.chosen_by, "epoch": selected.epoch, "metric": metric}
    by = {} if selected.validation is None else {"validation": selected.validation}
    return {**values, "value": selected.value, **by}


def _write_table(file: Path, data: ExperimentData, quality: LabelQuality) -> None:
    weights, outliers = quality.weights.numpy(), data.is_outlier
    decided, trust = _decided(data), quality.trust(data.codes).numpy()
    words = {
        "suspect": trust < SUSPECT_BELOW,
        "repaired": quality.repaired(data.codes).numpy(),
        "untestable": quality.untestable,
    }
    current = None if quality.current is None else np.unique(data.labels)[quality.current.numpy()]
    flags = [
        ["decided"] if decided[row] else [word for word, holds in words.items() if holds[row]]
        for row in range(len(weights))
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
        sigma=None if quality.sigma is None else quality.sigma.cpu().numpy(),
        current_labels=current,
    )
    write_weights(file, table)


def _decided(data: ExperimentData) -> np.ndarray:
    """Return (N,) bool, the samples whose weight the user decided."""
    if data.decided is None:
        return np.zeros(len(data.labels), dtype=bool)
    return data.decided.fixed


def _draw_weights(folder: RunFolder, data: ExperimentData, quality: LabelQuality) -> None:
    table = read_weights(folder.weights)
    save_figure(weight_histogram(table), folder.figures / "weights.png")
    lowest = lowest_weights(table, _SHEET, quality.tested)
    pictures = data.pictures()
    if pictures is None:
        return
    images = np.stack([pictures[row] for row in lowest.tolist()])
    sheet = contact_sheet(images, captions(table, lowest), "samples of lowest weight")
    save_figure(sheet, folder.figures / "lowest_weights.png")


def _write_suspects(
    config: Config, data: ExperimentData, folder: RunFolder, quality: LabelQuality
) -> None:
    """Write suggested labels and neighbours of the samples of low weight, for the page."""
    size, workers = config.evaluation.batch_size, config.workers
    embeddings = embed(quality.network, data.images, size, num_workers=workers)
    weights = quality.trust(data.codes)
    is_kept = weights.numpy() > 0
    codes = data.codes.numpy()
    extra: dict[str, Any] = {}
    if len(np.unique(codes[is_kept])) > 1:
        stats = contrastive_statistics(embeddings, data.codes, sample_weights=weights)
        others = stats.other_class.numpy()
        rows, is_low = grid_unit_rows(embeddings), weights.numpy() < SUSPECT_BELOW
        gallery = np.where(is_kept, codes, -1)
        extra = {
            "suggested": np.where(others < 0, "", np.unique(data.labels)[others]),
            "margins": stats.margin.numpy(),
            "own": nearest_in_class(rows, gallery, np.where(is_low, codes, -1), _NEIGHBOURS),
            "other": nearest_in_class(rows, gallery, np.where(is_low, others, -1), _NEIGHBOURS),
        }
    files = (None, None) if data.split is None else (data.split.root, data.split.paths)
    samples = Samples(
        data.labels,
        # What the user decided is no suspect any more.
        np.where(_decided(data), 1.0, weights.numpy()),
        names=data.names,
        p_values=quality.tested,
        key=cache(lambda row: keys_in(*files, [row])[0]),
        **extra,
    )
    write_suspects(folder, run_suspects(samples, quality.noise_rate, data.pictures()))


def write_page(folder: RunFolder) -> None:
    """Write report.html of a finished run, where Jinja2 is installed."""
    with suppress(MissingDependencyError):  # `bspml report RUN` says how to get it
        atomic_write(folder.path / "report.html", render_page(run_page(folder)))
