"""A run's page, from the files it left behind: no data set, no network, no torch.

The suspects' pictures and neighbours are the one thing the other records lack; `write_suspects`
keeps them as `suspects.json` when the run ends.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bspml.errors import RunError
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
from bspml.report.figures import displayable
from bspml.report.models import (
    ClassRow,
    Histogram,
    Neighbour,
    PageData,
    RunSuspects,
    Suspect,
    check_record,
)
from bspml.report.samples import Samples, lowest_weights
from bspml.words import counted, interval_in_words, noise_sentence, percent

_FILE = "suspects.json"
Shown = TypeVar("Shown", bound=Neighbour)


def run_suspects(
    samples: Samples, noise_rate: float | None = None, images: Any = None, limit: int = 5000
) -> RunSuspects:
    """Make the cards of the samples of weight below 0.5, with small pictures of them.

    Args:
        samples: of the run; p-values order equal weights and make the histogram.
        noise_rate: the share wrong at random, the histogram's fitted part, in [0, 1].
        images: N pictures (H, W) or (H, W, 3), as for `contact_sheet`: an array, or anything with a
            length and rows that makes them when they are asked for.
        limit: suspects kept at most, the most suspicious.

    Raises:
        InputError: another number of images than of samples.
    """
    samples.check_length("images", images)
    weights, p_values = np.asarray(samples.weights), samples.p_values
    table = WeightsTable(np.asarray(samples.labels), weights, ((),) * len(weights))
    rows = lowest_weights(table, limit, p_values).tolist()
    suspects = tuple(samples.card(row) for row in rows if weights[row] < SUSPECT_BELOW)
    pictures: dict[str, str] = {}  # kept once, as neighbours repeat
    for shown in (sample for suspect in suspects for sample in suspect.samples()):
        if images is not None and str(shown.index) not in pictures:
            pictures[str(shown.index)] = _data_uri(images[shown.index])
    histogram = None
    if p_values is not None and noise_rate is not None:
        histogram = Histogram.of(p_values, noise_rate)
    return RunSuspects(histogram=histogram, suspects=suspects, pictures=pictures)


def write_suspects(folder: RunFolder, suspects: RunSuspects) -> Path:
    """Keep what the page shows of a run's suspects.

    Args:
        folder: of the run.
        suspects: of `run_suspects`.

    Raises:
        RunError: the file cannot be written.
    """
    return write_json(folder.path / _FILE, suspects.model_dump())


def _data_uri(image: np.ndarray) -> str:
    from PIL import Image

    pixels = (255 * displayable(np.asarray(image))).round().astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="png", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def run_page(folder: RunFolder) -> PageData:
    """Make the page of a run from its records, finished or not.

    Raises:
        RunError: a file is damaged; names it.
    """
    log = RecordLog(folder.records)
    records, torn = log.read(), log.torn_bytes
    summary = _summary(folder.summary) if folder.finished else {}
    if summary and (torn or _are_others(records, summary)):
        raise RunError(
            f"{folder.records}: lacks records of the run that {folder.summary.name} is of, or has "
            "others: the file was cut, edited or is of another run. Put it back."
        )
    table = read_weights(folder.weights) if folder.weights.is_file() else None
    if table is not None and summary.get("samples", len(table)) != len(table):
        raise RunError(
            f"{folder.weights}: holds {counted(len(table), 'sample')}, and the run has "
            f"{summary['samples']}: the file was cut or edited. Put it back, or remove it to do "
            "without."
        )
    page_suspects = _read_suspects(folder.path / _FILE, table)
    return PageData(
        title=f"Run {folder.path.resolve().name}",
        sentence=_sentence(_of_weights(records, summary)),
        warnings=tuple(_warnings(records)),
        facts=tuple(_run_facts(records, summary, table, len(page_suspects.suspects))),
        histogram=page_suspects.histogram,
        curves=tuple(records),
        classes=() if table is None else _class_rows(table),
        suspects=page_suspects.suspects,
        integer_labels=table is not None and table.labels.dtype.kind in "iu",
    )


def _of_weights(
    records: Sequence[EpochRecord], summary: Mapping[str, Any]
) -> Sequence[EpochRecord]:
    """Return the records of the method whose weights the page shows; all, if none is named."""
    tables = summary.get("weights")
    method = next(iter(tables), None) if isinstance(tables, dict) else None
    return [record for record in records if record.method == method] or records


def _summary(path: Path) -> dict[str, Any]:
    values = read_json(path)
    rate = values.get("true_noise_rate") if isinstance(values, dict) else ""
    if not (isinstance(values, dict) and isinstance(rate, int | float | None) and "name" in values):
        raise RunError(f"{path}: is not a run's summary. Was the file edited?")
    return values


def _read_suspects(path: Path, table: WeightsTable | None) -> RunSuspects:
    """Read the file of suspects; without it, make cards from the table of weights alone."""
    if path.is_file():
        values = read_json(path)
        if not isinstance(values, dict) or not RunSuspects.model_fields.keys() <= values.keys():
            raise RunError(f"{path}: is not a run's file of suspects; delete it to do without.")
        record = check_record(RunSuspects, values, path)
        cards = tuple(_with_pictures(card, record.pictures) for card in record.suspects)
        return record.model_copy(update={"suspects": cards})
    cards = ()
    if table is not None:
        samples = Samples(table.labels, table.trust, table.names)
        is_low = _suspicious(table)
        cards = tuple(samples.card(int(i)) for i in lowest_weights(table, len(table)) if is_low[i])
    return RunSuspects(histogram=None, suspects=cards, pictures={})


def _with_pictures(card: Suspect, pictures: Mapping[str, str]) -> Suspect:
    def pictured(sample: Shown) -> Shown:
        return sample.model_copy(update={"image": pictures.get(str(sample.index))})

    neighbours = {"own": tuple(map(pictured, card.own)), "other": tuple(map(pictured, card.other))}
    return pictured(card).model_copy(update=neighbours)


def _sentence(records: Sequence[EpochRecord]) -> str:
    estimated = next((r for r in reversed(records) if r.noise_rate is not None), None)
    if estimated is None or estimated.noise_rate is None:
        return "The share of wrong labels was not estimated in this run."
    low, high = estimated.noise_rate_low, estimated.noise_rate_high
    interval = None if low is None or high is None else (low, high)
    curriculum = estimated.extra.get("curriculum")
    total = curriculum.get("total_rate") if isinstance(curriculum, dict) else None
    return noise_sentence(estimated.noise_rate, interval, with_confusions=total is not None)


def _warnings(records: Sequence[EpochRecord]) -> Iterator[str]:
    """Yield what the last record of a method says of a training that did harm."""
    for method, record in {record.method: record for record in records}.items():
        words = record.extra.get("worse_than_untrained")
        if isinstance(words, str):
            yield f"{method}: {words}"


def _run_facts(
    records: Sequence[EpochRecord], summary: dict[str, Any], table: WeightsTable | None, cards: int
) -> list[tuple[str, str]]:
    facts = [("Experiment", str(summary["name"]))] if summary else [("State", "not finished")]
    tables = summary.get("weights")
    if isinstance(tables, dict) and tables:
        facts.append(("Weights of", str(next(iter(tables)))))
    if table is not None:
        decided, low = _decided(table), int(_suspicious(table).sum())
        facts += [
            ("Samples", f"{len(table):,}"),
            ("Classes", f"{len(np.unique(table.labels)):,}"),
            ("Suspects", f"{low:,}{f', {cards:,} of them shown' if cards < low else ''}"),
        ]
        if decided.any():
            facts.append(("Decided by a person", f"{int(decided.sum()):,}"))
        if low:
            estimated = any(record.noise_rate is not None for record in records)
            remark = ", about as many as are estimated to be wrong" if estimated else ""
            meaning = f"a weight below {SUSPECT_BELOW:g}: the labels that fit worst{remark}"
            facts.append(("What a suspect is", f"{meaning}. Some of them are right."))
    if summary.get("true_noise_rate") is not None:
        facts.append(("Truly wrong", f"{percent(summary['true_noise_rate'])} %"))
    for method in dict.fromkeys(record.method for record in records):
        own = (record for record in records if record.method == method)
        measured = [record for record in own if record.recall_at_k.get(1) is not None]
        if measured:
            chosen = _selected_epoch(summary, method)
            kept = next((r for r in measured if r.epoch == chosen), measured[-1])
            facts.append((f"Recall@1, {method}", _recall_in_words(kept)))
            if kept.map_at_r is not None:
                facts.append((f"MAP@R, {method}", f"{kept.map_at_r:.3f}"))
        facts += _chosen_epochs(summary, method)
    judged = _of_weights(records, summary)
    last = next((r for r in reversed(judged) if r.phase is not None), None)
    if last is None:
        return facts
    figures = {
        "MAW": last.maw,
        "SDAW": last.sdaw,
        "AUROC of the detection": last.detection_auroc,
        "AUROC of the outliers": last.outlier_auroc,
    }
    facts += [(name, f"{value:.3f}") for name, value in figures.items() if value is not None]
    if last.false_alarm_rate is not None:
        alarms = f"{100 * last.false_alarm_rate:.1f} % of the right labels are suspects"
        facts.append(("False alarms", alarms))
    return facts


def _recall_in_words(record: EpochRecord) -> str:
    """Return Recall@1 in per cent, with its interval over the test classes where that is known."""
    recall, low, high = record.recall_at_k[1], record.recall_at_1_low, record.recall_at_1_high
    text = f"{100 * (recall or 0):.1f} %"
    if low is None or high is None:
        return text
    words = interval_in_words(100 * low, 100 * high, 1)
    return f"{text}{words}, in brackets 95 % over the test classes"


def _are_others(records: Sequence[EpochRecord], summary: dict[str, Any]) -> bool:
    """Whether an epoch that the summary names has no record, or one of another recall."""
    known = {(record.method, record.epoch): record.recall_at_k.values() for record in records}
    try:
        chosen = [(m, row) for m, rows in summary["epochs"].items() for row in rows.values()]
        return any(row["value"] not in known.get((m, row["epoch"]), ()) for m, row in chosen)
    except (KeyError, TypeError, AttributeError):
        return False  # of an older version, or edited


def _selected_epoch(summary: dict[str, Any], method: str) -> Any:
    """Return the selected epoch; None: there is none, or the summary does not say."""
    try:
        return summary["epochs"][method]["selected"]["epoch"]
    except (KeyError, TypeError):
        return None


def _chosen_epochs(summary: dict[str, Any], method: str) -> list[tuple[str, str]]:
    """Return the chosen epochs other than the last, each with what it was chosen by."""
    try:
        epochs = [row for kind, row in summary["epochs"][method].items() if kind != "last"]
        return [
            (f"{method}, {row['chosen_by']}", f"{100 * row['value']:.1f} % ({row['epoch']:g})")
            for row in epochs
        ]
    except (KeyError, TypeError, ValueError, AttributeError):
        return []  # of an older version, or edited; the curves are there


def _decided(table: WeightsTable) -> np.ndarray:
    return np.array(["decided" in flags for flags in table.flags], dtype=bool)


def _suspicious(table: WeightsTable) -> np.ndarray:
    """Return (N,) bool, the labels to look at: of low weight, and not decided by a person."""
    return (table.trust < SUSPECT_BELOW) & ~_decided(table)


def _class_rows(table: WeightsTable) -> tuple[ClassRow, ...]:
    classes, codes, counts = np.unique(table.labels, return_inverse=True, return_counts=True)
    means, shares = (np.bincount(codes, x) / counts for x in (table.trust, _suspicious(table)))
    columns = zip(classes, counts.tolist(), means.tolist(), shares.tolist(), strict=True)
    return tuple(
        ClassRow(
            label=str(label),
            support=count,
            mean_weight=mean,
            share_flagged=share,
            looks_like_two=False,
        )
        for label, count, mean, share in columns
    )
