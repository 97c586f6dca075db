"""Recall@1 and MAP@R on glyphs, paired over seeds: four plain losses, and each with its wrapper.

    python benchmarks/wrappers.py --root CACHE --seeds 5 --rates 0.3 0.5 --out runs/wrappers
    python benchmarks/wrappers.py --root CACHE --seeds 3 --rates 0.3 0.5 --out runs/wrappers \
        --validation

SuperLoss on the multi-similarity, contrastive and triplet losses, gradient rescaling on a proxy
softmax over the training classes.  Every run is a file in `--out`; a benchmark that was stopped
goes on where it was.  `--validation` tries the settings of `GRID`, trained on three quarters of the
training characters and measured on the rest, and prints the best of each: the way `CHOSEN` came
about, without a look at the test characters.  Without it `CHOSEN` is compared with the plain loss.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from command import at_least, end
from pairing import column, kept_run, paired
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.miners import MultiSimilarityMiner
from torch import Tensor, nn

from bspml import noise
from bspml.data.sampler import PKSampler
from bspml.data.sets.glyphs import Glyphs
from bspml.evaluation.retrieval import evaluate
from bspml.experiment.splits import held_out_classes
from bspml.losses.reducers import GradientRescaling, SuperLoss
from bspml.networks import build_network, embed
from bspml.weights.state import SampleWeights

MEASURES = (("recall", "Recall@1 in %", 1), ("map_at_r", "MAP@R", 3))
EMBEDDING, LR, PROXY_LR = 128, 1e-3, 1e-2
Settings = dict[str, Any]

LOSSES: dict[str, Callable[[int], nn.Module]] = {
    "multi-similarity": lambda classes: pml_losses.MultiSimilarityLoss(),
    "contrastive": lambda classes: pml_losses.ContrastiveLoss(),
    "triplet": lambda classes: pml_losses.TripletMarginLoss(margin=0.2),
    "normalized-softmax": lambda classes: pml_losses.NormalizedSoftmaxLoss(classes, EMBEDDING),
}
RESCALED = ("normalized-softmax",)  # gradient rescaling; the others get SuperLoss


def _superloss(*lambdas: float) -> list[Settings]:
    """A row of lambdas, in units of the loss; the middle ones with smoothing too."""
    smooth = [{"lam": lam, "smoothing": "sample"} for lam in lambdas[1:-1]]
    return [*({"lam": lam} for lam in lambdas), *smooth]


GRID: dict[str, list[Settings]] = {
    "multi-similarity": _superloss(0.003, 0.01, 0.03, 0.1),
    "contrastive": _superloss(0.3, 1.0, 3.0, 10.0),
    "triplet": _superloss(0.01, 0.03, 0.1, 0.3),
    "normalized-softmax": [
        {"beta": beta, "lam": lam} for beta in (8.0, 16.0, 24.0) for lam in (0.5, 1.0, 2.0)
    ],
}
CHOSEN: dict[str, Settings] = {
    "multi-similarity": {"lam": 0.01},
    "contrastive": {"lam": 1.0},
    "triplet": {"lam": 0.1, "smoothing": "sample"},
    "normalized-softmax": {"beta": 16.0, "lam": 0.5},
}


def wrap(name: str, loss: nn.Module, settings: Settings | None, labels: np.ndarray) -> nn.Module:
    """The loss with its wrapper; `settings` None leaves it plain."""
    if settings is None:
        return loss
    if name in RESCALED:
        return GradientRescaling(loss, **settings)
    weights = SampleWeights(labels) if "smoothing" in settings else None
    return SuperLoss(loss, **settings, sample_weights=weights)


def split(arguments: argparse.Namespace) -> tuple[tuple[Tensor, np.ndarray], ...]:
    """Training and evaluation images (N, 1, S, S) with their true labels (N,)."""
    train = Glyphs("train", root=arguments.root)
    labels = train.labels.numpy()
    if not arguments.validation:
        test = Glyphs("test", root=arguments.root)
        return (train.images, labels), (test.images, test.labels.numpy())
    held = held_out_classes(labels)
    kept = np.unique(labels[~held], return_inverse=True)[1]
    return (train.images[~held], kept), (train.images[held], labels[held])


def train_one(
    name: str, settings: Settings | None, rate: float, seed: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Recall@1 in %, and what the confidences say of the wrong labels."""
    start = time.perf_counter()
    (images, true), (test_images, test_labels) = split(arguments)
    noisy = noise.symmetric(true, rate, seed=seed)
    labels = torch.as_tensor(noisy.labels)
    network = build_network("small-conv", EMBEDDING, in_channels=1, seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # of the proxies
        plain = LOSSES[name](int(labels.max()) + 1)
    loss = wrap(name, plain, settings, noisy.labels)
    indexed = settings is not None and "smoothing" in settings
    miner = MultiSimilarityMiner() if name == "multi-similarity" else None
    optimizer = torch.optim.Adam(
        [
            {"params": network.parameters(), "lr": LR},
            {"params": list(loss.parameters()), "lr": PROXY_LR},
        ][: 1 + any(True for _ in loss.parameters())],
    )
    sampler = PKSampler(labels, seed=seed)
    network.train()
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for rows in sampler:
            embeddings = network(images[rows])
            pairs = None if miner is None else miner(embeddings, labels[rows])
            extra = {"sample_index": torch.tensor(rows)} if indexed else {}
            value = loss(embeddings, labels[rows], pairs, **extra)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    found = evaluate(embed(network, test_images), test_labels, ks=(1,), clustering=False)
    return {
        "recall": 100 * found.recall_at_k[1],
        "map_at_r": found.map_at_r,
        "seconds": time.perf_counter() - start,
        "device": "cpu",
    }


def one_run(
    name: str, settings: Settings | None, rate: float, seed: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """A run kept on disk."""
    text = label(settings)
    facts = {
        "loss": name,
        "wrapper": text,
        "noise": rate,
        "seed": seed,
        "epochs": arguments.epochs,
        "validation": arguments.validation,
    }
    part = "validation" if arguments.validation else "test"
    file = f"{part} {name} {text} {rate:g} {seed}".replace("=", "")
    return kept_run(
        Path(arguments.out),
        file,
        facts,
        lambda: train_one(name, settings, rate, seed, arguments),
    )


def label(settings: Settings | None) -> str:
    """Settings as text: 'lam=0.1 smoothing=sample'."""
    if settings is None:
        return "plain"
    return " ".join(f"{key}={value}" for key, value in settings.items())


def print_table(name: str, rate: float, rows: dict[str, list[dict[str, Any]]]) -> None:
    """Mean (deviation) over the seeds, and the paired difference to the plain loss."""
    wrapper = "gradient rescaling" if name in RESCALED else "SuperLoss"
    print(f"\n{name}, {wrapper}, {rate:.0%} noise, {len(rows['plain'])} seeds\n")
    columns = " | ".join(f"{title} | minus plain (s.e., lower 95 %)" for _, title, _ in MEASURES)
    print(f"| settings | {columns} | s |")
    print("|:--|--:|--:|--:|--:|--:|")
    for text, own in rows.items():
        cells = []
        for key, _, digits in MEASURES:
            found, plain = column(own, key), column(rows["plain"], key)
            spread = found.std(ddof=1) if len(found) > 1 else float("nan")
            cells.append(f"{found.mean():.{digits}f} ({spread:.{digits}f})")
            mean, error, low = paired(found, plain)
            against = f"{mean:+.{digits}f} ({error:.{digits}f}, {low:+.{digits}f})"
            cells.append("" if text == "plain" else against)
        seconds = column(own, "seconds").mean()
        print(f"| {text} | {' | '.join(cells)} | {seconds:.0f} |")
    print(flush=True)


def print_best(name: str, tables: list[dict[str, list[dict[str, Any]]]]) -> None:
    """The settings with the largest mean gain over all rates: what to put into `CHOSEN`."""
    gains = {
        text: np.mean(
            [
                column(rows[text], "recall").mean() - column(rows["plain"], "recall").mean()
                for rows in tables
            ]
        )
        for text in tables[0]
    }
    best = max((text for text in gains if text != "plain"), key=lambda text: gains[text])
    print(f"{name}: best on held-out training characters: {best} ({gains[best]:+.1f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", help="cache folder of the rendered glyphs")
    parser.add_argument("--out", default="runs/wrappers")
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=LOSSES)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.3, 0.5])
    parser.add_argument("--seeds", type=at_least(1), default=5)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--validation", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.losses:
        tables = []
        for rate in arguments.rates:
            tried = GRID[name] if arguments.validation else [CHOSEN[name]]
            rows: dict[str, list[dict[str, Any]]] = {}
            for seed in range(arguments.seeds):
                for settings in [None, *tried]:
                    run = one_run(name, settings, rate, seed, arguments)
                    rows.setdefault(label(settings), []).append(run)
            print_table(name, rate, rows)
            tables.append(rows)
        if arguments.validation:
            print_best(name, tables)


if __name__ == "__main__":
    end(main)
