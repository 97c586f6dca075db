"""Statistics: exact against the matrix product, and nearly linear up to a million samples.

    python benchmarks/speed/statistics.py                          # exact, then 1e4, 1e5, 1e6
    python benchmarks/speed/statistics.py --sizes 10000 100000     # nearly linear only

The reference of the exact rows is the plain blocked N x N product, torch.mm, with the best of some
block sizes and the same threads, measured in turn with ours.  The contrastive statistics, alone and
with the left-out discriminant, are measured in seconds of the processor, all threads together.

The nearly linear rows run on embeddings that gather in clusters, which is what the method needs:
one cluster for each 1,000 samples, at a random direction of 128 dimensions; in each about 50
classes of 20 samples.  A class lies .4 off its cluster's centre and a sample .3 off its class's,
in random directions: similarity .92 within a class on average, .79 within a cluster, 0 beyond.
30 % of the labels are replaced by random ones.  On evenly spread embeddings there is no near and
far, and `neighbour_statistics` then computes exactly, at the quadratic cost.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Python put this folder first, where this file stands before the library's `statistics`.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import time

import torch

from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.margins import label_margins
from bspml.statistics.noise_rate import estimate_noise
from bspml.statistics.pair import pair_statistics
from bspml.statistics.pair_bounded import neighbour_statistics
from bspml.statistics.sampled_contrastive import sampled_contrastive_statistics
from speed.measuring import Peak, Row, alternate, row

BLOCKS = (512, 1024, 2048, 4096)
SIZES = (10_000, 100_000, 1_000_000)
EXACT_BAR = "at most 1.0 x the blocked N x N product, extra memory < 512 MiB"
BOTH_BAR = "at most 1.2 x the blocked N x N product, extra memory < 512 MiB"
CLASSES = (10, 400, 3_997)
GROWTH = 1.15  # exponent of the time in N, from the last size but one to the last
MILLION_BAR = f"proved error, time growing like N^{GROWTH} or less"
ERROR, CONTRASTIVE_ERROR, CONFIDENCE = 1e-3, 0.02, 0.99
KINDS = ("pair", "contrastive")
CHECKED = 300  # samples whose values are also computed from the formula, in float64


def measure_statistics(quick: bool) -> list[Row]:
    """The exact statistics of 25,882 x 512 float32, by pairs in classes of 6."""
    samples, dim = (3_000, 64) if quick else (25_882, 512)
    draw = torch.Generator().manual_seed(0)
    E = torch.nn.functional.normalize(torch.randn(samples, dim, generator=draw))
    labels = torch.arange(samples) // 6
    products = {f"mm {block}": blocked_product(E, block) for block in BLOCKS}
    repeats = 1 if quick else 3
    pair_statistics(E[:600], labels[:600])
    with Peak() as peak:
        pair_statistics(E, labels)
    ours = {"ours": lambda: pair_statistics(E, labels)}
    seconds = alternate(products | ours, repeats)
    title, extra = f"exact pair statistics, {samples:,} x {dim}", peak.highest - peak.before
    line = _against_the_best(title, EXACT_BAR, seconds, "ours", 1.0, extra)
    line["met"] = line["met"] and extra < 1 << 29
    return [line, *(row for count in CLASSES for row in _judged_lines(E, count, repeats))]


def _judged_lines(E: torch.Tensor, classes: int, repeats: int) -> list[Row]:
    """The contrastive statistics, and with the discriminant, of equal classes in random order."""
    labels = torch.arange(len(E)) % classes
    contrastive_statistics(E[:600], labels[:600]), label_margins(E[:600], labels[:600])

    def both() -> None:
        contrastive_statistics(E, labels), label_margins(E, labels)

    with Peak() as peak:
        both()
    extra = peak.highest - peak.before
    products = {f"mm {block}": blocked_product(E, block) for block in BLOCKS[1:3]}
    alone = {"alone": lambda: contrastive_statistics(E, labels)}
    calls = products | alone | {"both": both}
    seconds = alternate(calls, repeats, warm_up=0, clock=time.process_time)
    size = f"{len(E):,} x {E.shape[1]}, {classes:,} classes"
    first = _against_the_best(f"exact contrastive statistics, {size}", "", seconds, "alone")
    line = _against_the_best(f"and discriminant, {size}", BOTH_BAR, seconds, "both", 1.2, extra)
    line["met"] = line["met"] and extra < 1 << 29
    return [first, line]


def _against_the_best(
    title: str,
    bar: str,
    seconds: dict[str, list[float]],
    ours: str,
    limit: float | None = None,
    extra: float | None = None,
) -> Row:
    """One line: the call `ours` against the product that took least."""
    products = [name for name in seconds if name.startswith("mm ")]
    best = min(products, key=lambda name: sorted(seconds[name])[len(seconds[name]) // 2])
    pair = {"ours": seconds[ours], "reference": seconds[best]}
    peak = None if extra is None else extra / 1e6
    return row(title, bar, pair, limit, peak, reference=best, all_seconds=seconds)


def blocked_product(E: torch.Tensor, block: int) -> Callable[[], None]:
    """The plain N x N product, block by block; its results are dropped."""

    def call() -> None:
        for rows in E.split(block):
            for columns in E.split(block):
                torch.mm(rows, columns.T)

    return call


def measure_million(quick: bool) -> list[Row]:
    """Both nearly linear statistics at growing sizes, then how their time grows."""
    return measure_sizes((4_000, 8_000) if quick else SIZES)


def measure_sizes(sizes: tuple[int, ...], kinds: tuple[str, ...] = KINDS) -> list[Row]:
    """A line per size and statistic, and a line per statistic for the growth of its time."""
    lines: dict[str, list[Row]] = {kind: [] for kind in kinds}
    for kind in kinds:
        measure = _pair_line if kind == "pair" else _contrastive_line
        measure(*clustered(3_000, 16))  # first calls
        for samples in sizes:
            lines[kind].append(measure(*clustered(samples)))
            print(f"{lines[kind][-1]['row']}: done", file=sys.stderr, flush=True)
    growth = [_growth(kind, rows, sizes) for kind, rows in lines.items() if len(sizes) > 1]
    return [*(line for rows in lines.values() for line in rows), *growth]


def clustered(samples: int, dim: int = 128, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Embeddings and labels as the module says."""
    draw = torch.Generator().manual_seed(seed)

    def directions(count: int) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.randn(count, dim, generator=draw))

    num_clusters, num_classes = max(2, samples // 1000), samples // 20
    cluster = torch.arange(num_classes) % num_clusters
    centres = directions(num_clusters)[cluster] + 0.4 * directions(num_classes)
    centres = torch.nn.functional.normalize(centres)
    true = torch.randint(num_classes, (samples,), generator=draw)
    E = torch.nn.functional.normalize(centres[true] + 0.3 * directions(samples))
    wrong = torch.rand(samples, generator=draw) < 0.3
    return E, torch.where(wrong, torch.randint(num_classes, (samples,), generator=draw), true)


def _pair_line(E: torch.Tensor, labels: torch.Tensor) -> Row:
    stats, seconds, peak = _timed(lambda: neighbour_statistics(E, labels, error=ERROR))
    chosen = _chosen(len(E))
    truth = []
    for i, S in _similarities(E, chosen):
        other = labels != labels[i]
        truth.append(float((50 * (S[other] - 0.5)).exp().sum().log1p() / 50))
    realised = (stats.xi_neg[chosen] - torch.tensor(truth).double()).abs()
    return _line(
        f"pair statistics by neighbours, {len(E):,} x {E.shape[1]}",
        seconds,
        peak,
        asked=ERROR,
        promised=float(stats.error_bound.max()),
        realised=float(realised.max()),
        within=bool((realised <= stats.error_bound[chosen] + 2e-6).all()),
        computed=stats.visited,
        exact=stats.exact,
        lists=stats.num_lists,
    )


def _contrastive_line(E: torch.Tensor, labels: torch.Tensor) -> Row:
    stats, seconds, peak = _timed(
        lambda: sampled_contrastive_statistics(
            E, labels, error=CONTRASTIVE_ERROR, confidence=CONFIDENCE
        )
    )
    chosen = _chosen(len(E))
    truth = []
    for i, S in _similarities(E, chosen):
        S[i] = -math.inf
        truth.append(float((10 * (S - 1)).exp().sum().div(len(E) - 1).log() / 10 + 1))
    realised = (stats.everyone[chosen] - torch.tensor(truth).double()).abs()
    low, high = stats.p_value_bounds()
    estimate = estimate_noise(stats)
    return _line(
        f"contrastive statistics by sampling, {len(E):,} x {E.shape[1]}",
        seconds,
        peak,
        asked=CONTRASTIVE_ERROR,
        confidence=CONFIDENCE,
        promised=float(stats.everyone_error.max()),
        realised=float(realised.max()),
        within=bool((realised <= stats.everyone_error[chosen] + 2e-6).all()),
        p_value_width=float((high - low).nanmean()),
        noise_rate=estimate.noise_rate,
        noise_interval=estimate.interval,
        computed=stats.computed,
    )


def _timed(call: Callable[[], Any]) -> tuple[Any, dict[str, float], float]:
    """The result, seconds {"wall", "cpu"}, and megabytes beyond what was there before."""
    with Peak() as peak:
        begin, cpu = time.perf_counter(), time.process_time()
        result = call()
        seconds = {"wall": time.perf_counter() - begin, "cpu": time.process_time() - cpu}
    return result, seconds, (peak.highest - peak.before) / 1e6


def _chosen(samples: int) -> torch.Tensor:
    return torch.randperm(samples, generator=torch.Generator().manual_seed(1))[:CHECKED]


def _similarities(E: torch.Tensor, chosen: torch.Tensor):
    """(i, S_i) in float64, a sample at a time."""
    for some in chosen.split(16):
        S = torch.cat([E[some].double() @ part.double().T for part in E.split(1 << 16)], 1)
        yield from zip(some.tolist(), S, strict=True)


def _line(name: str, seconds: dict[str, float], peak: float, **details: Any) -> Row:
    return {
        "row": name,
        "bar": "",
        "ours_s": seconds["wall"],
        "reference_s": None,
        "ratio": None,
        "met": details["within"],
        "peak_mb": peak,
        "details": {"cpu_s": seconds["cpu"], **details},
    }


def _growth(kind: str, rows: list[Row], sizes: tuple[int, ...]) -> Row:
    times = [line["ours_s"] for line in rows]
    cpu = [line["details"]["cpu_s"] for line in rows]
    exponent = _exponents(times, sizes)[-1]
    return {
        "row": f"exponent of the {kind} statistics' time in N, {sizes[-2]:,} to {sizes[-1]:,}",
        "bar": MILLION_BAR,
        "ours_s": None,
        "reference_s": None,
        "ratio": exponent,
        "met": exponent <= GROWTH,
        "peak_mb": None,
        "details": {
            "exponent": exponent,
            "step_by_step": _exponents(times, sizes),
            "step_by_step_cpu": _exponents(cpu, sizes),
        },
    }


def _exponents(times: list[float], sizes: tuple[int, ...]) -> list[float]:
    """d log time / d log N from each size to the next."""
    return [
        math.log(after / before) / math.log(large / small)
        for (before, after), (small, large) in zip(pairwise(times), pairwise(sizes), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", help="nearly linear only, at these N")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="with --sizes")
    parser.add_argument("--exact", action="store_true", help="the exact rows only")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run?")
    args = parser.parse_args()
    rows = []
    if args.sizes is None:
        rows += measure_statistics(args.quick)
    if args.sizes is not None:
        rows += measure_sizes(tuple(args.sizes), tuple(args.kinds))
    elif not args.exact:
        rows += measure_million(args.quick)
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
