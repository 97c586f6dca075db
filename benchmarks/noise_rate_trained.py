"""The noise-rate estimate with features that the automatic curriculum trains itself.

    python benchmarks/noise_rate_trained.py --data glyphs --out runs/noise-rate-trained
    python benchmarks/noise_rate_trained.py --data omniglot --root DATA --cache CACHE --out ...

A small network is trained from scratch through the cross-fitted warm-up only: half A, then half B,
as many rounds each as the defaults say.  Labels are redrawn at random among the classes present.
Omniglot: the background alphabets at 28 px from DATA/omniglot, with labels.csv.

Columns: true rate; mean estimate, its error and deviation over the seeds; mean 95 % interval, and
the share of seeds whose interval holds the truth; correct labels that lose their weight; share of
labels kept at q < .05 and share of wrong ones among these; AUROC of the p-values.  Then two ways
of using the second half: its own estimate (half A, judged against what half B keeps; and against
all of half B), and the mean of the first with each.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command import at_least, end
from local_data import omniglot_images
from pairing import column, kept_run
from torch import Tensor
from training import make_trainer

from bspml import noise
from bspml.data.sets.glyphs import Glyphs
from bspml.evaluation.detection import noise_detection
from bspml.files.checkpoints import fingerprint
from bspml.networks import build_network, embed
from bspml.statistics.contrastive import contrastive_statistics
from bspml.statistics.noise_rate import estimate_noise, keep_q_values
from bspml.trainers.curriculum import SelfPacedCurriculum
from bspml.weights.state import SampleWeights

OMNIGLOT_SIDE = 28
_TEXTS = ("data", "digest")  # of a row; the rest are numbers
LARGEST_ERROR, MOST_FALSE_ALARMS, MOST_WRONG_KEPT = 0.03, 0.03, 0.07


def load_images(options: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Training images and their true classes."""
    if options.data == "glyphs":
        glyphs = Glyphs("train")
        return glyphs.images, glyphs.labels
    images, labels = omniglot_images(options.root, options.cache, OMNIGLOT_SIDE)
    return images, torch.from_numpy(labels)


def one_run(
    images: Tensor, true_labels: Tensor, rate: float, seed: int, rounds: int
) -> dict[str, Any]:
    """Warm up on labels of which a share `rate` is wrong; returns what the judgements say."""
    start = time.perf_counter()
    noisy = noise.symmetric(true_labels, rate, seed=seed)
    is_noisy = torch.as_tensor(noisy.is_noisy)
    weights = SampleWeights(noisy.labels)
    curriculum = SelfPacedCurriculum(
        weights, warmup="cross-fit", warmup_rounds=rounds, is_noisy=is_noisy, seed=seed
    )
    half_a = curriculum.training_mask()
    network = build_network("small-conv", 128, seed=seed)
    embeddings: list[Tensor] = []
    trainer = make_trainer(
        network, images, weights, curriculum, seed=seed,
        embed_all=lambda: embeddings.append(embed(network, images)) or embeddings[-1],
    )  # fmt: skip
    trainer.trainer.end_of_epoch_hook = lambda _: curriculum.may_reset  # False ends the training
    last = trainer.train(1000)[-1].curriculum
    low, high = last.noise_interval
    found = noise_detection(weights.weights, is_noisy)
    second = {
        key: _second_estimate(embeddings[-1], weights, ~half_a, kept_only)
        for key, kept_only in (("second", True), ("second_unfiltered", False))
    }
    return {
        "truth": is_noisy.double().mean().item(),
        "truth_half_b": is_noisy[~half_a].double().mean().item(),
        "truth_half_a": is_noisy[half_a].double().mean().item(),
        "estimate": last.noise_rate,
        "low": low,
        "high": high,
        "false_alarms": found.false_alarm_rate,
        "precision": found.precision,
        "recall": found.recall,
        "auroc": last.score_auroc,
        **_kept(curriculum.scores(), last.noise_rate, is_noisy, half_a),
        **second,
        "seconds": time.perf_counter() - start,
    }


def _kept(p: Tensor, rate: float, is_noisy: Tensor, half_a: Tensor) -> dict[str, float]:
    """Labels with q < .05: their share, and the share of wrong ones among them."""
    keep = keep_q_values(p, rate) < 0.05
    wrong = is_noisy.double()
    return {
        "kept": keep.double().mean().item(),
        "wrong_kept": wrong[keep].mean().item(),
        "wrong_kept_a": wrong[keep & half_a].mean().item(),
        "wrong_kept_b": wrong[keep & ~half_a].mean().item(),
    }


def _second_estimate(
    embeddings: Tensor, weights: SampleWeights, references: Tensor, kept_only: bool
) -> float:
    """Estimate from half A, judged by the network that was trained on what half B keeps."""
    reference = weights.weights.double() * references if kept_only else references.double()
    stats = contrastive_statistics(
        embeddings, weights.codes, sample_weights=reference, rows=~references
    )
    return estimate_noise(stats).noise_rate


def print_tables(rows: dict[float, list[dict[str, Any]]]) -> None:
    """The estimate as the curriculum uses it; then what the second half could add."""
    print(
        "\n| truth | estimate | error | deviation | interval | covered | false alarms "
        "| kept q<.05 (wrong) | AUROC | s |\n|--:|--:|--:|--:|:-:|--:|--:|--:|--:|--:|"
    )
    for own in rows.values():
        m = {key: column(own, key).mean() for key in own[0] if key not in _TEXTS}
        estimates, truth = column(own, "estimate"), column(own, "truth")
        covered = (column(own, "low") <= truth) & (truth <= column(own, "high"))
        print(
            f"| {m['truth']:.3f} | {m['estimate']:.3f} | {m['estimate'] - m['truth']:+.3f} "
            f"| {_deviation(estimates)} | {m['low']:.3f} to {m['high']:.3f} | {covered.mean():.2f} "
            f"| {m['false_alarms']:.3f} | {m['kept']:.2f} ({m['wrong_kept']:.3f}) "
            f"| {m['auroc']:.3f} | {m['seconds']:.0f} |"
        )
    print(
        "\n| truth | estimate of half A against what B keeps | against all of B "
        "| mean of both halves, kept | all | wrong at q<.05 in A, B |\n|--:|--:|--:|--:|--:|--:|"
    )
    for own in rows.values():
        truth, first = column(own, "truth"), column(own, "estimate")
        errors = [
            _error(values, truth)
            for key in ("second", "second_unfiltered")
            for values in (column(own, key),)
        ] + [
            _error((first + column(own, key)) / 2, truth) for key in ("second", "second_unfiltered")
        ]
        halves = (column(own, f"wrong_kept_{half}").mean() for half in "ab")
        print(
            f"| {truth.mean():.3f} | {' | '.join(errors)} "
            f"| {', '.join(f'{wrong:.3f}' for wrong in halves)} |"
        )


def _deviation(values: np.ndarray) -> str:
    return f"{values.std(ddof=1):.3f}" if len(values) > 1 else ""


def _error(values: np.ndarray, truth: np.ndarray) -> str:
    return f"{(values - truth).mean():+.3f} ± {_deviation(values - truth)}"


def print_bars(rows: dict[float, list[dict[str, Any]]]) -> None:
    """Which of the three bars are missed, and where."""
    missed = []
    for rate, own in rows.items():
        error = (column(own, "estimate") - column(own, "truth")).mean()
        # NaN, as where no label was kept, meets no bar.
        if not abs(error) <= LARGEST_ERROR:
            missed.append(f"error {error:+.3f} at {rate:g}")
        if rate == 0 and not column(own, "false_alarms").mean() <= MOST_FALSE_ALARMS:
            missed.append(f"false alarms {column(own, 'false_alarms').mean():.3f}")
        if not column(own, "wrong_kept").mean() <= MOST_WRONG_KEPT:
            missed.append(f"wrong among kept {column(own, 'wrong_kept').mean():.3f} at {rate:g}")
    print(
        f"\nBars: |mean error| <= {LARGEST_ERROR}, false alarms on clean labels <= "
        f"{MOST_FALSE_ALARMS}, wrong among kept <= {MOST_WRONG_KEPT}. Missed: "
        + ("; ".join(missed) or "none")
        + "."
    )


def main() -> None:
    """Run, or read, every rate and seed; print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=("glyphs", "omniglot"), default="glyphs")
    parser.add_argument("--root", type=Path, help="folder that holds omniglot/, or it")
    parser.add_argument("--cache", type=Path, default=Path("runs/benchmark-cache"))
    parser.add_argument("--out", type=Path, default=Path("runs/noise-rate-trained"))
    parser.add_argument("--seeds", type=at_least(1), default=5)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.0, 0.1, 0.2, 0.3, 0.5])
    parser.add_argument("--rounds", type=int, default=2, help="on each half")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.data == "omniglot" and options.root is None:
        parser.error("--data omniglot needs --root")
    if options.data == "glyphs" and options.root is not None:
        parser.error("--root is of --data omniglot; glyphs are drawn")
    torch.set_num_threads(options.threads)
    images, labels = load_images(options)
    digest = fingerprint(images, labels)[:12]
    rows: dict[float, list[dict[str, Any]]] = {rate: [] for rate in options.rates}
    # Seeds outside: a table of fewer seeds is there early.
    for seed in range(options.seeds):
        for rate, own in rows.items():
            settings = {
                "data": options.data, "rounds": options.rounds, "noise": rate, "seed": seed
            }  # fmt: skip
            own.append(
                kept_run(
                    options.out,
                    "-".join(f"{value}" for value in settings.values()),
                    settings | {"digest": digest},
                    lambda rate=rate, seed=seed: one_run(
                        images, labels, rate, seed, options.rounds
                    ),
                )
            )
    print_tables(rows)
    print_bars(rows)


if __name__ == "__main__":
    end(main)
