"""A run's page, from the files it left behind: no data set, no network, no torch.

The suspects' pictures and neighbours are the one thing the other records lack; `write_suspects`
keeps them as `suspects.json` when the run ends.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bspml.errors import InputError, RunError
from bspml.files.run import (
    SUSPECT_BELOW,
    EpochRecord,
    RecordLog,
    RunFolder,
    WeightsTable,
    read_json,
    read_weights,
    write_json,
)
from bspml.report.figures import _displayable, lowest_weights
from bspml.report.page import PageData
from bspml.report.page_check import check_page
from bspml.words import noise_sentence, percent

__all__ = ["run_page", "write_suspects"]

_FILE = "suspects.json"
_BINS = 40


def write_suspects(
    folder: RunFolder,
    labels: np.ndarray,
    weights: np.ndarray,
    *,
    p_values: np.ndarray | None = None,
    noise_rate: float | None = None,
    suggested: Sequence[str] | np.ndarray | None = None,
    margins: np.ndarray | None = None,
    own: np.ndarray | None = None,
    other: np.ndarray | None = None,
    images: Any = None,
    names: Sequence[str] | None = None,
    limit: int = 5000,
) -> Path:
    """Keep what the page shows of the samples of weight below 0.5, with small pictures of them.

    Args:
        folder: of the run.
        labels: (N,) as given.
        weights: (N,) in [0, 1].
        p_values: (N,), NaN where the label was not judged; order equal weights, make the histogram.
        noise_rate: the estimate behind the histogram's fitted part, in [0, 1].
        suggested: (N,) labels, '' where there is none.
        margins: (N,) how much better the suggested label fits; NaN where unknown.
        own: (N, k) nearest samples under the label, -1 for none.
        other: (N, k) nearest samples under the suggested label, -1 for none.
        images: N pictures (H, W) or (H, W, 3), as for `contact_sheet`: an array, or anything with a
            length and rows that makes them when they are asked for.
        names: N names of the samples, where they are known.
        limit: suspects kept at most, the most suspicious.

    Raises:
        InputError: columns of different lengths.
        RunError: the file cannot be written.
    """
    columns = {"labels": labels, "p_values": p_values, "suggested": suggested, "margins": margins}
    columns |= {"own": own, "other": other, "images": images, "names": names}
    for name, column in columns.items():
        if column is not None and len(column) != len(weights):
            raise InputError(
                f"`{name}` must have one entry per weight, {len(weights)}; got {len(column)}."
            )
    table = WeightsTable(np.asarray(labels), np.asarray(weights), ((),) * len(weights))
    rows = lowest_weights(table, limit, p_values)
    pictures: dict[str, str] = {}  # kept once, as neighbours repeat

    def sample(row: int) -> dict[str, Any]:
        if images is not None and str(row) not in pictures:
            pictures[str(row)] = _data_uri(images[row])
        return {"index": row, "label": str(labels[row]), "image": None, "text": None}

    def neighbours(table: np.ndarray | None, row: int) -> list[dict[str, Any]]:
        return [] if table is None else [sample(int(near)) for near in table[row] if near >= 0]

    suspects = [
        {
            **sample(row),
            "name": "" if names is None else names[row],
            "suggested": "" if suggested is None else str(suggested[row]),
            "margin": None if margins is None else float(margins[row]),
            "p": None if p_values is None else float(p_values[row]),
            "q": None,
            "weight": float(weights[row]),
            "own": neighbours(own, row),
            "other": neighbours(other, row),
        }
        for row in rows.tolist()
        if weights[row] < SUSPECT_BELOW
    ]
    histogram = None if noise_rate is None else _histogram(p_values, noise_rate)
    value = {"histogram": histogram, "suspects": suspects, "pictures": pictures}
    return write_json(folder.path / _FILE, value)


def _histogram(p_values: np.ndarray | None, noise_rate: float) -> dict[str, Any] | None:
    if p_values is None:
        return None
    judged = p_values[~np.isnan(p_values)]
    counts = np.histogram(judged, _BINS, (0, 1))[0]
    return {"counts": counts.tolist(), "null_level": noise_rate * len(judged) / _BINS}


def _data_uri(image: np.ndarray) -> str:
    from PIL import Image

    pixels = (255 * _displayable(np.asarray(image))).round().astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def run_page(folder: RunFolder) -> PageData:
    """What the records of `folder` say, finished or not.

    Raises:
        RunError: a file is damaged; names it.
    """
    records = RecordLog(folder.records).read()
    summary = _summary(folder.summary) if folder.finished else {}
    table = read_weights(folder.weights) if folder.weights.is_file() else None
    kept = _kept(folder.path / _FILE, table)
    return PageData(
        title=f"Run {folder.path.resolve().name}",
        sentence=_sentence(records),
        facts=_facts(records, summary, table),
        histogram=kept["histogram"],
        curves=records,
        classes=[] if table is None else _classes(table),
        suspects=kept["suspects"],
        integer_labels=table is not None and table.labels.dtype.kind in "iu",
    )


def _summary(path: Path) -> dict[str, Any]:
    found = read_json(path)
    rate = found.get("true_noise_rate") if isinstance(found, dict) else ""
    if not (isinstance(found, dict) and isinstance(rate, int | float | None) and "name" in found):
        raise RunError(f"{path}: is not a run's summary. Was the file edited?")
    return found


def _kept(path: Path, table: WeightsTable | None) -> dict[str, Any]:
    """The file of suspects, or without it what the table of weights alone says."""
    if path.is_file():
        kept = read_json(path)
        if not isinstance(kept, dict) or not {"histogram", "suspects", "pictures"} <= kept.keys():
            raise RunError(f"{path}: is not a run's file of suspects; delete it to do without.")
        check_page(kept, path)
        if not isinstance(kept["pictures"], dict):
            raise RunError(f"{path}: its pictures are no object; delete it to do without.")
        for suspect in kept["suspects"]:
            for shown in (suspect, *suspect["own"], *suspect["other"]):
                image = kept["pictures"].get(str(shown["index"]))
                shown["image"] = image if isinstance(image, str) else None
        return kept
    suspects = []
    for row in [] if table is None else lowest_weights(table, len(table)).tolist():
        assert table is not None
        if table.weights[row] >= SUSPECT_BELOW:
            break
        if "decided" in table.flags[row]:
            continue
        suspects.append(
            {
                "index": row,
                "label": str(table.labels[row]),
                "weight": float(table.weights[row]),
                **dict.fromkeys(("margin", "p", "q", "image", "text")),
                **{"name": "" if table.names is None else table.names[row]},
                **{"suggested": "", "own": [], "other": []},
            }
        )
    return {"histogram": None, "suspects": suspects}


def _sentence(records: Sequence[EpochRecord]) -> str:
    estimated = next((r for r in reversed(records) if r.noise_rate is not None), None)
    if estimated is None or estimated.noise_rate is None:
        return "The share of wrong labels was not estimated in this run."
    low, high = estimated.noise_rate_low, estimated.noise_rate_high
    interval = None if low is None or high is None else (low, high)
    return noise_sentence(estimated.noise_rate, interval)


def _facts(
    records: Sequence[EpochRecord], summary: dict[str, Any], table: WeightsTable | None
) -> list[tuple[str, str]]:
    facts = [("Experiment", str(summary["name"]))] if summary else [("State", "not finished")]
    tables = summary.get("weights")
    if isinstance(tables, dict) and tables:
        facts.append(("Weights of", str(next(iter(tables)))))
    if table is not None:
        decided = np.array(["decided" in flags for flags in table.flags], dtype=bool)
        low = int(((table.weights < SUSPECT_BELOW) & ~decided).sum())
        facts += [
            ("Samples", f"{len(table):,}"),
            ("Classes", f"{len(np.unique(table.labels)):,}"),
            ("Suspicious", f"{low:,}"),
        ]
        if decided.any():
            facts.append(("Decided by a person", f"{int(decided.sum()):,}"))
        if low:
            estimated = any(record.noise_rate is not None for record in records)
            many = ", about as many as are estimated to be wrong" if estimated else ""
            meaning = f"a weight below {SUSPECT_BELOW:g}: the labels that fit worst{many}"
            facts.append(("What suspicious means", f"{meaning}. Some of them are right."))
    if summary.get("true_noise_rate") is not None:
        facts.append(("Truly wrong", f"{percent(summary['true_noise_rate'])} %"))
    for method in dict.fromkeys(record.method for record in records):
        own = [record for record in records if record.method == method]
        recalls = [r.recall_at_k[1] for r in own if r.recall_at_k.get(1) is not None]
        if recalls and recalls[-1] is not None:
            facts.append((f"Recall@1, {method}", f"{100 * recalls[-1]:.1f} %"))
        facts += _chosen(summary, method)
    weighted = [r for r in records if r.phase is not None]
    if weighted:
        last = weighted[-1]
        for name, value in (("MAW", last.maw), ("SDAW", last.sdaw)):
            if value is not None:
                facts.append((name, f"{value:.3f}"))
        if last.detection_auroc is not None:
            facts.append(("AUROC of the detection", f"{last.detection_auroc:.3f}"))
        if last.outlier_auroc is not None:
            facts.append(("AUROC of the outliers", f"{last.outlier_auroc:.3f}"))
        if last.false_alarm_rate is not None:
            alarms = f"{100 * last.false_alarm_rate:.1f} % of the right labels are suspicious"
            facts.append(("False alarms", alarms))
    return facts


def _chosen(summary: dict[str, Any], method: str) -> list[tuple[str, str]]:
    """The epochs that something else than being the last chose, each with its reason."""
    try:
        found = [one for kind, one in summary["epochs"][method].items() if kind != "last"]
        return [
            (f"{method}, {one['chosen_by']}", f"{100 * one['value']:.1f} % ({one['epoch']:g})")
            for one in found
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []  # of an older version, or edited; the curves are there


def _classes(table: WeightsTable) -> list[dict[str, Any]]:
    classes, codes, counts = np.unique(table.labels, return_inverse=True, return_counts=True)
    means = np.bincount(codes, table.weights) / counts
    flagged = np.bincount(codes, table.weights < SUSPECT_BELOW) / counts
    return [
        {
            "label": str(label),
            "support": int(count),
            "mean_weight": float(mean),
            "share_flagged": float(share),
            "looks_like_two": False,
            "looks_like": "",
        }
        for label, count, mean, share in zip(classes, counts, means, flagged, strict=True)
    ]
