"""Where the time of an epoch goes: data, forward, mining and loss, backward, optimiser, and so on.

The glyphs under the automatic curriculum with fresh embeddings, evaluated after every round.  The
parts are timed by clocks put around the trainer's own methods; "statistics" is what the curriculum
does beside the solve, and "rest" what no clock saw.  One table, as Markdown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

import bspml
from bspml.data.sets.glyphs import Glyphs
from bspml.networks import embed
from bspml.trainers.curriculum import quadratic
from speed.epoch import an_epoch, cases_on, make, one_thread
from speed.measuring import Row

PARTS = {
    "data": "data",
    "forward": "forward",
    "loss": "mining + loss",
    "backward": "backward",
    "optimiser": "optimiser",
    "embeddings": "embeddings of the training set",
    "statistics": "statistics and noise rate",
    "solve": "weight solve",
    "evaluation": "evaluation (embeddings, Recall@K)",
    "rest": "rest",
}


class Clock:
    """Seconds by part; a part inside another takes its seconds from it."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._running: list[str] = []
        self._since = time.perf_counter()

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time on the account of `part`."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._book()
            self._running.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self._book()
                self._running.pop()

        return timed

    def _book(self) -> None:
        now = time.perf_counter()
        if self._running:
            self.seconds[self._running[-1]] += now - self._since
        self._since = now


def measure_profile(quick: bool) -> list[Row]:
    """One line whose details hold the seconds by part, and the table."""
    solve = quadratic.age_for_maw
    try:
        with one_thread():
            seconds, rounds = _train(1 if quick else 4, quick)
    finally:
        quadratic.age_for_maw = solve
    total = sum(seconds.values())
    shares = {part: value / total for part, value in seconds.items()}
    lines = ["| part of an epoch | s | share |", "|:--|--:|--:|"]
    lines += [f"| {PARTS[part]} | {seconds[part]:.3f} | {shares[part]:.1%} |" for part in PARTS]
    return [
        {
            "row": "profile of an epoch",
            "bar": "",
            "ours_s": total,
            "met": None,
            "details": {"seconds": seconds, "rounds": rounds, "table": "\n" + "\n".join(lines)},
        }
    ]


def _train(epochs: int, quick: bool) -> tuple[dict[str, float], int]:
    """Seconds by part of one epoch on average, after the update before the first step."""
    trainer = make("fresh", cases_on("cpu", quick)[0])
    an_epoch(trainer)  # first calls, and the first update
    clock, inner = Clock(), trainer.trainer
    inner.get_batch = clock.around("data", inner.get_batch)
    inner.compute_embeddings = clock.around("forward", inner.compute_embeddings)
    loss = inner.loss_funcs["metric_loss"]
    loss.forward = clock.around("loss", loss.forward)
    inner.backward = clock.around("backward", inner.backward)
    inner.step_optimizers = clock.around("optimiser", inner.step_optimizers)
    trainer.embed = clock.around("embeddings", trainer.embed)
    trainer.curriculum.update = clock.around("statistics", trainer.curriculum.update)
    quadratic.age_for_maw = clock.around("solve", quadratic.age_for_maw)
    trainer.evaluate = clock.around("evaluation", _evaluation(inner.models["trunk"], quick))
    for _ in range(epochs):
        clock.around("rest", an_epoch)(trainer)
    return {part: s / epochs for part, s in clock.seconds.items()}, epochs


def _evaluation(network: torch.nn.Module, quick: bool) -> Callable[[bool], dict[str, Any]]:
    glyphs = Glyphs("test")
    rows = slice(640 if quick else None)

    def evaluate(last: bool) -> dict[str, Any]:
        found = bspml.evaluate(
            embed(network, glyphs.images[rows]), glyphs.labels[rows], clustering=False
        )
        return found.recall_at_k

    return evaluate
