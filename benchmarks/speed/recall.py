"""Retrieval metrics for every K, MAP@R among them, against pml's precision_at_1 alone.

Random unit embeddings with a weak class signal, classes of 2 to 8 samples.  Seconds are the
processor's, all threads together.  The peak is of the whole process, libraries and embeddings
included, during our first call, before pml's.
"""

from __future__ import annotations

import time

import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

import bspml
from speed.measuring import Peak, Row, alternate, row

LIMIT, PEAK = 0.6, 1.2e9
BAR = f"at most {LIMIT} x pml's precision_at_1 alone, peak under {PEAK / 1e9} GB"


def make_data(samples: int, dim: int, class_size: int, seed: int = 0):
    draw = torch.Generator().manual_seed(seed)
    # Sizes from 2 to 2 * class_size - 2, as in SOP (2 to 12, 5.3 on average).
    sizes = torch.randint(2, max(3, 2 * class_size - 1), (samples // 2,), generator=draw)
    labels = torch.repeat_interleave(torch.arange(len(sizes)), sizes)[:samples]
    centres = torch.randn(len(sizes), dim, generator=draw)
    embeddings = torch.randn(samples, dim, generator=draw) + 0.5 * centres[labels]
    return torch.nn.functional.normalize(embeddings), labels


def measure_recall(quick: bool) -> list[Row]:
    """All K by `bspml.evaluate`, without clustering."""
    samples = 2_000 if quick else 60_502
    embeddings, labels = make_data(samples, 512, 5)
    calculator = AccuracyCalculator(include=("precision_at_1",), k=1, device=torch.device("cpu"))
    found = {}

    def ours() -> None:
        with Peak() as peak:
            found["ours"] = bspml.evaluate(embeddings, labels, clustering=False)
        found["peak"] = peak

    def reference() -> None:
        accuracy = calculator.get_accuracy(embeddings, labels)
        found["reference"] = accuracy["precision_at_1"]

    bspml.evaluate(embeddings[:500], labels[:500], clustering=False)  # imports, first calls
    seconds = alternate({"ours": ours, "reference": reference}, 1, 0, time.process_time)
    peak = found["peak"]
    line = row(
        f"Recall@K for all K and MAP@R, {samples:,} x 512",
        BAR,
        seconds,
        LIMIT,
        peak.highest / 1e6,
        recall_at_k=found["ours"].recall_at_k,
        map_at_r=found["ours"].map_at_r,
        pml_precision_at_1=found["reference"],
        before_mb=peak.before / 1e6,
    )
    line["met"] = line["met"] and peak.highest < PEAK
    return [line]
