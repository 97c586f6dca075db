"""The final figures of a run as one table, for a terminal or for Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bspml.files.run import EpochRecord
from bspml.words import interval_in_words

_LOW, _HIGH = " low", " high"  # after the name of a column: the ends of its interval

Results = dict[str, dict[str, float | None]]


def final_results(
    records: Sequence[EpochRecord], kept: Mapping[str, float | None] | None = None
) -> Results:
    """Return the evaluation and the last weights of each method: {method: {column: value}}.

    The evaluation is that of the network that is kept: the last one, unless `kept` says otherwise.

    Columns: Recall@k in %, NMI, AMI, MAP@R, MAW, SDAW, AUROC (of the noise detection) and false
    alarms (share of the right labels that weigh below 0.5), both only where a method weighs samples
    and it is known which labels are right, outlier AUROC (samples of no class that a label names,
    told from right labels; only where there are any) and the estimated noise rate, all as
    fractions, and seconds (over all rounds, evaluation left out).  None: not measured.  Where the
    95 % intervals over the test classes are known, their ends are columns, too: "MAP@R low".

    Args:
        records: of all methods, in order of time.
        kept: {method: epoch of the network that is kept}; None, or no method: the last.

    Example:
        >>> records = [EpochRecord("bspml", e, recall_at_k={1: 0.4 * e}, maw=0.8) for e in (1, 2)]
        >>> results = final_results(records)["bspml"]
        >>> results["Recall@1 %"], results["MAW"], results["NMI"]
        (80.0, 0.8, None)
    """
    results: Results = {}
    has_auroc = any(record.detection_auroc is not None for record in records)
    has_alarms = any(record.false_alarm_rate is not None for record in records)
    has_outliers = any(record.outlier_auroc is not None for record in records)
    for method in dict.fromkeys(record.method for record in records):
        method_records = [record for record in records if record.method == method]
        measured = [r for r in method_records if r.recall_at_k] or method_records[-1:]
        epoch = (kept or {}).get(method)
        evaluated = next((r for r in measured if r.epoch == epoch), measured[-1])
        row: dict[str, float | None] = {
            f"Recall@{k} %": None if recall is None else 100 * recall
            for k, recall in evaluated.recall_at_k.items()
        }
        row |= {"NMI": evaluated.nmi, "AMI": evaluated.ami, "MAP@R": evaluated.map_at_r}
        row |= _ends("Recall@1 %", evaluated.recall_at_1_low, evaluated.recall_at_1_high, 100)
        row |= _ends("MAP@R", evaluated.map_at_r_low, evaluated.map_at_r_high)
        last = method_records[-1]
        row |= {"MAW": last.maw, "SDAW": last.sdaw}
        if has_auroc or has_alarms:
            row["AUROC"] = last.detection_auroc
        if has_alarms:
            row["false alarms"] = last.false_alarm_rate
        if has_outliers:
            row["outlier AUROC"] = last.outlier_auroc
        row["noise rate"] = last.noise_rate
        timed = [record.seconds for record in method_records if record.seconds is not None]
        row["seconds"] = sum(timed) if timed else None
        results[method] = row
    return results


def _ends(
    column: str, low: float | None, high: float | None, factor: float = 1.0
) -> dict[str, float | None]:
    """Return the ends of an interval as columns; {} where there is none."""
    if low is None or high is None:
        return {}
    return {f"{column}{_LOW}": factor * low, f"{column}{_HIGH}": factor * high}


def format_table(
    results: Mapping[str, Mapping[str, float | None]], markdown: bool = False, width: int = 100
) -> str:
    """Write one row per method, or one column where that would be wider than `width`.

    The ends of an interval, "X low" and "X high", stand in brackets behind their X.

    Args:
        results: {method: {column: value}}; a column that a method lacks shows '-'.
        markdown: a Markdown table, always with methods as rows.
        width: characters of the terminal.

    Returns:
        Lines joined by newlines, without one at the end; '' for no results.

    Example:
        >>> print(format_table({"plain": {"Recall@1 %": 61.5}, "bspml": {"Recall@1 %": 80.6}}))
        method  Recall@1 %
        ------  ----------
        plain         61.5
        bspml         80.6
    """
    if not results:
        return ""
    columns = list(dict.fromkeys(column for row in results.values() for column in row))
    ends = {f"{column}{end}" for column in columns for end in (_LOW, _HIGH)}
    columns = [column for column in columns if column not in ends]
    cells = [["method", *columns]]
    cells += [
        [method, *(_cell(column, row) for column in columns)] for method, row in results.items()
    ]
    cells = [["".join(c if c.isprintable() else " " for c in cell) for cell in r] for r in cells]
    if markdown:
        return _markdown(cells)
    if sum(_widths(cells)) + 2 * (len(columns)) > width:
        cells = [list(column) for column in zip(*cells, strict=True)]
    return _aligned(cells)


def _cell(column: str, row: Mapping[str, float | None]) -> str:
    value = row.get(column)
    if value is None or value != value:
        return "-"
    digits = 1 if column.endswith("%") else 0 if column == "seconds" else 3
    low, high = row.get(column + _LOW), row.get(column + _HIGH)
    return f"{value:.{digits}f}{interval_in_words(low, high, digits)}"


def _widths(cells: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*cells, strict=True)]


def _aligned(cells: list[list[str]]) -> str:
    """Names to the left, numbers to the right, a rule under the head."""
    widths = _widths(cells)
    lines = [*cells[:1], ["-" * width for width in widths], *cells[1:]]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _markdown(cells: list[list[str]]) -> str:
    head, *body = [[cell.replace("|", r"\|") for cell in line] for line in cells]
    rule = [":--", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *body])
