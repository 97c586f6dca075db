"""Recall@1 on glyphs, paired over seeds: plain, the paper's weighting, weights inside, automatic.

    python benchmarks/glyphs.py --seeds 10 --rates 0.3 0.5 --out runs/glyphs-benchmark

Every (method, rate, seed) is a run folder; a benchmark that was stopped goes on where it was.
`--validation` trains on three quarters of the training characters and evaluates on the rest: the
way to choose settings without looking at the test characters.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
from pathlib import Path

import numpy as np
import torch
from pairing import paired

from bspml.experiment.config import load_config
from bspml.experiment.run import run_experiment
from bspml.files.run import RunFolder, read_json

_AUTO = ["training.methods=[bspml]"]
_PAPER = [*_AUTO, "curriculum.preset=paper", "curriculum.target_maw={kept}"]
METHODS: dict[str, list[str]] = {
    "multi-similarity": ["training.methods=[multi-similarity]"],
    # Eq. (7), unweighted mining, rho = 1, MAW held at 1 - the true rate.
    "paper": _PAPER,
    # The same problem, the weights inside both log-sums, mining and statistics under the weights.
    "inside": [
        *_PAPER,
        "loss.weighting=inside",
        "loss.base=0.5",
        "loss.skip_zero=true",
        "curriculum.statistics=weighted",
    ],
    "auto": _AUTO,
    "auto, threshold, reset": [*_AUTO, "curriculum.rule=threshold", "curriculum.reset=true"],
    "auto, threshold, go on": [*_AUTO, "curriculum.rule=threshold", "curriculum.reset=false"],
    "auto, quadratic, reset": [*_AUTO, "curriculum.rule=quadratic", "curriculum.reset=true"],
    "auto, quadratic, go on": [*_AUTO, "curriculum.rule=quadratic", "curriculum.reset=false"],
    # Judged before the first step by the untrained network, which never saw a label either.
    "auto, threshold, features": [*_AUTO, "curriculum.rule=threshold"],
    "auto, quadratic, features": [*_AUTO, "curriculum.rule=quadratic"],
    # The curriculum's embeddings gathered from the training steps instead of a second pass.
    "auto, collected": [*_AUTO, "curriculum.embeddings=collected"],
    "clean-only": ["training.methods=[clean-only]"],
}


def one_run(method: str, rate: float, seed: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Recall@1 in %, and what the run says of the noise; from its folder if it is there."""
    path = Path(arguments.out) / f"{method.replace(', ', '-').replace(' ', '-')}-{rate:g}-{seed}"
    if not RunFolder(path).finished:
        shutil.rmtree(path, ignore_errors=True)
        settings = [s.format(kept=1 - rate) for s in METHODS[method]] + [
            f"noise.rate={rate}",
            f"seed={seed}",
            f"data.validation={str(arguments.validation).lower()}",
            f"training.epochs={arguments.epochs}",
            "evaluation.every=100000",
            "evaluation.clustering=false",
        ]
        if rate == 0:
            settings.append("noise.kind=none")
        config = load_config(None, settings)
        if method.endswith("features"):
            # A configuration refuses this, since it is no good; here it is measured.
            curriculum = config.curriculum.model_copy(update={"warmup": "features"})
            config = config.model_copy(update={"curriculum": curriculum})
        run_experiment(config, RunFolder.create(path), figures=False)
    summary = read_json(RunFolder(path).summary)
    row = next(iter(summary["results"].values()))
    return {
        "recall": row["Recall@1 %"],
        "rate": summary["estimated_noise_rate"],
        "auroc": row.get("AUROC"),
        "seconds": row["seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.3])
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["multi-similarity", "paper", "inside", "auto", "clean-only"],
        choices=METHODS,
    )
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--out", default="runs/glyphs-benchmark")
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    split = "held-out training" if arguments.validation else "test"
    for rate in arguments.rates:
        rows: dict[str, list[dict[str, float]]] = {method: [] for method in arguments.methods}
        for seed in range(arguments.seeds):
            for method in arguments.methods:
                rows[method].append(one_run(method, rate, seed, arguments))
                line = {"method": method, "noise": rate, "seed": seed} | rows[method][-1]
                print(json.dumps(line), flush=True)
        print_table(rate, split, rows)


def print_table(rate: float, split: str, rows: dict[str, list[dict[str, float]]]) -> None:
    """Mean and deviation over the seeds, and the paired difference to the first method."""
    recalls = {m: np.array([r["recall"] for r in own]) for m, own in rows.items()}
    first = next(iter(recalls))
    seeds = len(recalls[first])
    print(f"\n{rate:.0%} noise, Recall@1 in % on the {split} characters, {seeds} seeds\n")
    print(f"| method | mean | deviation | minus {first} (s.e., lower 95 %) | estimated rate | s |")
    print("|:--|--:|--:|--:|--:|--:|")
    for method, own in rows.items():
        mean, error, low = paired(recalls[method], recalls[first])
        rates = [r["rate"] for r in own if r["rate"] is not None]
        estimate = f"{np.mean(rates):.3f} ± {np.std(rates):.3f}" if rates else ""
        spread = recalls[method].std(ddof=1) if seeds > 1 else math.nan
        against = "" if method == first else f"{mean:+.1f} ({error:.1f}, {low:+.1f})"
        seconds = np.mean([r["seconds"] for r in own])
        print(
            f"| {method} | {recalls[method].mean():.1f} | {spread:.1f} | {against} | {estimate} "
            f"| {seconds:.0f} |"
        )
    print(flush=True)


if __name__ == "__main__":
    main()
