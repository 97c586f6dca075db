"""A whole epoch of the automatic curriculum against one of plain multi-similarity.

The glyphs, 30 % of their labels wrong, a small network on 16 x 4 batches: equally many optimiser
steps each.  With the curriculum come its update before the first step (from the untrained
network's embeddings), and after every round embeddings, statistics and two solves; a round visits
only the rows it keeps, so there are more rounds.  Everything is counted.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from training import make_trainer

import bspml
from bspml.data.glyphs import Glyphs
from bspml.networks import SmallConvNet
from bspml.trainers import AlternatingTrainer
from speed.measuring import Peak, Row, alternate, row

FRESH = "<= 1.35 x plain, embeddings computed afresh"
COLLECTED = "<= 1.05 x plain, embeddings collected during training"


def measure_epochs(quick: bool) -> list[Row]:
    """Two lines; one thread, with which this network trains fastest."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        trainers = {name: make(name, quick) for name in ("plain", "fresh", "collected")}
        with Peak() as peak:
            seconds = alternate(
                {name: an_epoch_more(trainer) for name, trainer in trainers.items()},
                1 if quick else 6,
                0,  # the first epoch, with the update before it, counts
            )
    finally:
        torch.set_num_threads(threads)
    lines = []
    for name, bar, limit in (("fresh", FRESH, 1.35), ("collected", COLLECTED, 1.05)):
        both = {"ours": seconds[name], "reference": seconds["plain"]}
        total = sum(seconds[name]) / sum(seconds["plain"])
        line = row(f"epoch, {name} embeddings", bar, both, limit, peak.highest / 1e6)
        line["details"] = {
            "all_epochs_ratio": total,
            "seconds": seconds[name],
            "rounds": trainers[name].round,
            "maw": trainers[name].curriculum.weights.maw(),
        }
        line["met"] = line["met"] and total <= limit
        lines.append(line)
    return lines


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


def an_epoch_more(trainer: AlternatingTrainer) -> Callable[[], None]:
    """A call that goes on by one epoch's worth of steps each time."""
    done = [0]

    def call() -> None:
        done[0] += 1
        trainer.train(done[0])

    return call
