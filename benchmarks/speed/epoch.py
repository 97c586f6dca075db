"""A whole epoch of the automatic curriculum against one of plain multi-similarity.

The glyphs, 30 % of their labels wrong, a small network on 16 x 4 batches.  An epoch of the
curriculum is a round: the steps over the rows it keeps, their embeddings, statistics and weights.
It has fewer steps than a plain one, so seconds are scaled to the steps of a plain epoch; the
details give them as they were, and what the update before the first step took.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from training import make_trainer

import bspml
from bspml.data.glyphs import Glyphs
from bspml.networks import SmallConvNet
from bspml.trainers import AlternatingTrainer
from speed.measuring import Peak, Row, row

FRESH = "<= 1.35 x plain, embeddings computed afresh"
COLLECTED = "<= 1.05 x plain, embeddings collected during training"


def measure_epochs(quick: bool) -> list[Row]:
    """Two lines; one thread, with which this network trains fastest."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainers = {name: make(name, quick) for name in ("plain", "fresh", "collected")}
        first = {name: an_epoch(trainer)() for name, trainer in trainers.items()}
        with Peak() as peak:
            found = in_turn(trainers, 1 if quick else 7)
    finally:
        torch.set_num_threads(threads)
    lines = []
    for name, bar, limit in (("fresh", FRESH, 1.35), ("collected", COLLECTED, 1.05)):
        both = {"ours": found[name][0], "reference": found["plain"][0]}
        raw = {"ours": found[name][1], "reference": found["plain"][1]}
        line = row(f"epoch, {name} embeddings", bar, both, limit, peak.highest / 1e6)
        line["details"] = {
            "unscaled_ratio": row("", "", raw, None)["ratio"],
            "first_epoch_s": first[name][1],
            "first_plain_epoch_s": first["plain"][1],
            "maw": trainers[name].curriculum.weights.maw(),
        }
        lines.append(line)
    return lines


def in_turn(
    trainers: dict[str, AlternatingTrainer], epochs: int
) -> dict[str, tuple[list[float], list[float]]]:
    """Of each trainer its epochs' seconds, scaled and as they were."""
    found: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in trainers}
    for _ in range(epochs):
        for name, trainer in trainers.items():
            scaled, seconds = an_epoch(trainer)()
            found[name][0].append(scaled)
            found[name][1].append(seconds)
    return found


def make(name: str, quick: bool) -> AlternatingTrainer:
    """A trainer of its own network, plain or under the automatic curriculum."""
    torch.manual_seed(0)
    glyphs = Glyphs("train")
    images, true = glyphs.images, glyphs.labels
    if quick:
        images, true = images[:640], true[:640]
    noisy = bspml.noise.symmetric(true, rate=0.3, seed=0)
    weights = bspml.SampleWeights(noisy.labels)
    network = SmallConvNet(embedding_size=64)
    curriculum = None
    if name != "plain":
        curriculum = bspml.SelfPacedCurriculum(weights, preset="auto", warmup="features")
    options = {} if name == "plain" else {"embeddings": name}
    return make_trainer(network, images, weights, curriculum, **options)


def an_epoch(trainer: AlternatingTrainer) -> Callable[[], tuple[float, float]]:
    """A call that goes on by one round; gives its seconds per plain epoch's steps, and in all."""
    trainer.trainer.end_of_epoch_hook = lambda _: False  # stop after this round

    def call() -> tuple[float, float]:
        steps, begin = trainer.steps, time.perf_counter()
        trainer.train(10**6)
        seconds = time.perf_counter() - begin
        return seconds * (len(trainer.trainer.dataset) // 64) / (trainer.steps - steps), seconds

    return call
