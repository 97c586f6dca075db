"""Figures 3, 4 and 5 of [Zhang 2023] from a grid's results file alone, as SVG.

    python benchmarks/figures.py runs/grid/weights-omniglot.parquet runs/grid/sizes-omniglot.parquet

Results that vary age and balance (lambda and mu) give figures 3 and 4, MAW and SDAW; results that
vary the embedding size give figure 5, Recall@1.  Points are means over seeds, bars deviations.
The paper prints curves, not numbers: there is no published value to stand beside these.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from grid_file import UNTRAINED
from grid_results import VARIED
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from bspml.report.saving import plain_text

SIZE = f"{VARIED}network.embedding_size"

# Okabe and Ito's palette, told apart by colour-blind readers; dashes and markers differ as well.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "x")
_DASHES = ("-", "--", "-.", ":")
_STYLE = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.alpha": 0.2, "axes.axisbelow": True, "svg.fonttype": "none", "svg.hashsalt": "bspml",
    "legend.frameon": False,
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 if a file holds nothing that these figures show."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, nargs="+", help=".parquet or .csv of grid.py")
    parser.add_argument("--out", type=Path, help="folder; the results' own if left out")
    options = parser.parse_args(arguments)
    for path in options.results:
        try:
            results = read_results(path)
        except (OSError, ValueError, KeyError) as err:
            print(f"{path}: no results of grid.py ({str(err).splitlines()[0]})", file=sys.stderr)
            return 2
        drawn = draw(results, options.out or path.parent)
        if not drawn:
            print(
                f"{path}: varies neither age and balance nor the embedding size, each alone with "
                "the method and the seed",
                file=sys.stderr,
            )
            return 2
        print(*drawn, sep="\n")
    return 0


def read_results(path: Path) -> pd.DataFrame:
    """The rows that `grid_results.write_frame` wrote."""
    results = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    if "status" not in results or "dataset" not in results:
        raise ValueError("it has no columns `dataset` and `status`")
    return results


def draw(results: pd.DataFrame, out: Path) -> list[Path]:
    """Write the figures these results have, a file a data set and figure; returns the files."""
    out.mkdir(parents=True, exist_ok=True)
    done = results[results.status == "finished"]
    drawn = []
    for dataset, own in done.groupby("dataset", sort=False):
        for name, make in _figures(own).items():
            path = out / f"{name}_{dataset}.svg"
            with matplotlib.rc_context():
                matplotlib.rcdefaults()
                matplotlib.rcParams.update(_STYLE)
                figure = Figure(figsize=(6.2, 3.2), layout="constrained")
                make(figure.subplots(), own)
                # No date: the same results give the same file.
                FigureCanvasSVG(figure).print_svg(path, metadata={"Date": None})
            drawn.append(path)
    return drawn


def _figures(own: pd.DataFrame) -> dict[str, Callable[[Axes, pd.DataFrame], None]]:
    found: dict[str, Callable[[Axes, pd.DataFrame], None]] = {}
    age, balance = _setting(own, "age"), _setting(own, "balance")
    if age and balance and _once_a_seed(own.dropna(subset=[age]), age, balance):
        found |= {
            "figure3_maw": lambda axes, rows: _weights(axes, rows, "maw", "MAW"),
            "figure4_sdaw": lambda axes, rows: _weights(axes, rows, "sdaw", "SDAW"),
        }
    trained = own[own.method != UNTRAINED]
    if SIZE in own and own[SIZE].notna().any() and _once_a_seed(trained, "method", SIZE):
        found["figure5_recall"] = _sizes
    return found


def _once_a_seed(rows: pd.DataFrame, *axes: str) -> bool:
    """Whether nothing but the seed differs at a point of a figure, which is a mean over seeds."""
    return not rows.duplicated([*axes, "seed"]).any()


def _setting(own: pd.DataFrame, name: str) -> str | None:
    """The column of a varied hyper-parameter of that name, of whatever method."""
    columns = [c for c in own if c.startswith(VARIED) and c.rpartition(".")[2] == name]
    return next((c for c in columns if own[c].notna().any()), None)


def _weights(axes: Axes, own: pd.DataFrame, value: str, title: str) -> None:
    """Figures 3 and 4: a line a balance over the age."""
    age, balance = _setting(own, "age"), _setting(own, "balance")
    assert age is not None
    assert balance is not None
    for i, (mu, rows) in enumerate(own.dropna(subset=[age]).groupby(balance)):
        _line(axes, rows.groupby(age)[value], i, f"balance μ = {mu:g}")
    axes.set_xlabel("age λ")
    axes.set_ylabel(f"{title} at the last epoch")
    axes.set_ylim(bottom=0)
    _finish(axes, own)


def _sizes(axes: Axes, own: pd.DataFrame) -> None:
    """Figure 5: a line a method over the embedding size, and the features as they are."""
    trained = own[own.method != UNTRAINED]
    for i, (method, rows) in enumerate(trained.groupby("method_title", sort=False)):
        _line(axes, rows.groupby(SIZE).recall_at_1, i, str(method), scale=100)
    untrained = own[own.method == UNTRAINED]
    if not untrained.empty:
        level = 100 * untrained.recall_at_1.mean()
        label = str(untrained.note.iloc[0] or "pretrained, untrained")
        axes.axhline(level, color="#666666", linewidth=1, linestyle=":", label=label)
    sizes = sorted(trained[SIZE].dropna().unique())
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    axes.set_xlabel("embedding size")
    axes.set_ylabel("Recall@1 (%), last epoch")
    _finish(axes, own)


def _line(axes: Axes, groups: Any, i: int, label: str, scale: float = 1) -> None:
    means = scale * groups.mean()
    deviations = scale * groups.std(ddof=1).fillna(0.0)  # of one seed: no bar
    axes.errorbar(
        means.index,
        means,
        deviations,
        color=_COLOURS[i % len(_COLOURS)],
        marker=_MARKERS[i % len(_MARKERS)],
        linestyle=_DASHES[i % len(_DASHES)],
        markersize=4,
        capsize=2,
        label=plain_text(label),
    )


def _finish(axes: Axes, own: pd.DataFrame) -> None:
    trained = own[own.method != UNTRAINED]
    seeds = trained.seed.nunique()
    noise = f"{trained.noise.iloc[0]} noise {trained.rate.iloc[0]:.0%}".replace(
        "none noise 0%", "no noise"
    )
    axes.set_title(
        plain_text(f"{own.title.iloc[0]}, {noise}, {seeds} seed{'s' * (seeds > 1)}", 60), fontsize=9
    )
    # Beside the axes: inside them it covers curves.
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


if __name__ == "__main__":
    sys.exit(main())
