"""Rankings of suspicious labels and estimates of the error rate, beside those of others.

    python benchmarks/label_errors.py --root DATA --cache CACHE --store STORE [--seeds 5]
        [--only cub cifar omniglot] [--part competitors] [--version NAME]

DATA and CACHE as in noise_rate_real.py; of Omniglot the first `ALPHABETS` background alphabets by
name.  `pip install '.[dev]'` brings cleanlab.

Noise as in noise_rate_real.py, and "moved" as in planted_noise.py; "copied": a fifth of the rows,
drawn at random, stand in the data twice with the labels they were given.  What the competitors say
about a draw (competitors.py) is kept in STORE/competitors, what bspml says in STORE/NAME (a new
name judges anew; default "bspml"), so that a run that was stopped goes on where it was, and a
change of bspml costs bspml's part only.
`--part` computes one of the two only.  After a change of the competitors empty STORE/competitors.

Printed are AUROC, average precision and precision among as many as are wrong, means over seeds; and
the difference of the audit from the best competitor by that mean, with its standard error over
seeds, or from `RESAMPLES` bootstrap samples where there is one draw (human labels).  The audit is
behind where it trails by more than `TOLERATED` and two standard errors.  Lines of the same as JSON:
STORE/verdicts-NAME.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from command import at_least, end
from competitors import Opinion, opinions
from label_error_tables import MEASURES, Row, alarm_table, ranking_table, rate_table
from local_data import DataSet, load
from planted_noise import flip, similar_classes

import bspml
from bspml.files.atomic import atomic_write
from bspml.files.checkpoints import fingerprint
from bspml.statistics.contrastive import contrastive_statistics

ALPHABETS = 5
PLANTED = (
    "random 0", "random 0.1", "random 0.3", "random 0.5",
    "similar-1 0.1", "similar-1 0.3", "similar-3 0.1", "similar-3 0.3", "moved 0.1", "moved 0.3",
)  # fmt: skip
COPIED = ("random 0", "random 0.3", "similar-3 0.3", "worse")
SHARE_COPIED = 0.2


@dataclass(frozen=True)
class Draw:
    """Rows of a data set with the labels they are given, and which of these are wrong."""

    features: np.ndarray
    labels: np.ndarray
    wrong: np.ndarray


def noises(data: DataSet) -> list[str]:
    """All kinds of noise of a data set, in the order of the tables."""
    kinds = [*PLANTED, *data.human]
    return [*kinds, *(f"{kind} copied" for kind in kinds if kind in COPIED)]


def seeds_of(noise: str, data: DataSet, seeds: int) -> range:
    """One where nothing is drawn."""
    return range(1 if noise in ("random 0", *data.human) else seeds)


def draw(data: DataSet, noise: str, seed: int, near: np.ndarray) -> Draw:
    """Plant `noise`; `near` is `similar_classes(data)`."""
    kind, *rest = noise.split()
    if kind in data.human:
        labels = data.human[kind]
    else:
        labels = flip(data, kind, float(rest[0]), seed, near)
    rows = np.arange(len(labels))
    if "copied" in rest:
        rng = np.random.default_rng((seed, 1))
        again = rng.choice(rows, round(SHARE_COPIED * len(rows)), replace=False)
        rows = np.concatenate([rows, again])
    wrong = (labels != data.labels)[rows]
    return Draw(data.features[rows], labels[rows], wrong)


def first_groups(data: DataSet, groups: int) -> DataSet:
    """The classes of the first groups by name, numbered anew."""
    keep = np.isin(data.groups[data.labels], np.unique(data.groups)[:groups])
    classes, labels = np.unique(data.labels[keep], return_inverse=True)
    human = {name: given[keep] for name, given in data.human.items()}
    return DataSet(data.features[keep], labels, data.groups[classes], human)


def our_opinions(features: np.ndarray, labels: np.ndarray) -> dict[str, Opinion]:
    """The audit as a user gets it, and the statistics it starts from.

    "audit" flags and estimates errors at random; "audit at most" names the labels it asks to look
    at and its upper bound; "audit in all" its estimate of all errors.
    """
    report = bspml.audit(features, labels)
    stats = contrastive_statistics(features, labels)
    scores = np.empty(len(labels))
    scores[report.order()] = np.arange(len(labels))[::-1]
    found = {
        "audit": Opinion(scores, report.flagged, (report.noise_rate, *report.interval)),
        "audit at most": Opinion(scores, report.suspects, (report.upper_bound, np.nan, np.nan)),
    }
    total = (report.total_rate, *report.total_interval)
    found["audit in all"] = Opinion(scores, report.suspects, total)
    for name, statistic in (("difficulty", stats.difficulty), ("margin", stats.margin)):
        values = np.nan_to_num(statistic.numpy(), nan=-9.0)  # cannot be judged: last
        found[name] = Opinion(values, values > 0)
    return found


def kept(
    path: Path, drawn: Draw, compute: Callable[[], dict[str, Opinion]], wanted: bool
) -> dict[str, Opinion]:
    """The opinions in `path` of this draw, computed if they are not there but `wanted`.

    Of another copy of the data, with other images or labels, they are computed anew.
    """
    digest = fingerprint(drawn.features, drawn.labels)
    if path.exists():
        with np.load(path) as file:
            names = [key.removesuffix("/scores") for key in file if key.endswith("/scores")]
            if "digest" in file and str(file["digest"]) == digest:
                return {
                    name: Opinion(
                        file[f"{name}/scores"], file[f"{name}/flags"], tuple(file[f"{name}/rate"])
                    )
                    for name in names
                }
    if not wanted:
        return {}
    begin = time.perf_counter()
    found = compute()
    arrays = {
        f"{name}/{field}": np.asarray(getattr(opinion, field))
        for name, opinion in found.items()
        for field in ("scores", "flags", "rate")
    } | {"digest": np.array(digest)}
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, lambda file: np.savez_compressed(file, **arrays))
    print(f"{path}: {time.perf_counter() - begin:.1f} s", file=sys.stderr, flush=True)
    return found


def said_of(drawn: Draw, name: str, seed: int, options: argparse.Namespace) -> dict[str, Opinion]:
    """Of one draw, by everybody; nothing where a part is missing and not asked for."""
    theirs = kept(
        options.store / "competitors" / f"{name}.npz",
        drawn,
        lambda: opinions(drawn.features, drawn.labels, seed),
        options.part != "ours",
    )
    ours = kept(
        options.store / options.version / f"{name}.npz",
        drawn,
        lambda: our_opinions(drawn.features, drawn.labels),
        options.part != "competitors",
    )
    return {**ours, **theirs} if ours and theirs else {}


def complete_rows(options: argparse.Namespace) -> list[Row]:
    """A row per data set and noise of which all is there, computed where it was missing."""
    rows = []
    for name in options.only:
        data = first_groups(load(name, options.root, options.cache), ALPHABETS)
        near = similar_classes(data)
        print(f"{name}: {data.features.shape}, {len(data.groups)} classes", file=sys.stderr)
        for noise in options.noise or noises(data):
            row = Row(name, noise, [], [])
            for seed in seeds_of(noise, data, options.seeds):
                drawn = draw(data, noise, seed, near)
                row.wrong.append(drawn.wrong)
                run = f"{name}-{noise.replace(' ', '-')}-{seed}"
                row.said.append(said_of(drawn, run, seed, options))
            if all(row.said):
                rows.append(row)
    return rows


def main() -> None:
    """Compute what is missing, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--seeds", type=at_least(1), default=5)
    parser.add_argument("--only", nargs="+", default=("cub", "cifar", "omniglot"))
    parser.add_argument("--noise", nargs="+", help="only these, such as 'similar-1 0.1'")
    parser.add_argument("--part", choices=("competitors", "ours"))
    parser.add_argument("--version", default="bspml")
    options = parser.parse_args()
    rows = complete_rows(options)
    if not rows:
        return
    noisy = [row for row in rows if any(wrong.any() for wrong in row.wrong)]
    verdicts = [row.verdict(measure) for measure in MEASURES for row in noisy]
    for measure in MEASURES:
        of_measure = [verdict for verdict in verdicts if verdict["measure"] == measure]
        print(f"\n{measure}\n\n" + "\n".join(ranking_table(of_measure)))
    print("\nCalled wrong on clean labels\n")
    print("\n".join(alarm_table([row for row in rows if row not in noisy])))
    print("\nEstimates\n\n" + "\n".join(rate_table(rows)))
    behind = sum(verdict["behind"] for verdict in verdicts)
    print(f"\nbehind in {behind} of {len(verdicts)}")
    lines = "".join(json.dumps(verdict) + "\n" for verdict in verdicts)
    atomic_write(options.store / f"verdicts-{options.version}.jsonl", lines)


if __name__ == "__main__":
    end(main)
