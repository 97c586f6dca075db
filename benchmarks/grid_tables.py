"""Tables of a grid's results, in Markdown and LaTeX, the published value beside the measured one.

    table1   Recall@K and NMI on the labels as they are, a table a data set
    table2   Recall@1 and MAP@R by noise, a table a data set
    varied   Recall@1, MAP@R, MAW and SDAW by the settings that the grid varies
    choice   Recall@1 and MAP@R by setting and epoch, over all methods: to choose settings by

Cells are means over the seeds ± their deviation (n - 1); the number of seeds stands below.
Settings that the grid varies have rows of their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from grid_file import UNTRAINED
from grid_results import VARIED
from published import table_1, table_2

from bspml.evaluation.selection import CHOSEN_BY

_MISSING = "–"
_BOLD = "Bold: the largest of its column, but for the untrained row and clean-only."
_NOISE_COLUMNS = {  # of a row of results: the words above, and the epoch
    "recall_at_1": ("R@1", "last"),
    "map_at_r": ("MAP@R", "last"),
    "best_recall_at_1": ("R@1, best epoch", "best"),
    "selected_recall_at_1": ("R@1, selected epoch", "selected"),
}


@dataclass
class Table:
    """Cells as text, the first column to the left; `notes` below.

    Attributes:
        best: {(row, column)} of the largest measured value of a column, the references left out.
    """

    caption: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)
    best: set[tuple[int, int]] = field(default_factory=set)


# --- as text --------------------------------------------------------------------------------------


def to_markdown(table: Table) -> str:
    """A caption, the table, and its notes."""
    rows = [
        [f"**{_md(c)}**" if (i, j) in table.best else _md(c) for j, c in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    rule = [":--", *["--:"] * (len(table.head) - 1)]
    lines = [[_md(c) for c in table.head], rule, *rows]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    notes = "".join(f"\n{_md(note)}  " for note in table.notes)
    return f"**{_md(table.caption)}**\n\n{text}\n{notes}\n"


def to_latex(table: Table) -> str:
    """A `table` environment with booktabs rules (`\\usepackage{booktabs}`)."""
    rows = [
        [rf"\textbf{{{_tex(c)}}}" if (i, j) in table.best else _tex(c) for j, c in enumerate(row)]
        for i, row in enumerate(table.rows)
    ]
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_tex(table.caption)}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * (len(table.head) - 1)}}}", r"\toprule"]
    lines += [" & ".join(map(_tex, table.head)) + r" \\", r"\midrule"]
    lines += [" & ".join(row) + r" \\" for row in rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {_tex(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}", ""])


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "–": "--", "<": r"$<$", ">": r"$>$", "|": r"$|$", "−": "$-$",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c if c.isprintable() else " ") for c in text)


def _md(text: str) -> str:
    line = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(r"([\\|*_`<])", r"\\\1", line)


# --- the tables -----------------------------------------------------------------------------------


def make_tables(kind: str, results: pd.DataFrame, curves: pd.DataFrame) -> list[Table]:
    """The tables of one kind; none where the results hold nothing for them."""
    if results.empty or "recall_at_1" not in results:
        return []
    if kind == "choice":
        return _choice(curves)
    finished = results[results.status == "finished"]
    make: Callable[[pd.DataFrame], Table | None]
    make = {"table1": _table1, "table2": _table2, "varied": _varied}[kind]
    made = [make(own) for _, own in finished.groupby("dataset", sort=False)]
    return [table for table in made if table is not None and table.rows]


def _table1(own: pd.DataFrame) -> Table | None:
    clean = own[own.noise == "none"]  # of a list, the rate may not be known
    if (clean.method == UNTRAINED).all():
        return None
    printed = table_1(_published(own))
    recalls = [c for c in clean if re.fullmatch(r"recall_at_\d+", c) and clean[c].notna().any()]
    recalls.sort(key=lambda c: int(c.rpartition("_")[2]))
    columns = {c: f"R@{c.rpartition('_')[2]}" for c in recalls}
    columns |= {"map_at_r": "MAP@R"} if "map_at_r" in clean else {}
    columns |= {"nmi": "NMI"}
    table = _start(clean, f"{_titled(clean)}: retrieval and clustering (%), labels as they are")
    table.head += list(columns.values())
    values: list[list[float]] = []
    for method, rows in _by_setting(clean):
        line, means = [_label(rows)], []
        for column, short in columns.items():
            known = printed.get(str(method), {}).get(short)
            beside = None if known is None else f"{known:.1f}"
            line.append(_cell(rows[column], 1, beside))
            means.append(_mean(rows[column], method))
        table.rows.append(line)
        values.append(means)
    table.best = _largest(values)
    table.notes.append(_BOLD)
    if printed:
        table.notes.append("In brackets: table 1 of [Zhang 2023], another backbone and schedule.")
    return table


def _table2(own: pd.DataFrame) -> Table | None:
    printed = table_2(_published(own))
    trained = own[own.method != UNTRAINED]
    noises = list(trained[["noise", "rate"]].drop_duplicates().itertuples(index=False, name=None))
    noises.sort(key=lambda pair: (pair[0] != "none", *pair))
    columns = {c: w for c, w in _NOISE_COLUMNS.items() if c in own and trained[c].notna().any()}
    table = _start(own, f"{_titled(own)}: Recall@1 and MAP@R (%) under label noise")
    table.head += [
        f"{_noise_words(noise, rate)}: {words}"
        for noise, rate in noises
        for words, _ in columns.values()
    ]
    values, any_printed = [], False
    for method, rows in _by_setting(own):
        line, means = [_label(rows)], []
        for noise, rate in noises:
            # Features that nobody trained do not know of the noise.
            here = (
                rows if method == UNTRAINED else rows[(rows.noise == noise) & (rows.rate == rate)]
            )
            for column in columns:
                known = None
                if noise == "symmetric" and column == "recall_at_1":
                    known = printed.get(rate, {}).get(str(method))
                any_printed |= known is not None
                values_here = here[column] if column in here else pd.Series(dtype=float)
                if method == UNTRAINED and column.endswith("recall_at_1"):
                    values_here = here["recall_at_1"]
                beside = None if known is None else f"{known[0]:.2f} ± {known[1]:.2f}"
                line.append(_cell(values_here, 1, beside))
                means.append(_mean(values_here, method))
        table.rows.append(line)
        values.append(means)
    table.best = _largest(values)
    table.notes.append(_BOLD)
    epochs = list(dict.fromkeys(epoch for _, epoch in columns.values()))
    if len(epochs) > 1:
        table.notes += [f"{epoch}: {CHOSEN_BY[epoch]}." for epoch in epochs]
    if any_printed:
        table.notes.append("In brackets: table 2 of [Zhang 2023], another backbone and schedule.")
    return table


def _varied(own: pd.DataFrame) -> Table | None:
    axes = varied_columns(own)
    trained = own[own.method != UNTRAINED]
    if not axes or trained.empty:
        return None
    table = _start(own, f"{_titled(own)}: by {' and '.join(map(_axis, axes))}")
    table.head += [*map(_axis, axes), "noise", "R@1 %", "MAP@R %", "MAW", "SDAW"]
    untrained = own[own.method == UNTRAINED]
    if not untrained.empty:
        blank = [_MISSING] * (len(axes) + 1)
        table.rows.append([_title(untrained), *blank, *_quality(untrained), _MISSING, _MISSING])
    for key, rows in trained.groupby(["method", *axes, "noise", "rate"], sort=False, dropna=False):
        settings = map(_setting, key[1 : 1 + len(axes)])
        noise = "none" if key[-2] == "none" else _noise_words(*key[-2:])
        line = [_title(rows), *settings, noise, *_quality(rows)]
        table.rows.append(line + [_cell(rows[c], 3, None, scale=1.0) for c in ("maw", "sdaw")])
    return table


def _quality(rows: pd.DataFrame) -> list[str]:
    """Recall@1 and MAP@R, which is missing where a run did not measure it."""
    nothing = pd.Series(dtype=float)
    return [_cell(rows.get(c, nothing), 1, None) for c in ("recall_at_1", "map_at_r")]


def _choice(curves: pd.DataFrame) -> list[Table]:
    """Settings x epochs: the mean over methods, noise and seeds, and each method's own best."""
    tables = []
    for _, both in curves.groupby("dataset", sort=False):
        own, axes = both[both.method != UNTRAINED], varied_columns(both)
        if own.empty or not axes:
            continue
        classes = f"{own.split.iloc[0]} classes"
        table = Table(
            f"{_titled(own)}: Recall@1 and MAP@R (%), {classes}, by setting and epoch",
            [*map(_axis, axes), "epoch", "R@1, mean over methods", "MAP@R", "methods"],
            [],
        )
        untrained = both[both.method == UNTRAINED]
        if not untrained.empty:
            blank = [_MISSING] * (len(axes) - 1)
            shown = [_percent(untrained[c].mean()) for c in ("recall_at_1", "map_at_r")]
            table.rows.append(["Untrained", *blank, "0", *shown, f"{len(untrained)}"])
        by = [*axes, "epoch"]
        each = _by_whole_epoch(own).groupby([*by, "method"], sort=False, dropna=False)
        means = each[["recall_at_1", "map_at_r"]].mean().reset_index()
        first, tops = len(table.rows), []
        groups = list(means.groupby(by, sort=False, dropna=False))
        # A method whose first epochs were not measured does not put the others' behind its own.
        settings = list(dict.fromkeys(repr(key[:-1]) for key, _ in groups))
        groups.sort(key=lambda group: (settings.index(repr(group[0][:-1])), group[0][-1]))
        for key, rows in groups:
            tops.append(rows.recall_at_1.mean())
            shown = [_percent(tops[-1]), _percent(rows.map_at_r.mean())]
            table.rows.append([*map(_setting, key), *shown, f"{len(rows)}"])
        table.best = {(first + int(np.nanargmax(tops)), len(axes) + 1)}
        for method, mine in means.groupby("method"):
            top = mine.loc[mine.recall_at_1.idxmax()]
            where = ", ".join(f"{_axis(axis)} {_setting(top[axis])}" for axis in axes)
            words = f"best {100 * top.recall_at_1:.2f} at {where}, epoch {top.epoch:g}"
            table.notes.append(f"{method}: {words}.")
        tables.append(table)
    return tables


def _by_whole_epoch(own: pd.DataFrame) -> pd.DataFrame:
    """One row a run and whole epoch: what was last measured of its training until then.

    A curriculum that drops samples has shorter rounds, which end inside an epoch.  The network
    before its first step is none of an epoch.
    """
    parts = []
    for _, run in own[own.epoch > 0].groupby("run", sort=False):
        run = run.sort_values("epoch")
        whole = np.arange(1, math.floor(run.epoch.max() + 1e-6) + 1)
        last = np.searchsorted(run.epoch.to_numpy(), whole + 1e-6) - 1
        parts.append(run.iloc[last[last >= 0]].assign(epoch=whole[last >= 0]))
    return pd.concat(parts)


def _percent(value: float) -> str:
    return _MISSING if value != value else f"{100 * value:.2f}"


def varied_columns(frame: pd.DataFrame) -> list[str]:
    """The columns of what the grid varies; those that no row of `frame` has are left out."""
    return [c for c in frame.columns if c.startswith(VARIED) and frame[c].notna().any()]


def _by_setting(own: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Each method's name and rows, its settings apart: their mean is that of no method."""
    for key, rows in own.groupby(["method", *varied_columns(own)], sort=False, dropna=False):
        yield key[0], rows


def _setting(value: Any) -> str:
    if pd.isna(value):
        return _MISSING
    return f"{value}" if isinstance(value, bool | np.bool_ | str) else f"{value:g}"


def _axis(column: str) -> str:
    return column.removeprefix(VARIED).removeprefix("hyperparameters.")


def missing_notes(results: pd.DataFrame) -> list[str]:
    """Which cells a table lacks, by method and why; [] if it has all."""
    lost = results[results.status != "finished"]
    if lost.empty:
        return []
    groups = lost.groupby(["method", "status"], sort=False).size()
    named = [f"{method} ({count} {status})" for (method, status), count in groups.items()]
    more = ", ..." if len(named) > 8 else ""
    are = "is" if len(lost) == 1 else "are"
    of = f"{len(lost)} of the grid's {len(results)} cells {are} not here"
    return [f"{of}: {', '.join(named[:8])}{more}."]


# --- cells ----------------------------------------------------------------------------------------


def _start(own: pd.DataFrame, caption: str) -> Table:
    # Of every cell of the table, as a mean may lack some that failed or are yet to run.
    place = ["method", *varied_columns(own), "noise", "rate"]
    seeds = own[own.method != UNTRAINED].groupby(place, dropna=False).seed.nunique()
    few = f"{seeds.min()}" if seeds.nunique() <= 1 else f"{seeds.min()} to {seeds.max()}"
    notes = [f"Mean ± deviation over {few} seeds, last epoch."] if len(seeds) else []
    if few == "1":
        notes = ["One seed, last epoch."]
    if (own.split == "validation").any():
        notes.append("On held-out training classes, not on the test classes.")
    return Table(caption, ["method"], [], notes)


def _noise_words(noise: str, rate: float) -> str:
    if noise == "none":
        return "labels as they are"
    return noise if noise.startswith("list ") else f"{noise} {rate:.0%}"


def _titled(own: pd.DataFrame) -> str:
    return str(own.title.iloc[0])


def _title(rows: pd.DataFrame) -> str:
    if rows.method.iloc[0] == UNTRAINED:
        note = rows.note.iloc[0] if "note" in rows else ""
        return str(note or "pretrained, untrained").capitalize()
    return str(rows.method_title.iloc[0])


def _label(rows: pd.DataFrame) -> str:
    """The method of a row, with its settings where the grid varies them."""
    values = {axis: _setting(rows[axis].iloc[0]) for axis in varied_columns(rows)}
    return ", ".join([_title(rows), *(f"{_axis(axis)} {v}" for axis, v in values.items())])


def _published(own: pd.DataFrame) -> str | None:
    """The data set of the paper, if every row is of the whole of it."""
    sets = own.published_set.unique().tolist()
    return sets[0] if len(sets) == 1 and isinstance(sets[0], str) else None


def _mean(values: pd.Series, method: object) -> float:
    """What competes for bold: neither the untrained row nor what knows the truth does."""
    is_reference = method == UNTRAINED or str(method).startswith("clean-only")
    return math.nan if is_reference or values.isna().all() else float(values.mean())


def _largest(values: Sequence[Sequence[float]]) -> set[tuple[int, int]]:
    best = set()
    for j, column in enumerate(zip(*values, strict=True)):
        known = [(v, i) for i, v in enumerate(column) if v == v]
        top = max(known)[0] if known else math.nan
        best |= {(i, j + 1) for v, i in known if round(1000 * v) == round(1000 * top)}
    return best


def _cell(values: pd.Series, digits: int, beside: str | None, scale: float = 100.0) -> str:
    known = values.dropna().astype(float) * scale
    if known.empty:
        text = _MISSING
    elif len(known) == 1:
        text = f"{known.iloc[0]:.{digits}f}"
    else:
        text = f"{known.mean():.{digits}f} ± {known.std(ddof=1):.{digits}f}"
    return text if beside is None else f"{text} ({beside})"
