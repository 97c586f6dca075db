"""What the audit finds on Omniglot: wrong labels, copies, merged and split classes.

    python benchmarks/audit_omniglot.py --root DATA --cache CACHE [--seeds 5]

OMNIGLOT has labels.csv (path, class_name, alphabet, split).  A small network is trained by plain
multi-similarity on the background alphabets (about a minute) and embeds the 659 characters of the
evaluation alphabets, which it never saw; the audit looks at these.  Network and pixels are kept in
CACHE.

Flips: the labels of a share of the samples are redrawn among the other classes, or become the class
of nearest centroid within the alphabet; columns: estimate, interval, upper bound, share of the
wrong labels for which the right one is suggested (and for which it is the best other class), AUROC
of the margin, precision and recall of weight 0.
Copies: 100 samples are encoded as JPEG of quality 60, or resized to 80 px and back, or shifted by
up to 2 of 105 px, and given another class's label; pairs found, other pairs reported, and how many
of these join different true classes.
Classes: 20 pairs of classes (of any alphabet, or of one) are merged and 20 others split at random;
recall of both flags, and the share of the remaining classes that get them.
"""

from __future__ import annotations

import argparse
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from command import at_least, end
from data_folders import read_rows
from local_data import named_after, stored
from PIL import Image
from pytorch_metric_learning.losses import MultiSimilarityLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from sklearn.metrics import roc_auc_score

import bspml
from bspml.data.sampler import PKSampler
from bspml.files.atomic import atomic_write
from bspml.networks import build_network, embed

SIDE = 28
STEPS = 1500


def read_pixels(image: Image.Image) -> np.ndarray:
    """Ink in [0, 255] at SIDE x SIDE, uint8."""
    ink = image.convert("L").point(lambda v: 255 - v)
    return np.asarray(ink.resize((SIDE, SIDE), Image.Resampling.BOX))


def as_images(pixels: np.ndarray) -> torch.Tensor:
    """(N, 1, SIDE, SIDE) in [0, 1]."""
    return torch.from_numpy(pixels)[:, None].float() / 255


def train_network(pixels: np.ndarray, labels: np.ndarray, seed: int = 0) -> torch.nn.Module:
    """Small network, plain multi-similarity, P x K batches of 32 x 4."""
    network = build_network("small-conv", 128, seed=seed)
    sampler = PKSampler(
        torch.from_numpy(labels), classes_per_batch=32, samples_per_class=4,
        batches_per_epoch=STEPS, seed=seed,
    )  # fmt: skip
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, STEPS)
    loss_of, miner = MultiSimilarityLoss(alpha=2, beta=50, base=0.5), MultiSimilarityMiner(0.1)
    images, targets = as_images(pixels), torch.from_numpy(labels)
    for rows in sampler:
        embeddings = network(images[rows])
        loss = loss_of(embeddings, targets[rows], miner(embeddings, targets[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return network.eval()


@dataclass(frozen=True)
class Omniglot:
    """Evaluation characters: features, true classes, alphabets of the classes, files, network."""

    features: np.ndarray
    classes: np.ndarray
    alphabets: np.ndarray  # (C,)
    paths: list[Path]
    network: torch.nn.Module


def load(root: Path, cache: Path) -> Omniglot:
    """Read the images and train the network, each once."""
    folder, rows = read_rows(root, "omniglot")
    paths = [folder / r["path"] for r in rows]
    pixels = stored(
        cache / f"pixels{SIDE}.npy",
        paths,
        lambda: np.stack([read_pixels(Image.open(path)) for path in paths]),
    )
    background = np.array([r["split"] == "train" for r in rows])
    names, labels = np.unique([r["class_name"] for r in rows], return_inverse=True)
    network = build_network("small-conv", 128)
    train_on = np.unique(labels[background], return_inverse=True)[1]
    weights = named_after(cache / "network.pt", pixels[background], train_on)
    if not weights.exists():
        state = train_network(pixels[background], train_on).state_dict()
        atomic_write(weights, lambda out: torch.save(state, out))
    network.load_state_dict(torch.load(weights, weights_only=True))
    seen = np.flatnonzero(~background)
    present, classes = np.unique(labels[seen], return_inverse=True)
    return Omniglot(
        features=embed(network, as_images(pixels[seen])).numpy(),
        classes=classes,
        alphabets=np.array([names[c].split("/")[0] for c in present]),
        paths=[paths[i] for i in seen],
        network=network,
    )


# --- flips ----------------------------------------------------------------------------------------


def nearest_in_alphabet(data: Omniglot) -> np.ndarray:
    """(C,) class of nearest centroid within the alphabet."""
    unit = data.features / np.linalg.norm(data.features, axis=1, keepdims=True)
    centroids = np.stack([unit[data.classes == c].mean(0) for c in range(len(data.alphabets))])
    centroids -= centroids.mean(0)
    centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
    similar = centroids @ centroids.T - 9 * (data.alphabets[:, None] != data.alphabets)
    np.fill_diagonal(similar, -99)
    return similar.argmax(1)


def flips(data: Omniglot, kind: str, rate: float, seed: int) -> list[float]:
    """One audit of planted wrong labels, in the order of the columns."""
    rng = np.random.default_rng(seed)
    true, count = data.classes, len(data.alphabets)
    wrong = rng.random(len(true)) < rate
    labels = true.copy()
    if kind == "random":
        labels[wrong] = (true[wrong] + rng.integers(1, count, wrong.sum())) % count
    else:
        labels[wrong] = nearest_in_alphabet(data)[true[wrong]]
    report = bspml.audit(data.features, labels)
    flagged = report.flagged
    return [
        wrong.mean(), report.noise_rate, *report.interval, report.upper_bound,
        (report.suggested_labels == true)[wrong].mean() if wrong.any() else np.nan,
        (report.other_labels == true)[wrong].mean() if wrong.any() else np.nan,
        roc_auc_score(wrong, report.margins) if wrong.any() else np.nan,
        wrong[flagged].mean() if flagged.any() else np.nan,
        flagged[wrong].mean() if wrong.any() else np.nan,
    ]  # fmt: skip


# --- copies ---------------------------------------------------------------------------------------


def changed(image: Image.Image, kind: str, rng: np.random.Generator) -> Image.Image:
    """A copy that is not the same bytes."""
    image = image.convert("L")
    if kind == "jpeg":
        content = io.BytesIO()
        image.save(content, "JPEG", quality=60)
        return Image.open(content)
    if kind == "resized":
        return image.resize((80, 80)).resize(image.size)
    shift = (0, 0)
    while shift == (0, 0):
        shift = tuple(rng.integers(-2, 3, 2).tolist())
    return Image.fromarray(np.roll(np.asarray(image), shift, (0, 1)))


def copies(data: Omniglot, seed: int) -> list[float]:
    """Pairs found of 100, those under different labels, other pairs, of different classes."""
    rng = np.random.default_rng(seed)
    sources = rng.choice(len(data.paths), 100, replace=False)
    kinds = [("jpeg", "resized", "shifted")[i % 3] for i in range(100)]
    pixels = [
        read_pixels(changed(Image.open(data.paths[i]), kind, rng))
        for i, kind in zip(sources, kinds, strict=True)
    ]
    features = embed(data.network, as_images(np.stack(pixels))).numpy()
    count = len(data.alphabets)
    others = (data.classes[sources] + rng.integers(1, count, 100)) % count
    n = len(data.paths)
    report = bspml.audit(
        np.concatenate([data.features, features]), np.concatenate([data.classes, others])
    )
    table = report.duplicates
    planted = {(int(source), n + i) for i, source in enumerate(sources)}
    pairs = list(zip(table["first"], table["second"], strict=True))
    found = planted & set(pairs)
    true = np.concatenate([data.classes, data.classes[sources]])
    false = [pair for pair in pairs if pair not in planted]
    return [
        len(found),
        *(sum(kinds[b - n] == kind for _, b in found) for kind in ("jpeg", "resized", "shifted")),
        len(false),
        sum(true[a] != true[b] for a, b in false),
    ]


# --- classes --------------------------------------------------------------------------------------


def merged_and_split(data: Omniglot, within: bool, rate: float, seed: int) -> list[float]:
    """Recall and false flags of "looks like two", then of "looks the same as"."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.alphabets)).tolist()
    merged, split = [], []
    while len(merged) < 20:
        first = order.pop(0)
        partners = [c for c in order if not within or data.alphabets[c] == data.alphabets[first]]
        if partners:
            order.remove(partners[0])
            merged.append((first, partners[0]))
    labels = data.classes.copy()
    for first, second in merged:
        labels[labels == second] = first
    for new, c in enumerate(order[:20], len(data.alphabets)):
        members = rng.permutation(np.flatnonzero(labels == c))
        labels[members[: len(members) // 2]] = new
        split += [c, new]
    wrong = rng.random(len(labels)) < rate
    labels[wrong] = rng.choice(np.unique(labels), wrong.sum())
    found = bspml.audit(data.features, labels).classes
    is_merged = np.isin(found["label"], [first for first, _ in merged])
    is_split = np.isin(found["label"], split)
    two, same = found["looks_like_two"].to_numpy(), (found["looks_like"] != "").to_numpy()
    rest = ~is_merged & ~is_split
    return [two[is_merged].mean(), two[rest].mean(), same[is_split].mean(), same[rest].mean()]


def row(*cells: object) -> None:
    """A line of a Markdown table."""
    shown = [f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells]
    print("| " + " | ".join(shown) + " |", flush=True)


def main() -> None:
    """Print the three tables, means over seeds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--seeds", type=at_least(1), default=5)
    options = parser.parse_args()
    data = load(options.root, options.cache)
    seeds = range(options.seeds)
    row("flips", "truth", "estimate", "low", "high", "upper", "suggested right", "best other right",
        "AUROC", "precision", "recall")  # fmt: skip
    row(*["---"] * 11)
    kinds = [("random", r) for r in (0.0, 0.05, 0.1, 0.2, 0.3, 0.5)]
    for kind, rate in [*kinds, ("nearest", 0.1), ("nearest", 0.3)]:
        runs = [flips(data, kind, rate, seed) for seed in (seeds if rate else seeds[:1])]
        row(f"{kind} {rate:g}", *np.mean(runs, 0).tolist())
    print()
    row("copies, seed", "found of 100", "jpeg of 34", "resized of 33", "shifted of 33",
        "other pairs", "of different classes")  # fmt: skip
    row(*["---"] * 7)
    for seed in seeds:
        row(seed, *copies(data, seed))
    print()
    row("classes", "two: recall", "two: false", "same: recall", "same: false", "worst seed")
    row(*["---"] * 6)
    for within, rate in ((False, 0.0), (True, 0.0), (False, 0.3), (True, 0.3)):
        runs = np.array([merged_and_split(data, within, rate, seed) for seed in seeds])
        worst = f"{runs[:, 0].min():.2f} {runs[:, 1].max():.3f} "
        worst += f"{runs[:, 2].min():.3f} {runs[:, 3].max():.3f}"
        title = f"{'one alphabet' if within else 'any alphabet'}, noise {rate:g}"
        row(title, *runs.mean(0).tolist(), worst)


if __name__ == "__main__":
    end(main)
