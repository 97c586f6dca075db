"""A whole round of the automatic curriculum against a whole epoch of plain multi-similarity.

The glyphs, 16 x 4 batches.  A round is what stands in the curriculum's place of an epoch: the steps
over the rows it keeps, their embeddings, statistics and weights.  Of wrong labels it leaves rows
out, so a round has fewer steps than a plain epoch; trainings are compared at the same number of
steps, though, so each measurement is printed twice:

    a round against an epoch    whole against whole, as they are
    per step                    both for the steps of a plain epoch: what a training pays

With clean labels no row is left out and both are the same.  Labels are judged after every round
that is measured, as they are while weights move.  Once these rest, every k-th round is judged,
which has lines of its own, with a bar:

    at rest                     k rounds, one of them judged, against a plain epoch before and after

The curriculum is told that its weights rest, before each k rounds, so the lines need no training to
its end.  The details say what share of the rows was kept and what embeddings and statistics took.

On a CPU: the small network on all training glyphs of 24 px, and a ResNet-18 on some of 3 x 64 x 64,
one thread, whose own clock leaves out what others do on the machine.  On CUDA: a ResNet-50 on
glyphs of 3 x 128 x 128 that lie on the device, in bfloat16, channels last.  Weights are random: how
a network got its weights takes no time in a step.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from training import make_trainer

import bspml
from bspml.data.sets.glyphs import Glyphs
from bspml.networks import SmallConvNet, build_network
from bspml.trainers.alternating import AlternatingTrainer
from bspml.trainers.settings import COLLECTED_EVERY, AutoSettings
from speed.measuring import Peak, Row, row

BARS = {
    "fresh": ("<= 1.35 x plain, embeddings computed afresh", 1.35),
    "collected": ("<= 1.05 x plain, embeddings collected during training", 1.05),
}
EVERY = {"fresh": AutoSettings().judge_every, "collected": COLLECTED_EVERY}  # the defaults
FACES = 16  # images of each glyph
BATCH = 64


@dataclass(frozen=True)
class Case:
    """A network, its images, and the share of wrong labels.

    Attributes:
        name: of the network, for the table.
        build: makes the network.
        channels, size: of the images.
        classes: glyphs to train on, at most 256.
        turns: rounds measured, after one that is not.
        cycles: of rounds at rest, each from one judgement to the next.
        noise: share of wrong labels.
        device: where everything is computed, and where the images lie.
        step: options of `StepTrainer`.
    """

    name: str
    build: Callable[[], nn.Module]
    channels: int
    size: int
    classes: int
    turns: int
    cycles: int
    noise: float = 0.3
    device: str = "cpu"
    step: dict[str, Any] = field(default_factory=dict)


class Epoch(NamedTuple):
    """One round, or plain epoch; or the mean of several.

    Attributes:
        seconds: of the whole.
        per_epoch: the same for the steps of a plain epoch.
        kept: share of the rows that could be sampled.
        embeddings, statistics: seconds of these parts; the weight solve counts as statistics.
    """

    seconds: float
    per_epoch: float
    kept: float
    embeddings: float
    statistics: float

    @classmethod
    def mean(cls, epochs: list[Epoch]) -> Epoch:
        """Of rounds that follow one another."""
        return cls(*map(statistics.mean, zip(*epochs, strict=True)))


def measure_epochs(quick: bool) -> list[Row]:
    """The lines of a CPU."""
    return measure_epochs_on("cpu", quick)


def measure_epochs_on(device: str, quick: bool) -> list[Row]:
    """Four lines for each network, share of wrong labels, and way to the embeddings."""
    cases = cases_on(device, quick)
    with one_thread() if device == "cpu" else everything_ready():
        return [line for case in cases for line in measure_case(case)]


def cases_on(device: str, quick: bool) -> list[Case]:
    """What is measured on a "cpu" or on "cuda"."""
    if device == "cpu":
        resnet = partial(build_network, "torchvision:resnet18")
        if quick:
            kinds = [
                Case("small network", small_network, 1, 24, classes=40, turns=1, cycles=1),
                Case("ResNet-18", resnet, 3, 32, classes=20, turns=1, cycles=1),
            ]
        else:
            kinds = [
                Case("small network", small_network, 1, 24, classes=256, turns=7, cycles=5),
                Case("ResNet-18", resnet, 3, 64, classes=64, turns=3, cycles=2),
            ]
    else:
        classes, turns = (40, 1) if quick else (160, 3)
        resnet = partial(build_network, "torchvision:resnet50")
        step = {"precision": "bfloat16", "channels_last": True}
        kinds = [
            Case("ResNet-50, GPU", resnet, 3, 128, classes, turns, turns, device=device, step=step)
        ]
    return [replace(kind, noise=noise) for kind in kinds for noise in (0.3, 0.0)]


def small_network() -> nn.Module:
    """The one for glyphs of 24 px."""
    return SmallConvNet(embedding_size=64)


def measure_case(case: Case) -> list[Row]:
    """Eight lines: with fresh and with collected embeddings, while weights move and at rest."""
    trainers = {kind: make(kind, case) for kind in ("plain", *BARS)}
    first = {kind: an_epoch(trainer) for kind, trainer in trainers.items()}
    with Peak() as peak:
        found = in_turn(trainers, case.turns)
        rested = {kind: at_rest(kind, trainers["plain"], case) for kind in BARS}
    memory = peak.highest
    if case.device != "cpu":
        memory = torch.cuda.max_memory_allocated()
    rows: list[Row] = []
    for kind in BARS:
        rows += lines(case, kind, found, first, memory / 1e6)
        rows += lines(case, kind, rested[kind], first, memory / 1e6, at_rest=True)
    return rows


def in_turn(trainers: dict[str, AlternatingTrainer], turns: int) -> dict[str, list[Epoch]]:
    """Of each trainer its next rounds."""
    found: dict[str, list[Epoch]] = {kind: [] for kind in trainers}
    for _ in range(turns):
        for kind, trainer in trainers.items():
            found[kind].append(an_epoch(trainer))
    return found


def at_rest(kind: str, plain: AlternatingTrainer, case: Case) -> dict[str, list[Epoch]]:
    """Turns of as many rounds as pass from one judgement to the next, plain epochs around them."""
    trainer = make(kind, case, judge_every=EVERY[kind])
    an_epoch(trainer)
    found: dict[str, list[Epoch]] = {kind: [], "plain": []}
    before = an_epoch(plain)
    for _ in range(case.cycles):
        let_rest(trainer.curriculum)
        rounds = [an_epoch(trainer) for _ in range(EVERY[kind])]
        after = an_epoch(plain)
        found[kind].append(Epoch.mean(rounds))
        found["plain"].append(Epoch.mean([before, after]))
        before = after
    return found


def let_rest(curriculum: bspml.SelfPacedCurriculum) -> None:
    """Tell it that the last judgements moved hardly a weight."""
    state = curriculum.state_dict()
    state["update"]["pace"] = {"waited": 0, "resting": 2}
    curriculum.load_state_dict(state)


def lines(
    case: Case,
    kind: str,
    found: dict[str, list[Epoch]],
    first: dict[str, Epoch],
    peak_mb: float,
    at_rest: bool = False,
) -> tuple[Row, Row]:
    """A round against an epoch, and the same per step; the bars are for weights at rest."""
    bar, limit = BARS[kind] if at_rest else ("", None)
    name = f"epoch, {case.name}, {case.noise:.0%} wrong labels, {kind} embeddings"
    name += f", at rest (every {EVERY[kind]})" * at_rest

    def both(figure: str) -> dict[str, list[float]]:
        sides = {"ours": found[kind], "reference": found["plain"]}
        return {side: [getattr(epoch, figure) for epoch in these] for side, these in sides.items()}

    def median(figure: str) -> float:
        return statistics.median(both(figure)["ours"])

    per_step = row(f"{name}: per step", bar, both("per_epoch"), limit)
    whole = row(
        f"{name}: a round against an epoch",
        bar,
        both("seconds"),
        limit,
        peak_mb,
        per_step_ratio=per_step["ratio"],
        kept=median("kept"),
        embeddings_s=median("embeddings"),
        statistics_s=median("statistics"),
        first_round_s=first[kind].seconds,
        first_plain_epoch_s=first["plain"].seconds,
    )
    return whole, per_step


def make(kind: str, case: Case, judge_every: int = 1) -> AlternatingTrainer:
    """A trainer of its own network: "plain", or automatic with embeddings of that kind."""
    torch.manual_seed(0)
    glyphs, rows = Glyphs("train", image_size=case.size), case.classes * FACES
    images = glyphs.images[:rows].expand(-1, case.channels, -1, -1).contiguous().to(case.device)
    noisy = bspml.noise.symmetric(glyphs.labels[:rows], rate=case.noise, seed=0)
    weights = bspml.SampleWeights(noisy.labels)
    curriculum, options = None, {}
    if kind != "plain":
        curriculum = bspml.SelfPacedCurriculum(weights, warmup="features", judge_every=judge_every)
        options = {"embeddings": kind}
    return make_trainer(
        case.build(), images, weights, curriculum, device=case.device, step=case.step, **options
    )


def an_epoch(trainer: AlternatingTrainer) -> Epoch:
    """Go on by one round."""
    trainer.trainer.end_of_epoch_hook = lambda _: False  # stop after this round
    steps, begin = trainer.steps, time.perf_counter()
    (record,) = trainer.train(10**6)
    if torch.device(trainer.trainer.data_device).type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    rows = len(trainer.trainer.dataset)
    per_epoch = seconds * (rows // BATCH) / (trainer.steps - steps)
    update = record.curriculum
    judged = 0.0 if update is None else update.seconds_statistics + update.seconds_solve
    kept = trainer.sampler.num_usable / rows
    return Epoch(seconds, per_epoch, kept, record.seconds_embed, judged)


@contextmanager
def one_thread() -> Iterator[None]:
    """Steps of a small network are shorter than the time two threads wait for each other.

    The clock of everything inside, the trainer's too, is the processor's.
    """
    threads, clock = torch.get_num_threads(), time.perf_counter
    torch.set_num_threads(1)
    time.perf_counter = time.process_time
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        time.perf_counter = clock


@contextmanager
def everything_ready() -> Iterator[None]:
    """The device's work before the block is done, and its peak memory is the block's."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    yield
