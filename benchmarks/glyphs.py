"""Recall@1 and MAP@R on glyphs, paired over seeds: plain, the paper's weighting, automatic, ...

    python benchmarks/glyphs.py --seeds 10 --rates 0.3 0.5 --out runs/glyphs-benchmark
    python benchmarks/glyphs.py --noise similar-1 --rates 0.3 --methods auto
    python benchmarks/glyphs.py --config omniglot --root DATA --epochs 10

`--noise similar-K` takes wrong labels from the K classes whose mean picture is nearest, in place of
all.  `--config` does the same for another data set of pictures in memory.
Every (method, rate, seed) is a run folder; a benchmark that was stopped goes on where it was.
`--validation` trains on three quarters of the training characters and evaluates on the rest: the
way to choose settings without looking at the test characters.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import torch
from command import at_least, end
from grid_file import digest_of, files_digest
from local_data import DataSet
from pairing import column, paired
from planted_noise import flip, similar_classes

from bspml.errors import InputError
from bspml.experiment.config import Config, load_config
from bspml.experiment.data import load_data, load_splits
from bspml.experiment.methods import check_method
from bspml.experiment.run import run_experiment
from bspml.files.atomic import atomic_write
from bspml.files.run import UNTRAINED, RunFolder, read_json

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


def settings_of(method: str) -> list[str]:
    """Settings of a row: one of METHODS, or a name of bspml.methods, with ", repair" after it."""
    if method in METHODS:
        return METHODS[method]
    name, _, more = method.partition(", ")
    check_method(name)
    if more not in ("", "repair"):
        raise InputError(f"after a method there may stand ', repair'; got {method!r}.")
    repair = ["curriculum.repair=confident"] if more else []
    return [f'training.methods=["{name}"]', *repair]


def one_run(method: str, rate: float, seed: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Recall@1 in %, and what the run says of the noise; from its folder if it is there.

    A folder of another `--config`, `--epochs` or `--validation` has another name, and so has one of
    other files under the same names.
    """
    kind = "" if arguments.noise == "random" else f"{arguments.noise}-"
    settings = [s.format(kept=1 - rate) for s in settings_of(method)] + [
        f"seed={seed}",
        f"data.validation={str(arguments.validation).lower()}",
        f"training.epochs={arguments.epochs}",
        "evaluation.every=100000",
        "evaluation.clustering=false",
    ]
    if arguments.root is not None:
        settings.append(f"data.root={arguments.root}")
    clean = rate == 0 or kind
    settings += ["noise.kind=none", "noise.rate=0"] if clean else [f"noise.rate={rate}"]
    config = load_config(arguments.config, settings)
    if rate > 0 and kind:
        file = similar_labels(config, arguments.noise, rate, Path(arguments.out))
        config = load_config(arguments.config, [*settings, f"noise.labels_file={file}"])
    if method.endswith("features"):
        # A configuration refuses this, since it is no good; here it is measured.
        curriculum = config.curriculum.model_copy(update={"warmup": "features"})
        config = config.model_copy(update={"curriculum": curriculum})
    name = f"{method.replace(', ', '-').replace(' ', '-').replace(':', '-')}-{kind}{rate:g}-{seed}"
    files = files_digest(config)
    more = [] if files is None else [files]
    path = Path(arguments.out) / f"{name}-{digest_of(config, *more)}"
    if not RunFolder(path).finished:
        shutil.rmtree(path, ignore_errors=True)
        run_experiment(config, RunFolder.create(path), figures=False)
    summary = read_json(RunFolder(path).summary)
    row = next(row for name, row in summary["results"].items() if name != UNTRAINED)
    return {
        "recall": row["Recall@1 %"],
        "map": row["MAP@R"],
        "false alarms": row.get("false alarms"),
        "rate": summary["estimated_noise_rate"],
        "auroc": row.get("AUROC"),
        "seconds": row["seconds"],
    }


def similar_labels(config: Config, kind: str, rate: float, folder: Path) -> Path:
    """A file of labels, wrong ones among the classes whose mean picture is nearest.

    It names those of the whole training split; held-out classes keep theirs.
    """
    data = load_data(config)
    pictures = torch.stack([data.images[row] for row in range(len(data.codes))])
    pixels, codes = pictures.flatten(1).double().numpy(), data.codes.numpy()
    one_group = np.zeros(codes.max() + 1)
    same = DataSet(pixels, codes, one_group, {})
    labels = flip(same, kind, rate, config.seed, similar_classes(same))
    names, whole = np.unique(data.labels), load_splits(config).train.labels.copy()
    whole[np.isin(whole, names)] = names[labels]
    file = folder / f"labels-{kind}-{rate:g}-{config.seed}.npy"
    folder.mkdir(parents=True, exist_ok=True)
    return atomic_write(file, lambda out: np.save(out, whole))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=at_least(1), default=10)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.3])
    parser.add_argument(
        "--methods",
        nargs="+",
        default=["multi-similarity", "paper", "inside", "auto", "clean-only"],
        help="rows of METHODS, or names of bspml.methods, such as auto:contrastive or "
        "'auto:contrastive, repair'",
    )
    parser.add_argument("--noise", default="random", help="random or similar-K")
    parser.add_argument("--config", help="of another data set; the glyphs if left out")
    parser.add_argument("--root", help="of its data")
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--out", default="runs/glyphs-benchmark")
    parser.add_argument("--validation", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if not re.fullmatch(r"random|similar-[1-9]\d*", arguments.noise):
        parser.error(f"--noise must be random or similar-K, as similar-1; got {arguments.noise}")
    for method in arguments.methods:
        settings_of(method)  # before anything is trained
    torch.set_num_threads(arguments.threads)
    split = "held-out training" if arguments.validation else "test"
    for rate in arguments.rates:
        rows: dict[str, list[dict[str, float]]] = {method: [] for method in arguments.methods}
        for seed in range(arguments.seeds):
            for method in arguments.methods:
                rows[method].append(one_run(method, rate, seed, arguments))
                line = {"method": method, "noise": rate, "seed": seed} | rows[method][-1]
                print(json.dumps(line), flush=True)
        print_table(f"{rate:.0%} {arguments.noise} noise, on the {split} characters", rows)


def print_table(title: str, rows: dict[str, list[dict[str, float]]]) -> None:
    """Mean and deviation over the seeds, and the paired difference to the first method."""
    first = next(iter(rows))
    seeds = len(rows[first])
    print(f"\n{title}, {seeds} seeds\n")
    against = f"minus {first} (s.e., lower 95 %)"
    print(f"| method | Recall@1 % | {against} | MAP@R | {against} | rate | false alarms | s |")
    print("|:--|--:|--:|--:|--:|--:|--:|--:|")
    for method, own in rows.items():
        cells = []
        for key, digits in (("recall", 1), ("map", 3)):
            ours, theirs = column(own, key), column(rows[first], key)
            cells.append(f"{ours.mean():.{digits}f} ({_spread(ours):.{digits}f})")
            mean, error, low = paired(ours, theirs)
            difference = f"{mean:+.{digits}f} ({error:.{digits}f}, {low:+.{digits}f})"
            cells.append("" if method == first else difference)
        rates, alarms = column(own, "rate"), column(own, "false alarms")
        cells.append("" if np.isnan(rates).all() else f"{rates.mean():.3f} ± {_spread(rates):.3f}")
        cells.append("" if np.isnan(alarms).all() else f"{alarms.mean():.3f}")
        cells.append(f"{column(own, 'seconds').mean():.0f}")
        print(f"| {method} | {' | '.join(cells)} |")
    print(flush=True)


def _spread(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


if __name__ == "__main__":
    end(main)
