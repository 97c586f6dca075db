"""Digits with wrong labels: plain and robust losses side by side, paired over seeds.

    python benchmarks/classification.py --validation     # choose T, beta, lambda, q; no test image
    python benchmarks/classification.py                  # the table, with what was chosen
    python benchmarks/classification.py --task regression [--validation]

The columns of table 6 of [Wang IMAE 2019]: accuracy on test images (best epoch, last epoch), on the
noisy subset of the training images (wrong labels reproduced), on the clean subset, and hybrid (test
and training images, true labels).  Regression: mean absolute errors, as in table 1 of the
supplement of [Castells 2020].

`--validation` tries the grids below and judges every setting on a fifth of the training images that
keeps its wrong labels: by accuracy, or in regression by min(1, error).  One setting per method for
all noise rates, the best on average, goes to OUT/chosen-TASK.json, which the second command reads.
Under another `--network` or `--epochs` the file has these in its name: what was chosen for one is
not taken for another.  A method of which nothing was chosen has the first setting of its grid,
which is said.
Every run is kept in OUT, so that a benchmark that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command import at_least, end
from pairing import column, kept_run, paired

from bspml.experiment.config import ClassificationConfig, load_experiment
from bspml.experiment.run import run_experiment
from bspml.files.atomic import atomic_write
from bspml.files.run import RunFolder

Settings = dict[str, Any]
Rows = dict[str, list[dict[str, Any]]]


def _superloss(tau: str, lams: tuple[float, ...], base: str | None = None) -> list[Settings]:
    given = {} if base is None else {"loss.base": base}
    return [{"loss.name": "superloss", "loss.tau": tau, "loss.lam": lam} | given for lam in lams]


# Method -> its grid; the first entry is the default where nothing was chosen.
GRIDS: dict[str, dict[str, list[Settings]]] = {
    "classification": {
        "CE": [{"loss.name": "ce"}],
        "MAE": [{"loss.name": "mae"}],
        "GCE": [{"loss.name": "gce", "loss.q": q} for q in (0.7, 0.3, 0.5, 0.9)],
        "IMAE": [{"loss.name": "imae", "loss.T": t} for t in (8.0, 4.0, 12.0, 16.0, 24.0)],
        "GR": [
            {"loss.name": "gr", "loss.beta": beta, "loss.lam": lam}
            for beta, lam in ((8.0, 0.5), (4.0, 0.5), (12.0, 0.5), (16.0, 0.5), (12.0, 2.0))
        ],
        "SuperLoss, log C": _superloss("log-classes", (0.25, 0.05, 0.1, 0.5, 1.0)),
        "SuperLoss, mean": _superloss("mean", (0.25, 0.05, 0.1, 0.5, 1.0)),
        "SuperLoss, ema": _superloss("ema", (0.25, 0.05, 0.1, 0.5, 1.0)),
    },
    "regression": {
        "MSE": [{"loss.name": "mse"}],
        "smooth-l1": [{"loss.name": "smooth-l1"}],
        "SuperLoss on MSE": _superloss("ema", (0.25, 0.1, 1.0, 4.0), "mse"),
        "SuperLoss on smooth-l1": _superloss("ema", (0.25, 0.1, 0.5, 1.0, 4.0), "smooth-l1"),
    },
}
NETWORK, EPOCHS = "mlp", 60
RATES = {"classification": [0.0, 0.2, 0.4, 0.6], "regression": [0.0, 0.2, 0.4, 0.6, 0.8]}


def one_run(
    method: str, settings: Settings, rate: float, seed: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """The final scores of one training, fractions or errors; from its file if it is there."""
    kind = "uniform" if arguments.task == "regression" else "symmetric"
    config = {
        "task": arguments.task,
        "seed": seed,
        "noise.kind": kind if rate else "none",
        "noise.rate": rate,
        "training.epochs": arguments.epochs,
        "training.baseline": False,
        "network.name": arguments.network,
        "data.validation": arguments.validation,
        # The best epoch is a column of the table, but no way to choose.
        "evaluation.every": arguments.epochs if arguments.validation else 1,
        "device": arguments.device,
        **settings,
    }

    def compute() -> dict[str, Any]:
        loaded = load_experiment(None, [f"{key}={_yaml(value)}" for key, value in config.items()])
        assert isinstance(loaded, ClassificationConfig)
        with tempfile.TemporaryDirectory() as folder:
            done = run_experiment(loaded, RunFolder.create(Path(folder) / "run"))
        return next(iter(done.results.values()))

    shown = "-".join(f"{value:g}" for value in settings.values() if isinstance(value, float))
    parts = [method, shown, f"{rate:g}", str(seed), "validation" * arguments.validation]
    name = "-".join(part for part in parts if part)
    line = {"method": method, "noise": rate} | config
    return kept_run(Path(arguments.out), name.replace(" ", "-"), line, compute)


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def choose(arguments: argparse.Namespace) -> None:
    """Try every grid on the noisy validation images; print and write the best of each method."""
    regression = arguments.task == "regression"
    key = "validation, truncated" if regression else "validation %"
    path = _chosen_file(arguments)
    chosen = json.loads(path.read_text()) if path.exists() else {}
    print(f"\n| method | setting | {' | '.join(f'{r:.0%}' for r in arguments.rates)} | mean |")
    print("|:--|:--|" + "--:|" * (len(arguments.rates) + 1), flush=True)
    for method in arguments.methods:
        table = []
        for settings in GRIDS[arguments.task][method]:
            by_rate = [
                np.mean(
                    [
                        one_run(method, settings, rate, seed, arguments)[key]
                        for seed in range(arguments.seeds)
                    ]
                )
                for rate in arguments.rates
            ]
            table.append((settings, by_rate))
        means = [float(np.mean(by_rate)) for _, by_rate in table]
        best = int(np.argmin(means) if regression else np.argmax(means))
        chosen[method] = table[best][0]
        for i, (settings, by_rate) in enumerate(table):
            mark = " **" if i == best else " "
            values = " | ".join(f"{value:.3g}" for value in by_rate)
            print(
                f"| {method} |{mark}{_words(settings)}{mark.strip()} | {values} | {means[i]:.3g} |"
            )
    Path(arguments.out).mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(chosen, indent=2) + "\n")
    print(f"\nchosen: {path}", flush=True)


def _words(settings: Settings) -> str:
    numbers = (f"{k.partition('.')[2]} {v:g}" for k, v in settings.items() if isinstance(v, float))
    return ", ".join(numbers) or "-"


def _chosen_file(arguments: argparse.Namespace) -> Path:
    usual = (arguments.network, arguments.epochs) == (NETWORK, EPOCHS)
    where = "" if usual else f"-{arguments.network.replace(':', '+')}-{arguments.epochs}"
    return Path(arguments.out) / f"chosen-{arguments.task}{where}.json"


def compare(arguments: argparse.Namespace) -> None:
    """The table of every noise rate, each method with its chosen or default setting."""
    path = _chosen_file(arguments)
    chosen = json.loads(path.read_text()) if path.exists() else {}
    grids = GRIDS[arguments.task]
    settings = {m: chosen.get(m, grids[m][0]) for m in arguments.methods}
    if open_ := [m for m in settings if m not in chosen and len(grids[m]) > 1]:
        print(f"{path} holds no choice for {'; '.join(open_)}: the first setting of the grid")
    for rate in arguments.rates:
        rows: Rows = {
            method: [
                one_run(method, settings[method], rate, seed, arguments)
                for seed in range(arguments.seeds)
            ]
            for method in arguments.methods
        }
        print_table(rate, rows, settings, arguments)


def print_table(
    rate: float, rows: Rows, settings: dict[str, Settings], arguments: argparse.Namespace
) -> None:
    """Means over the seeds, and the last test figure's paired difference to the first method."""
    regression = arguments.task == "regression"
    columns = {
        "test, best": "test MAE, best" if regression else "test, best %",
        "test, final": "test MAE" if regression else "test %",
        "noisy subset": "noisy MAE" if regression else "noisy %",
        "clean subset": "clean MAE" if regression else "clean %",
    }
    if not regression:
        columns["hybrid"] = "hybrid %"
    first, final = next(iter(rows)), columns["test, final"]
    unit = "mean absolute errors" if regression else "accuracies in %"
    print(f"\n{rate:.0%} noise, digits, {arguments.network}, {unit}, {arguments.seeds} seeds\n")
    head = f"final minus {first} (s.e., {'upper' if regression else 'lower'} 95 %)"
    print(f"| method | setting | {' | '.join(columns)} | deviation | {head} |")
    print("|:--|:--|" + "--:|" * (len(columns) + 2))
    for method, own in rows.items():
        cells = [_mean(column(own, key), regression) for key in columns.values()]
        ours, theirs = column(own, final), column(rows[first], final)
        # The end of the interval that lies nearer to "no better".
        sign = -1.0 if regression else 1.0
        mean, error, bound = (float(v) for v in paired(sign * ours, sign * theirs))
        digits = 3 if regression else 1
        against = f"{sign * mean:+.{digits}f} ({error:.{digits}f}, {sign * bound:+.{digits}f})"
        spread = ours.std(ddof=1) if len(ours) > 1 else np.nan
        print(
            f"| {method} | {_words(settings[method])} | {' | '.join(cells)} "
            f"| {spread:.{digits}f} | {'' if method == first else against} |"
        )
    print(flush=True)


def _mean(values: np.ndarray, regression: bool) -> str:
    mean = values.mean()
    return "-" if np.isnan(mean) else f"{mean:.3f}" if regression else f"{mean:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=tuple(GRIDS), default="classification")
    parser.add_argument("--validation", action="store_true")
    parser.add_argument(
        "--seeds", type=at_least(1), default=None, help="default: 5, or 3 to choose"
    )
    parser.add_argument("--rates", type=float, nargs="+")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--network", default=NETWORK)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", default="runs/classification-benchmark")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    known = list(GRIDS[arguments.task])
    arguments.methods = arguments.methods or known
    if not set(arguments.methods) <= set(known):
        parser.error(f"--methods of {arguments.task} are {', '.join(map(repr, known))}")
    arguments.rates = arguments.rates or RATES[arguments.task]
    arguments.seeds = arguments.seeds or (3 if arguments.validation else 5)
    (choose if arguments.validation else compare)(arguments)


if __name__ == "__main__":
    end(main)
